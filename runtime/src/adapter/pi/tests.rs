//! One test per rule; the transcripts are in `golden.txt`.

use drowse_messages::{AgentStatus, Answer, AskKind, Conversation, Recipe, TurnOutcome};

use super::super::golden::{check, ends, feed, told};
use super::super::{Adapter, Direction, Fact, Observer, Seen};
use super::Pi;

fn outcomes(observer: &mut dyn Observer, lines: &[&str]) -> Vec<(TurnOutcome, bool)> {
    let facts = feed(observer, lines);
    ends(&facts)
        .into_iter()
        .map(|ended| (ended.outcome.clone(), ended.answers))
        .collect()
}

fn state(id: &str, messages: u32) -> String {
    format!(
        r#"{{"id":"x","type":"response","command":"get_state","success":true,"data":{{"isStreaming":false,"isCompacting":false,"sessionFile":"/s/{id}.jsonl","sessionId":"{id}","messageCount":{messages},"pendingMessageCount":0}}}}"#
    )
}

fn known(resumable: bool) -> Conversation {
    Conversation {
        native_id: "c1".to_owned(),
        path: Some("/s/c1.jsonl".to_owned()),
        resumable,
        ..Conversation::default()
    }
}

fn ready() -> Box<dyn Observer> {
    let mut observer = Pi.observe(None, "");
    assert!(observer.open().write[0].ends_with(b"\"type\":\"get_state\"}\n"));
    assert_eq!(told(&mut *observer, &[&state("c1", 0)])[1..], ["Ready"]);
    observer
}

const PROMPT: &str = r#">{"id":"p","type":"prompt","message":"hi"}"#;
const ACCEPTED: &str = r#"{"id":"p","type":"response","command":"prompt","success":true}"#;
const ACCEPTED_1: &str = r#"{"id":"p","type":"response","command":"prompt","success":true,"data":{"disposition":"started"}}"#;
const START: &str = r#"{"type":"agent_start"}"#;
const END: &str = r#"{"type":"agent_end","messages":[]}"#;
const SETTLED: &str = r#"{"type":"agent_settled","aborted":false}"#;
const RETRY: &str = r#"{"type":"auto_retry_start","attempt":1}"#;
const OK: &str = r#"{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"ok"}],"stopReason":"stop"}}"#;
const ERROR: &str = r#"{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"overloaded"}}"#;

fn failed(error: &str) -> TurnOutcome {
    TurnOutcome::Failed {
        error: error.to_owned(),
    }
}

/// Recorded transcripts of Pi 0.73 and 1.6, line by line.
#[test]
fn transcripts_are_understood() {
    check(&Pi, "pi");
}

/// Rows 67 and 72, D27: resumed by its file; the rest of the command line stays.
#[test]
fn a_plan_names_the_conversation_once() {
    let plan = |line: &str, known: Option<&Conversation>| {
        let recipe = Recipe {
            agent: "pi".parse().expect("name"),
            protocol: "pi".parse().expect("name"),
            argv: line.split(' ').map(str::to_owned).collect(),
            cwd: "/w".into(),
            env: std::iter::once(("PI_OFFLINE".to_owned(), "1".to_owned())).collect(),
        };
        let plan = Pi.plan(&recipe, known, "fresh");
        assert_eq!(plan.env, recipe.env);
        plan.argv.join(" ")
    };
    assert_eq!(plan("pi -e x", None), "pi -e x --mode rpc");
    assert_eq!(plan("pi --mode rpc", Some(&known(false))), "pi --mode rpc");
    assert_eq!(
        plan("pi", Some(&known(true))),
        "pi --mode rpc --session /s/c1.jsonl"
    );
    assert_eq!(plan("pi --session a", None), "pi --session a --mode rpc");
    assert_eq!(
        plan("pi -c --session a", Some(&known(true))),
        "pi --mode rpc --session /s/c1.jsonl"
    );
    let nameless = Conversation {
        path: None,
        ..known(true)
    };
    assert_eq!(plan("pi", Some(&nameless)), "pi --mode rpc --session c1");
}

/// Both ends of a turn: `agent_end` of 0.73, `agent_settled` of 1.x, each exactly once.
#[test]
fn each_dialect_has_its_end() {
    let answered = [(TurnOutcome::Completed, true)];
    assert_eq!(
        outcomes(&mut *ready(), &[PROMPT, ACCEPTED, START, OK, END]),
        answered
    );
    assert_eq!(
        outcomes(&mut *ready(), &[PROMPT, ACCEPTED_1, START, OK, END]),
        []
    );
    let lines = [PROMPT, ACCEPTED_1, START, OK, END, SETTLED];
    assert_eq!(outcomes(&mut *ready(), &lines), answered);
    // A turn of an extension before any prompt: `willRetry` tells the dialect.
    let end = r#"{"type":"agent_end","messages":[],"willRetry":false}"#;
    let own = [(TurnOutcome::Completed, false)];
    assert_eq!(outcomes(&mut *ready(), &[START, OK, end, SETTLED]), own);
}

