//! A random life as it is lived: each act becomes an input, each step is watched.

use std::time::Duration;

use drowse_messages::{
    Activity, ActivityKind, Adopted, AgentStatus, ChildExited, Delivered, DeliveryResult, EndTask,
    ExitStatus, HostChanged, IdleTick, Incarnation, KeepRule, KeptEnded, LaunchFailed, Limits,
    MessageId, MessageQueued, MonoTime, Order, Progress, ReapReport, SessionId, SessionState,
    StartGranted, StatusChanged, Stop, StopHow, Suspend, TaskRoster, TreeEmptied, TurnOutcome,
    Wake,
};

use super::generate::{Gap, Lie, Life, Setting, TERM_GRACE, What, me};
use super::story::wall;
use super::watch::Watch;
use super::world::{DEAF, OBEDIENT, World, conversation, ended, saved, task};

use crate::session::{AgentTraits, Session, may_be_adopted};
use crate::{Effect, Input, trace};

/// A life being lived, watched at every step.
pub(super) struct Run {
    pub(super) session: Session,
    pub(super) now: MonoTime,
    pub(super) world: World,
    pub(super) watch: Watch,
    pub(super) effects: Vec<Effect>,
    pub(super) log: String,
    owed: Vec<Input>,
    messages: u64,
    traits: AgentTraits,
}

impl Run {
    pub(super) fn new(setting: Setting) -> Self {
        let now = MonoTime::from_millis(1_000_000);
        let saved = saved(Progress::default(), &[]);
        let mut world = World::new(setting.manners);
        world.strict = false;
        let limits = Limits {
            keep: setting
                .keeps
                .then_some(KeepRule::Listen(3000))
                .into_iter()
                .collect(),
            ..Limits::default()
        };
        let mut run = Self {
            session: Session::restore(&saved, setting.traits, limits.clone(), now),
            now,
            world,
            watch: Watch::new(saved, limits, now),
            effects: Vec::new(),
            log: String::new(),
            owed: Vec::new(),
            messages: 0,
            traits: setting.traits,
        };
        if setting.begun {
            run.world.manners = OBEDIENT;
            come_to_rest(&mut run);
            run.says(AgentStatus::Conversation(conversation(true)));
            run.world.manners = setting.manners;
        }
        run
    }

    pub(super) fn live(setting: Setting, life: &Life) -> Self {
        let mut run = Self::new(setting);
        for (gap, what) in &life.0 {
            run.act(gap, what);
        }
        run
    }

    /// Time passes, and something happens.
    pub(super) fn act(&mut self, gap: &Gap, what: &What) {
        let now = self.now;
        self.now = match gap {
            Gap::Forward(ms) => now.after(Duration::from_millis(*ms)),
            Gap::Back(ms) => MonoTime::from_millis(now.as_millis().saturating_sub(*ms)),
            Gap::ToDeadline => self.session.next_deadline().unwrap_or(now).max(now),
        };
        if let Some(input) = self.input(what) {
            self.step(&input);
        }
    }

    pub(super) fn step(&mut self, input: &Input) {
        let before = self.session.clone();
        let (session, effects) = before.clone().at(wall(self.now)).step(input, self.now);
        self.log.push_str(&trace::line(self.now, input, &effects));
        self.log.push('\n');
        self.watch
            .check(&before, input, self.now, &session, &effects);
        for effect in &effects {
            let answers = self.world.answer(effect);
            self.owed
                .extend(answers.into_iter().map(|(_, input)| input));
        }
        self.session = session;
        self.effects.extend(effects);
    }

    /// The next thing the world owes.
    pub(super) fn next_owed(&mut self) -> Option<Input> {
        (!self.owed.is_empty()).then(|| self.owed.remove(0))
    }

    fn says(&mut self, status: AgentStatus) {
        let incarnation = self.session.incarnation();
        self.step(
            &StatusChanged {
                incarnation,
                status,
            }
            .into(),
        );
    }

