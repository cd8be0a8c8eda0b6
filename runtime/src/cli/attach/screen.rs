//! What `attach` shows: answers as they come, and what happens besides.
//!
//! Fed by events in their order. Answers go to `out`, everything else to `err`. Invariants: no
//! control character of an agent's or another client's reaches the terminal; of one answer no
//! piece is shown twice, and none is left out: after a break the pieces are held back, and the
//! rest follows when the answer is whole.

use std::io;

use drowse_messages::{Event, MessageId, MessageState, SavedMessage, SessionEvent};

use crate::cli::console::Console;
use crate::cli::render::{cut, event_line, safe};
use crate::cli::talk::{account, is_expected};

/// 4 MiB: as much of an answer as is kept, so more of it could not be compared.
const PRINTED_BYTES_MAX: usize = 4 << 20;

/// 20 lines and 2000 characters of what was said before: a third of a screen for each.
const PAST_LINES_MAX: usize = 20;
const PAST_CHARS_MAX: usize = 2000;

/// Which pieces of an answer were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pieces {
    /// Every one so far.
    All,
    /// Not the first ones: they were said before we came.
    Late,
    /// Some are lost: no more are shown, the rest follows at the end.
    Held,
}

/// The answer that is being given.
#[derive(Debug)]
struct Current {
    /// `None`: to no message, the agent began by itself.
    message: Option<MessageId>,
    printed: String,
    pieces: Pieces,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Screen {
    /// True for a person at a terminal, who sees more than answers.
    person: bool,
    colour: bool,
    /// True when what was written last does not end its line.
    mid_line: bool,
    current: Option<Current>,
}

/// How to show what ours is.
#[derive(Clone, Copy)]
enum Ink {
    /// What happens besides.
    Dim,
    /// What somebody said.
    Bold,
}

impl Screen {
    pub(super) const fn new(person: bool, colour: bool) -> Self {
        Self {
            person,
            colour,
            mid_line: false,
            current: None,
        }
    }

    /// True when a line of its own can be written without cutting an answer in two.
    pub(super) const fn is_free(&self) -> bool {
        !self.mid_line
    }

    /// A prompt was written that waits for the person.
    pub(super) const fn prompted(&mut self) {
        self.mid_line = true;
    }

    /// The person has ended a line, and the terminal has shown it.
    pub(super) const fn typed(&mut self) {
        self.mid_line = false;
    }

    /// Says something that is no answer.
    pub(super) fn aside(&mut self, text: &str, console: &mut Console<'_>) -> io::Result<()> {
        self.end_line(console)?;
        for line in text.lines() {
            self.ink(format!("drowse: {line}").trim_end(), Ink::Dim, console)?;
        }
        console.err.flush()
    }

    fn ink(&self, line: &str, ink: Ink, console: &mut Console<'_>) -> io::Result<()> {
        let code = match ink {
            Ink::Dim => "2",
            Ink::Bold => "1",
        };
        if self.colour {
            writeln!(console.err, "\x1b[{code}m{line}\x1b[0m")
        } else {
            writeln!(console.err, "{line}")
        }
    }

    pub(super) fn end_line(&mut self, console: &mut Console<'_>) -> io::Result<()> {
        if std::mem::take(&mut self.mid_line) {
            // On a terminal both are the same place.
            let end: &mut dyn io::Write = if console.columns.is_some() || !self.person {
                &mut *console.out
            } else {
                &mut *console.err
            };
            end.write_all(b"\n")?;
            end.flush()?;
        }
        Ok(())
    }

    /// What was said before.
    pub(super) fn past(
        &mut self,
        message: &SavedMessage,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        self.said(&message.text, console)?;
        match message.state {
            MessageState::Answered => {
                let answer = shortened(&message.answer);
                self.piece(&answer, console)?;
                self.end_line(console)
            }
            MessageState::Queued => self.aside("it waits", console),
            MessageState::Delivered => self.aside("the agent is at it", console),
            state @ (MessageState::Failed
            | MessageState::Unknown
            | MessageState::Cancelled
            | MessageState::Parked) => {
                self.aside(&account(Some(message.id), state, &message.answer), console)
            }
        }
    }

    /// What somebody said to the agent.
    pub(super) fn said(&mut self, text: &str, console: &mut Console<'_>) -> io::Result<()> {
        self.end_line(console)?;
        for line in shortened(text).lines() {
            self.ink(&format!("> {line}"), Ink::Bold, console)?;
        }
        console.err.flush()
    }

