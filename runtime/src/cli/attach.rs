//! `attach`: talks to a session and shows what it does, for as long as somebody likes.
//!
//! Fed by the session's events, by lines from stdin and by signals. Invariants: looking is never
//! use of the session, only what is typed is; a line is shown as sent once it is on disk; leaving
//! ends nothing. A stream that breaks off is followed on from the last event that was read, also
//! by the next daemon. Without a terminal each line is a message, no line is a command, and it
//! ends when stdin has and everything is answered.

use std::collections::BTreeSet;

use drowse_client::{Client, EventStream, EventsQuery};
use drowse_messages::{Event, MessageId, MessageState, SessionReport, SessionState};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

mod heard;
mod screen;
mod standing;
mod typed;

use crate::chain::chain;
use crate::cli::again::{followed_on, of_either_daemon};
use crate::cli::ask::Asking;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::order::{self, Order};
use crate::cli::render;
use crate::exit::Exit;
use screen::Screen;
use typed::{Command, Entry, Meant};

/// 3 messages that were said before: enough to know where one is, and less than a screen.
const PAST_MESSAGES: usize = 3;

/// 64 messages of a pipe's may wait for answers; then the pipe waits. An inbox takes 256.
const UNANSWERED_MAX: usize = 64;

/// 1024 messages are remembered as shown: more than can happen between two looks at a session.
const SHOWN_MAX: usize = 1024;

pub(crate) async fn run(
    client: &Client,
    id: &str,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let query = EventsQuery {
        session: Some(id.to_owned()),
        after: None,
    };
    let events = client.events(&query).await?;
    let report = of_either_daemon(async || client.session(id).await).await?;
    let person = console.can_ask;
    let session = report.id.to_string();
    let mut attached = Attached {
        client,
        screen: Screen::new(person, person && wants_colour()),
        asking: Asking::of_lines_read_elsewhere(&session, person),
        session,
        name: render::one_line(&report.name).into_owned(),
        person,
        mine: BTreeSet::new(),
        known: Recent::default(),
        over: Recent::default(),
        caught_up: None,
        replayed_to: 0,
        status: None,
        status_due: true,
        warned: false,
        lines: Some(typed::listen(person)),
        exit: Exit::Ok,
    };
    attached.begin(&report, console).await?;
    attached.stay(events, console).await
}

/// <https://no-color.org>, and terminals that can do nothing.
fn wants_colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    !refused && !dumb
}

/// The newest messages of which something is known.
#[derive(Debug, Default)]
struct Recent(BTreeSet<MessageId>);

impl Recent {
    /// True when it is new.
    fn add(&mut self, message: MessageId) -> bool {
        let new = self.0.insert(message);
        if self.0.len() > SHOWN_MAX {
            self.0.pop_first();
        }
        new
    }
}

struct Attached<'a> {
    client: &'a Client,
    session: String,
    name: String,
    /// True when somebody at a terminal types and reads.
    person: bool,
    screen: Screen,
    asking: Asking,
    /// Ours that are not answered yet.
    mine: BTreeSet<MessageId>,
    /// Whose text has been shown, or was typed here.
    known: Recent,
    /// Whose end has been shown.
    over: Recent,
    /// The newest event that was read.
    caught_up: Option<u64>,
    /// Events up to this one happened while nobody listened here.
    replayed_to: u64,
    /// What was said last of how the session stands.
    status: Option<String>,
    status_due: bool,
    /// True when the next Ctrl-C detaches.
    warned: bool,
    /// `None`: stdin has ended.
    lines: Option<mpsc::Receiver<Entry>>,
    exit: Exit,
}

/// What came next.
enum Next {
    Event(Event),
    /// The stream broke off.
    Broke,
    /// `None`: stdin has ended.
    Entry(Option<Entry>),
    Interrupt,
    Quit,
}

/// Ctrl-C and Ctrl-\.
struct Signals {
    interrupt: Signal,
    quit: Signal,
}