    fn input(&mut self, what: &What) -> Option<Input> {
        let incarnation = self.session.incarnation();
        Some(match what {
            What::Answer { which, keep } => {
                let which = which.checked_rem(self.owed.len())?;
                // The reaper and the launch answer exactly once.
                let once = matches!(self.owed[which], Input::ReapReport(_) | Input::Launched(_));
                if *keep && !once {
                    self.owed[which].clone()
                } else {
                    self.owed.remove(which)
                }
            }
            What::Tick => IdleTick.into(),
            What::Message(priority) => {
                self.messages += 1;
                let (message, priority) = (MessageId(self.messages), *priority);
                MessageQueued { message, priority }.into()
            }
            What::Again(back) => {
                let message = MessageId(self.messages.saturating_sub(*back));
                if !self.watch.is_open(message) {
                    return None;
                }
                self.watch.queued(message).into()
            }
            What::Order(order) => order.clone().into(),
            What::Status(status) => {
                let status = status.clone();
                StatusChanged {
                    incarnation,
                    status,
                }
                .into()
            }
            What::Roster(count) => {
                let tasks = (0..*count).map(|n| task(&n.to_string())).collect();
                TaskRoster { incarnation, tasks }.into()
            }
            What::Activity { ours } => Activity {
                incarnation: (!ours).then_some(incarnation),
                kind: ActivityKind::Client,
            }
            .into(),
            What::Host(changed) => (*changed).into(),
            What::Exit => {
                let answers = self.world.exits(ExitStatus::Code(1));
                self.owed
                    .extend(answers.into_iter().map(|(_, input)| input));
                return None;
            }
            What::Keep(ttl) => self.world.keep(ttl.map(Duration::from_secs)).into(),
            What::ServerEnds => {
                let of = self.world.kept.first().copied()?;
                self.world.end_server(of)
            }
            What::Limits(limits) => limits.clone().into(),
            What::Next { prepared, known } => {
                if *prepared {
                    self.step(&Suspend.into());
                }
                return self.next_daemon(*known);
            }
            What::Lie { fact, stale } => {
                let older = Incarnation(incarnation.0.wrapping_sub(1));
                self.lie(fact, if *stale { older } else { incarnation })
            }
        })
    }

    /// The daemon is gone, and another one has the record. What it does about the tree.
    fn next_daemon(&mut self, known: bool) -> Option<Input> {
        let mut saved = self.watch.as_saved();
        if self.watch.is_removed() {
            return None;
        }
        let running = saved.progress.running.take();
        let running = running.filter(|_| may_be_adopted(saved.progress.state) && self.world.tree);
        let of_the_agent = |input: &Input| {
            matches!(
                input,
                Input::StatusChanged(_) | Input::ChildExited(_) | Input::TreeEmptied(_)
            )
        };
        self.owed
            .retain(|input| running.is_some() && of_the_agent(input));
        let awaited = self.watch.awaited();
        let open = self.watch.end_of_daemon(self.now, running.is_some());
        match &running {
            Some(running) => saved.progress.running = Some(running.clone()),
            None => {
                self.world.is_ended();
                if saved.progress.state.is_awake() {
                    saved.progress.state = SessionState::Released;
                }
                self.watch.rewrite(saved.progress.clone());
            }
        }
        let (traits, limits) = (self.traits, self.watch.limits().clone());
        self.session = Session::restore(&saved, traits, limits, self.now);
        let (in_flight, unknown) = if known {
            (open, Vec::new())
        } else {
            (Vec::new(), open)
        };
        let incarnation = saved.progress.incarnation;
        let awaited = awaited.filter(|message| running.is_some() && in_flight.contains(message));
        let on_its_way = awaited.is_some();
        if let Some(message) = awaited {
            self.watch.awaits(incarnation, message);
            let result = DeliveryResult::Written;
            let delivered = Delivered {
                incarnation,
                message,
                result,
            };
            self.owed.push(delivered.into());
        }
        let ages = saved.progress.ages.clone();
        let works = saved.progress.state == SessionState::Working;
        Some(
            Adopted {
                incarnation: saved.progress.incarnation,
                running: running?,
                ages,
                on_its_way,
                in_flight,
                unknown,
                tasks: Some(Vec::new()),
                statuses: works
                    .then_some(AgentStatus::TurnStarted)
                    .into_iter()
                    .collect(),
            }
            .into(),
        )
    }

