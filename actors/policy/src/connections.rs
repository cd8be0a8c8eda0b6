//! Decides what becomes of the connections to one session.
//!
//! Fed by the endpoint's switchboard. A connection outlives its sockets: a socket that breaks leaves
//! it detached for a while, and a client that has its key takes it up again. Calls are abandoned,
//! never cancelled. Knows nothing of frames, and nothing of what a call does.
//!
//! Invariants: a session has one driver at most; a connection has one socket at most, and news of a
//! socket it has left change nothing; a call is answered or given up once; everything that waits
//! has a deadline, but for calls that are to have none.

mod calls;
#[cfg(test)]
mod model;
mod speech;
mod takeover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use drowse_messages::{CloseWhy, FailureCode, MonoTime, Role};

use calls::Calls;
pub use calls::{CALL_DEADLINE, CALL_DEADLINE_MAX, CALL_GRACE, CALLS_MAX, CallKind};
pub use speech::{
    CallId, ConnectionId, Effect, Farewell, Greeting, Input, Rejection, ResumeKey, SocketId,
};
use takeover::TakeOvers;
pub use takeover::{FIGHT_OVER_AFTER, TAKE_OVER_PAUSE, TAKE_OVER_PAUSE_MAX};

/// 60 s a broken connection waits for its client: what AgentVault's clients expect, and twice what
/// one of ours redials for.
pub const DETACH_HOLD: Duration = Duration::from_secs(60);

/// 15 s of silence before a ping: half of the shortest idle timeout a proxy usually has.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// 60 s before a hard limit its client is warned: time to finish a sentence.
pub const HARD_LIMIT_WARNING: Duration = Duration::from_secs(60);

/// 10 min of lease for calls without a deadline, renewed at half of it: a daemon that dies leaves
/// no longer one behind.
const LEASE: Duration = Duration::from_secs(600);

/// 1,024 connections to one session: as many as the endpoint has streams.
pub const CONNECTIONS_MAX: usize = 1024;

/// 16 keys of replaced connections are remembered, so that their clients learn why they are gone.
const REPLACED_MAX: usize = 16;

/// Where a connection's client is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Attached {
        socket: SocketId,
        heard: MonoTime,
        pinged: bool,
    },
    Detached {
        until: MonoTime,
    },
}

#[derive(Clone, Debug)]
struct Connection {
    key: ResumeKey,
    role: Role,
    name: String,
    keep: bool,
    idle: Option<Duration>,
    /// The client said something, or got an answer.
    busy: MonoTime,
    /// When it ends whatever happens.
    hard_at: Option<MonoTime>,
    warned: bool,
    stage: Stage,
    calls: Calls,
}

impl Connection {
    fn socket(&self) -> Option<SocketId> {
        match self.stage {
            Stage::Attached { socket, .. } => Some(socket),
            Stage::Detached { .. } => None,
        }
    }

    /// When it would be closed for silence.
    fn idle_at(&self) -> Option<MonoTime> {
        let quiet = self.calls.under_way() == 0 && self.socket().is_some();
        self.idle
            .filter(|_| quiet)
            .map(|idle| self.busy.after(idle))
    }

    fn next_deadline(&self) -> Option<MonoTime> {
        let stage = match self.stage {
            Stage::Attached { heard, pinged, .. } => {
                heard.after(HEARTBEAT * if pinged { 2 } else { 1 })
            }
            Stage::Detached { until } => until,
        };
        let hard = self.hard_at.map(|at| {
            if self.warned || self.socket().is_none() {
                at
            } else {
                MonoTime::from_millis(at.as_millis().saturating_sub(WARNING_MILLIS))
            }
        });
        let rest = [hard, self.idle_at(), self.calls.next_deadline()];
        rest.into_iter().flatten().chain([stage]).min()
    }
}

/// [`HARD_LIMIT_WARNING`] in milliseconds.
const WARNING_MILLIS: u64 = 60_000;

/// All connections to one session. See the module.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    connections: BTreeMap<ConnectionId, Connection>,
    take_overs: TakeOvers,
    replaced: VecDeque<ResumeKey>,
    person_awaited: bool,
    held_until: Option<MonoTime>,
}

