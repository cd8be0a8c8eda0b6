//! Asks the person at the terminal what the agent asks.
//!
//! Fed by the events of a turn and by lines from stdin. Invariant: a line answers only a question
//! that was on the screen before the line was read; one typed for a question that somebody else
//! has settled meanwhile is dropped, never given to the next. Without a terminal it says what is
//! pending and goes on waiting.

use std::collections::VecDeque;
use std::io::{self, BufRead};

use drowse_client::Client;
use drowse_messages::{Answer, Ask, AskKind, SessionEvent};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::chain::chain;
use crate::cli::console::Console;
use crate::cli::failure::Failure;
use crate::cli::render::{cut, one_line, safe};

/// 2000 characters of what an agent asks: a screen.
const DETAIL_CHARS_MAX: usize = 2000;

/// 200 characters of its title.
const TITLE_CHARS_MAX: usize = 200;

/// The questions of one turn.
pub(crate) struct Asking {
    session: String,
    can_ask: bool,
    /// The first one is on the screen.
    pending: VecDeque<Ask>,
    lines: Option<mpsc::Receiver<String>>,
    /// False when the lines are somebody else's to read, who gives the answers to
    /// [`Asking::answer`].
    reads: bool,
    /// Since when the first one has been there.
    shown: Instant,
}

impl Asking {
    pub(crate) fn new(session: &str, can_ask: bool) -> Self {
        Self {
            session: session.to_owned(),
            can_ask,
            pending: VecDeque::new(),
            lines: None,
            reads: true,
            shown: Instant::now(),
        }
    }

    /// The same, for lines that the caller reads.
    pub(crate) fn of_lines_read_elsewhere(session: &str, can_ask: bool) -> Self {
        Self {
            reads: false,
            ..Self::new(session, can_ask)
        }
    }

    /// True while a question is on the screen.
    pub(crate) fn is_asking(&self) -> bool {
        self.can_ask && !self.pending.is_empty()
    }

    /// True when a line that was read at that moment answers the question on the screen.
    pub(crate) fn is_answered_by_line_of(&self, at: Instant) -> bool {
        self.is_asking() && at > self.shown
    }

    /// Makes the questions those that are asked now; for when events were lost.
    pub(crate) fn correct(&mut self, asks: &[Ask], console: &mut Console<'_>) -> io::Result<()> {
        let first = self.pending.front().map(|ask| ask.id.clone());
        self.pending
            .retain(|known| asks.iter().any(|ask| ask.id == known.id));
        if first.is_some() && self.pending.front().map(|ask| &ask.id) != first.as_ref() {
            self.show(console)?;
        }
        asks.iter().try_for_each(|ask| self.asked(ask, console))
    }

    /// Takes notice of questions and of their ends.
    pub(crate) fn take(
        &mut self,
        event: &SessionEvent,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        if let SessionEvent::Asked { ask } = event {
            return self.asked(ask, console);
        }
        if let SessionEvent::Settled { id, by } = event {
            let shown = self.pending.front().is_some_and(|ask| &ask.id == id);
            self.pending.retain(|ask| &ask.id != id);
            if shown {
                console.tell(&format!("settled by {}", one_line(&by.to_string())))?;
                self.show(console)?;
            }
        }
        Ok(())
    }

    fn asked(&mut self, ask: &Ask, console: &mut Console<'_>) -> io::Result<()> {
        if !self.can_ask {
            let (what, id) = (cut(&ask.title, TITLE_CHARS_MAX), one_line(&ask.id));
            let session = &self.session;
            return console.tell(&format!(
                "the agent asks: {what}\n\
                 waiting for an answer: POST /v1/sessions/{session}/asks/{id}"
            ));
        }
        // The same question again is one question.
        if self.pending.iter().any(|known| known.id == ask.id) {
            return Ok(());
        }
        self.pending.push_back(ask.clone());
        if self.pending.len() == 1 {
            self.show(console)?;
        }
        Ok(())
    }

    /// The next line of the person; waits for ever while nothing is asked.
    pub(crate) async fn line(&mut self) -> Option<String> {
        match &mut self.lines {
            Some(lines) if !self.pending.is_empty() => lines.recv().await,
            Some(_) | None => std::future::pending().await,
        }
    }

    /// Gives the person's line to the daemon; `None`: stdin has ended.
    pub(crate) async fn answer(
        &mut self,
        client: &Client,
        line: Option<String>,
        console: &mut Console<'_>,
    ) -> Result<(), Failure> {
        let Some(ask) = self.pending.front().cloned() else {
            return Ok(());
        };
        let Some(line) = line else {
            self.lines = None;
            self.can_ask = false;
            self.pending.clear();
            return Ok(console.tell("stdin has ended; still waiting for an answer from elsewhere")?);
        };
        let Some(answer) = understood(ask.kind, &line) else {
            return Ok(self.prompt(console)?);
        };
        // Taken away first: its own end needs no telling.
        self.pending.pop_front();
        if let Err(error) = client.answer(&self.session, &ask.id, answer).await {
            console.tell(&format!("the answer was not taken: {}", chain(&error)))?;
        }
        Ok(self.show(console)?)
    }

