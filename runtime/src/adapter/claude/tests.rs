//! One test per rule; the transcripts are in `golden.txt`.

use drowse_messages::{AgentStatus, Answer, AskKind, Conversation, Recipe, TurnOutcome};

use super::super::golden::{check, ends, feed, told};
use super::super::{Adapter, Direction, Fact, Observer};
use super::Claude;

const PROMPT: &str = r#">{"type":"user","message":{"role":"user","content":"hi"}}"#;
const ECHO: &str = r#"{"type":"user","message":{"role":"user","content":"hi"},"isReplay":true}"#;
const RUNNING: &str =
    r#"{"type":"system","subtype":"session_state_changed","state":"running","session_id":"c1"}"#;
const IDLE: &str = r#"{"type":"system","subtype":"session_state_changed","state":"idle"}"#;
const RESULT: &str = r#"{"is_error":false,"session_id":"c1","num_turns":1,"subtype":"success","result":"ok","type":"result"}"#;
const NOTIFIED: &str = r#"{"is_error":false,"origin":{"kind":"task-notification"},"subtype":"success","result":"","type":"result"}"#;

fn fresh() -> Box<dyn Observer> {
    Claude.observe(None, "c1")
}

fn ready() -> Box<dyn Observer> {
    let mut observer = fresh();
    observer.open();
    let answer = r#"{"type":"control_response","response":{"subtype":"success","request_id":"drowse-1","response":{"claude_code_version":"2"}}}"#;
    assert_eq!(told(&mut *observer, &[answer]), ["Roster []", "Ready"]);
    observer
}

fn recipe(line: &str) -> Recipe {
    Recipe {
        agent: "claude".parse().expect("name"),
        protocol: "claude".parse().expect("name"),
        argv: line.split(' ').map(str::to_owned).collect(),
        cwd: "/w".into(),
        env: std::iter::once(("A".to_owned(), "b".to_owned())).collect(),
    }
}

fn known(resumable: bool) -> Conversation {
    Conversation {
        native_id: "old".to_owned(),
        resumable,
        ..Conversation::default()
    }
}

const ADDED: &str = "-p --input-format stream-json --output-format stream-json --verbose \
    --include-partial-messages --replay-user-messages --permission-prompt-tool stdio";

/// Recorded transcripts of Claude Code, line by line.
#[test]
fn transcripts_are_understood() {
    check(&Claude, "claude");
}

/// Rows 67 and 69, D27: an id for a new conversation, `--resume` for an old one, never both; the
/// rest of the command line stays.
#[test]
fn a_plan_names_the_conversation_once() {
    let plan = |line: &str, known: Option<&Conversation>| {
        Claude.plan(&recipe(line), known, "fresh").argv.join(" ")
    };
    assert_eq!(
        plan("claude --model x", None),
        format!("claude --model x {ADDED} --session-id fresh")
    );
    assert_eq!(
        plan("claude", Some(&known(false))),
        format!("claude {ADDED} --session-id old")
    );
    assert_eq!(
        plan("claude", Some(&known(true))),
        format!("claude {ADDED} --resume old")
    );
    for own in [
        "--resume mine",
        "-r mine",
        "--continue",
        "-c",
        "--session-id=mine",
        "--resume=mine",
    ] {
        let line = format!("claude {own}");
        assert_eq!(
            plan(&line, None),
            format!("{line} {ADDED}"),
            "respected at first"
        );
        assert_eq!(
            plan(&line, Some(&known(false))),
            format!("{line} {ADDED}"),
            "and until a turn"
        );
        assert_eq!(
            plan(&line, Some(&known(true))),
            format!("claude {ADDED} --resume old")
        );
    }
    let own = format!("claude {ADDED}");
    assert_eq!(
        plan(&own, None),
        format!("{own} --session-id fresh"),
        "nothing twice"
    );
}

