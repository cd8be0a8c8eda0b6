//! The promises that every single step keeps, whatever came before it. Layout of the list: the
//! numbers are those of the properties in `properties.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use drowse_messages::{
    Delivered, DeliveryResult, HostChanged, Hosted, Incarnation, KeptReport, Limits, MessageId,
    MessageQueued, MessageState, MonoTime, Order, Priority, Progress, ReapStep, Reason, Refusal,
    SavedSession, SessionEvent, SessionReport, SessionState, StopHow,
};

use super::generate::TERM_GRACE;

use crate::session::{MESSAGE_TRIES_MAX, SNAPSHOT_MAX, Session, Times};
use crate::{BackendOrder, Effect, Input};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Waiting,
    InFlight,
    Over,
}

/// One tree, as far as the session was told.
#[derive(Clone, Debug, Default)]
struct Tree {
    terminated: Option<MonoTime>,
    killed: bool,
    /// A walk found somebody although the tree was said to be empty.
    found_somebody: bool,
    empty: bool,
    ending: Option<Reason>,
    delivered: BTreeSet<MessageId>,
    /// What a host says goes to it.
    gate: bool,
    /// Nothing of a host's may go to it any more.
    shut: bool,
}

/// What a watcher remembers of a life.
#[derive(Debug)]
pub(super) struct Watch {
    saved: SavedSession,
    written: Progress,
    limits: Limits,
    messages: BTreeMap<MessageId, Message>,
    priorities: BTreeMap<MessageId, Priority>,
    /// Handed over, and not heard of.
    on_its_way: Option<(Incarnation, MessageId)>,
    /// How many agents died while they read it.
    cut: BTreeMap<MessageId, u32>,
    trees: BTreeMap<Incarnation, Tree>,
    /// The tree that was launched last and not yet found empty.
    open: Option<Incarnation>,
    /// What the reaper owes an answer for, for each tree.
    reap: BTreeMap<Incarnation, (ReapStep, MonoTime)>,
    /// Trees of which only what is kept was left.
    retired: BTreeSet<Incarnation>,
    asked_start: bool,
    /// Somebody wants a process: since the last order to end it, a message or a wake came.
    wanted: bool,
    quiet_from: MonoTime,
    removed: bool,
    /// A host is there that was not told to go, and whether what it said waits.
    host: Option<bool>,
    suspended: bool,
}

impl Watch {
    pub(super) fn new(saved: SavedSession, limits: Limits, now: MonoTime) -> Self {
        Self {
            written: saved.progress.clone(),
            saved,
            limits,
            messages: BTreeMap::new(),
            priorities: BTreeMap::new(),
            on_its_way: None,
            cut: BTreeMap::new(),
            trees: BTreeMap::new(),
            open: None,
            reap: BTreeMap::new(),
            retired: BTreeSet::new(),
            asked_start: false,
            wanted: false,
            quiet_from: now,
            removed: false,
            host: None,
            suspended: false,
        }
    }

    pub(super) fn report(&self, session: &Session, now: MonoTime) -> SessionReport {
        session.report(&self.saved.profile, Times::default(), now)
    }

