//! What an observer leaves for the one that follows the same agent after it.
//!
//! Fed by the observers. JSON with a number in front that names its form: an observer of a later
//! release fills in what an earlier one did not know, and another form is not read at all. It
//! holds what agents said and asked, so it is never logged.

use drowse_messages::{AgentStatus, Task};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Fact, Seen};

/// Counts up when what an earlier release left would be misread.
const FORM: u32 = 1;

/// An observer as bytes.
pub(super) fn keep(observer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&(FORM, observer))
        .expect("observers are made of text, numbers and sets of them")
}

/// The observer in these bytes, if they hold one of this form.
pub(super) fn restore<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    #[derive(Deserialize)]
    struct Kept<T>(u32, T);
    let Kept(form, observer) = serde_json::from_slice(bytes).ok()?;
    (form == FORM).then_some(observer)
}

impl Seen {
    /// Restates a whole roster.
    pub(super) fn roster(&mut self, tasks: impl Iterator<Item = Task>) {
        self.facts.push(Fact::Roster(tasks.collect()));
    }

    /// Restates what holds, if it does.
    pub(super) fn status_if(&mut self, holds: bool, status: AgentStatus) {
        if holds {
            self.status(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use drowse_messages::{TurnEnded, WallTime};

    use super::super::golden::{Recorded, transcripts};
    use super::super::{Acp, Adapter, Claude, Codex, Direction, Mcp, Observer, Pi, Raw};
    use super::*;

    const ADAPTERS: [&dyn Adapter; 5] = [&Acp, &Claude, &Codex, &Mcp, &Pi];

    /// What changes a session, and what is shown of its answers; notices are counted anew.
    fn facts_of(observer: &mut dyn Observer, recorded: &Recorded) -> Vec<Fact> {
        let direction = recorded.direction();
        let seen = direction.map(|it| observer.observe(it, recorded.line.as_bytes()));
        let mut facts = seen.unwrap_or_default().facts;
        facts.retain(|fact| !matches!(fact, Fact::Status(AgentStatus::Notice { .. })));
        facts
    }

    /// D41: an observer that goes on from any checkpoint of a recorded conversation says of the
    /// rest what the first one would have said.
    #[test]
    fn another_observer_goes_on_from_any_line() {
        let mut adopted = 0;
        for adapter in ADAPTERS {
            let all = transcripts(adapter.protocol().as_str());
            let lives = all.iter().flat_map(|(name, lines)| {
                // Each start in a transcript is another process, with an observer of its own.
                let lives = lines.split(|line| line.direction().is_none());
                lives.map(move |lines| (name, lines))
            });
            for (name, lines) in lives {
                let mut first = adapter.observe(None, "fresh");
                first.open();
                let said: Vec<(Vec<Fact>, Option<Vec<u8>>)> = lines
                    .iter()
                    .map(|line| (facts_of(&mut *first, line), first.checkpoint()))
                    .collect();
                for (at, (_, checkpoint)) in said.iter().enumerate() {
                    let Some(checkpoint) = checkpoint else {
                        continue;
                    };
                    let next = adapter.adopt(checkpoint, WallTime(0));
                    let (mut second, _) = next.expect("it is what the first one left");
                    adopted += 1;
                    for (line, (expected, _)) in lines.iter().zip(&said).skip(at + 1) {
                        let now = facts_of(&mut *second, line);
                        assert_eq!(&now, expected, "{name}: from line {at}, at {}", line.line);
                    }
                }
            }
        }
        assert!(
            adopted > 100,
            "the transcripts hold more than {adopted} lines"
        );
    }

    /// What is restated is what holds: as many asks, the same tasks, a turn if one runs.
    #[test]
    fn what_holds_is_restated() {
        let mut observer = Claude.observe(None, "fresh");
        observer.open();
        let mut hear = |direction, line: &str| observer.observe(direction, line.as_bytes());
        hear(
            Direction::In,
            r#"{"type":"control_request","request_id":"drowse-1","request":{"subtype":"initialize"}}"#,
        );
        hear(
            Direction::Out,
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"drowse-1","response":{"claude_code_version":"2.1.332"}}}"#,
        );
        hear(
            Direction::In,
            r#"{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]}}"#,
        );
        hear(
            Direction::Out,
            r#"{"type":"control_request","request_id":"a1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm"}}}"#,
        );
        let checkpoint = observer.checkpoint().expect("it is ready");
        let (mut next, seen) = Claude.adopt(&checkpoint, WallTime(0)).expect("it fits");
        let statuses: Vec<_> = seen.facts.iter().collect();
        assert!(
            matches!(
                &statuses[..],
                [
                    Fact::Roster(tasks),
                    Fact::Status(AgentStatus::TurnStarted),
                    Fact::Status(AgentStatus::Asked(ask)),
                ] if tasks.is_empty() && ask.id == "a1" && ask.title == "Bash: rm"
            ),
            "{statuses:?}"
        );
        let [initialize] = &seen.write[..] else {
            panic!("{:?}", seen.write)
        };
        assert!(String::from_utf8_lossy(initialize).contains("initialize"));
        let answered = next.answer("a1", &drowse_messages::Answer::Allow);
        assert_eq!(answered.write.len(), 1);
    }

    /// Behaviour 99: Claude rests although no result was heard: that is no answer.
    #[test]
    fn a_result_that_went_by_is_lost() {
        let ready = r#"[1,{"ready":true,"turn":{"running":true,"prompts":1,"echoes":1,"echoing":true},
            "asks":{"pending":{"gone":{"input":{},"kind":"approval","title":"x"}}}}]"#;
        let (mut observer, seen) = Claude
            .adopt(ready.as_bytes(), WallTime(0))
            .expect("this form is read");
        let request = String::from_utf8(seen.write[0].clone()).expect("it is JSON");
        let request: serde_json::Value = serde_json::from_str(&request).expect("it is JSON");
        observer.observe(Direction::In, &seen.write[0]);
        let answer = serde_json::json!({ "type": "control_response", "response": {
            "subtype": "success", "request_id": request["request_id"],
            "response": { "session_state": "idle" }, "pending_permission_requests": [],
        }});
        let seen = observer.observe(Direction::Out, answer.to_string().as_bytes());
        let settled = Fact::Status(AgentStatus::Settled {
            id: "gone".to_owned(),
        });
        let lost = Fact::Status(AgentStatus::TurnEnded(TurnEnded {
            outcome: drowse_messages::TurnOutcome::Lost,
            text: String::new(),
            answers: true,
            left: 0,
        }));
        assert_eq!(seen.facts, [settled, lost]);
    }

    /// Behaviour 99: Pi is believed to rest when it says so twice; what ran is lost then.
    #[test]
    fn a_run_that_went_by_is_lost() {
        let ready = r#"[1,{"ready":true,"turn":{"running":true,"accepted":true,"ran":true}}]"#;
        let (mut observer, _) = Pi
            .adopt(ready.as_bytes(), WallTime(0))
            .expect("this form is read");
        let rests = serde_json::json!({ "type": "response", "command": "get_state",
            "success": true, "id": "x", "data": { "sessionId": "s", "isStreaming": false }});
        let rests = rests.to_string();
        let ends = |observer: &mut dyn Observer| {
            let seen = observer.observe(Direction::Out, rests.as_bytes());
            let ended = |fact: &Fact| matches!(fact, Fact::Status(AgentStatus::TurnEnded(_)));
            seen.facts.iter().any(ended)
        };
        assert_eq!([ends(&mut *observer), ends(&mut *observer)], [false, true]);
        assert!(!ends(&mut *observer), "once");
    }

    /// D42: what is no checkpoint, or one of another form, is not adopted.
    #[test]
    fn garbage_is_not_adopted() {
        let all: [&dyn Adapter; 6] = [&Acp, &Claude, &Codex, &Mcp, &Pi, &Raw];
        for adapter in all {
            for bytes in ["", "[]", "{}", "null", "[2,{}]", "[1,7]", "\u{fffd}"] {
                let adopted = adapter.adopt(bytes.as_bytes(), WallTime(0));
                assert!(adopted.is_none(), "{} {bytes:?}", adapter.protocol());
            }
        }
        assert!(
            Claude
                .adopt(b"[1,{\"ready\":false}]", WallTime(0))
                .is_none()
        );
    }
}