/// D27: the environment is the caller's, with one addition that the caller may overrule.
#[test]
fn a_plan_adds_one_variable() {
    let mut recipe = recipe("claude");
    let env = Claude.plan(&recipe, None, "x").env;
    assert_eq!(
        env.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
            .map(String::as_str),
        Some("1")
    );
    assert_eq!(env.len(), 2);
    recipe.env.insert(
        "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS".to_owned(),
        "0".to_owned(),
    );
    assert_eq!(Claude.plan(&recipe, None, "x").env, recipe.env);
}

/// A result for a task notification is not the answer; the type of a result is not first.
#[test]
fn a_notification_is_not_an_answer() {
    let facts = feed(
        &mut *ready(),
        &[PROMPT, RUNNING, NOTIFIED, RUNNING, ECHO, RESULT, IDLE],
    );
    let answers: Vec<bool> = ends(&facts).iter().map(|ended| ended.answers).collect();
    assert_eq!(answers, [false, true]);
}

/// A prompt that Claude takes into the turn in which it reports on a task gets no other result.
#[test]
fn a_prompt_taken_into_a_notification_is_answered_by_it() {
    let facts = feed(&mut *ready(), &[RUNNING, PROMPT, ECHO, NOTIFIED, IDLE]);
    let ended = ends(&facts);
    assert_eq!(ended.len(), 1);
    assert!(ended[0].answers);
}

/// Row 93, D14: a turn nobody prompted answers no message.
#[test]
fn a_turn_of_its_own_answers_nothing() {
    let facts = feed(&mut *ready(), &[RUNNING, RESULT, IDLE]);
    assert_eq!(facts[1], Fact::Status(AgentStatus::TurnStarted));
    assert!(!ends(&facts)[0].answers);
}

/// Two prompts, one result for both: the next turn of its own answers nothing.
#[test]
fn one_result_answers_all_it_took_in() {
    let lines = [
        PROMPT, RUNNING, ECHO, PROMPT, ECHO, RESULT, IDLE, RUNNING, RESULT, IDLE,
    ];
    let facts = feed(&mut *ready(), &lines);
    let answers: Vec<bool> = ends(&facts).iter().map(|ended| ended.answers).collect();
    assert_eq!(answers, [true, false]);
}

/// Row 41, D21: `idle` heals a missed result; the late `idle` of the turn before ends nothing.
#[test]
fn idle_ends_only_a_turn_without_result() {
    let facts = feed(&mut *ready(), &[PROMPT, RUNNING, ECHO, IDLE, IDLE]);
    assert_eq!(ends(&facts).len(), 1);
    let facts = feed(
        &mut *ready(),
        &[PROMPT, RUNNING, ECHO, RESULT, PROMPT, IDLE, RUNNING],
    );
    assert_eq!(
        ends(&facts).len(),
        1,
        "the second prompt is still in flight"
    );
}

/// D21: a failed turn ends, with Claude's words; an interrupted one is no failure.
#[test]
fn failures_and_interrupts_are_told_apart() {
    let outcome = |observer: &mut dyn Observer, lines: &[&str]| {
        ends(&feed(observer, lines))[0].outcome.clone()
    };
    let failed = r#"{"type":"result","subtype":"error_max_turns","is_error":true}"#;
    let error = "error_max_turns".to_owned();
    assert_eq!(
        outcome(&mut *ready(), &[PROMPT, failed]),
        TurnOutcome::Failed { error }
    );
    let aborted = r#"{"type":"result","subtype":"success","terminal_reason":"aborted_streaming"}"#;
    assert_eq!(
        outcome(&mut *ready(), &[PROMPT, aborted]),
        TurnOutcome::Interrupted
    );
    // Versions without `terminal_reason`.
    let mut observer = ready();
    let written = String::from_utf8(observer.interrupt().write.remove(0)).expect("text");
    assert!(
        written.ends_with("\"request\":{\"subtype\":\"interrupt\"}}\n"),
        "{written}"
    );
    let interrupt = format!(">{written}");
    assert_eq!(
        outcome(&mut *observer, &[PROMPT, &interrupt, failed]),
        TurnOutcome::Interrupted
    );
}