    /// Shows the first question, if there is one.
    fn show(&mut self, console: &mut Console<'_>) -> io::Result<()> {
        let Some(ask) = self.pending.front() else {
            return Ok(());
        };
        let title = cut(&ask.title, TITLE_CHARS_MAX);
        let detail: String = safe(ask.detail.trim())
            .chars()
            .take(DETAIL_CHARS_MAX)
            .collect();
        self.shown = Instant::now();
        console.tell(&format!("the agent asks: {title}"))?;
        if !detail.is_empty() && detail != title {
            console.tell(&detail)?;
        }
        self.listen();
        self.prompt(console)
    }

    fn prompt(&self, console: &mut Console<'_>) -> io::Result<()> {
        let prompt = match self.pending.front().map(|ask| ask.kind) {
            Some(AskKind::Approval) => "allow? [y/n] ",
            Some(AskKind::Question) => "answer: ",
            None => return Ok(()),
        };
        write!(console.err, "drowse: {prompt}")?;
        console.err.flush()
    }

    /// Begins to read lines, or drops those that came before this question was shown.
    fn listen(&mut self) {
        if !self.reads {
            return;
        }
        if let Some(lines) = &mut self.lines {
            while lines.try_recv().is_ok() {}
            return;
        }
        // 1: nobody types ahead of a question.
        let (sender, receiver) = mpsc::channel(1);
        self.lines = Some(receiver);
        // A thread of its own, because a read from a terminal cannot be given up. It ends with
        // the process, which does not wait for it.
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                if sender.blocking_send(line).is_err() {
                    break;
                }
            }
        });
    }
}

/// The answer in a line; `None`: it is none, ask again.
fn understood(kind: AskKind, line: &str) -> Option<Answer> {
    let line = line.trim();
    match kind {
        AskKind::Approval => match line.to_lowercase().as_str() {
            "y" | "yes" => Some(Answer::Allow),
            "n" | "no" => Some(Answer::Deny),
            _ => None,
        },
        AskKind::Question => (!line.is_empty()).then(|| Answer::Text(line.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use drowse_messages::Who;

    use super::*;

    #[test]
    fn only_a_clear_word_is_an_answer() {
        let approval = |line| understood(AskKind::Approval, line);
        assert_eq!(approval(" Yes "), Some(Answer::Allow));
        assert_eq!(approval("n"), Some(Answer::Deny));
        for unclear in ["", "yep?", "1"] {
            assert_eq!(approval(unclear), None);
        }
        assert_eq!(understood(AskKind::Question, " "), None);
        let words = Answer::Text("blue".to_owned());
        assert_eq!(understood(AskKind::Question, "blue "), Some(words));
    }

    fn asked(id: &str) -> SessionEvent {
        SessionEvent::Asked {
            ask: Ask {
                id: id.to_owned(),
                kind: AskKind::Approval,
                title: format!("Bash wants to run {id}"),
                detail: String::new(),
            },
        }
    }

    fn told(asking: &mut Asking, event: &SessionEvent) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut console = Console {
            out: &mut out,
            err: &mut err,
            json: false,
            columns: None,
            can_ask: false,
            home: None,
        };
        asking.take(event, &mut console).unwrap();
        assert!(out.is_empty(), "a question is no result");
        String::from_utf8(err).unwrap()
    }

    /// D16: one that cannot be asked here is told of, with the way to answer it.
    #[test]
    fn without_a_terminal_a_question_is_told_and_waited_for() {
        let text = told(&mut Asking::new("fix-tests", false), &asked("rm"));
        assert!(text.contains("Bash wants to run rm"), "{text}");
        assert!(
            text.contains("POST /v1/sessions/fix-tests/asks/rm"),
            "{text}"
        );
    }

    /// D16: somebody else's answer takes the question off the screen and brings the next.
    #[test]
    fn a_question_settled_elsewhere_makes_room_for_the_next() {
        let mut asking = Asking::new("fix-tests", true);
        let (_sender, lines) = mpsc::channel(1);
        asking.lines = Some(lines);
        assert!(told(&mut asking, &asked("a")).ends_with("allow? [y/n] "));
        assert_eq!(
            told(&mut asking, &asked("a")),
            "",
            "asked twice, shown once"
        );
        assert_eq!(told(&mut asking, &asked("b")), "", "one at a time");
        let settled = SessionEvent::Settled {
            id: "a".to_owned(),
            by: Who::Client("web".to_owned()),
        };
        let text = told(&mut asking, &settled);
        assert!(
            text.starts_with("drowse: settled by web\ndrowse: the agent asks: Bash wants to run b")
        );
    }

    /// A line typed before a question was shown does not answer it.
    #[test]
    fn a_line_typed_for_another_question_is_dropped() {
        let mut asking = Asking::new("fix-tests", true);
        let (sender, lines) = mpsc::channel(1);
        asking.lines = Some(lines);
        sender.try_send("y".to_owned()).unwrap();
        told(&mut asking, &asked("b"));
        assert!(asking.lines.unwrap().try_recv().is_err());
    }
}
