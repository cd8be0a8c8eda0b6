//! Random lives of a session: what a world would answer, in any order and at any time, mixed with
//! what people ask for, what an agent may say, and plain lies.

use std::fmt;
use std::time::Duration;

use drowse_messages::{
    Activity, ActivityKind, AgentStatus, Answer, AnswerAsk, Ask, AskKind, Busy, BusyKind,
    ChildExited, Delivered, DeliveryResult, ExitStatus, HoldId, HoldLifted, HoldTaken, IdleTick,
    Incarnation, Interrupt, LaunchFailed, Limit, Limits, MessageId, MessageQueued, MonoTime, Order,
    Progress, ReapReport, ReapStep, SessionId, SessionState, StartGranted, StatusChanged, Stop,
    StopHow, TaskRoster, TreeEmptied, TurnEnded, TurnOutcome, Wake, Who,
};
use proptest::prelude::*;

use super::story::{DEAF, Manners, OBEDIENT, World, after, conversation, ended, saved, task};
use super::watch::Watch;
use crate::session::{AgentTraits, Session};
use crate::{Effect, Input, trace};

/// The only term grace of these lives, so that a kill can be measured against it.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub(super) enum Gap {
    Forward(u64),
    Back(u64),
    ToDeadline,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// Something the world owes; kept, it comes a second time later.
    Answer {
        which: usize,
        keep: bool,
    },
    Tick,
    Message,
    /// A message that is known is announced once more.
    Again(u64),
    Order(Order),
    Status(AgentStatus),
    Roster(u8),
    Activity {
        ours: bool,
    },
    Exit,
    Limits(Limits),
    /// A fact that may be anything, of this launch or of an older one.
    Lie {
        fact: Lie,
        stale: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Lie {
    Granted,
    LaunchFailed,
    Exited,
    Emptied,
    Reaped(ReapStep, bool),
    Delivered(u64, DeliveryResult),
    Ready,
}

/// What happens, and how long after what came before it.
#[derive(Clone)]
pub(super) struct Life(pub(super) Vec<(Gap, What)>);

impl fmt::Debug for Life {
    /// One line each, so that a failure can be read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |act: &(Gap, What)| f.write_str(&format!("\n{act:?}"));
        self.0.iter().try_for_each(&mut line)
    }
}

pub(super) fn lives() -> impl Strategy<Value = (Setting, Life)> {
    let life = prop::collection::vec((gaps(), whats()), 1..80);
    (settings(), life.prop_map(Life))
}

/// What a life begins with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub(super) manners: Manners,
    pub(super) traits: AgentTraits,
    /// It has an agent at rest already.
    begun: bool,
}

fn settings() -> impl Strategy<Value = Setting> {
    let deliveries = prop_oneof![
        6 => Just(DeliveryResult::Written),
        1 => Just(DeliveryResult::NotWritten),
        1 => Just(DeliveryResult::PartlyWritten),
        1 => Just(DeliveryResult::Void),
    ];
    let faults = (0..24_u8, any::<bool>(), any::<bool>(), deliveries);
    (faults, any::<[bool; 4]>()).prop_map(|((fault, child, reports, delivery), deaf)| Setting {
        begun: deaf[3] || fault > 12,
        manners: Manners {
            launches: fault != 0,
            gets_ready: fault != 1,
            says_cannot_resume: fault == 2,
            heeds_interrupt: deaf[0],
            heeds_eof: deaf[1],
            heeds_term: deaf[2],
            heeds_kill: fault != 3,
            leaves_child: child,
            delivery,
            reaper_answers: fault != 4,
        },
        traits: AgentTraits {
            can_resume: fault != 5,
            reports_tasks: reports,
        },
    })
}

fn gaps() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => Just(Gap::Forward(0)),
        6 => (1..300_u64).prop_map(Gap::Forward),
        3 => (1_000..30_000_u64).prop_map(Gap::Forward),
        2 => (60_000..2_400_000_u64).prop_map(Gap::Forward),
        1 => (3_600_000..90_000_000_u64).prop_map(Gap::Forward),
        1 => (1..100_000_u64).prop_map(Gap::Back),
        5 => Just(Gap::ToDeadline),
    ]
}

fn whats() -> impl Strategy<Value = What> {
    prop_oneof![
        16 => Just(What::Answer { which: 0, keep: false }),
        6 => (any::<usize>(), prop::bool::weighted(0.2))
            .prop_map(|(which, keep)| What::Answer { which, keep }),
        8 => Just(What::Tick),
        4 => Just(What::Message),
        1 => (0..8_u64).prop_map(What::Again),
        4 => orders().prop_map(What::Order),
        6 => statuses().prop_map(What::Status),
        2 => (0..4_u8).prop_map(What::Roster),
        2 => any::<bool>().prop_map(|ours| What::Activity { ours }),
        1 => Just(What::Exit),
        1 => limits().prop_map(What::Limits),
        3 => (lies(), any::<bool>()).prop_map(|(fact, stale)| What::Lie { fact, stale }),
    ]
}

fn me() -> Who {
    Who::Client("me".to_owned())
}

fn orders() -> impl Strategy<Value = Order> {
    let hows = prop_oneof![
        6 => Just(StopHow::Release),
        2 => Just(StopHow::Shutdown),
        4 => Just(StopHow::Stop),
        1 => Just(StopHow::Remove),
    ];
    prop_oneof![
        3 => hows.prop_map(|how| Order::Stop(Stop { how, by: me() })),
        3 => any::<bool>().prop_map(|fresh| Order::Wake(Wake { fresh, by: me() })),
        1 => Just(Order::Interrupt(Interrupt { by: me() })),
        1 => names().prop_map(|id| Order::Answer(AnswerAsk { id, answer: Answer::Deny, by: me() })),
        1 => (0..2_u64, 1..7_200_u64).prop_map(|(id, ttl)| Order::TakeHold(HoldTaken {
            id: HoldId(id),
            why: "why".to_owned(),
            owner: "me".to_owned(),
            ttl: Duration::from_secs(ttl),
        })),
        1 => (0..2_u64).prop_map(|id| Order::LiftHold(HoldLifted { id: HoldId(id) })),
    ]
}