impl Attached<'_> {
    async fn begin(
        &mut self,
        report: &SessionReport,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        if !self.person || console.json {
            return Ok(());
        }
        let place = console.view().path(&report.cwd);
        let (name, agent) = (&self.name, &report.agent);
        let head = format!("attached to {name} ({agent} in {place}); /help says what can be typed");
        self.screen.aside(&head, console)?;
        let past = async || self.client.messages(&self.session, PAST_MESSAGES).await;
        let past = of_either_daemon(past).await?;
        let mut running = None;
        for message in &past {
            self.screen.past(message, console)?;
            self.known.add(message.id);
            if message.state.is_final() {
                self.over.add(message.id);
            }
            if message.state == MessageState::Delivered {
                running = Some(message.id);
            }
        }
        if matches!(report.state, SessionState::Working | SessionState::NeedsYou) {
            self.screen.joins(running);
        }
        let asks = report.awake.as_ref().map(|awake| awake.asks.as_slice());
        self.asking.correct(asks.unwrap_or_default(), console)?;
        self.prompted();
        Ok(())
    }

    async fn stay(
        mut self,
        mut events: EventStream,
        console: &mut Console<'_>,
    ) -> Result<Exit, Failure> {
        let mut signals = Signals {
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        };
        loop {
            self.show_status(console).await?;
            if self.lines.is_none() && self.mine.is_empty() {
                return Ok(self.exit);
            }
            let over = match self.next(&mut events, &mut signals).await {
                Next::Event(event) => self.heard(&event, console).await?,
                Next::Entry(entry) => {
                    // Without a daemon what was typed waits for one, and its author need not.
                    let over = tokio::select! {
                        over = self.entered(entry, console) => Some(over?),
                        _ = signals.interrupt.recv() => None,
                        _ = signals.quit.recv() => None,
                    };
                    match over {
                        Some(over) => over,
                        None => {
                            let text = "what was typed last may not have been sent";
                            self.screen.aside(text, console)?;
                            Some(self.detached(Exit::Interrupted, console)?)
                        }
                    }
                }
                Next::Interrupt => self.interrupted(console).await?,
                Next::Quit => Some(self.detached(Exit::Ok, console)?),
                Next::Broke => {
                    let next = tokio::select! {
                        next = self.follow_on(console) => next?,
                        _ = signals.interrupt.recv() => None,
                        _ = signals.quit.recv() => None,
                    };
                    match next {
                        Some(next) => {
                            events = next;
                            None
                        }
                        None => Some(self.detached(Exit::Interrupted, console)?),
                    }
                }
            };
            if let Some(exit) = over {
                return Ok(exit);
            }
        }
    }

    async fn next(&mut self, events: &mut EventStream, signals: &mut Signals) -> Next {
        let reads = self.person || self.mine.len() < UNANSWERED_MAX;
        let entry = async {
            match &mut self.lines {
                Some(lines) if reads => lines.recv().await,
                Some(_) | None => std::future::pending().await,
            }
        };
        tokio::select! {
            event = events.next() => {
                self.caught_up = events.last_seq().or(self.caught_up);
                match event {
                    Ok(Some(event)) => Next::Event(event),
                    Ok(None) | Err(_) => Next::Broke,
                }
            }
            entry = entry => Next::Entry(entry),
            _ = signals.interrupt.recv() => Next::Interrupt,
            _ = signals.quit.recv() => Next::Quit,
        }
    }

    /// The stream that goes on; an error when there is none.
    async fn follow_on(
        &mut self,
        console: &mut Console<'_>,
    ) -> Result<Option<EventStream>, Failure> {
        self.screen.broke();
        if self.person {
            let text = "the daemon is gone; the agent goes on for a while, and so does this with the next daemon";
            self.screen.aside(text, console)?;
        }
        let query = EventsQuery {
            session: Some(self.session.clone()),
            after: self.caught_up,
        };
        let events = match followed_on(self.client, &query).await {
            Some(Ok(events)) => events,
            Some(Err(error)) => return Err(error.into()),
            None => {
                let text = "no daemon has come back; what became of the turn is not known here";
                let advice = format!("drowse attach {} goes on from there", self.name);
                return Err(Failure::new(Exit::NoDaemon, text).with(&advice));
            }
        };
        // Until the snapshot says how far it has gone meanwhile.
        self.replayed_to = u64::MAX;
        if self.person {
            self.screen.aside("attached again", console)?;
        }
        (self.status, self.status_due) = (None, true);
        if self.caught_up.is_none() {
            // The stream ended before it began, so there is nothing to go on behind.
            self.look_again(console).await?;
        }
        Ok(Some(events))
    }

    async fn entered(
        &mut self,
        entry: Option<Entry>,
        console: &mut Console<'_>,
    ) -> Result<Option<Exit>, Failure> {
        let (text, at) = match entry {
            Some(Entry::Text(text, at)) => (text, at),
            Some(Entry::Refused(why)) => {
                self.screen.aside(&format!("not sent: {why}"), console)?;
                self.exit = self.exit.or(Exit::Usage);
                return Ok(None);
            }
            None if self.person => return Ok(Some(self.detached(Exit::Ok, console)?)),
            None => {
                self.lines = None;
                return Ok(None);
            }
        };
        if self.person {
            self.screen.typed();
            self.warned = false;
        }
        match typed::meant(&text, self.person) {
            Meant::Command(Command::Detach) => {
                return Ok(Some(self.detached(Exit::Ok, console)?));
            }
            Meant::Command(command) => self.command(command, console).await?,
            Meant::Unknown(word) => {
                let word = render::one_line(&word).into_owned();
                let text = format!("there is no {word} (/help); /{word} sends it to the agent");
                self.screen.aside(&text, console)?;
            }
            Meant::Message(text) if self.asking.is_answered_by_line_of(at) => {
                self.asking.answer(self.client, Some(text), console).await?;
            }
            Meant::Message(text) => self.say(&text, console).await?,
            Meant::Nothing => {}
        }
        Ok(None)
    }

    async fn say(&mut self, text: &str, console: &mut Console<'_>) -> Result<(), Failure> {
        let key = uuid::Uuid::new_v4().to_string();
        let ask = async || self.client.send(&self.session, text, Some(&key)).await;
        // The same key is the same message, so it can be said to the next daemon as well.
        let sent = of_either_daemon(ask).await;
        match sent {
            Ok(sent) => {
                self.mine.insert(sent.message);
                self.known.add(sent.message);
                if self.person {
                    let text = format!("message {} sent", sent.message);
                    self.screen.aside(&text, console)?;
                }
            }
            Err(error) => {
                let text = format!("not sent: {}", chain(&error));
                self.screen.aside(&text, console)?;
                if !self.person {
                    // What follows may mean something else without it.
                    self.exit = self.exit.or(Exit::of(&error));
                    self.lines = None;
                }
            }
        }
        Ok(())
    }

    async fn command(
        &mut self,
        command: Command,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        let (client, session) = (self.client, &self.session);
        let done = match command {
            Command::Interrupt => client
                .interrupt(session)
                .await
                .map(|()| "interrupting the turn".to_owned())
                .map_err(Failure::from),
            Command::Release => order::give(client, Order::Release, session)
                .await
                .map(|()| "releasing it".to_owned()),
            Command::Stop => order::give(client, Order::Stop { all: false }, session)
                .await
                .map(|()| "stopping it".to_owned()),
            Command::Explain => client
                .session(session)
                .await
                .map(|report| render::explain(&report, &console.view()))
                .map_err(Failure::from),
            Command::Help => Ok(help()),
            Command::Detach => Ok(String::new()),
        };
        let text = match done {
            Ok(text) | Err(Failure::Told { text, .. }) => text,
            Err(Failure::NoReader) => return Err(Failure::NoReader),
        };
        Ok(self.screen.aside(&text, console)?)
    }

    /// Ctrl-C: the turn first, this command second.
    async fn interrupted(&mut self, console: &mut Console<'_>) -> Result<Option<Exit>, Failure> {
        // The terminal shows `^C`.
        self.screen.prompted();
        if !self.person || self.warned {
            return Ok(Some(self.detached(Exit::Interrupted, console)?));
        }
        self.warned = true;
        let done = match self.client.interrupt(&self.session).await {
            Ok(()) => "interrupting the turn".to_owned(),
            Err(error) => chain(&error),
        };
        let text = format!("{done}; Ctrl-C again leaves");
        self.screen.aside(&text, console)?;
        Ok(None)
    }

    fn detached(&mut self, exit: Exit, console: &mut Console<'_>) -> Result<Exit, Failure> {
        if self.person {
            self.screen.prompted();
        }
        let name = &self.name;
        let text = format!(
            "detached; {name} goes on as it is (drowse attach {name} comes back, drowse stop {name} ends its process)"
        );
        self.screen.aside(&text, console)?;
        Ok(exit)
    }
}

fn help() -> String {
    let lines = Command::ALL
        .iter()
        .map(|(word, _, what)| format!("{word:<11} {what}"));
    let mut lines: Vec<String> = lines.collect();
    lines.push(
        "anything else is a message; a backslash at the end of a line, or a paste, makes it longer"
            .to_owned(),
    );
    lines.push("//word      sends /word to the agent".to_owned());
    lines.join("\n")
}
