//! What tests ask a [`TestDaemon`] for: sessions, messages, events, processes.
//!
//! Fed by: end-to-end tests. Invariant: a refusal that was not expected fails the test, and a wait
//! ends with its fact or fails; nothing asked here is use of a session, but for messages.

use std::collections::BTreeMap;

use drowse_client::{Client, ClientError};
use drowse_messages::{
    Event, MessageId, MessageState, NewSession, SavedMessage, Sent, SessionEvent, SessionReport,
    SessionState,
};

use super::{MESSAGE_CEILING, SESSION_VARIABLE, TestDaemon};
use crate::process::{ProcIdentity, with_env};
use crate::wait::{CEILING, wait_until};

impl TestDaemon {
    /// Asks through the client, whatever the answer.
    ///
    /// # Errors
    /// As the client has it.
    pub fn ask<T>(
        &self,
        call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.runtime.block_on(call(&self.client))
    }

    /// Asks through the client, and the answer has to be yes.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn get<T>(&self, call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> T {
        match self.ask(call) {
            Ok(answer) => answer,
            Err(error) => panic!("the daemon refused: {error} ({:?})", error.code()),
        }
    }

    /// The code of a refusal.
    ///
    /// # Panics
    /// When it is granted, or there is no answer.
    #[track_caller]
    pub fn refused<T>(&self, call: impl AsyncFnOnce(&Client) -> Result<T, ClientError>) -> String {
        let Err(error) = self.ask(call) else {
            panic!("it was granted")
        };
        error
            .code()
            .unwrap_or_else(|| panic!("no answer: {error}"))
            .to_owned()
    }

    /// What to open a session of `agent` with, in the test's folder.
    ///
    /// # Panics
    /// When there can be no agent of this name.
    #[must_use]
    pub fn new_session(&self, agent: &str) -> NewSession {
        NewSession {
            agent: agent.parse().expect("a test's agent has a proper name"),
            name: None,
            cwd: self.work.clone(),
            args: Vec::new(),
            env: self.agent_env(),
            limits: BTreeMap::new(),
        }
    }

    /// Opens a session and gives its id. No process is started by it.
    #[track_caller]
    pub fn open(&self, agent: &str) -> String {
        self.open_as(&self.new_session(agent))
    }

    /// Opens a session whose fake agent behaves so, whatever the home says (`home.rs` of the fake
    /// agent has the keys).
    #[track_caller]
    pub fn open_behaving(&self, agent: &str, behaviour: &[(&str, &str)]) -> String {
        let mut new = self.new_session(agent);
        for (key, value) in behaviour {
            let name = format!("FAKE_AGENT_{}", key.to_uppercase());
            new.env.insert(name, (*value).to_owned());
        }
        self.open_as(&new)
    }

    /// Opens a session as described and gives its id.
    #[track_caller]
    pub fn open_as(&self, new: &NewSession) -> String {
        let id = self
            .get(async |client| client.open(new).await)
            .id
            .to_string();
        self.opened.borrow_mut().push(id.clone());
        id
    }

    /// Sends a message and waits until nothing more can become of it.
    #[track_caller]
    pub fn send(&self, id: &str, text: &str) -> SavedMessage {
        let message = self.post(id, text);
        self.settled(message)
    }

    /// Sends a message that has to be answered, and gives the answer.
    ///
    /// # Panics
    /// When it is not answered.
    #[track_caller]
    pub fn say(&self, id: &str, text: &str) -> String {
        let message = self.send(id, text);
        assert_eq!(message.state, MessageState::Answered, "{message:?}");
        message.answer
    }

    /// Sends a message; it is on disk when this returns.
    #[track_caller]
    pub fn post(&self, id: &str, text: &str) -> MessageId {
        self.get(async |client| client.send(id, text, None).await)
            .message
    }

    /// Sends a message under the client's own key.
    #[track_caller]
    pub fn post_keyed(&self, id: &str, text: &str, key: &str) -> Sent {
        self.get(async |client| client.send(id, text, Some(key)).await)
    }

    /// A message as it is now.
    #[track_caller]
    pub fn message(&self, message: MessageId) -> SavedMessage {
        self.get(async |client| client.message(message).await)
    }

    /// Waits until nothing more can become of a message.
    ///
    /// # Panics
    /// When it does not come to that.
    #[track_caller]
    pub fn settled(&self, message: MessageId) -> SavedMessage {
        let what = format!("the fate of message {message}");
        wait_until(&what, MESSAGE_CEILING, || {
            Some(self.message(message)).filter(|message| message.state.is_final())
        })
    }

    /// A session as it is now.
    #[track_caller]
    pub fn report(&self, id: &str) -> SessionReport {
        self.get(async |client| client.session(id).await)
    }

    /// Waits until a session's report fits.
    ///
    /// # Panics
    /// When it does not.
    #[track_caller]
    pub fn wait_report(
        &self,
        id: &str,
        what: &str,
        fits: impl Fn(&SessionReport) -> bool,
    ) -> SessionReport {
        wait_until(&format!("{id}: {what}"), CEILING, || {
            Some(self.report(id)).filter(&fits)
        })
    }

    /// Waits until a session is in this state.
    #[track_caller]
    pub fn wait_state(&self, id: &str, state: SessionState) -> SessionReport {
        self.wait_report(id, state.code(), |report| report.state == state)
    }

    /// The newest events that are kept of a session, oldest first.
    #[track_caller]
    pub fn log(&self, id: &str) -> Vec<Event> {
        self.get(async |client| client.log(id, 1000).await)
    }

    /// How many of a session's kept events are of a kind.
    #[track_caller]
    pub fn count(&self, id: &str, fits: impl Fn(&SessionEvent) -> bool) -> usize {
        self.log(id)
            .iter()
            .filter(|event| fits(&event.what))
            .count()
    }

    /// Waits for the `nth` (from 1) kept event of a session that fits.
    ///
    /// # Panics
    /// When it does not come.
    #[track_caller]
    pub fn wait_event(
        &self,
        id: &str,
        what: &str,
        nth: usize,
        fits: impl Fn(&SessionEvent) -> bool,
    ) -> SessionEvent {
        wait_until(&format!("{id}: event {what}"), CEILING, || {
            let events = self.log(id).into_iter().map(|event| event.what);
            events.filter(|event| fits(event)).nth(nth - 1)
        })
    }

    /// When the newest kept event of a session that fits was published, in milliseconds.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    pub fn time_of(&self, id: &str, what: &str, fits: impl Fn(&SessionEvent) -> bool) -> u64 {
        let events = self.log(id);
        let found = events.iter().rfind(|event| fits(&event.what));
        found
            .unwrap_or_else(|| panic!("{id}: no event {what}"))
            .at
            .0
    }

    /// Lets idle windows go by: another session with the daemon's own limits is used and released
    /// this many times. Whoever is quiet meanwhile has been quiet for as many windows.
    #[track_caller]
    pub fn let_windows_pass(&self, windows: usize) {
        let clock = self.open("fake");
        for _ in 0..windows {
            self.say(&clock, "tick");
            self.wait_state(&clock, SessionState::Released);
        }
    }

    /// The agent's process.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    pub fn agent(&self, id: &str) -> ProcIdentity {
        let report = self.wait_report(id, "a process", |report| {
            report
                .awake
                .as_ref()
                .is_some_and(|awake| awake.agent_pid.is_some())
        });
        let pid = report.awake.and_then(|awake| awake.agent_pid);
        pid.and_then(ProcIdentity::of)
            .expect("the agent's process is there")
    }

    /// The keeper above the agent's process.
    ///
    /// # Panics
    /// When it has none.
    #[track_caller]
    #[must_use]
    pub fn keeper(&self, id: &str) -> ProcIdentity {
        let keeper = wait_until(&format!("{id}: a keeper"), CEILING, || {
            self.report(id).awake.and_then(|awake| awake.keeper)
        });
        ProcIdentity {
            pid: keeper.pid(),
            start_time: keeper.start_ticks(),
        }
    }

    /// Every process of a session, its keeper too, known by the mark the daemon gives them.
    #[must_use]
    pub fn processes(&self, id: &str) -> Vec<ProcIdentity> {
        with_env(SESSION_VARIABLE, id)
    }

    /// Waits until nothing runs for a session, keeper included.
    #[track_caller]
    pub fn wait_gone(&self, id: &str) {
        wait_until(
            &format!("{id}: the end of all its processes"),
            CEILING,
            || self.processes(id).is_empty().then_some(()),
        );
    }

    /// Everything marked as this test's, apart from the daemon and verbs that run.
    #[must_use]
    pub fn marked(&self) -> Vec<ProcIdentity> {
        let daemon = self
            .child
            .as_ref()
            .and_then(|child| i32::try_from(child.id()).ok());
        let mut alive = self.guard.alive();
        alive.retain(|process| Some(process.pid) != daemon);
        alive
    }
}