/// D15: between a failed run and its retry the turn goes on, in both dialects.
#[test]
fn a_retried_run_has_not_ended() {
    let resting = state("c1", 2);
    let retried = "{\"type\":\"auto_retry_end\",\"success\":true}";
    let lines = [
        PROMPT, ACCEPTED, START, ERROR, END, RETRY, &resting, START, retried, OK, END,
    ];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(TurnOutcome::Completed, true)]
    );
    let lines = [
        PROMPT, ACCEPTED_1, START, ERROR, END, &resting, RETRY, &resting, START, OK, END, SETTLED,
    ];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(TurnOutcome::Completed, true)]
    );
    let given_up = r#"{"type":"auto_retry_end","success":false}"#;
    let lines = [
        PROMPT, ACCEPTED, START, ERROR, END, RETRY, START, ERROR, END, given_up, &resting,
    ];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(failed("overloaded"), true)]
    );
}

/// D21: a failed run of 0.73 that is not retried ends as soon as Pi is seen to rest.
#[test]
fn a_failed_run_ends_when_pi_rests() {
    let mut observer = ready();
    feed(&mut *observer, &[PROMPT, ACCEPTED, START, ERROR]);
    let seen = observer.observe(Direction::Out, END.as_bytes());
    assert!(
        seen.facts.is_empty() && seen.write.len() == 1,
        "asked for its state: {seen:?}"
    );
    assert_eq!(
        outcomes(&mut *observer, &[&state("c1", 2)]),
        [(failed("overloaded"), true)]
    );
    assert_eq!(outcomes(&mut *observer, &[&state("c1", 2)]), []);
}

/// D15: compaction after a failed run: Pi goes on by itself, or gives up.
#[test]
fn compaction_may_go_on_or_give_up() {
    let start = r#"{"type":"compaction_start","reason":"overflow"}"#;
    let end =
        |again| format!(r#"{{"type":"compaction_end","reason":"overflow","willRetry":{again}}}"#);
    let failed_run = [PROMPT, ACCEPTED, START, ERROR, END, start];
    let mut observer = ready();
    assert_eq!(
        told(&mut *observer, &failed_run).len(),
        4,
        "prompt, start, conversation, busy"
    );
    assert_eq!(
        outcomes(&mut *observer, &[&end(true), START, OK, END]),
        [(TurnOutcome::Completed, true)]
    );
    let mut observer = ready();
    feed(&mut *observer, &failed_run);
    let facts = told(&mut *observer, &[&end(false)]);
    assert_eq!(facts[0], "BusyEnded { key: \"compaction\" }");
    assert!(facts[1].contains("overloaded"), "{facts:?}");
}

/// A prompt that an extension takes for itself starts no run, and is answered all the same.
#[test]
fn a_command_of_an_extension_is_answered() {
    let mut observer = ready();
    feed(&mut *observer, &[PROMPT]);
    let seen = observer.observe(Direction::Out, ACCEPTED.as_bytes());
    assert_eq!(seen.write.len(), 1, "asked for its state");
    assert_eq!(
        outcomes(&mut *observer, &[&state("c1", 0)]),
        [(TurnOutcome::Completed, true)]
    );
}

/// Row 80: a refused prompt failed, and what runs meanwhile runs on.
#[test]
fn a_refused_prompt_failed() {
    let refused =
        r#"{"id":"p","type":"response","command":"prompt","success":false,"error":"No model"}"#;
    let mut observer = ready();
    assert_eq!(
        outcomes(&mut *observer, &[PROMPT, refused, refused]),
        [(failed("No model"), true)]
    );
    let facts = told(&mut *observer, &[START, PROMPT, refused]);
    let not_taken = r#"NotTaken { error: "No model" }"#;
    assert_eq!(facts.last().map(String::as_str), Some(not_taken));
}

/// Rows 93 and 126: a turn that an extension began answers nothing, not even a prompt that was
/// written while it ended.
#[test]
fn a_turn_of_its_own_answers_nothing() {
    let lines = [START, OK, PROMPT, END, ACCEPTED, START, OK, END];
    let answers = [
        (TurnOutcome::Completed, false),
        (TurnOutcome::Completed, true),
    ];
    assert_eq!(outcomes(&mut *ready(), &lines), answers);
}

/// An interrupt is no failure, in either dialect.
#[test]
fn an_interrupted_turn_is_told() {
    let aborted = OK.replace("\"stop\"", "\"aborted\"");
    let lines = [PROMPT, ACCEPTED, START, &aborted, END];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(TurnOutcome::Interrupted, true)]
    );
    let settled = r#"{"type":"agent_settled","aborted":true}"#;
    let lines = [PROMPT, ACCEPTED_1, START, OK, END, settled];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(TurnOutcome::Interrupted, true)]
    );
    // Between a failed run and its retry.
    let cancelled = r#"{"type":"auto_retry_end","success":false,"finalError":"Retry cancelled"}"#;
    let abort = r#">{"type":"abort"}"#;
    let lines = [PROMPT, ACCEPTED, START, ERROR, END, RETRY, abort, cancelled];
    assert_eq!(
        outcomes(&mut *ready(), &lines),
        [(TurnOutcome::Interrupted, true)]
    );
    assert!(ready().interrupt().write[0].ends_with(b"\"type\":\"abort\"}\n"));
}

