//! One test per rule; the transcripts are in `golden.txt`.

use std::time::Duration;

use drowse_messages::{AgentStatus, Answer, AskKind, Conversation, Recipe, TurnOutcome};
use serde_json::{Value, json};

use super::super::golden::{check, ends, feed, shown};
use super::super::{Adapter, Direction, Fact, Observer, Pass, Seen};
use super::Acp;

/// An agent that can do everything, but for what is taken away.
fn able(without: &[&str]) -> Value {
    let mut session = json!({ "resume": {}, "list": {}, "close": {} });
    for name in without {
        session.as_object_mut().expect("an object").remove(*name);
    }
    json!({ "protocolVersion": 1, "agentInfo": { "name": "it", "version": "1" },
        "agentCapabilities": { "loadSession": true, "sessionCapabilities": session } })
}

fn known(settings: &[(&str, &str)]) -> Conversation {
    Conversation {
        native_id: "c1".to_owned(),
        resumable: true,
        settings: settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        ..Conversation::default()
    }
}

/// An agent that is told what its observer writes, and answers.
struct Spoken {
    observer: Box<dyn Observer>,
    /// Requests it has not answered.
    asked: Vec<Value>,
    /// Everything written, but for answers to it.
    facts: Vec<Fact>,
    answers: Vec<Value>,
}

impl Spoken {
    fn open(conversation: Option<&Conversation>) -> Self {
        let recipe = Recipe {
            agent: "it".parse().expect("name"),
            protocol: "acp".parse().expect("name"),
            argv: vec!["it".to_owned()],
            cwd: "/w".into(),
            env: std::iter::empty().collect(),
        };
        let mut observer = Acp.observe_in(&recipe, conversation, "");
        let seen = observer.open();
        let mut this = Self {
            observer,
            asked: Vec::new(),
            facts: Vec::new(),
            answers: Vec::new(),
        };
        this.take(seen);
        this
    }

    /// One that has just begun its first conversation.
    fn new(initialized: Value) -> Self {
        let mut this = Self::open(None);
        this.answer("initialize", &initialized);
        this.answer("session/new", &json!({ "sessionId": "c1" }));
        this.facts.clear();
        this
    }

    fn take(&mut self, seen: Seen) {
        self.facts.extend(seen.facts);
        for line in seen.write {
            let text = line.trim_ascii_end();
            let value: Value = serde_json::from_slice(text).expect("it is JSON");
            assert_eq!(value["jsonrpc"], "2.0");
            if value["id"].is_null() || value["method"].is_null() {
                self.answers.push(value);
            } else {
                self.asked.push(value);
            }
            let seen = self.observer.observe(Direction::In, text);
            self.take(seen);
        }
    }

    fn says(&mut self, line: &Value) {
        let seen = self
            .observer
            .observe(Direction::Out, line.to_string().as_bytes());
        self.take(seen);
    }

    fn updates(&mut self, update: Value) {
        self.says(&json!({ "method": "session/update",
            "params": { "sessionId": "c1", "update": update } }));
    }

    fn chunk(&mut self, text: &str) {
        let content = json!({ "type": "text", "text": text });
        self.updates(json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
    }

    /// The parameters of the oldest request, which is of this method.
    #[track_caller]
    fn asked(&mut self, method: &str) -> Value {
        assert!(!self.asked.is_empty(), "{method} was not asked");
        let asked = self.asked.remove(0);
        assert_eq!(asked["method"], method);
        asked
    }

    #[track_caller]
    fn answer(&mut self, method: &str, result: &Value) -> Value {
        let asked = self.asked(method);
        self.says(&json!({ "id": asked["id"], "result": result }));
        asked["params"].clone()
    }

    #[track_caller]
    fn refuse(&mut self, method: &str, code: i64, message: &str) {
        let asked = self.asked(method);
        let error = json!({ "code": code, "message": message });
        self.says(&json!({ "id": asked["id"], "error": error }));
    }

    fn prompt(&mut self, text: &str) {
        let seen = self.observer.prompt(text);
        self.take(seen);
    }

    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.facts).iter().map(shown).collect()
    }

    fn outcomes(&mut self) -> Vec<(TurnOutcome, String, bool)> {
        let facts = std::mem::take(&mut self.facts);
        let of = |ended: &&drowse_messages::TurnEnded| {
            (ended.outcome.clone(), ended.text.clone(), ended.answers)
        };
        ends(&facts).iter().map(of).collect()
    }

    fn conversation(&self) -> Option<&Conversation> {
        self.facts.iter().rev().find_map(|fact| {
            let Fact::Status(AgentStatus::Conversation(it)) = fact else {
                return None;
            };
            Some(it)
        })
    }
}

