//! A session with a fake world around it: virtual time, a registry that always grants, an agent
//! with manners, and a reaper that does what it is told.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse_messages::{
    Activity, ActivityKind, AgentStatus, Ask, AskKind, BootedIdentity, ChildExited, Conversation,
    Delivered, DeliveryResult, EndReport, ExitStatus, HoldId, HoldLifted, HoldTaken, IdleTick,
    Incarnation, LaunchFailed, Launched, Limit, Limits, MessageId, MessageQueued, MonoTime, Order,
    ProcIdentity, ProcReport, Profile, Progress, ReapReport, ReapRequest, ReapStep, Recipe,
    Refusal, SavedSession, SessionEvent, SessionId, SessionState, StartGranted, StatusChanged,
    Stop, StopHow, Survivor, Task, TaskRoster, TreeEmptied, TurnEnded, TurnOutcome, Wake, Who,
};

use crate::session::{AgentTraits, Session};
use crate::{BackendOrder, Effect, Input, trace};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// What the fake agent and its reaper do when asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    /// The program can be executed.
    pub(super) launches: bool,
    pub(super) gets_ready: bool,
    pub(super) says_cannot_resume: bool,
    pub(super) heeds_interrupt: bool,
    pub(super) heeds_eof: bool,
    pub(super) heeds_term: bool,
    /// False: it sleeps uninterruptibly.
    pub(super) heeds_kill: bool,
    /// A child outlives the agent's exit.
    pub(super) leaves_child: bool,
    pub(super) delivery: DeliveryResult,
    /// The reaper answers.
    pub(super) reaper_answers: bool,
}

pub(super) const OBEDIENT: Manners = Manners {
    launches: true,
    gets_ready: true,
    says_cannot_resume: false,
    heeds_interrupt: true,
    heeds_eof: true,
    heeds_term: true,
    heeds_kill: true,
    leaves_child: false,
    delivery: DeliveryResult::Written,
    reaper_answers: true,
};

/// Ignores everything but SIGKILL.
pub(super) const DEAF: Manners = Manners {
    heeds_interrupt: false,
    heeds_eof: false,
    heeds_term: false,
    ..OBEDIENT
};

pub(super) fn saved(progress: Progress, queued: &[u64]) -> SavedSession {
    SavedSession {
        profile: Profile {
            id: SessionId::from_random(7),
            name: "story".to_owned(),
            recipe: Recipe {
                agent: "fake".parse().unwrap(),
                protocol: "fake".parse().unwrap(),
                argv: Vec::new(),
                cwd: "/".into(),
                env: BTreeMap::new(),
            },
            limits: drowse_messages::LimitOverrides::default(),
            created: drowse_messages::WallTime(0),
        },
        progress,
        queued: queued.iter().copied().map(MessageId).collect(),
        state_since: drowse_messages::WallTime(0),
        last_active: drowse_messages::WallTime(0),
    }
}

pub(super) fn conversation(resumable: bool) -> Conversation {
    Conversation {
        native_id: "native-1".to_owned(),
        path: None,
        resumable,
    }
}

fn identity(pid: i32) -> BootedIdentity {
    BootedIdentity {
        boot_id: "boot".to_owned(),
        process: ProcIdentity::new(pid, 1).unwrap(),
    }
}

fn process(pid: i32) -> ProcReport {
    ProcReport {
        identity: ProcIdentity::new(pid, 1).unwrap(),
        parent: 100,
        name: "fake".to_owned(),
        pss_bytes: 1000,
    }
}

/// The tree of one launch, and how it answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct World {
    pub(super) manners: Manners,
    incarnation: Incarnation,
    agent: bool,
    child: bool,
    in_turn: bool,
    /// Somebody still stands below the keeper, or could.
    pub(super) tree: bool,
    /// What the session asks for is checked; off where the session is lied to.
    pub(super) strict: bool,
}

impl World {
    pub(super) fn new(manners: Manners) -> Self {
        Self {
            manners,
            incarnation: Incarnation::default(),
            agent: false,
            child: false,
            in_turn: false,
            tree: false,
            strict: true,
        }
    }