/// Rows 68 and 72, D24: never silently a blank conversation.
#[test]
fn a_lost_conversation_is_not_replaced_in_silence() {
    let mut observer = Pi.observe(Some(&known(true)), "");
    let facts = feed(&mut *observer, &[&state("c2", 0)]);
    let [Fact::Status(AgentStatus::CannotResume { detail })] = &facts[..] else {
        panic!("{facts:?}")
    };
    assert!(detail.contains("c1") && detail.contains("c2"), "{detail}");
    let mut observer = Pi.observe(Some(&known(true)), "");
    assert_eq!(told(&mut *observer, &[&state("c1", 4)]), ["Ready"]);
    // D25: an id that changed with its history is followed.
    let mut observer = Pi.observe(Some(&known(true)), "");
    let facts = told(&mut *observer, &[&state("c2", 4)]);
    assert!(
        facts[0].contains("c2") && facts[0].contains("resumable: true"),
        "{facts:?}"
    );
    // Nothing was written down yet: a new one is what was asked for.
    let mut observer = Pi.observe(Some(&known(false)), "");
    assert_eq!(told(&mut *observer, &[&state("c2", 0)])[1..], ["Ready"]);
}

/// D25: Pi says on stderr alone that there is no such session.
#[test]
fn not_found_is_read_from_stderr() {
    let mut observer = Pi.observe(Some(&known(true)), "");
    let facts = observer.exited("warning\nNo session found matching 'c1'\n");
    assert!(matches!(
        &facts[..],
        [Fact::Status(AgentStatus::CannotResume { .. })]
    ));
    assert_eq!(Pi.observe(None, "").exited("TypeError: x"), []);
    assert_eq!(ready().exited("No session found matching 'c1'"), []);
}

