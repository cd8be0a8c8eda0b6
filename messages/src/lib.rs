//! The vocabulary of Drowse: everything that crosses a mailbox or a wire, as plain data.
//!
//! | from | to | messages |
//! |---|---|---|
//! | adapters, by way of the backend's link | session | [`Activity`], [`StatusChanged`], [`TaskRoster`], [`Delivered`], [`Launched`], [`LaunchFailed`], [`Adopted`], [`ChildExited`], [`TreeEmptied`], [`KeptEnded`] |
//! | the session itself | session | [`IdleTick`] |
//! | reaper | session | [`ReapReport`] |
//! | clients and extensions, by way of the registry | session | [`Order`] ([`Stop`], [`Wake`], [`HoldTaken`] ..), [`MessageQueued`], [`Suspend`] |
//! | the shim of a relayed session's host, by way of the registry | session | [`HostChanged`] |
//! | session | reaper | [`ReapRequest`] |
//! | session | status actor | [`SessionReport`] |
//! | everybody | subscribers | [`Event`] |
//!
//! Invariant: nothing here has behaviour, an address, a channel or a clock. The feature `actix`
//! adds `actix::Message`, because the orphan rule leaves no other place for it.
#![forbid(unsafe_code)]

#[cfg(feature = "actix")]
mod actix_impls;
mod event;
mod failure;
mod hold;
mod host;
mod id;
mod kept;
mod limits;
mod process;
mod reason;
mod registry;
mod saved;
mod session;
mod socket;
mod status;
mod time;
mod wire;

pub use event::{Event, SessionEvent};
pub use failure::{DropReason, Ends, Failure, FailureCode};
pub use hold::{Hold, HoldKind, HoldLifted, HoldTaken};
pub use host::{HostChanged, HostEnd, KeptRelay};
pub use id::{HoldId, IdError, Incarnation, MessageId, Name, SessionId};
pub use kept::{
    Keep, KeepTarget, Keeping, Kept, KeptEnded, KeptProcess, KeptReport, NewKeep, StopSession,
};
pub use limits::{LimitOverrides, Limits};
pub use process::{
    BootedIdentity, ExitStatus, KeepRule, ProcIdentity, ProcReport, ReapReport, ReapRequest,
    ReapStep, Survivor, Tier,
};
pub use reason::{EndReport, Reason, Refusal, Who};
pub use registry::{Accepted, AccountChange, OpenSession, Order, Priority, SendMessage};
pub use saved::{
    Ages, Hosted, Lease, MessageState, Outcome, Pinned, Profile, Progress, Recipe, Running,
    SavedMessage, SavedSession, ToldTask, WaitingChange,
};
pub use session::{
    Activity, ActivityKind, Adopted, AgentStatus, Answer, AnswerAsk, Ask, AskKind, Busy, BusyKind,
    CancelMessage, ChangeAccount, ChildExited, Conversation, Delivered, DeliveryResult, EndTask,
    IdleTick, Interrupt, LaunchFailed, Launched, MessageQueued, RecordOutcome, SETTINGS_MAX,
    StartGranted, StartTask, StatusChanged, Stop, StopHow, Suspend, Task, TaskRoster, TreeEmptied,
    TurnEnded, TurnOutcome, Wake,
};
pub use socket::{
    AnswerCall, CloseWhy, EventNote, GapNote, Hello, MessageCall, MessagesCall, Method,
    Notification, OutcomeCall, Position, Prompt, Prompted, Role, SOCKET_VERSION, SnapshotNote,
    SocketBounds, StopCall, Subscribe, WakeCall, WarningNote, Welcome,
};
pub use status::{
    AwakeReport, ChangeReport, Evidence, HoldReport, SessionPage, SessionReport, SessionState,
    StateCount, StatusReport, SubscriberReport, TaskReport, Usage,
};
pub use time::{Limit, MonoTime, WallTime, millis};
pub use wire::{
    AskReply, EVENT_STREAM, IDEMPOTENCY_KEY, LAST_EVENT_ID, NewHold, NewMessage, NewOutcome,
    NewSession, NewTask, PREFER, PREFERENCE_APPLIED, PROBLEM_JSON, ProblemBody, ProblemClass,
    RestartSession, RestartedSession, Restarting, Sent, TakenHold, WakeSession,
};