/// D25: only Claude's own words say that there is no conversation, only before it is ready, once.
#[test]
fn not_found_is_told_once_and_only_at_the_start() {
    let line = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"other","errors":["No conversation found with session ID: old"]}"#;
    let mut observer = Claude.observe(Some(&known(true)), "fresh");
    let facts = feed(&mut *observer, &[line]);
    assert!(
        matches!(&facts[..], [Fact::Status(AgentStatus::CannotResume { detail })] if detail.contains("old"))
    );
    assert_eq!(
        observer.exited("No conversation found with session ID: old"),
        []
    );
    let facts = feed(&mut *ready(), &[PROMPT, line]);
    assert_eq!(ends(&facts).len(), 1);
}

/// D24: a first turn that was cut short is on Claude's disk: its id is taken, so it is resumed.
#[test]
fn an_id_in_use_can_be_resumed() {
    let mut observer = Claude.observe(Some(&known(false)), "fresh");
    let facts = observer.exited("warning\nError: Session ID old is already in use.\n");
    assert_eq!(
        facts,
        [Fact::Status(AgentStatus::Conversation(known(true)))]
    );
    assert_eq!(
        Claude
            .observe(Some(&known(true)), "f")
            .exited("panic: network"),
        []
    );
}

/// Row 68, D25: a changed id is followed, and resumable again after its first turn.
#[test]
fn a_changed_id_is_followed() {
    let mut observer = Claude.observe(Some(&known(true)), "fresh");
    let facts = told(&mut *observer, &[RUNNING, RUNNING, RESULT]);
    let conversation = |resumable| {
        format!(
            "Conversation(Conversation {{ native_id: \"c1\", path: None, resumable: {resumable} }})"
        )
    };
    assert_eq!(facts[0], conversation(false));
    assert_eq!(facts[3], conversation(true));
    assert_eq!(facts.len(), 5);
}

const ASKED: &str = r#"{"type":"control_request","request_id":"a1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -rf\n\u001b[1m x","n":1.50}}}"#;

/// Row 28, D16: an approval is asked, and answered once, with the input as it came.
#[test]
fn an_approval_is_answered_once() {
    let mut observer = ready();
    let facts = feed(&mut *observer, &[ASKED]);
    let Fact::Status(AgentStatus::Asked(ask)) = &facts[0] else {
        panic!("{facts:?}")
    };
    assert_eq!(
        (ask.kind, ask.title.as_str()),
        (AskKind::Approval, "Bash: rm -rf [1m x")
    );
    let seen = observer.answer("a1", &Answer::Allow);
    assert_eq!(
        String::from_utf8_lossy(&seen.write[0]),
        concat!(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"a1","#,
            r#""response":{"behavior":"allow","updatedInput":{"command":"rm -rf\n\u001b[1m x","n":1.50}}}}"#,
            "\n"
        )
    );
    assert_eq!(seen.facts.len(), 1);
    assert_eq!(
        observer.answer("a1", &Answer::Allow),
        super::super::Seen::default(),
        "row 95"
    );
}