/// Recorded transcripts of five agents, line by line.
#[test]
fn transcripts_are_understood() {
    check(&Acp, "acp");
}

/// Rows 67, 70: a new conversation is begun in the session's folder, and can be resumed once a turn
/// was acknowledged, if ever.
#[test]
fn a_conversation_is_begun_where_the_session_is() {
    let mut agent = Spoken::open(None);
    let hello = agent.answer("initialize", &able(&[]));
    assert_eq!(hello["protocolVersion"], 1);
    assert_eq!(hello["clientCapabilities"]["terminal"], false);
    let new = agent.answer("session/new", &json!({ "sessionId": "c1" }));
    assert_eq!(new, json!({ "cwd": "/w", "mcpServers": [] }));
    let conversation =
        "Conversation(Conversation { native_id: \"c1\", path: None, resumable: false })";
    assert_eq!(agent.told(), [conversation, "Ready"]);
    agent.prompt("hi");
    let prompt = agent.answer("session/prompt", &json!({ "stopReason": "end_turn" }));
    assert_eq!(prompt["sessionId"], "c1");
    assert_eq!(prompt["prompt"], json!([{ "type": "text", "text": "hi" }]));
    assert!(agent.conversation().is_some_and(|it| it.resumable));

    let mut forgetful = Spoken::new(json!({ "protocolVersion": 1 }));
    forgetful.prompt("hi");
    forgetful.answer("session/prompt", &json!({ "stopReason": "end_turn" }));
    assert_eq!(forgetful.conversation(), None, "D18: never released");
}

/// Row 73: resumed where that is offered, else loaded; one that offers what it does not have is
/// loaded.
#[test]
fn a_conversation_is_resumed_or_loaded() {
    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &able(&[]));
    let resume = agent.answer("session/resume", &json!({}));
    assert_eq!(
        resume,
        json!({ "sessionId": "c1", "cwd": "/w", "mcpServers": [] })
    );
    assert_eq!(agent.told(), ["Ready"]);

    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &able(&["resume"]));
    agent.chunk("said before");
    agent.answer("session/load", &json!({}));
    assert_eq!(agent.told(), ["Ready"], "its replay is not output");

    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &able(&[]));
    agent.refuse("session/resume", -32601, "Method not found: session/resume");
    agent.chunk("said before");
    agent.answer("session/load", &json!({}));
    assert_eq!(agent.told(), ["Ready"]);
}

/// Row 73: a replay that goes on after the answer is waited for, a round trip at a time.
#[test]
fn a_late_replay_is_swallowed() {
    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &able(&["resume"]));
    agent.chunk("one");
    let modes = json!({ "modes": { "currentModeId": "plan" } });
    agent.answer("session/load", &modes);
    agent.chunk("two");
    let mode = agent.answer("session/set_mode", &json!({}));
    assert_eq!(mode["modeId"], "plan", "which it is in");
    agent.chunk("three");
    agent.answer("session/set_mode", &json!({}));
    assert_eq!(
        agent.told(),
        Vec::<String>::new(),
        "not ready: something was heard"
    );
    agent.answer("session/set_mode", &json!({}));
    assert_eq!(agent.told(), ["Ready"]);
    agent.prompt("next");
    agent.chunk("four");
    assert_eq!(agent.told(), ["TurnStarted", "Output \"four\""]);
}