    /// A turn is running whose beginning went by.
    pub(super) fn joins(&mut self, message: Option<MessageId>) {
        self.begin(message, Pieces::Late);
    }

    /// Events were lost, or come later than they happened: so do pieces of the running answer.
    pub(super) fn broke(&mut self) {
        if let Some(current) = &mut self.current {
            current.pieces = match current.message {
                Some(_) => Pieces::Held,
                // Nothing follows at the end of such a turn.
                None => Pieces::Late,
            };
        }
    }

    fn begin(&mut self, message: Option<MessageId>, pieces: Pieces) -> &mut Current {
        self.current.insert(Current {
            message,
            printed: String::new(),
            pieces,
        })
    }

    /// Shows what an event brings; `replayed`: it happened while nobody listened here.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "what else happens is shown as a status, or is of no interest here"
    )]
    pub(super) fn take(
        &mut self,
        event: &Event,
        replayed: bool,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        match &event.what {
            SessionEvent::TurnStarted { message } => {
                let known = self
                    .current
                    .as_ref()
                    .is_some_and(|current| current.message == *message);
                if !known {
                    self.begin(*message, Pieces::All);
                }
                if replayed {
                    self.broke();
                }
            }
            SessionEvent::Output { message, text } => self.output(*message, text, console)?,
            SessionEvent::TurnEnded {
                message: None,
                error,
            } => {
                self.current = None;
                self.end_line(console)?;
                if let Some(error) = error.as_ref().filter(|_| self.person) {
                    let error = cut(error, PAST_CHARS_MAX);
                    self.aside(&format!("the agent's own turn failed: {error}"), console)?;
                }
            }
            // What is asked begins a line of its own.
            SessionEvent::Asked { .. } => self.end_line(console)?,
            SessionEvent::Woken { reason, .. } if !is_expected(*reason) => {
                self.tell(event, console)?;
            }
            SessionEvent::Notice { .. }
            | SessionEvent::StartFailed { .. }
            | SessionEvent::Released { .. }
            | SessionEvent::ReleaseFailed { .. }
            | SessionEvent::LimitWarned { .. }
                if self.person =>
            {
                self.tell(event, console)?;
            }
            SessionEvent::Gap { .. } => {
                self.broke();
                self.tell(event, console)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Without the time: it is now.
    fn tell(&mut self, event: &Event, console: &mut Console<'_>) -> io::Result<()> {
        let line = event_line(event, false);
        let what = line.split_once("  ").map_or(line.as_str(), |(_, it)| it);
        self.aside(what, console)
    }

    fn output(
        &mut self,
        message: Option<MessageId>,
        text: &str,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        let current = match &mut self.current {
            Some(current) if current.message == message => current,
            Some(_) | None => self.begin(message, Pieces::All),
        };
        if current.pieces == Pieces::Held {
            return Ok(());
        }
        if current.printed.len() + text.len() <= PRINTED_BYTES_MAX {
            current.printed.push_str(text);
        } else {
            current.pieces = Pieces::Late;
        }
        self.piece(text, console)
    }

    fn piece(&mut self, text: &str, console: &mut Console<'_>) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        console.out.write_all(safe(text).as_bytes())?;
        console.out.flush()?;
        self.mid_line = !text.ends_with('\n');
        Ok(())
    }

    /// True when the whole answer has to be fetched before [`Screen::ended`].
    pub(super) fn needs_whole(&self, message: MessageId) -> bool {
        !self
            .current
            .as_ref()
            .is_some_and(|current| current.is_whole(message))
    }

    /// What became of a message; `whole` is all of its answer, or what went wrong.
    pub(super) fn ended(
        &mut self,
        message: MessageId,
        state: MessageState,
        whole: &str,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        let current = self
            .current
            .take_if(|current| current.message == Some(message));
        if state != MessageState::Answered {
            return self.aside(&account(Some(message), state, whole), console);
        }
        let Some(current) = current else {
            self.end_line(console)?;
            self.piece(whole, console)?;
            return self.end_line(console);
        };
        if current.is_whole(message) || current.printed.trim() == whole.trim() {
            return self.end_line(console);
        }
        match whole.strip_prefix(current.printed.as_str()) {
            // Nothing printed yet, or its beginning: the rest goes on from there.
            Some(rest) => self.piece(rest, console)?,
            None => {
                self.aside("pieces of this answer went by; it is kept as:", console)?;
                self.piece(whole, console)?;
            }
        }
        self.end_line(console)
    }
}

impl Current {
    fn is_whole(&self, message: MessageId) -> bool {
        self.message == Some(message) && self.pieces == Pieces::All && !self.printed.is_empty()
    }
}

fn shortened(text: &str) -> String {
    let text = safe(text.trim());
    let mut lines: Vec<&str> = text.lines().take(PAST_LINES_MAX + 1).collect();
    let many = lines.len() > PAST_LINES_MAX;
    lines.truncate(PAST_LINES_MAX);
    let joined = lines.join("\n");
    let mut short: String = joined.chars().take(PAST_CHARS_MAX).collect();
    if many || short.len() < joined.len() {
        short.push_str(" …");
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends as one person sees them.
    fn shown(screen: &mut Screen, show: impl FnOnce(&mut Screen, &mut Console<'_>)) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        show(
            screen,
            &mut Console {
                out: &mut out,
                err: &mut err,
                json: false,
                columns: Some(80),
                can_ask: true,
                home: None,
            },
        );
        String::from_utf8([err, out].concat()).unwrap()
    }

    fn play(screen: &mut Screen, events: &[&str], replayed: bool) -> String {
        shown(screen, |screen, console| {
            for event in events {
                let event = format!(r#"{{"seq":1,"at":0,"session":"000000000007",{event}}}"#);
                let event = serde_json::from_str(&event).unwrap();
                screen.take(&event, replayed, console).unwrap();
            }
        })
    }

    fn end(screen: &mut Screen, whole: &str) -> String {
        shown(screen, |screen, console| {
            screen
                .ended(MessageId(3), MessageState::Answered, whole, console)
                .unwrap();
        })
    }

    const TURN: &str = r#""event":"turn_started","message":3"#;
    const HEL: &str = r#""event":"output","message":3,"text":"hel""#;
    const LO: &str = r#""event":"output","message":3,"text":"lo""#;

    /// D33: whatever went by during a break, an answer is shown once and whole.
    #[test]
    fn an_answer_is_shown_once_however_it_came() {
        let mut screen = Screen::new(true, false);
        assert_eq!(play(&mut screen, &[TURN, HEL, LO], false), "hello");
        assert!(!screen.needs_whole(MessageId(3)));
        assert_eq!(end(&mut screen, "not looked at"), "\n");
        // Cut in the middle.
        assert_eq!(play(&mut screen, &[TURN, HEL], false), "hel");
        screen.broke();
        assert_eq!(play(&mut screen, &[LO], false), "");
        assert!(screen.needs_whole(MessageId(3)));
        assert_eq!(end(&mut screen, "hello, whole"), "lo, whole\n");
        // Begun while nobody listened here.
        assert_eq!(play(&mut screen, &[TURN], true), "");
        assert_eq!(play(&mut screen, &[LO], false), "");
        assert_eq!(end(&mut screen, "hello"), "hello\n");
        // All of it went by.
        assert_eq!(end(&mut screen, "hello"), "hello\n");
    }

    /// Whoever comes in the middle of a turn sees the rest as it comes, and then all of it.
    #[test]
    fn a_turn_joined_late_is_shown_live() {
        let mut screen = Screen::new(true, false);
        screen.joins(Some(MessageId(3)));
        assert_eq!(play(&mut screen, &[LO], false), "lo");
        let text = end(&mut screen, "hello");
        assert!(
            text.contains("went by") && text.ends_with("hello\n"),
            "{text}"
        );
        screen.joins(Some(MessageId(3)));
        assert_eq!(play(&mut screen, &[HEL, LO], false), "hello");
        assert_eq!(end(&mut screen, "hello"), "\n", "nothing was missed");
    }

    /// What an agent says moves no cursor and sets no colour.
    #[test]
    fn no_control_character_comes_through() {
        let bad = r#""event":"output","message":3,"text":"a\u001b[2J\u009b\rb""#;
        let notice = r#""event":"notice","text":"\u001b]0;x\u0007""#;
        for colour in [false, true] {
            let mut screen = Screen::new(true, colour);
            let text = play(&mut screen, &[bad], false);
            assert_eq!(text, "a [2J  b");
            let text = play(&mut screen, &[notice], false);
            let ours = text.replace("\x1b[2m", "").replace("\x1b[0m", "");
            assert_eq!(text != ours, colour);
            assert!(
                !ours.contains(|c: char| c.is_control() && c != '\n'),
                "{ours:?}"
            );
        }
    }
}