fn names() -> impl Strategy<Value = String> {
    (0..2_u8).prop_map(|n| n.to_string())
}

fn statuses() -> impl Strategy<Value = AgentStatus> {
    let outcomes = prop_oneof![
        Just(TurnOutcome::Completed),
        Just(TurnOutcome::Interrupted),
        Just(TurnOutcome::Failed {
            error: "no".to_owned()
        }),
    ];
    let ends = (outcomes, prop::bool::weighted(0.8)).prop_map(|(outcome, answers)| {
        AgentStatus::TurnEnded(TurnEnded {
            outcome,
            text: "done".to_owned(),
            answers,
        })
    });
    prop_oneof![
        4 => Just(AgentStatus::Ready),
        8 => Just(AgentStatus::TurnStarted),
        20 => ends,
        4 => names().prop_map(|key| AgentStatus::BusyStarted(Busy {
            key,
            kind: BusyKind::Command,
            what: String::new(),
        })),
        4 => names().prop_map(|key| AgentStatus::BusyEnded { key }),
        8 => names().prop_map(|id| AgentStatus::Asked(Ask {
            id,
            kind: AskKind::Question,
            title: String::new(),
            detail: String::new(),
        })),
        4 => names().prop_map(|id| AgentStatus::Settled { id }),
        4 => (names(), 0..7_200_u64).prop_map(|(id, due)| AgentStatus::Scheduled {
            id,
            what: String::new(),
            due_in: Duration::from_secs(due),
        }),
        4 => names().prop_map(|id| AgentStatus::Unscheduled { id }),
        16 => prop::bool::weighted(0.8).prop_map(|able| {
            AgentStatus::Conversation(conversation(able))
        }),
        1 => Just(AgentStatus::CannotResume { detail: "gone".to_owned() }),
        4 => Just(AgentStatus::Notice { text: "odd".to_owned() }),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let limit = || {
        prop_oneof![
            3 => (1..7_200_u64).prop_map(after),
            1 => Just(Limit::Off),
            1 => Just(Limit::After(Duration::MAX)),
        ]
    };
    (limit(), limit(), limit(), limit()).prop_map(|(idle, hard, task, approval)| Limits {
        idle_after: idle,
        hard_limit: hard,
        task_hold_max: task,
        approval_hold_max: approval,
        term_grace: TERM_GRACE,
        ..Limits::default()
    })
}

fn lies() -> impl Strategy<Value = Lie> {
    let steps = prop_oneof![
        Just(ReapStep::Snapshot),
        Just(ReapStep::Terminate),
        Just(ReapStep::Kill),
        Just(ReapStep::Verify),
    ];
    let results = prop_oneof![
        Just(DeliveryResult::Written),
        Just(DeliveryResult::NotWritten),
        Just(DeliveryResult::PartlyWritten),
        Just(DeliveryResult::Void),
    ];
    prop_oneof![
        Just(Lie::Granted),
        Just(Lie::LaunchFailed),
        Just(Lie::Exited),
        Just(Lie::Emptied),
        Just(Lie::Ready),
        (steps, any::<bool>()).prop_map(|(step, empty)| Lie::Reaped(step, empty)),
        (0..8_u64, results).prop_map(|(n, result)| Lie::Delivered(n, result)),
    ]
}

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
}

impl Run {
    pub(super) fn new(setting: Setting) -> Self {
        let now = MonoTime::from_millis(1_000_000);
        let saved = saved(Progress::default(), &[]);
        let mut world = World::new(setting.manners);
        world.strict = false;
        let limits = Limits::default();
        let mut run = Self {
            session: Session::restore(&saved, setting.traits, limits.clone(), now),
            now,
            world,
            watch: Watch::new(saved, limits, now),
            effects: Vec::new(),
            log: String::new(),
            owed: Vec::new(),
            messages: 0,
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
        let (session, effects) = before.clone().step(input, self.now);
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
            What::Message => {
                self.messages += 1;
                let message = MessageId(self.messages);
                MessageQueued { message }.into()
            }
            What::Again(back) => {
                let message = MessageId(self.messages.saturating_sub(*back));
                if !self.watch.is_open(message) {
                    return None;
                }
                MessageQueued { message }.into()
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
            What::Exit => {
                let answers = self.world.exits(ExitStatus::Code(1));
                self.owed
                    .extend(answers.into_iter().map(|(_, input)| input));
                return None;
            }
            What::Limits(limits) => limits.clone().into(),
            What::Lie { fact, stale } => {
                let older = Incarnation(incarnation.0.wrapping_sub(1));
                self.lie(fact, if *stale { older } else { incarnation })
            }
        })
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
            Lie::Reaped(step, empty) => ReapReport {
                session: SessionId::from_random(7),
                incarnation,
                step: *step,
                processes: Vec::new(),
                survivors: Vec::new(),
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
    let begin = run.now;
    // A place among the starting ones is granted, and a launch answered, without fail.
    for lie in [Lie::Granted, Lie::LaunchFailed] {
        let input = run.lie(&lie, run.session.incarnation());
        run.step(&input);
    }
    calm(run);
    go_on(run, Session::is_asleep).then(|| run.now.since(begin))
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