/// D25: some load an empty conversation for one they have lost, and say nothing: it is noticed.
#[test]
fn an_empty_conversation_is_not_taken_for_the_lost_one() {
    for modes in [json!({}), json!({ "modes": { "currentModeId": "plan" } })] {
        let mut agent = Spoken::open(Some(&known(&[])));
        agent.answer("initialize", &able(&["resume"]));
        agent.answer("session/load", &modes);
        if modes["modes"].is_object() {
            agent.answer("session/set_mode", &json!({}));
        }
        let told = agent.told();
        assert!(told[0].starts_with("CannotResume"), "{told:?}");
    }
}

/// Row 73: Gemini's conversations must be left alone for longer than the minute in which a process
/// began them or took them up, also one that did not live to say that it had.
#[test]
fn a_young_conversation_is_reported() {
    let gemini = json!({ "agentInfo": { "name": "gemini-cli" },
        "agentCapabilities": { "loadSession": true } });
    let minute = Duration::from_secs(60);
    let young = |agent: &mut Spoken| {
        let facts = std::mem::take(&mut agent.facts);
        let is_young = |fact: &&Fact| matches!(fact, Fact::Status(AgentStatus::Young { settles_in }) if *settles_in > minute);
        facts.iter().filter(is_young).count()
    };
    let mut agent = Spoken::open(None);
    agent.answer("initialize", &gemini);
    agent.answer("session/new", &json!({ "sessionId": "c1" }));
    assert_eq!(young(&mut agent), 1);
    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &gemini);
    assert_eq!(young(&mut agent), 1, "it is asked to load");
    agent.chunk("said before");
    agent.answer("session/load", &json!({}));
    assert_eq!(young(&mut agent), 1, "and has");
}

/// D24: a conversation is said to be gone only when it is. An agent whose words say nothing is
/// asked for its list.
#[test]
fn a_lost_conversation_is_told_from_trouble() {
    let refused = |code: i64, words: &str, list: Option<Value>| {
        let mut agent = Spoken::open(Some(&known(&[])));
        let without: &[&str] = if list.is_some() { &[] } else { &["list"] };
        agent.answer("initialize", &able(without));
        agent.refuse("session/resume", code, words);
        if let Some(list) = list {
            agent.answer("session/list", &list);
        }
        agent.told().pop().expect("something is said")
    };
    for (code, words) in [
        (-32002, "Resource not found: c1"),
        (-32603, "Internal error: no rollout found for thread id c1"),
        (-32603, "No previous sessions found for this project."),
    ] {
        let told = refused(code, words, None);
        assert!(told.starts_with("CannotResume"), "{told}");
        assert!(
            told.contains("it was asked for conversation c1 in /w"),
            "{told}"
        );
    }
    for words in ["network unreachable", "API key not found"] {
        let told = refused(-32603, words, None);
        assert!(
            told.starts_with("CannotStart") && told.contains("retry: true"),
            "{told}"
        );
        let there = json!({ "sessions": [{ "sessionId": "c0" }, { "sessionId": "c1" }] });
        let told = refused(-32603, words, Some(there));
        assert!(
            told.starts_with("CannotStart") && told.contains(words),
            "{told}"
        );
        let told = refused(-32603, words, Some(json!({ "sessions": [] })));
        assert!(
            told.starts_with("CannotResume") && told.contains(words),
            "{told}"
        );
    }
}

/// D24: the list is read to its end, page by page.
#[test]
fn a_list_is_read_to_its_end() {
    let mut agent = Spoken::open(Some(&known(&[])));
    agent.answer("initialize", &able(&[]));
    agent.refuse("session/resume", -32603, "Internal error");
    agent.answer(
        "session/list",
        &json!({ "sessions": [], "nextCursor": "2" }),
    );
    let page = agent.answer(
        "session/list",
        &json!({ "sessions": [{ "sessionId": "c1" }] }),
    );
    assert_eq!(page["cursor"], "2");
    assert!(agent.told()[0].starts_with("CannotStart"));
}