    /// What comes back for an effect, each with its delay in milliseconds.
    pub(super) fn answer(&mut self, effect: &Effect) -> Vec<(u64, Input)> {
        match effect {
            Effect::AskStart => vec![(0, StartGranted.into())],
            Effect::Launch { incarnation, .. } => self.launch(*incarnation),
            Effect::Tell { incarnation, order } if *incarnation == self.incarnation => {
                self.hear(order)
            }
            Effect::Reap(request) => self.reap(request),
            Effect::Tell { .. }
            | Effect::StartSettled
            | Effect::Settle { .. }
            | Effect::Save(_)
            | Effect::Forget
            | Effect::Publish(_)
            | Effect::Refuse(_)
            | Effect::Sleep => Vec::new(),
        }
    }

    pub(super) fn says(&self, status: AgentStatus) -> Input {
        let incarnation = self.incarnation;
        StatusChanged {
            incarnation,
            status,
        }
        .into()
    }

    fn launch(&mut self, incarnation: Incarnation) -> Vec<(u64, Input)> {
        assert!(
            !(self.strict && self.tree),
            "a launch beside a tree that is still there"
        );
        self.incarnation = incarnation;
        if !self.manners.launches {
            let error = "no such folder".to_owned();
            let retry = true;
            let failed = LaunchFailed {
                incarnation,
                error,
                retry,
            };
            return vec![(10, failed.into())];
        }
        (self.agent, self.tree, self.in_turn) = (true, true, false);
        self.child = self.manners.leaves_child;
        let launched = Launched {
            incarnation,
            agent: identity(101),
            keeper: identity(100),
        };
        let mut answers = vec![(100, launched.into())];
        if self.manners.says_cannot_resume {
            let detail = "no conversation found".to_owned();
            answers.push((200, self.says(AgentStatus::CannotResume { detail })));
        } else if self.manners.gets_ready {
            answers.push((1000, self.says(AgentStatus::Ready)));
        }
        answers
    }

    fn hear(&mut self, order: &BackendOrder) -> Vec<(u64, Input)> {
        match order {
            BackendOrder::Deliver(message) => {
                let (incarnation, result) = (self.incarnation, self.manners.delivery);
                let delivered = Delivered {
                    incarnation,
                    message: *message,
                    result,
                };
                if result == DeliveryResult::Written {
                    self.in_turn = true;
                    let started = self.says(AgentStatus::TurnStarted);
                    vec![(1, delivered.into()), (2, started)]
                } else {
                    vec![(1, delivered.into())]
                }
            }
            BackendOrder::Interrupt if self.manners.heeds_interrupt && self.in_turn => {
                self.in_turn = false;
                vec![(50, self.says(ended(TurnOutcome::Interrupted)))]
            }
            BackendOrder::Close if self.manners.heeds_eof => self.exits(ExitStatus::Code(0)),
            BackendOrder::Dismiss => {
                assert!(!(self.strict && self.tree), "dismissed with somebody left");
                Vec::new()
            }
            BackendOrder::Interrupt
            | BackendOrder::Close
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. } => Vec::new(),
        }
    }

    /// The agent's process ends; the tree with it unless a child stays.
    pub(super) fn exits(&mut self, status: ExitStatus) -> Vec<(u64, Input)> {
        if !self.agent {
            return Vec::new();
        }
        (self.agent, self.in_turn) = (false, false);
        let incarnation = self.incarnation;
        let exited = ChildExited {
            incarnation,
            status: Some(status),
            stderr_tail: "last words".to_owned(),
        };
        let mut answers = vec![(100, exited.into())];
        if !self.child {
            answers.push((110, self.empties()));
        }
        answers
    }

    fn empties(&mut self) -> Input {
        (self.agent, self.child, self.tree) = (false, false, false);
        let incarnation = self.incarnation;
        TreeEmptied { incarnation }.into()
    }

    fn reap(&mut self, request: &ReapRequest) -> Vec<(u64, Input)> {
        let mut pids = Vec::new();
        pids.extend(self.agent.then_some(101));
        pids.extend(self.child.then_some(102));
        let processes: Vec<ProcReport> = pids.into_iter().map(process).collect();
        let mut answers = Vec::new();
        match request.step {
            ReapStep::Terminate if self.manners.heeds_term && self.tree => {
                if self.agent {
                    answers.extend(self.exits(ExitStatus::Signal(15)));
                }
                if self.child {
                    answers.push((120, self.empties()));
                }
            }
            ReapStep::Kill if self.manners.heeds_kill && self.tree => {
                answers.push((3, self.empties()));
            }
            ReapStep::Snapshot | ReapStep::Terminate | ReapStep::Kill | ReapStep::Verify => {}
        }
        if self.manners.reaper_answers {
            answers.push((20, self.report(request, processes).into()));
        }
        answers
    }

    pub(super) fn report(&self, request: &ReapRequest, processes: Vec<ProcReport>) -> ReapReport {
        let survivors = processes
            .iter()
            .filter(|_| request.step == ReapStep::Kill && self.tree)
            .map(|process| Survivor {
                process: process.clone(),
                state: 'D',
                why: "uninterruptible".to_owned(),
            })
            .collect();
        ReapReport {
            session: request.session,
            incarnation: request.incarnation,
            step: request.step,
            processes,
            survivors,
            empty: !self.tree,
            took: Duration::ZERO,
        }
    }
}

