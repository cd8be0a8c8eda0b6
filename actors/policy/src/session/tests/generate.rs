//! Random lives of a session: what a world would answer, in any order and at any time, mixed with
//! what people ask for, what an agent may say, and plain lies.

use std::fmt;
use std::time::Duration;

use drowse_messages::{
    AgentStatus, Answer, AnswerAsk, Ask, AskKind, Busy, BusyKind, CancelMessage, ChangeAccount,
    DeliveryResult, EndTask, HoldId, HoldLifted, HoldTaken, HostChanged, Interrupt, KeepRule,
    Limit, Limits, MessageId, Order, Priority, ReapStep, RecordOutcome, StartTask, Stop, StopHow,
    TurnEnded, TurnOutcome, Wake, Who,
};
use proptest::prelude::*;

use super::world::{Manners, after, conversation, task};

use crate::session::AgentTraits;

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
    Message(Priority),
    /// A message that is known is announced once more.
    Again(u64),
    Order(Order),
    Status(AgentStatus),
    Roster(u8),
    Activity {
        ours: bool,
    },
    /// The host comes, speaks, falls silent or goes.
    Host(HostChanged),
    Exit,
    /// Somebody wants the server kept, for so many seconds.
    Keep(Option<u64>),
    /// The oldest kept server ends by itself.
    ServerEnds,
    Limits(Limits),
    /// The daemon ends, prepared for it or not, and the next one finds what it left.
    Next {
        prepared: bool,
        /// The backend says which message it works on.
        known: bool,
    },
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
    KeptEnded,
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
    pub(super) begun: bool,
    /// Its configuration keeps its server.
    pub(super) keeps: bool,
}

fn settings() -> impl Strategy<Value = Setting> {
    let deliveries = prop_oneof![
        6 => Just(DeliveryResult::Written),
        1 => Just(DeliveryResult::NotWritten),
        1 => Just(DeliveryResult::PartlyWritten),
        1 => Just(DeliveryResult::CutShort),
        1 => Just(DeliveryResult::Void),
    ];
    let faults = (0..24_u8, any::<bool>(), any::<bool>(), deliveries);
    (faults, any::<[bool; 6]>()).prop_map(|((fault, child, reports, delivery), deaf)| Setting {
        begun: deaf[3] || fault > 12,
        keeps: deaf[4],
        manners: Manners {
            launches: fault != 0,
            gets_ready: fault != 1,
            says_cannot_resume: fault == 2,
            heeds_interrupt: deaf[0],
            heeds_eof: deaf[1],
            heeds_term: deaf[2],
            heeds_kill: fault != 3,
            leaves_child: child,
            serves: deaf[5],
            delivery,
            reaper_answers: fault != 4,
        },
        traits: AgentTraits {
            can_resume: fault != 5,
            reports_tasks: reports,
            observed: !reports && deaf[0],
            steers: deaf[1],
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
        4 => priorities().prop_map(What::Message),
        1 => (0..8_u64).prop_map(What::Again),
        4 => orders().prop_map(What::Order),
        6 => statuses().prop_map(What::Status),
        2 => (0..4_u8).prop_map(What::Roster),
        2 => any::<bool>().prop_map(|ours| What::Activity { ours }),
        6 => hosts().prop_map(What::Host),
        1 => Just(What::Exit),
        1 => prop::option::of(0..7_200_u64).prop_map(What::Keep),
        1 => Just(What::ServerEnds),
        1 => limits().prop_map(What::Limits),
        2 => any::<[bool; 2]>().prop_map(|[prepared, known]| What::Next { prepared, known }),
        3 => (lies(), any::<bool>()).prop_map(|(fact, stale)| What::Lie { fact, stale }),
    ]
}

fn priorities() -> impl Strategy<Value = Priority> {
    prop_oneof![
        4 => Just(Priority::Later),
        3 => Just(Priority::Next),
        1 => Just(Priority::Now),
    ]
}

fn hosts() -> impl Strategy<Value = HostChanged> {
    let came = prop::bool::weighted(0.8);
    prop_oneof![
        3 => came.prop_map(|resumable| HostChanged::Attached { pid: 77, resumable }),
        6 => Just(HostChanged::Waits),
        1 => Just(HostChanged::Closed),
        1 => Just(HostChanged::Lost),
    ]
}

pub(super) fn me() -> Who {
    Who::Client("me".to_owned())
}

fn orders() -> impl Strategy<Value = Order> {
    let hows = prop_oneof![
        6 => Just(StopHow::Release),
        2 => Just(StopHow::Shutdown),
        4 => Just(StopHow::Stop),
        2 => Just(StopHow::StopAll),
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
        1 => Just(Order::ChangeAccount(ChangeAccount { by: me() })),
        1 => names().prop_map(|id| Order::StartTask(StartTask {
            task: task(&id),
            owner: "me".to_owned(),
        })),
        1 => names().prop_map(|id| Order::EndTask(EndTask { id })),
        3 => (1..8_u64).prop_map(|number| Order::Cancel(CancelMessage {
            message: MessageId(number),
            by: me(),
        })),
        1 => prop::option::of(Just("well".to_owned())).prop_map(|text| {
            Order::RecordOutcome(RecordOutcome { text, by: me() })
        }),
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
    let ends = (outcomes, prop::bool::weighted(0.8), 0..3_u32);
    let ends = ends.prop_map(|(outcome, answers, left)| {
        AgentStatus::TurnEnded(TurnEnded {
            outcome,
            text: "done".to_owned(),
            answers,
            left,
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
        2 => (0..100_u64).prop_map(|seconds| AgentStatus::Young {
            settles_in: Duration::from_secs(seconds),
        }),
        1 => Just(AgentStatus::CannotResume { detail: "gone".to_owned() }),
        1 => any::<bool>().prop_map(|retry| AgentStatus::CannotStart {
            detail: "no".to_owned(),
            retry,
        }),
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
    let all = (limit(), limit(), limit(), limit(), any::<bool>());
    all.prop_map(|(idle, hard, task, approval, keeps)| Limits {
        keep: keeps
            .then_some(KeepRule::Listen(3000))
            .into_iter()
            .collect(),
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
        Just(ReapStep::Look),
        Just(ReapStep::Snapshot),
        Just(ReapStep::Terminate),
        Just(ReapStep::Kill),
        Just(ReapStep::Verify),
    ];
    let results = prop_oneof![
        Just(DeliveryResult::Written),
        Just(DeliveryResult::NotWritten),
        Just(DeliveryResult::PartlyWritten),
        Just(DeliveryResult::CutShort),
        Just(DeliveryResult::Void),
    ];
    prop_oneof![
        Just(Lie::Granted),
        Just(Lie::LaunchFailed),
        Just(Lie::Exited),
        Just(Lie::Emptied),
        Just(Lie::KeptEnded),
        Just(Lie::Ready),
        (steps, any::<bool>()).prop_map(|(step, empty)| Lie::Reaped(step, empty)),
        (0..8_u64, results).prop_map(|(n, result)| Lie::Delivered(n, result)),
    ]
}