/// An agent that wants a login says so at once, and is not started over and over.
#[test]
fn a_wanted_login_is_said() {
    let mut agent = Spoken::open(None);
    let methods = json!([{ "id": "oauth-personal" }, { "id": "api-key" }]);
    agent.answer(
        "initialize",
        &json!({ "protocolVersion": 1, "authMethods": methods }),
    );
    agent.refuse("session/new", -32000, "Authentication required");
    let told = agent.told();
    assert!(told[0].contains("oauth-personal, api-key"), "{told:?}");
    assert!(told[0].contains("retry: false"), "{told:?}");
}

/// What was set in a conversation is remembered with it, whoever set it.
#[test]
fn what_is_set_is_remembered() {
    let mut agent = Spoken::open(None);
    agent.answer("initialize", &able(&[]));
    let new = json!({ "sessionId": "c1", "modes": { "currentModeId": "default" },
        "configOptions": [{ "id": "effort", "currentValue": "low" }] });
    agent.answer("session/new", &new);
    agent.updates(json!({ "sessionUpdate": "current_mode_update", "currentModeId": "default" }));
    assert_eq!(agent.conversation().map(|it| it.settings.len()), Some(0));
    agent.updates(json!({ "sessionUpdate": "current_mode_update", "currentModeId": "plan" }));
    let options = json!([{ "id": "effort", "currentValue": "high" }]);
    agent.updates(json!({ "sessionUpdate": "config_option_update", "configOptions": options }));
    let host =
        r#">{"id":7,"method":"session/set_model","params":{"sessionId":"c1","modelId":"m2"}}"#;
    let facts = feed(&mut *agent.observer, &[host, r#"{"id":7,"result":{}}"#]);
    agent.facts.extend(facts);
    let set = &agent.conversation().expect("it was told").settings;
    let set: Vec<_> = set
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(set, ["mode=plan", "model=m2", "option:effort=\"high\""]);
}

/// E 73: what was set is set again after a wake; a mode that is refused ends the start, so nothing
/// runs in a wider one.
#[test]
fn what_was_set_is_set_again() {
    let set = [
        ("mode", "plan"),
        ("model", "m2"),
        ("option:effort", "\"high\""),
    ];
    let resumed = json!({ "modes": { "currentModeId": "yolo" },
        "models": { "currentModelId": "m2" },
        "configOptions": [{ "id": "effort", "currentValue": "low" }] });
    let wake = || {
        let mut agent = Spoken::open(Some(&known(&set)));
        agent.answer("initialize", &able(&[]));
        agent.answer("session/resume", &resumed);
        agent
    };
    let mut agent = wake();
    let option = agent.answer("session/set_config_option", &json!({}));
    assert_eq!(
        option,
        json!({ "sessionId": "c1", "configId": "effort", "value": "high" })
    );
    let mode = agent.answer("session/set_mode", &json!({}));
    assert_eq!(mode, json!({ "sessionId": "c1", "modeId": "plan" }));
    assert_eq!(agent.told(), ["Ready"]);
    assert!(agent.asked.is_empty(), "the model is what it was");

    let mut agent = wake();
    agent.refuse("session/set_config_option", -32602, "no such value");
    agent.refuse("session/set_mode", -32602, "no such mode");
    let told = agent.told();
    assert!(told[0].starts_with("Notice"), "{told:?}");
    assert!(
        told[1].starts_with("CannotStart") && told[1].contains("plan"),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
}

/// Turns end with the answer to their prompt, whatever it says.
#[test]
fn the_answer_to_a_prompt_is_the_end() {
    let mut agent = Spoken::new(able(&[]));
    let mut ends_with = |result: Value| {
        agent.prompt("hi");
        agent.chunk("I look.");
        agent.updates(json!({ "sessionUpdate": "tool_call", "toolCallId": "t" }));
        agent.chunk("Done");
        agent.chunk(".");
        agent.answer("session/prompt", &result);
        agent.outcomes().pop().expect("it ended")
    };
    let said = |outcome| (outcome, "Done.".to_owned(), true);
    let stop = |reason: &str| json!({ "stopReason": reason });
    assert_eq!(ends_with(stop("end_turn")), said(TurnOutcome::Completed));
    assert_eq!(ends_with(stop("max_tokens")), said(TurnOutcome::Completed));
    assert_eq!(ends_with(stop("cancelled")), said(TurnOutcome::Interrupted));
    assert!(matches!(
        ends_with(stop("refusal")).0,
        TurnOutcome::Failed { .. }
    ));
    agent.prompt("hi");
    agent.refuse("session/prompt", 429, "quota");
    let error = "quota".to_owned();
    assert_eq!(
        agent.outcomes(),
        [(TurnOutcome::Failed { error }, String::new(), true)]
    );
}

/// Two prompts at once: the second turn begins with the end of the first.
#[test]
fn prompts_that_wait_are_turns_of_their_own() {
    let mut agent = Spoken::new(able(&[]));
    agent.prompt("one");
    agent.prompt("two");
    agent.facts.clear();
    agent.answer("session/prompt", &json!({ "stopReason": "end_turn" }));
    let told = agent.told();
    assert!(told[1].starts_with("TurnEnded"), "{told:?}");
    assert_eq!(told[2], "TurnStarted");
    agent.answer("session/prompt", &json!({ "stopReason": "end_turn" }));
    assert_eq!(agent.told().len(), 1);
}

/// Agents that say by themselves that they work, in either way of saying so.
#[test]
fn work_without_a_prompt_is_a_turn() {
    let mut agent = Spoken::new(able(&[]));
    let status = |kind: &str| {
        let meta = json!({ "codex": { "threadStatus": { "type": kind } } });
        json!({ "sessionUpdate": "session_info_update", "_meta": meta })
    };
    let state = |state: &str| json!({ "sessionUpdate": "state_update", "state": state });
    for [begins, ends] in [
        [status("active"), status("idle")],
        [state("running"), state("idle")],
    ] {
        agent.updates(ends.clone());
        assert!(agent.told().is_empty(), "it rests already");
        agent.updates(begins.clone());
        agent.chunk("By the way.");
        assert_eq!(agent.facts[0], Fact::Status(AgentStatus::TurnStarted));
        agent.updates(ends.clone());
        let said = "By the way.".to_owned();
        assert_eq!(agent.outcomes(), [(TurnOutcome::Completed, said, false)]);
        agent.prompt("hi");
        agent.updates(begins);
        agent.updates(ends);
        agent.answer("session/prompt", &json!({ "stopReason": "end_turn" }));
        assert_eq!(
            agent.outcomes().len(),
            1,
            "with a prompt its answer is the end"
        );
    }
}

fn ask(agent: &mut Spoken, id: u32, kinds: &[&str]) -> String {
    let option =
        |kind: &&str| json!({ "optionId": format!("{kind}!"), "name": kind, "kind": kind });
    let options: Vec<_> = kinds.iter().map(option).collect();
    let params = json!({ "sessionId": "c1", "options": options,
        "toolCall": { "toolCallId": "t", "title": "rm -rf x" } });
    agent.says(&json!({ "id": id, "method": "session/request_permission", "params": params }));
    let Some(Fact::Status(AgentStatus::Asked(ask))) = agent.facts.pop() else {
        panic!("it is asked")
    };
    assert_eq!(ask.title, "rm -rf x");
    assert!(ask.detail.contains("toolCallId"));
    assert_eq!(ask.kind == AskKind::Question, kinds == ["other"]);
    ask.id
}

/// D16: a permission is answered once, with the option that means it; yes and no are for this once.
#[test]
fn permissions_are_answered() {
    let all = ["allow_always", "allow_once", "reject_once"];
    let text = |words: &str| Answer::Text(words.to_owned());
    for (kinds, answer, chosen) in [
        (&all[..], Answer::Allow, Some("allow_once!")),
        (&all[..], Answer::Deny, Some("reject_once!")),
        (&all[..1], Answer::Allow, Some("allow_always!")),
        (&all[..2], Answer::Deny, None),
        (&all[..], text("allow_always"), Some("allow_always!")),
        (&all[..], text("3"), Some("reject_once!")),
        (&all[..], text("rather not"), Some("reject_once!")),
        (&["other"][..], text("other"), Some("other!")),
        (&["other"][..], Answer::Allow, None),
    ] {
        let mut agent = Spoken::new(able(&[]));
        agent.prompt("hi");
        let id = ask(&mut agent, 0, kinds);
        let seen = agent.observer.answer(&id, &answer);
        agent.take(seen);
        let outcome = match chosen {
            Some(id) => json!({ "outcome": "selected", "optionId": id }),
            None => json!({ "outcome": "cancelled" }),
        };
        let expected = json!({ "jsonrpc": "2.0", "id": 0, "result": { "outcome": outcome } });
        assert_eq!(agent.answers, [expected], "{kinds:?} {answer:?}");
        assert_eq!(agent.observer.answer(&id, &answer), Seen::default(), "once");
    }
}

/// D16: what is asked is void when it is withdrawn, when its turn ends, and when it is cancelled;
/// the protocol wants the last one said to the agent.
#[test]
fn questions_do_not_outlive_their_turn() {
    let mut agent = Spoken::new(able(&[]));
    agent.prompt("hi");
    let ids: Vec<_> = (0..4)
        .map(|id| ask(&mut agent, id, &["allow_once"]))
        .collect();
    assert_eq!(ids, ["0", "1", "2", "3"]);
    agent.facts.clear();
    agent.says(&json!({ "method": "$/cancel_request", "params": { "requestId": 0 } }));
    let host = r#">{"id":1,"result":{"outcome":{"outcome":"cancelled"}}}"#;
    let facts = feed(&mut *agent.observer, &[host]);
    agent.facts.extend(facts);
    assert_eq!(
        agent.told(),
        [r#"Settled { id: "0" }"#, r#"Settled { id: "1" }"#]
    );
    let seen = agent.observer.interrupt();
    agent.take(seen);
    assert_eq!(agent.answers[0]["method"], "session/cancel");
    assert_eq!(
        agent.answers[1]["result"]["outcome"]["outcome"],
        "cancelled"
    );
    assert_eq!(agent.answers.len(), 3);
    assert_eq!(agent.told().len(), 2);
    ask(&mut agent, 9, &["allow_once"]);
    agent.facts.clear();
    agent.answer("session/prompt", &json!({ "stopReason": "cancelled" }));
    assert!(agent.told().contains(&r#"Settled { id: "9" }"#.to_owned()));
}

/// Files and terminals are not lent: whoever asks for one is told, and does not wait for ever.
#[test]
fn requests_of_the_agent_are_refused() {
    let mut agent = Spoken::new(able(&[]));
    for method in [
        "fs/read_text_file",
        "terminal/create",
        "craft/drainMidTurnQueue",
    ] {
        agent.says(&json!({ "id": "a", "method": method, "params": {} }));
        let answer = agent.answers.pop().expect("it is answered");
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("a"), &json!(-32601))
        );
    }
}

/// A host that has the agent answers it, and shakes hands: nothing is written beside it, and what
/// was heard so far can be gone on with at any time.
#[test]
fn beside_a_host_nothing_is_written() {
    let mut observer = Acp.observe(None, "");
    assert_eq!(observer.listen(), Seen::default());
    let lines = [
        (
            Direction::In,
            r#"{"id":0,"method":"initialize","params":{}}"#,
        ),
        (
            Direction::Out,
            r#"{"id":0,"result":{"agentCapabilities":{"loadSession":true}}}"#,
        ),
        (
            Direction::In,
            r#"{"id":1,"method":"session/new","params":{}}"#,
        ),
        (Direction::Out, r#"{"id":1,"result":{"sessionId":"c1"}}"#),
        (
            Direction::Out,
            r#"{"id":0,"method":"fs/read_text_file","params":{}}"#,
        ),
    ];
    for (direction, line) in lines {
        assert!(
            observer
                .observe(direction, line.as_bytes())
                .write
                .is_empty()
        );
        let checkpoint = observer.checkpoint().expect("at any time");
        let (next, _) = Acp
            .adopt(&checkpoint, drowse_messages::WallTime(0))
            .expect("it listens too");
        observer = next;
    }
}

/// A host has several conversations in one process: it can be given up once each of them has a
/// turn that was acknowledged.
#[test]
fn a_process_is_given_up_for_all_its_conversations() {
    let mut agent = Spoken::new(able(&[]));
    let mut hear = |line: &str| {
        let facts = feed(&mut *agent.observer, &[line]);
        let of = |fact: &Fact| {
            let Fact::Status(AgentStatus::Conversation(it)) = fact else {
                return None;
            };
            Some((it.native_id.clone(), it.resumable))
        };
        facts.iter().filter_map(of).collect::<Vec<_>>()
    };
    let known = |id: &str, resumable| [(id.to_owned(), resumable)];
    hear(r#">{"id":1,"method":"session/prompt","params":{"sessionId":"c1"}}"#);
    assert_eq!(
        hear(r#"{"id":1,"result":{"stopReason":"end_turn"}}"#),
        known("c1", true)
    );
    hear(r#">{"id":2,"method":"session/new","params":{}}"#);
    assert_eq!(
        hear(r#"{"id":2,"result":{"sessionId":"c2"}}"#),
        known("c2", false)
    );
    hear(r#">{"id":3,"method":"session/prompt","params":{"sessionId":"c1"}}"#);
    assert!(hear(r#"{"id":3,"result":{"stopReason":"end_turn"}}"#).is_empty());
    let close = r#">{"id":4,"method":"session/close","params":{"sessionId":"c2"}}"#;
    assert_eq!(hear(close), known("c2", true));
}

/// A conversation is closed where that is offered.
#[test]
fn goodbye_is_said_where_it_is_understood() {
    for (without, said) in [(&[][..], 1), (&["close"][..], 0)] {
        let mut agent = Spoken::new(able(without));
        let seen = agent.observer.close();
        assert_eq!(seen.write.len(), said);
    }
}

/// Speaks as a host through a relay with an agent that answers everything.
struct Relayed(Box<dyn super::super::Relay>);

impl Relayed {
    fn host(&mut self, line: &Value) {
        assert_eq!(self.0.from_host(line.to_string().as_bytes()), Pass::AsIs);
    }

    fn agent(&mut self, line: &Value) -> Pass {
        self.0.from_agent(line.to_string().as_bytes())
    }

    /// What the agent is asked next, after it answered `asked`.
    #[track_caller]
    fn next(&mut self, asked: &Value, result: &Value) -> Option<Value> {
        match self.agent(&json!({ "id": asked["id"], "result": result })) {
            Pass::Answered(line) => Some(serde_json::from_slice(&line).expect("it is JSON")),
            Pass::Swallowed => None,
            pass @ (Pass::AsIs | Pass::Instead(_)) => panic!("the host must not see it: {pass:?}"),
        }
    }
}

/// The memory of a relay whose host shook hands, began a conversation and set its mode.
fn remembered() -> Vec<u8> {
    let mut relay = Relayed(Acp.relay(None).expect("it has one"));
    assert!(relay.0.is_open());
    let hello = json!({ "protocolVersion": 1, "clientInfo": { "name": "host" } });
    let cwd = json!({ "cwd": "/w", "mcpServers": [{ "name": "s" }] });
    let mode = json!({ "sessionId": "c1", "modeId": "plan" });
    for (id, (method, params, result)) in [
        ("initialize", hello, able(&[])),
        ("authenticate", json!({ "methodId": "key" }), json!({})),
        ("session/new", cwd.clone(), json!({ "sessionId": "c1" })),
        ("session/set_mode", mode, json!({})),
        ("session/new", cwd, json!({ "sessionId": "c2" })),
        ("session/close", json!({ "sessionId": "c2" }), json!({})),
        ("session/prompt", json!({ "sessionId": "c1" }), json!({})),
    ]
    .into_iter()
    .enumerate()
    {
        relay.host(&json!({ "id": id, "method": method, "params": params }));
        let answer = json!({ "id": id, "result": result });
        assert_eq!(relay.agent(&answer), Pass::AsIs, "{method}");
    }
    relay.0.memory()
}

/// The next process hears the host's handshake, and the host hears nothing of it.
#[test]
fn a_relay_says_the_handshake_again() {
    let mut relay = Relayed(Acp.relay(Some(&remembered())).expect("it has one"));
    let first = relay.0.reopen();
    let [first] = &first[..] else {
        panic!("one thing at a time")
    };
    assert!(!relay.0.is_open());
    let asked: Value = serde_json::from_slice(first).expect("it is JSON");
    assert_eq!(asked["method"], "initialize");
    assert_eq!(asked["params"]["clientInfo"]["name"], "host");
    let asked = relay.next(&asked, &able(&[])).expect("a login");
    assert_eq!(asked["params"]["methodId"], "key");
    let asked = relay.next(&asked, &json!({})).expect("a conversation");
    let params = json!({ "sessionId": "c1", "cwd": "/w", "mcpServers": [{ "name": "s" }] });
    assert_eq!(
        (&asked["method"], &asked["params"]),
        (&json!("session/resume"), &params)
    );
    let update = json!({ "method": "session/update", "params": {} });
    assert_eq!(relay.agent(&update), Pass::Swallowed);
    let modes = json!({ "modes": { "currentModeId": "yolo" } });
    let asked = relay.next(&asked, &modes).expect("its mode");
    assert_eq!(asked["params"]["modeId"], "plan");
    assert_eq!(relay.next(&asked, &json!({})), None);
    assert!(relay.0.is_open());
    assert_eq!(relay.agent(&update), Pass::AsIs);
    let answer = json!({ "id": "drowse-4", "result": {} });
    assert_eq!(
        relay.agent(&answer),
        Pass::Swallowed,
        "the observer asked that"
    );
}

/// D24: a conversation that the relay does not get back is told by the observer beside it.
#[test]
fn a_lost_conversation_of_a_host_is_told() {
    for (code, told) in [(-32002, "CannotResume"), (-32603, "CannotStart")] {
        let mut observer = Acp.observe(Some(&known(&[])), "");
        observer.listen();
        let params = json!({ "sessionId": "c1" });
        let asked = json!({ "id": "drowse-relay-1", "method": "session/load", "params": params });
        observer.observe(Direction::In, asked.to_string().as_bytes());
        let error = json!({ "code": code, "message": "no" });
        let answer = json!({ "id": "drowse-relay-1", "error": error });
        let seen = observer.observe(Direction::Out, answer.to_string().as_bytes());
        assert!(shown(&seen.facts[0]).starts_with(told), "{seen:?}");
    }
}

/// A replay is swallowed to its end, and one that is not taken up keeps the host's lines back.
#[test]
fn a_relay_stays_shut_until_the_conversation_is_there() {
    let mut relay = Relayed(Acp.relay(Some(&remembered())).expect("it has one"));
    let first = relay.0.reopen();
    let asked: Value = serde_json::from_slice(&first[0]).expect("it is JSON");
    let asked = relay.next(&asked, &able(&["resume"])).expect("a login");
    let asked = relay.next(&asked, &json!({})).expect("a conversation");
    assert_eq!(asked["method"], "session/load");
    let update = json!({ "sessionUpdate": "user_message_chunk" });
    let update = json!({ "method": "session/update", "params": { "update": update } });
    let modes = json!({ "modes": { "currentModeId": "plan" } });
    let asked_round = relay.next(&asked, &modes).expect("a round trip");
    assert_eq!(relay.agent(&update), Pass::Swallowed);
    let again = relay.next(&asked_round, &json!({})).expect("another");
    assert_eq!(relay.next(&again, &json!({})), None);
    assert!(relay.0.is_open());

    let mut relay = Relayed(Acp.relay(Some(&remembered())).expect("it has one"));
    let first = relay.0.reopen();
    let asked: Value = serde_json::from_slice(&first[0]).expect("it is JSON");
    let asked = relay.next(&asked, &able(&[])).expect("a login");
    let asked = relay.next(&asked, &json!({})).expect("a conversation");
    let no = json!({ "id": asked["id"], "error": { "code": -1, "message": "gone" } });
    assert_eq!(relay.agent(&no), Pass::Swallowed);
    assert!(!relay.0.is_open());
}