    /// The session as the store has it.
    pub(super) fn as_saved(&self) -> SavedSession {
        let waiting = self.messages.iter();
        let waiting = waiting.filter(|(_, state)| **state == Message::Waiting);
        SavedSession {
            progress: self.written.clone(),
            queued: waiting.map(|(message, _)| self.queued(*message)).collect(),
            ..self.saved.clone()
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn is_removed(&self) -> bool {
        self.removed
    }

    /// Something other than the session wrote its record.
    pub(super) fn rewrite(&mut self, progress: Progress) {
        self.written = progress;
    }

    /// The daemon ended, and its tree with it unless that is taken over. Returns the messages in
    /// flight; with a tree that is gone they are unknown.
    pub(super) fn end_of_daemon(&mut self, now: MonoTime, taken_over: bool) -> Vec<MessageId> {
        self.reap.clear();
        (self.host, self.suspended) = (None, false);
        let awaited = self.on_its_way.take().map(|(_, message)| message);
        self.asked_start = false;
        self.quiet_from = now;
        let in_flight = self.messages.iter_mut();
        let in_flight = in_flight.filter(|(_, state)| **state == Message::InFlight);
        let mut in_flight: Vec<_> = in_flight
            .map(|(message, state)| {
                if !taken_over {
                    *state = Message::Over;
                }
                *message
            })
            .collect();
        if !taken_over && let Some(open) = self.open {
            self.trees.entry(open).or_default().empty = true;
        }
        // What waits is started by the next daemon.
        self.wanted |= self.messages.values().any(|it| *it == Message::Waiting);
        // Oldest first, and what is on its way last.
        in_flight.sort_by_key(|message| Some(*message) == awaited);
        // How urgent they were is not handed on.
        self.priorities
            .retain(|message, _| !in_flight.contains(message));
        in_flight
    }

    /// What is handed over at this moment.
    pub(super) fn awaited(&self) -> Option<MessageId> {
        self.on_its_way.map(|(_, message)| message)
    }

    /// The next daemon goes on handing it over.
    pub(super) fn awaits(&mut self, incarnation: Incarnation, message: MessageId) {
        self.on_its_way = Some((incarnation, message));
    }

    pub(super) fn queued(&self, message: MessageId) -> MessageQueued {
        let priority = self.priorities.get(&message).copied().unwrap_or_default();
        MessageQueued { message, priority }
    }

    /// True for a message that waits or is in flight.
    pub(super) fn is_open(&self, message: MessageId) -> bool {
        self.messages
            .get(&message)
            .is_some_and(|state| *state != Message::Over)
    }

    pub(super) fn check(
        &mut self,
        before: &Session,
        input: &Input,
        now: MonoTime,
        after: &Session,
        effects: &[Effect],
    ) {
        if before.stale_facts() != after.stale_facts() {
            // 6: facts of another launch change nothing but the counter.
            assert_eq!(effects, []);
            assert_eq!(self.report(before, now), self.report(after, now));
            return;
        }
        self.note_input(before, input, now);
        self.note_time(input, now);
        for effect in effects {
            self.check_effect(before, now, effect);
        }
        if !is_quiet(before, now) {
            self.quiet_from = now;
        }
        self.check_after(input, now, after);
    }

    fn note_input(&mut self, before: &Session, input: &Input, now: MonoTime) {
        match input {
            Input::MessageQueued(queued) if !self.removed => {
                self.wanted = true;
                self.priorities.insert(queued.message, queued.priority);
                self.messages
                    .entry(queued.message)
                    .or_insert(Message::Waiting);
            }
            Input::Order(Order::Wake(_) | Order::ChangeAccount(_)) => self.wanted = true,
            Input::Host(changed) => self.note_host(*changed),
            Input::Suspend(_) => self.suspended = true,
            Input::Order(Order::Stop(stop)) if stop.how != StopHow::Release => {
                self.wanted = false;
            }
            Input::LimitsChanged(limits) => self.limits = limits.clone(),
            Input::Delivered(delivered) => self.note_delivery(*delivered),
            Input::Activity(_) => self.quiet_from = now,
            Input::ReapReport(report) => {
                let owed = self.reap.get(&report.incarnation);
                if owed.is_some_and(|(step, _)| *step == report.step) {
                    self.reap.remove(&report.incarnation);
                }
                let tree = self.trees.entry(report.incarnation).or_default();
                tree.empty |= report.empty;
                tree.found_somebody |= report.step == ReapStep::Verify && !report.empty;
            }
            Input::LaunchFailed(failed) if before.running().is_none() => {
                self.trees.entry(failed.incarnation).or_default().empty = true;
            }
            Input::MessageQueued(_)
            | Input::IdleTick(_)
            | Input::Order(_)
            | Input::StatusChanged(_)
            | Input::TaskRoster(_)
            | Input::StartGranted(_)
            | Input::Launched(_)
            | Input::LaunchFailed(_)
            | Input::Adopted(_)
            | Input::ChildExited(_)
            | Input::KeptEnded(_)
            | Input::TreeEmptied(_) => {}
        }
    }

    fn note_host(&mut self, changed: HostChanged) {
        match changed {
            _ if self.removed => {}
            HostChanged::Attached { .. } => {
                (self.host, self.wanted) = (Some(false), true);
            }
            HostChanged::Waits if self.host.is_some() => {
                (self.host, self.wanted) = (Some(true), true);
            }
            HostChanged::Passed => {
                self.host = self.host.map(|_| false);
                if let Some(open) = self.open {
                    self.trees.entry(open).or_default().gate = false;
                }
            }
            HostChanged::Lost => self.host = None,
            HostChanged::Waits | HostChanged::Closed => {}
        }
    }

    /// An answer that does not come in time is not waited for.
    fn note_time(&mut self, input: &Input, now: MonoTime) {
        let waits = |since| now.since(since) < SNAPSHOT_MAX;
        if matches!(input, Input::IdleTick(_)) {
            self.reap.retain(|_, (_, since)| waits(*since));
        }
    }

    /// A message that was void is nobody's any more.
    fn note_delivery(&mut self, delivered: Delivered) {
        let message = delivered.message;
        if self.on_its_way != Some((delivered.incarnation, message)) {
            return;
        }
        self.on_its_way = None;
        match delivered.result {
            DeliveryResult::CutShort => *self.cut.entry(message).or_default() += 1,
            DeliveryResult::Void => {
                if let Some(state @ Message::InFlight) = self.messages.get_mut(&message) {
                    *state = Message::Over;
                }
            }
            DeliveryResult::Written
            | DeliveryResult::NotWritten
            | DeliveryResult::PartlyWritten => {}
        }
    }

    fn check_effect(&mut self, before: &Session, now: MonoTime, effect: &Effect) {
        // 4: nothing but refusals follows the end of a session.
        let harmless = matches!(
            effect,
            Effect::Sleep | Effect::StartSettled | Effect::Forget | Effect::EndHost(_)
        ) || matches!(effect, Effect::Refuse(Refusal::NoSuchSession { .. }));
        assert!(!self.removed || harmless, "{effect:?} after the end");
        match effect {
            Effect::AskStart => {
                assert!(self.wanted, "5: a start that nobody wants");
                assert!(!self.asked_start, "a second place is asked for");
                self.asked_start = true;
            }
            Effect::StartSettled => self.asked_start = false,
            Effect::Launch { incarnation, .. } => {
                if let Some(open) = self.open {
                    assert!(
                        self.trees[&open].empty,
                        "a launch beside the tree of {open}"
                    );
                }
                self.open = Some(*incarnation);
                let former = self.trees.insert(*incarnation, Tree::default());
                assert!(former.is_none(), "{incarnation} is launched twice");
            }
            Effect::Tell { incarnation, order } => self.check_told(*incarnation, order),
            Effect::Reap(request) => self.check_reap(request.incarnation, request.step, now),
            Effect::Settle { message, state, .. } => self.settle(*message, *state),
            Effect::Save(progress) => self.written = Progress::clone(progress),
            Effect::Publish(event) => self.check_event(before, now, event),
            Effect::EndHost(_) => {
                let host = self.host.take();
                assert!(
                    host.is_some() || self.removed,
                    "8: nobody is there to be told"
                );
            }
            Effect::Forget
            | Effect::Refuse(_)
            | Effect::Suspended
            | Effect::Sleep
            | Effect::Watch(_) => {}
        }
    }

    fn check_told(&mut self, incarnation: Incarnation, order: &BackendOrder) {
        if let BackendOrder::Retire { .. } = order {
            self.retired.insert(incarnation);
            let tree = self.trees.get_mut(&incarnation).unwrap();
            (tree.terminated, tree.killed) = (None, false);
        }
        let tree = self.trees.entry(incarnation).or_default();
        match order {
            BackendOrder::OpenGate => {
                assert!(!tree.shut, "9: opened to an agent that is let go");
                assert!(!self.suspended, "9: opened although the next daemon will");
                tree.gate = true;
            }
            BackendOrder::ShutGate { .. } => (tree.gate, tree.shut) = (false, true),
            BackendOrder::Close => assert!(!tree.gate, "9: open to an agent that is let go"),
            BackendOrder::Deliver(_)
            | BackendOrder::Interrupt
            | BackendOrder::Answer { .. }
            | BackendOrder::Withdraw { .. }
            | BackendOrder::Dismiss
            | BackendOrder::Retire { .. } => {}
        }
        if let BackendOrder::Deliver(message) = order {
            let tree = self.trees.get_mut(&incarnation).unwrap();
            assert!(
                tree.delivered.insert(*message),
                "delivered twice: {message}"
            );
            let state = self.messages.insert(*message, Message::InFlight);
            assert_eq!(state, Some(Message::Waiting), "{message} does not wait");
            let place = |message| (self.queued(message).priority, message);
            let mut waiting = self.messages.iter();
            let overtaken = waiting.find(|(other, state)| {
                **state == Message::Waiting && place(**other) < place(*message)
            });
            assert_eq!(overtaken, None, "10: overtaken by {message}");
            let awaited = self.on_its_way.replace((incarnation, *message));
            let is_of_this = awaited.filter(|(of, _)| *of == incarnation);
            assert_eq!(is_of_this, None, "11: two are on their way");
        }
    }

    fn check_reap(&mut self, incarnation: Incarnation, step: ReapStep, now: MonoTime) {
        // A look is no part of a teardown, and may be owed when one begins.
        if step == ReapStep::Look {
            return;
        }
        let owed = self.reap.insert(incarnation, (step, now));
        // A kept tree that is to be ended as a whole is not left to what was asked for a part.
        let begins = step == ReapStep::Terminate && self.retired.contains(&incarnation);
        assert!(owed.is_none() || begins, "{step:?} is asked for too early");
        let tree = self.trees.get_mut(&incarnation).unwrap();
        match step {
            ReapStep::Terminate => {
                assert!(!tree.gate, "9: open to an agent that is let go");
                tree.terminated = Some(now);
            }
            ReapStep::Kill => {
                // 3: not before SIGTERM and its grace.
                let grace_over = tree
                    .terminated
                    .is_some_and(|since| now.since(since) >= TERM_GRACE);
                assert!(grace_over || tree.killed || tree.found_somebody);
                tree.killed = true;
            }
            ReapStep::Look | ReapStep::Snapshot | ReapStep::Verify => {}
        }
    }

    fn settle(&mut self, message: MessageId, state: MessageState) {
        let next = match state {
            MessageState::Queued => Message::Waiting,
            MessageState::Parked => {
                assert_eq!(self.cut.get(&message), Some(&MESSAGE_TRIES_MAX));
                Message::Over
            }
            MessageState::Answered
            | MessageState::Failed
            | MessageState::Unknown
            | MessageState::Cancelled => Message::Over,
            MessageState::Delivered => panic!("the store marks what is delivered"),
        };
        if next == Message::Waiting {
            for tree in self.trees.values_mut() {
                tree.delivered.remove(&message);
            }
        }
        let from = self.messages.insert(message, next);
        assert_ne!(from, Some(Message::Over), "{message} is settled twice");
        assert!(from.is_some(), "{message} was never accepted");
        if from == Some(Message::Waiting) {
            assert_eq!(
                state,
                MessageState::Cancelled,
                "{message} was not delivered"
            );
        }
    }

    fn check_event(&mut self, before: &Session, now: MonoTime, event: &SessionEvent) {
        let current = before.incarnation();
        if let SessionEvent::Ending { reason, .. } = event {
            self.trees.entry(current).or_default().ending = Some(*reason);
            if *reason == Reason::Idle {
                self.check_idle(before, now);
            }
        }
        if let SessionEvent::Released { end } = event {
            let tree = &self.trees[&current];
            let begun = tree.ending.expect("an end begins");
            // 7: the reason never becomes less important.
            assert!(end.reason.weight() >= begun.weight());
            assert!(tree.empty, "released before a walk found nothing");
        }
        self.removed |= matches!(event, SessionEvent::Removed);
    }

    /// 1 and 2: nothing runs or holds, and it has been quiet for the whole time.
    fn check_idle(&self, before: &Session, now: MonoTime) {
        assert!(
            matches!(
                before.state(),
                SessionState::Resting | SessionState::Waiting
            ),
            "{:?} is not idle",
            before.state()
        );
        let held: Vec<_> = before
            .holds(now)
            .into_iter()
            .filter(|hold| hold.until.is_none_or(|until| until > now))
            .collect();
        assert!(held.is_empty(), "released although held by {held:?}");
        let end = self.limits.idle_after.deadline(self.quiet_from);
        assert!(end.is_some_and(|end| now >= end), "released too early");
    }

    fn check_after(&mut self, input: &Input, now: MonoTime, after: &Session) {
        if !is_quiet(after, now) {
            self.quiet_from = now;
        }
        if self.host == Some(true) && !self.suspended {
            // 10: what a host said goes to an agent, or one will come.
            let gate = |open| self.trees.get(&open).is_some_and(|tree| tree.gate);
            let passes = self.open.is_some_and(gate);
            let comes = !after.is_asleep() && after.state() != SessionState::Resting;
            assert!(
                passes || comes,
                "what its host said is lost: {:?}",
                after.state()
            );
        }
        let deadline = after.next_deadline();
        if after.is_asleep() && after.retired().is_empty() {
            assert_eq!(deadline, None, "asleep with a timer");
        }
        if matches!(input, Input::IdleTick(_)) {
            assert!(
                deadline.is_none_or(|deadline| deadline > now),
                "a tick that leaves its deadline behind would come for ever"
            );
        }
        let stops_a_launch = after.state() == SessionState::Stopping && after.running().is_none();
        let starts = after.state() == SessionState::Starting || stops_a_launch;
        assert!(starts || !self.asked_start, "a place is not given back");
        let waiting = self
            .messages
            .values()
            .filter(|state| **state == Message::Waiting)
            .count();
        let report = self.report(after, now);
        if self.removed {
            assert_eq!(waiting, 0, "messages end with their session");
            return;
        }
        assert_eq!(report.queued, waiting, "a message is lost or made up");
        let Progress {
            state,
            incarnation,
            running,
            conversation,
            end,
            last_error,
            keeping,
            hosted,
            outcome,
            ages,
        } = &self.written;
        assert_eq!(*hosted != Hosted::Never, report.relayed);
        let kept = KeptReport::all(report.id, &report.name, keeping);
        assert_eq!(kept, report.kept);
        let works = matches!(state, SessionState::Working | SessionState::NeedsYou);
        let rests = matches!(state, SessionState::Waiting | SessionState::Resting);
        assert_eq!(ages.is_some(), works || rests, "ages of a live backend");
        // Every reader sees the same, and so does the next daemon.
        assert_eq!(
            (*state, *incarnation, running.as_ref()),
            (report.state, report.incarnation, after.running())
        );
        assert_eq!(
            (conversation, end, last_error, outcome),
            (
                &report.conversation,
                &report.end,
                &report.last_error,
                &report.outcome
            )
        );
    }
}

/// At rest, with nothing that holds.
fn is_quiet(session: &Session, now: MonoTime) -> bool {
    session.state() == SessionState::Resting && session.holds(now).is_empty()
}

/// The longest that a session takes to come to rest for good: five failed starts with their
/// pauses, teardowns of deaf agents, a whole window, and whatever waits in the inbox.
pub(super) const SETTLED_AFTER_MAX: Duration = Duration::from_secs(3 * 3600);