/// D16: words are a no with a reason; a withdrawn question is void for every client.
#[test]
fn an_approval_is_denied_or_withdrawn() {
    let mut observer = ready();
    feed(&mut *observer, &[ASKED]);
    let write = observer
        .answer("a1", &Answer::Text("use ls".to_owned()))
        .write
        .remove(0);
    assert!(String::from_utf8_lossy(&write).contains(r#"{"behavior":"deny","message":"use ls"}"#));
    let cancel = r#"{"type":"control_cancel_request","request_id":"a1"}"#;
    assert_eq!(
        told(&mut *observer, &[ASKED, cancel, cancel])[1..],
        ["Settled { id: \"a1\" }"]
    );
    assert_eq!(
        told(&mut *observer, &[ASKED, IDLE])[1..],
        ["Settled { id: \"a1\" }"]
    );
}

/// Row 28: a question is answered in words; several at once line by line.
#[test]
fn a_question_is_answered_in_words() {
    let mut observer = ready();
    let ask = r#"{"type":"control_request","request_id":"q","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Which?"},{"question":"How many?"}]}}}"#;
    let facts = feed(&mut *observer, &[ask]);
    let Fact::Status(AgentStatus::Asked(asked)) = &facts[0] else {
        panic!("{facts:?}")
    };
    assert_eq!(
        (asked.kind, asked.title.as_str()),
        (AskKind::Question, "Which?")
    );
    let write = observer
        .answer("q", &Answer::Text("red\n2".to_owned()))
        .write
        .remove(0);
    let write = String::from_utf8(write).expect("text");
    assert!(
        write.contains(r#""answers":{"How many?":"2","Which?":"red"}"#),
        "{write}"
    );
}

/// What nobody here can answer is refused at once: Claude would wait for ever.
#[test]
fn unknown_requests_are_refused() {
    let hook =
        br#"{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback"}}"#;
    let seen = ready().observe(Direction::Out, hook);
    assert_eq!(seen.facts, []);
    assert!(
        String::from_utf8_lossy(&seen.write[0]).contains(r#""subtype":"error","request_id":"h""#)
    );
}

/// Rows 32 and 94, D19: the whole set replaces the last one; a lost one is healed by its task's end.
#[test]
fn the_roster_is_replaced_and_healed() {
    let level = r#"{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_id":"w","task_type":"monitor","description":"x","ambient":true},{"task_id":"b","task_type":"local_bash","description":"a\u0007b"},{"task_id":"o","task_type":"remote","off_host":true}]}"#;
    let over =
        r#"{"type":"system","subtype":"task_updated","task_id":"b","patch":{"status":"killed"}}"#;
    let facts = feed(&mut *ready(), &[level, level, over, over]);
    let [Fact::Roster(first), Fact::Roster(second)] = &facts[..] else {
        panic!("{facts:?}")
    };
    let shown: Vec<_> = first
        .iter()
        .map(|task| (task.id.as_str(), task.ambient))
        .collect();
    assert_eq!(
        shown,
        [("b", false), ("w", true), ("o", true)],
        "row 18: watchers do not hold"
    );
    assert_eq!(first[0].description, "a b", "row 120");
    assert_eq!(second.len(), 2);
}

/// D15, row 37: compaction is under way until Claude says otherwise, even if the end is missed.
#[test]
fn compaction_is_work() {
    let status = |status| format!(r#"{{"type":"system","subtype":"status","status":{status}}}"#);
    let (start, end) = (status("\"compacting\""), status("null"));
    let facts = told(
        &mut *ready(),
        &[&start, &start, &status("\"requesting\""), &end, &end],
    );
    assert_eq!(facts.len(), 2, "{facts:?}");
    let facts = told(&mut *ready(), &[&start, RUNNING, RESULT]);
    assert!(
        facts.contains(&"BusyEnded { key: \"compaction\" }".to_owned()),
        "{facts:?}"
    );
}

/// Row 40: timers are set by results, not by calls; stopped and deleted ones are gone.
#[test]
fn timers_follow_the_results_of_calls() {
    let call = |id: &str, name: &str, input: &str| {
        format!(
            r#"{{"type":"assistant","message":{{"content":[{{"type":"tool_use","id":"{id}","name":"{name}","input":{input}}}]}}}}"#
        )
    };
    let result = |id: &str, outcome: &str| {
        format!(
            r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}"}}]}},"tool_use_result":{outcome},"timestamp":"1970-01-01T00:01:00.000Z"}}"#
        )
    };
    let lines = [
        call("1", "ScheduleWakeup", r#"{"delaySeconds":5,"reason":"r"}"#),
        result("1", r#"{"scheduledFor":0}"#),
        call("2", "ScheduleWakeup", r#"{"delaySeconds":5,"reason":"r"}"#),
        result("2", r#"{"scheduledFor":90000}"#),
        call("3", "CronCreate", r#"{"cron":"*/5 * * * *","prompt":"p"}"#),
        result("3", r#"{"id":"cron","nextFireAt":120000}"#),
        NOTIFIED.to_owned(),
        call("4", "ScheduleWakeup", r#"{"stop":true}"#),
        result("4", "{}"),
        call("5", "CronDelete", r#"{"id":"cron"}"#),
        result("5", "{}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let facts = told(&mut *ready(), &lines);
    assert_eq!(
        facts[0],
        r#"Scheduled { id: "wakeup:2", what: "r", due_in: 30s }"#
    );
    assert_eq!(
        facts[1],
        r#"Scheduled { id: "cron", what: "p", due_in: 60s }"#
    );
    assert_eq!(
        facts[2],
        r#"Scheduled { id: "cron", what: "p", due_in: 300s }"#
    );
    assert_eq!(
        facts[4..],
        [
            r#"Unscheduled { id: "wakeup:2" }"#,
            r#"Unscheduled { id: "cron" }"#
        ]
    );
}

/// Output comes once: from the stream where there is one, and never from subagents.
#[test]
fn output_comes_once() {
    let start = r#"{"type":"stream_event","event":{"type":"message_start","message":{"id":"m1"}}}"#;
    let delta = r#"{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"日\n"}}}"#;
    let whole =
        r#"{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"日\n"}]}}"#;
    let other = r#"{"type":"assistant","message":{"id":"m2","content":[{"type":"text","text":"API error"}]}}"#;
    let inner = r#"{"type":"assistant","parent_tool_use_id":"t","message":{"id":"m3","content":[{"type":"text","text":"inner"}]}}"#;
    let facts = feed(&mut *ready(), &[start, delta, whole, other, inner]);
    assert_eq!(
        facts,
        [
            Fact::Output("日\n".to_owned()),
            Fact::Output("\n\nAPI error".to_owned())
        ]
    );
}

/// Row 126: what Claude says of a task while a prompt waits is not shown as that prompt's answer.
#[test]
fn words_before_the_prompt_is_taken_in_are_no_answer() {
    let said = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"words"}]}}"#;
    let lines = [PROMPT, ECHO, RESULT, PROMPT, said, NOTIFIED, ECHO, said];
    let facts = feed(&mut *ready(), &lines);
    let words = Fact::Output("words".to_owned());
    assert_eq!(facts.iter().filter(|fact| **fact == words).count(), 1);
}

/// D39: a line with bad bytes is flagged, the next one is read.
#[test]
fn a_bad_line_costs_only_itself() {
    let mut observer = ready();
    let seen = observer.observe(Direction::Out, b"{\"type\":\"result\xff\xe2\x82");
    assert!(matches!(
        &seen.facts[..],
        [Fact::Status(AgentStatus::Notice { .. })]
    ));
    assert_eq!(ends(&feed(&mut *observer, &[RESULT])).len(), 1);
}

/// D38: lines of 32 MiB are read, whatever they are; what is told of them is bounded.
#[test]
fn a_line_of_32_mib_is_read() {
    let filler = "日本\\n".repeat(4 << 20);
    let mut observer = ready();
    let line = format!(r#"{{"type":"user","message":{{"content":"{filler}"}}}}"#);
    assert_eq!(feed(&mut *observer, &[&line]), []);
    let line = format!(r#"{{"result":"{filler}","subtype":"success","type":"result"}}"#);
    let facts = feed(&mut *observer, &[&line]);
    assert!(ends(&facts)[0].text.len() <= 1 << 20);
    let line = ASKED.replace("rm -rf", &filler);
    let facts = feed(&mut *observer, &[&line]);
    let Fact::Status(AgentStatus::Asked(ask)) = &facts[0] else {
        panic!("asked")
    };
    assert!(ask.detail.len() <= 64 * 1024 && ask.title.chars().count() <= 200);
    assert!(observer.answer("a1", &Answer::Allow).write[0].len() > filler.len());
}