fn ui(rest: &str) -> String {
    format!(r#"{{"type":"extension_ui_request","id":"u",{rest}}}"#)
}

fn written(seen: &Seen) -> String {
    String::from_utf8_lossy(&seen.write[0]).into_owned()
}

/// Row 28, D16: dialogs are answered once, in the form of their kind.
#[test]
fn dialogs_are_answered() {
    let confirm = ui(r#""method":"confirm","title":"Allow?","message":"rm x""#);
    let select = ui(r#""method":"select","title":"Which?","options":["red","blue"]"#);
    let input = ui(r#""method":"input","title":"Name?""#);
    let text = |words: &str| Answer::Text(words.to_owned());
    let cases = [
        (
            &confirm,
            AskKind::Approval,
            Answer::Allow,
            r#""confirmed":true"#,
        ),
        (
            &confirm,
            AskKind::Approval,
            Answer::Deny,
            r#""confirmed":false"#,
        ),
        (
            &confirm,
            AskKind::Approval,
            text("yes"),
            r#""confirmed":false"#,
        ),
        (
            &select,
            AskKind::Question,
            text("blue"),
            r#""value":"blue""#,
        ),
        (&select, AskKind::Question, text("1"), r#""value":"red""#),
        (
            &select,
            AskKind::Question,
            text("green"),
            r#""cancelled":true"#,
        ),
        (&input, AskKind::Question, text("Bob"), r#""value":"Bob""#),
        (
            &input,
            AskKind::Question,
            Answer::Deny,
            r#""cancelled":true"#,
        ),
    ];
    for (line, kind, answer, expected) in cases {
        let mut observer = ready();
        let facts = feed(&mut *observer, &[line]);
        assert!(matches!(&facts[..], [Fact::Status(AgentStatus::Asked(ask))] if ask.kind == kind));
        let seen = observer.answer("u", &answer);
        let reply = r#"{"type":"extension_ui_response","id":"u","#;
        assert_eq!(written(&seen), format!("{reply}{expected}}}\n"));
        assert_eq!(observer.answer("u", &answer), Seen::default(), "row 95");
    }
}

/// D16: a dialog of a turn is void when the turn ends; one outside a turn waits.
#[test]
fn a_dialog_is_void_after_its_turn() {
    let line = ui(r#""method":"confirm","title":"Allow?","timeout":100"#);
    let over = r#"{"type":"turn_end"}"#;
    let facts = told(&mut *ready(), &[START, &line, over, over]);
    assert_eq!(facts[2..], ["Settled { id: \"u\" }"]);
    assert_eq!(told(&mut *ready(), &[&line, over]).len(), 1);
    let answer = r#">{"type":"extension_ui_response","id":"u","confirmed":true}"#;
    assert_eq!(told(&mut *ready(), &[&line, answer, answer]).len(), 2);
}

/// Rows 31, 120 and 121: status keys of the convention are tasks, others are not.
#[test]
fn status_keys_are_tasks() {
    let status = |key: &str, rest: &str| {
        ui(&format!(
            r#""method":"setStatus","statusKey":"{key}"{rest}"#
        ))
    };
    let lines = [
        status("bg-tasks", r#","statusText":"1""#),
        status("t3:backgroundx", r#","statusText":"1""#),
        status("t3:background", r#","statusText":"a\u0007b""#),
        status("drowse:background:build", r#","statusText":"2""#),
        status("t3:background", ""),
        status("t3:background", ""),
        status("drowse:background:build", ""),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let facts = feed(&mut *ready(), &lines);
    let ids = |fact: &Fact| {
        let Fact::Roster(tasks) = fact else {
            panic!("{fact:?}")
        };
        tasks.iter().map(|task| task.id.clone()).collect()
    };
    let sets: Vec<Vec<String>> = facts.iter().map(ids).collect();
    let (t3, build) = ("t3:background", "drowse:background:build");
    assert_eq!(sets, [vec![t3], vec![build, t3], vec![build], vec![]]);
}

/// Rows 122, 123: a session that is left clears its tasks, and what it still says is ignored, until
/// the next one has begun: no set ever has tasks of both.
#[test]
fn a_shutdown_marker_fences_old_tasks() {
    let status = |key: &str, text: &str| {
        ui(&format!(
            r#""method":"setStatus","statusKey":"{key}","statusText":"{text}""#
        ))
    };
    let task = status("drowse:background", "1");
    let (shutdown, start) = (
        status("drowse:session", "shutdown"),
        status("drowse:session", "start"),
    );
    let mut observer = ready();
    let facts = told(&mut *observer, &[&task, &shutdown, &task]);
    assert_eq!(facts[1..], ["Roster []"]);
    let newer = status("drowse:background:newer", "2");
    let facts = told(&mut *observer, &[&task, &start, &newer]);
    assert_eq!(facts.len(), 1);
    assert!(facts[0].contains("newer") && facts[0].matches("Task {").count() == 1);
}

/// Row 37: a command of the protocol is work.
#[test]
fn a_command_is_work() {
    let run = r#">{"id":"b","type":"bash","command":"make"}"#;
    let over = r#"{"id":"b","type":"response","command":"bash","success":true,"data":{}}"#;
    let facts = told(&mut *ready(), &[run, over, over]);
    assert_eq!(
        facts[0],
        r#"BusyStarted(Busy { key: "bash:b", kind: Command, what: "make" })"#
    );
    assert_eq!(facts[1..], [r#"BusyEnded { key: "bash:b" }"#]);
}

/// A prompt may meet a run, also one that an extension just began: it goes into it, and is not
/// refused.
#[test]
fn a_prompt_goes_into_a_run() {
    let line = written(&ready().prompt("a\"b"));
    assert!(
        line.ends_with(
            "\"type\":\"prompt\",\"message\":\"a\\\"b\",\"streamingBehavior\":\"steer\"}\n"
        ),
        "{line}"
    );
}

/// D38: a line of 32 MiB is read; what is told of it is bounded.
#[test]
fn a_line_of_32_mib_is_read() {
    let filler = "日本\\n".repeat(4 << 20);
    let line = OK.replace("ok", &filler);
    let mut observer = ready();
    let facts = feed(&mut *observer, &[PROMPT, ACCEPTED, START, &line, END]);
    let ended = ends(&facts);
    assert!(ended[0].text.len() <= 1 << 20 && ended[0].text.starts_with('日'));
}