pub(super) fn ended(outcome: TurnOutcome) -> AgentStatus {
    AgentStatus::TurnEnded(TurnEnded {
        outcome,
        text: "done".to_owned(),
        answers: true,
    })
}

/// One session's story.
pub(super) struct Story {
    session: Option<Session>,
    pub(super) now: MonoTime,
    pub(super) world: World,
    agenda: BTreeMap<(MonoTime, u64), Input>,
    sequence: u64,
    messages: u64,
    /// Everything it asked for, with the time.
    effects: Vec<(MonoTime, Effect)>,
    lines: Vec<String>,
}

impl Story {
    /// A session that was never started.
    pub(super) fn dormant(manners: Manners) -> Self {
        Self::restored(&saved(Progress::default(), &[]), manners, Limits::default())
    }

    pub(super) fn restored(saved: &SavedSession, manners: Manners, limits: Limits) -> Self {
        let traits = AgentTraits {
            can_resume: true,
            reports_tasks: false,
        };
        Self::with(saved, manners, limits, traits)
    }

    pub(super) fn with(
        saved: &SavedSession,
        manners: Manners,
        limits: Limits,
        traits: AgentTraits,
    ) -> Self {
        let now = MonoTime::from_millis(0);
        Self {
            session: Some(Session::restore(saved, traits, limits, now)),
            now,
            world: World::new(manners),
            agenda: BTreeMap::new(),
            sequence: 0,
            messages: 0,
            effects: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// A session in its first turn, with message 1.
    pub(super) fn working(manners: Manners) -> Self {
        let mut story = Self::dormant(manners);
        story.message();
        story.wait(2 * SECOND);
        story
    }

    /// A session that has answered message 1 and can be resumed. Nothing before is remembered.
    pub(super) fn resting(manners: Manners) -> Self {
        let mut story = Self::working(manners);
        story.says(AgentStatus::Conversation(conversation(true)));
        story.turn_ends();
        story.forget();
        story
    }

    pub(super) fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    pub(super) fn state(&self) -> SessionState {
        self.session().state()
    }

    /// One step; what the world answers comes later.
    pub(super) fn feed(&mut self, input: impl Into<Input>) -> Vec<Effect> {
        let input = input.into();
        let (session, effects) = self.session.take().unwrap().step(&input, self.now);
        self.session = Some(session);
        self.lines.push(trace::line(self.now, &input, &effects));
        for effect in &effects {
            let answers = self.world.answer(effect);
            self.expect(answers);
        }
        self.effects
            .extend(effects.iter().map(|effect| (self.now, effect.clone())));
        effects
    }

    /// Puts what is to come on the agenda.
    pub(super) fn expect(&mut self, answers: Vec<(u64, Input)>) {
        for (delay, input) in answers {
            self.sequence += 1;
            let at = self.now.after(Duration::from_millis(delay));
            self.agenda.insert((at, self.sequence), input);
        }
    }

    /// Lets time pass: answers arrive, and ticks come exactly when they are wanted.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now.after(time);
        loop {
            let tick = self.session().next_deadline();
            let answer = self.agenda.keys().next().map(|(at, _)| *at);
            let next = [tick, answer].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if answer == Some(next) {
                let (_, input) = self.agenda.pop_first().unwrap();
                self.feed(input);
            } else {
                self.feed(IdleTick);
            }
        }
        self.now = end;
    }

    /// Lets time pass in which the daemon does not run.
    pub(super) fn freeze(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    pub(super) fn says(&mut self, status: AgentStatus) -> Vec<Effect> {
        let input = self.world.says(status);
        self.feed(input)
    }

    pub(super) fn turn_ends(&mut self) -> Vec<Effect> {
        self.world.in_turn = false;
        self.says(ended(TurnOutcome::Completed))
    }

    pub(super) fn exits(&mut self, code: i32) {
        let answers = self.world.exits(ExitStatus::Code(code));
        self.expect(answers);
        self.wait(200 * Duration::from_millis(1));
    }

    pub(super) fn roster(&mut self, tasks: &[&str]) {
        let tasks = tasks.iter().map(|id| task(id)).collect();
        let incarnation = self.session().incarnation();
        self.feed(TaskRoster { incarnation, tasks });
    }

    pub(super) fn asks(&mut self, id: &str) {
        self.says(AgentStatus::Asked(Ask {
            id: id.to_owned(),
            kind: AskKind::Approval,
            title: "Bash wants to run rm".to_owned(),
            detail: String::new(),
        }));
    }

    pub(super) fn output(&mut self) {
        let incarnation = Some(self.session().incarnation());
        let kind = ActivityKind::Output("a word".to_owned());
        self.feed(Activity { incarnation, kind });
    }

    /// The next message: 1, 2 ..
    pub(super) fn message(&mut self) -> Vec<Effect> {
        self.messages += 1;
        let message = MessageId(self.messages);
        self.feed(MessageQueued { message })
    }

    pub(super) fn order(&mut self, order: Order) -> Result<(), Refusal> {
        for effect in self.feed(order) {
            if let Effect::Refuse(refusal) = effect {
                return Err(refusal);
            }
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, how: StopHow) -> Result<(), Refusal> {
        let by = Who::Client("me".to_owned());
        self.order(Order::Stop(Stop { how, by }))
    }

    pub(super) fn wake(&mut self, fresh: bool) {
        let by = Who::Client("me".to_owned());
        self.order(Order::Wake(Wake { fresh, by })).unwrap();
    }

    pub(super) fn hold(&mut self, id: u64, ttl: Duration) -> Result<(), Refusal> {
        self.order(Order::TakeHold(HoldTaken {
            id: HoldId(id),
            why: "deploy".to_owned(),
            owner: "ci".to_owned(),
            ttl,
        }))
    }

    pub(super) fn lift(&mut self, id: u64) {
        let id = HoldId(id);
        self.order(Order::LiftHold(HoldLifted { id })).unwrap();
    }

    pub(super) fn limit(&mut self, limits: Limits) {
        self.feed(limits);
    }

    /// Forgets what was asked for so far.
    pub(super) fn forget(&mut self) {
        self.effects.clear();
        self.lines.clear();
    }

    /// What was asked for, in words, without what is only written down or published.
    pub(super) fn done(&self) -> Vec<String> {
        self.words(|word| {
            ![
                "save(",
                "!",
                "sleep",
                "start-settled",
                "ask-start",
                "settle(",
            ]
            .iter()
            .any(|dull| word.starts_with(dull))
        })
    }

    /// Effects whose words begin so.
    pub(super) fn words(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        self.effects
            .iter()
            .map(|(_, effect)| trace::effect_in_words(effect))
            .filter(|word| wanted(word))
            .collect()
    }

    pub(super) fn count(&self, start: &str) -> usize {
        self.words(|word| word.starts_with(start)).len()
    }

    /// When something was first asked for.
    pub(super) fn when(&self, start: &str) -> Option<MonoTime> {
        self.effects
            .iter()
            .find(|(_, effect)| trace::effect_in_words(effect).starts_with(start))
            .map(|(at, _)| *at)
    }

    pub(super) fn trace(&self) -> String {
        self.lines.join("\n")
    }

    /// The events that were published.
    pub(super) fn events(&self) -> impl Iterator<Item = &SessionEvent> {
        self.effects.iter().filter_map(|(_, effect)| {
            if let Effect::Publish(event) = effect {
                Some(event)
            } else {
                None
            }
        })
    }

    /// Why the last process ended, as written down last.
    pub(super) fn reason(&self) -> String {
        self.end()
            .map_or_else(String::new, |end| end.reason.to_string())
    }

    /// The report of the last process, as published.
    pub(super) fn end(&self) -> Option<EndReport> {
        let ends = self.events().filter_map(|event| {
            if let SessionEvent::Released { end } = event {
                Some(EndReport::clone(end))
            } else {
                None
            }
        });
        ends.last()
    }
}

pub(super) fn task(id: &str) -> Task {
    Task {
        id: id.to_owned(),
        kind: "bash".to_owned(),
        description: format!("task {id}"),
        ambient: id.starts_with("ambient"),
    }
}

pub(super) fn after(seconds: u64) -> Limit {
    Limit::After(Duration::from_secs(seconds))
}