impl Connections {
    /// True when there is nothing to remember.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty() && self.held_until.is_none()
    }

    /// Applies one input. Total: an input that concerns nobody changes nothing.
    pub fn step(&mut self, input: Input, now: MonoTime) -> Vec<Effect> {
        let mut fx = Vec::new();
        match input {
            Input::Greeted(socket, greeting) => {
                // A tick may be late, and whoever is gone by now is in nobody's way.
                self.pass_time(now, &mut fx);
                self.greet(socket, *greeting, now, &mut fx);
            }
            Input::Heard(socket) => self.heard(socket, now),
            Input::Called {
                socket,
                call,
                kind,
                timeout,
            } => self.called(socket, call, kind, timeout, now, &mut fx),
            Input::Answered(call) => self.answered(call, now, &mut fx),
            Input::Gone(socket, farewell) => self.gone(socket, farewell, now),
            Input::Stuck(socket) => self.stuck(socket, now, &mut fx),
            Input::PersonAwaited(awaited) => self.person_awaited(awaited, now),
            Input::SessionHardLimit => {
                let drivers = self.all(|it| it.role == Role::Drive);
                drivers
                    .into_iter()
                    .for_each(|id| self.close(id, CloseWhy::HardTimeout, &mut fx));
            }
            Input::Ended(why) => {
                let all = self.all(|_| true);
                all.into_iter().for_each(|id| self.close(id, why, &mut fx));
            }
            Input::Tick => {}
        }
        // Whatever came, what is over is over: late and missing ticks are harmless.
        self.pass_time(now, &mut fx);
        self.hold(now, &mut fx);
        fx
    }

    /// When a tick is wanted.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonoTime> {
        let all = self.connections.values();
        let holds = all.clone().filter_map(|it| it.calls.next_hold());
        let renewal = self.renewal();
        all.filter_map(Connection::next_deadline)
            .chain(holds)
            .chain(renewal)
            .min()
    }

    fn all(&self, fits: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        let all = self.connections.iter().filter(|(_, it)| fits(it));
        all.map(|(id, _)| *id).collect()
    }

    /// The connection whose socket this is now.
    fn of(&self, socket: SocketId) -> Option<ConnectionId> {
        let mut all = self.connections.iter();
        all.find(|(_, it)| it.socket() == Some(socket))
            .map(|(id, _)| *id)
    }

    fn driver(&self) -> Option<ConnectionId> {
        let mut all = self.connections.iter();
        all.find(|(_, it)| it.role == Role::Drive)
            .map(|(id, _)| *id)
    }

    fn greet(&mut self, socket: SocketId, greeting: Greeting, now: MonoTime, fx: &mut Vec<Effect>) {
        if self.of(socket).is_some() {
            return fx.push(Effect::Reject(socket, reject(FailureCode::OutOfOrder)));
        }
        if let Some(key) = greeting.resume {
            return self.resume(socket, key, now, fx);
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            let rejection = reject(FailureCode::TooManyConnections);
            return fx.push(Effect::Reject(socket, rejection));
        }
        if greeting.role == Role::Drive
            && let Some(driver) = self.driver()
            && let Err(rejection) = self.replace(driver, greeting.take_over, now, fx)
        {
            return fx.push(Effect::Reject(socket, rejection));
        }
        fx.push(Effect::Welcome {
            socket,
            connection: greeting.fresh,
            key: greeting.key,
            role: greeting.role,
            resumed: false,
        });
        let connection = Connection {
            key: greeting.key,
            role: greeting.role,
            name: greeting.name,
            keep: greeting.keep,
            idle: greeting.idle,
            busy: now,
            hard_at: greeting.hard.map(|hard| now.after(hard)),
            warned: greeting.hard.is_some_and(|hard| hard <= HARD_LIMIT_WARNING),
            stage: attached(socket, now),
            calls: Calls::new(self.person_awaited),
        };
        self.connections.insert(greeting.fresh, connection);
    }

    /// Takes a connection up again, whether or not the break of its socket was noticed.
    fn resume(&mut self, socket: SocketId, key: ResumeKey, now: MonoTime, fx: &mut Vec<Effect>) {
        let mut all = self.connections.iter_mut();
        let Some((id, connection)) = all.find(|(_, it)| it.key == key) else {
            let mut rejection = reject(FailureCode::ResumeRefused);
            rejection.superseded = self.replaced.contains(&key);
            return fx.push(Effect::Reject(socket, rejection));
        };
        if let Some(old) = connection.socket() {
            fx.push(Effect::Close(old, CloseWhy::Superseded, Vec::new()));
        }
        connection.calls.abandon_all();
        connection.stage = attached(socket, now);
        connection.busy = now;
        fx.push(Effect::Welcome {
            socket,
            connection: *id,
            key,
            role: connection.role,
            resumed: true,
        });
    }

    /// Makes place for another driver, if that is wanted and not too soon.
    fn replace(
        &mut self,
        driver: ConnectionId,
        take_over: bool,
        now: MonoTime,
        fx: &mut Vec<Effect>,
    ) -> Result<(), Rejection> {
        let by = self.connections.get(&driver).map(|it| it.name.clone());
        if !take_over {
            let by_whom = Rejection {
                by,
                ..reject(FailureCode::Driven)
            };
            return Err(by_whom);
        }
        self.take_overs.grant(now).map_err(|wait| Rejection {
            by,
            retry_in: Some(wait),
            ..reject(FailureCode::TakenOverTooSoon)
        })?;
        if let Some(replaced) = self.connections.get(&driver) {
            self.replaced.push_back(replaced.key);
            self.replaced
                .drain(..self.replaced.len().saturating_sub(REPLACED_MAX));
        }
        self.close(driver, CloseWhy::Superseded, fx);
        Ok(())
    }

    fn heard(&mut self, socket: SocketId, now: MonoTime) {
        if let Some(connection) = self.of(socket).and_then(|id| self.connections.get_mut(&id)) {
            connection.stage = attached(socket, now);
        }
    }

    fn called(
        &mut self,
        socket: SocketId,
        call: CallId,
        kind: CallKind,
        timeout: Option<Duration>,
        now: MonoTime,
        fx: &mut Vec<Effect>,
    ) {
        let Some(connection) = self.of(socket).and_then(|id| self.connections.get_mut(&id)) else {
            return fx.push(Effect::Fail(socket, call, FailureCode::OutOfOrder));
        };
        connection.stage = attached(socket, now);
        connection.busy = now;
        if connection.role == Role::Watch && !kind.is_for_watchers() {
            return fx.push(Effect::Fail(socket, call, FailureCode::NotDriver));
        }
        fx.push(if connection.calls.begin(call, kind, timeout, now) {
            Effect::Run(socket, call)
        } else {
            Effect::Fail(socket, call, FailureCode::TooManyCalls)
        });
    }

    fn answered(&mut self, call: CallId, now: MonoTime, fx: &mut Vec<Effect>) {
        for connection in self.connections.values_mut() {
            let waits = connection.calls.end(call);
            if let (true, Some(socket)) = (waits, connection.socket()) {
                connection.busy = now;
                return fx.push(Effect::Deliver(socket, call));
            }
        }
        fx.push(Effect::DropLate(call));
    }

    fn gone(&mut self, socket: SocketId, farewell: Farewell, now: MonoTime) {
        let Some(id) = self.of(socket) else { return };
        if farewell == Farewell::Lost {
            self.detach(id, now);
        } else {
            self.connections.remove(&id);
        }
    }

    /// Closes a socket whose client does not read. It may come back, and is told what it missed.
    fn stuck(&mut self, socket: SocketId, now: MonoTime, fx: &mut Vec<Effect>) {
        let Some(id) = self.of(socket) else { return };
        let calls = self.connections.get(&id).map(|it| it.calls.waiting());
        let unknown = calls.unwrap_or_default();
        fx.push(Effect::Close(socket, CloseWhy::SlowConsumer, unknown));
        self.detach(id, now);
    }

    /// Its socket broke: it waits for its client, if that is wanted.
    fn detach(&mut self, id: ConnectionId, now: MonoTime) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if !connection.keep {
            self.connections.remove(&id);
            return;
        }
        connection.calls.abandon_all();
        connection.stage = Stage::Detached {
            until: now.after(DETACH_HOLD),
        };
    }

    /// Ends a connection, and says what is unknown by that.
    fn close(&mut self, id: ConnectionId, why: CloseWhy, fx: &mut Vec<Effect>) {
        let Some(connection) = self.connections.remove(&id) else {
            return;
        };
        if let Some(socket) = connection.socket() {
            fx.push(Effect::Close(socket, why, connection.calls.waiting()));
        }
    }

    fn person_awaited(&mut self, awaited: bool, now: MonoTime) {
        self.person_awaited = awaited;
        for connection in self.connections.values_mut() {
            connection.calls.person_awaited(awaited, now);
        }
    }

    fn pass_time(&mut self, now: MonoTime, fx: &mut Vec<Effect>) {
        for id in self.all(|it| it.next_deadline().is_some_and(|at| at <= now)) {
            self.pass_time_of(id, now, fx);
        }
    }

    fn pass_time_of(&mut self, id: ConnectionId, now: MonoTime, fx: &mut Vec<Effect>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if connection.hard_at.is_some_and(|at| at <= now) {
            return self.close(id, CloseWhy::HardTimeout, fx);
        }
        let Stage::Attached {
            socket,
            heard,
            ref mut pinged,
        } = connection.stage
        else {
            if connection.stage.is_over(now) {
                self.connections.remove(&id);
            }
            return;
        };
        if heard.after(HEARTBEAT * 2) <= now {
            fx.push(Effect::Cut(socket));
            return self.detach(id, now);
        }
        if heard.after(HEARTBEAT) <= now && !*pinged {
            *pinged = true;
            fx.push(Effect::Ping(socket));
        }
        let expired = connection.calls.expire(now);
        if !expired.is_empty() {
            connection.busy = now;
        }
        let unanswered = expired.into_iter();
        fx.extend(unanswered.map(|call| Effect::Fail(socket, call, FailureCode::Unanswered)));
        if let Some(at) = connection.hard_at
            && !connection.warned
            && at.since(now) <= HARD_LIMIT_WARNING
        {
            connection.warned = true;
            fx.push(Effect::Warn(socket, at.since(now)));
        }
        if connection.idle_at().is_some_and(|at| at <= now) {
            self.close(id, CloseWhy::IdleTimeout, fx);
        }
    }

    /// When a lease that stands for calls without a deadline is renewed.
    fn renewal(&self) -> Option<MonoTime> {
        let endless = self.connections.values().any(|it| it.calls.hold_endless());
        let until = self.held_until.filter(|_| endless)?;
        Some(MonoTime::from_millis(
            until.as_millis().saturating_sub(LEASE_MILLIS / 2),
        ))
    }

    /// Keeps the session's lease as long as a call is under way or a driver is expected back.
    fn hold(&mut self, now: MonoTime, fx: &mut Vec<Effect>) {
        for connection in self.connections.values_mut() {
            connection.calls.mark_holding(now);
        }
        let all = self.connections.values();
        let wanted = all
            .filter_map(|it| match it.stage {
                Stage::Detached { until } if it.role == Role::Drive => Some(until),
                Stage::Detached { .. } => None,
                Stage::Attached { .. } => it.calls.holds_until(now, LEASE),
            })
            .max();
        let renewed = self.renewal().is_some_and(|at| at <= now);
        match (wanted, self.held_until) {
            (None, Some(_)) => {
                self.held_until = None;
                fx.push(Effect::Lift);
            }
            (Some(until), held)
                if renewed || held.is_none_or(|held| is_short(until, held, now)) =>
            {
                self.held_until = Some(until);
                fx.push(Effect::Hold(until));
            }
            (Some(_), _) | (None, None) => {}
        }
    }
}

/// [`LEASE`] in milliseconds.
const LEASE_MILLIS: u64 = 600_000;

/// True when a lease until `held` is too short for `until`: one that slides with the clock is
/// renewed at half of its time only.
fn is_short(until: MonoTime, held: MonoTime, now: MonoTime) -> bool {
    until > held && (until < now.after(LEASE) || held < now.after(LEASE / 2))
}

impl Stage {
    fn is_over(&self, now: MonoTime) -> bool {
        match self {
            Self::Detached { until } => *until <= now,
            Self::Attached { .. } => false,
        }
    }
}

const fn attached(socket: SocketId, now: MonoTime) -> Stage {
    Stage::Attached {
        socket,
        heard: now,
        pinged: false,
    }
}

const fn reject(code: FailureCode) -> Rejection {
    Rejection {
        code,
        by: None,
        retry_in: None,
        superseded: false,
    }
}