    fn lie(&self, fact: &Lie, incarnation: Incarnation) -> Input {
        match fact {
            Lie::Granted => StartGranted.into(),
            Lie::LaunchFailed => LaunchFailed {
                incarnation,
                error: "no".to_owned(),
                retry: false,
            }
            .into(),
            Lie::Exited => ChildExited {
                incarnation,
                status: None,
                stderr_tail: String::new(),
            }
            .into(),
            Lie::Emptied => TreeEmptied { incarnation }.into(),
            Lie::KeptEnded => KeptEnded { incarnation }.into(),
            Lie::Reaped(step, empty) => ReapReport {
                session: SessionId::from_random(7),
                incarnation,
                step: *step,
                processes: Vec::new(),
                survivors: Vec::new(),
                kept: Vec::new(),
                empty: *empty,
                took: Duration::ZERO,
            }
            .into(),
            Lie::Delivered(back, result) => Delivered {
                incarnation,
                message: MessageId(self.messages.saturating_sub(*back)),
                result: *result,
            }
            .into(),
            Lie::Ready => StatusChanged {
                incarnation,
                status: AgentStatus::Ready,
            }
            .into(),
        }
    }
}

/// Everything quiets down from here on: the agent ends what it does and then obeys, or never
/// does; nobody asks for anything. Says how long it took until nothing was left to do.
pub(super) fn settle_down(run: &mut Run, obeys: bool) -> Option<Duration> {
    run.world.manners = if obeys { OBEDIENT } else { DEAF };
    run.world.manners.leaves_child = !obeys;
    let limits = Limits {
        term_grace: TERM_GRACE,
        ..Limits::default()
    };
    run.step(&limits.into());
    // A host that is there would have its agent for as long as it likes.
    run.step(&HostChanged::Lost.into());
    let begin = run.now;
    // A place among the starting ones is granted, and a launch answered, without fail.
    for lie in [Lie::Granted, Lie::LaunchFailed] {
        let input = run.lie(&lie, run.session.incarnation());
        run.step(&input);
    }
    calm(run);
    go_on(run, Session::is_asleep).then(|| run.now.since(begin))
}

/// Somebody wants everything ended; says whether nothing is kept afterwards.
pub(super) fn stop_all(run: &mut Run) -> bool {
    run.world.manners.heeds_kill = true;
    run.world.manners.reaper_answers = true;
    let (how, by) = (StopHow::StopAll, me());
    run.step(&Order::Stop(Stop { how, by }).into());
    go_on(run, |session| {
        session.is_asleep() && session.retired().is_empty()
    })
}

/// Brings a session that is asleep to rest. False: it cannot be woken.
pub(super) fn come_to_rest(run: &mut Run) -> bool {
    let (fresh, by) = (false, me());
    run.step(&Order::Wake(Wake { fresh, by }).into());
    go_on(run, |session| session.state() == SessionState::Resting)
}

/// Lets the world answer and time pass until then.
fn go_on(run: &mut Run, until: impl Fn(&Session) -> bool) -> bool {
    for _ in 0..3_000 {
        if until(&run.session) {
            return true;
        }
        if let Some(owed) = run.next_owed() {
            run.step(&owed);
        } else if let Some(status) = last_words(run) {
            run.says(status);
        } else if let Some(deadline) = run.session.next_deadline() {
            run.now = deadline.max(run.now);
            run.step(&IdleTick.into());
        } else {
            return false;
        }
    }
    false
}

/// The agent ends whatever it does besides its turn.
fn calm(run: &mut Run) {
    for name in ["0", "1"] {
        let (id, key) = (name.to_owned(), name.to_owned());
        run.step(&Order::EndTask(EndTask { id: id.clone() }).into());
        run.says(AgentStatus::Settled { id: id.clone() });
        run.says(AgentStatus::Unscheduled { id });
        run.says(AgentStatus::BusyEnded { key });
    }
    let incarnation = run.session.incarnation();
    let tasks = Vec::new();
    run.step(&TaskRoster { incarnation, tasks }.into());
}

/// What an agent says on its way to rest.
fn last_words(run: &Run) -> Option<AgentStatus> {
    let report = run.watch.report(&run.session, run.now);
    let resumable = report.conversation.is_some_and(|known| known.resumable);
    match report.state {
        SessionState::Working | SessionState::NeedsYou => Some(ended(TurnOutcome::Completed)),
        SessionState::Resting if !resumable => Some(AgentStatus::Conversation(conversation(true))),
        SessionState::Resting
        | SessionState::New
        | SessionState::Starting
        | SessionState::Waiting
        | SessionState::Releasing
        | SessionState::Released
        | SessionState::Stopping
        | SessionState::Stopped
        | SessionState::Interrupted
        | SessionState::Failing => None,
    }
}
