//! One test per rule; the transcripts are in `golden.txt`.

use drowse_messages::{AgentStatus, Answer, Conversation, Recipe, TurnOutcome, WallTime};
use serde_json::{Value, json};

use super::super::golden::{check, ends, feed, told};
use super::super::{Adapter, Direction, Fact, Observer, Seen};
use super::Codex;

mod relay;

const THREAD: &str = "01a22db7-ca0e-79d3-8dea-08c7bb13eda0";
const OTHER: &str = "01a22f93-cdbb-7fa0-aeeb-76bf12b65032";

fn known(resumable: bool) -> Conversation {
    Conversation {
        native_id: THREAD.to_owned(),
        resumable,
        ..Conversation::default()
    }
}

/// What Codex says.
fn said(method: &str, mut params: Value) -> String {
    if params["threadId"].is_null() {
        params["threadId"] = json!(THREAD);
    }
    json!({ "method": method, "params": params }).to_string()
}

fn answer(id: &str, result: Value) -> String {
    json!({ "id": id, "result": result }).to_string()
}

fn error(id: &str, message: &str) -> String {
    json!({ "id": id, "error": { "code": -32600, "message": message } }).to_string()
}

fn opened(id: &str, thread: &str) -> String {
    answer(
        id,
        json!({ "thread": { "id": thread, "path": "/s.jsonl", "ephemeral": false } }),
    )
}

/// The lines written, which the observer is shown as the link would show them.
fn write(observer: &mut dyn Observer, seen: &Seen) -> Vec<Value> {
    let all = seen.write.iter();
    let shown = all.map(|line| {
        observer.observe(Direction::In, line.trim_ascii_end());
        serde_json::from_slice(line).expect("it is JSON")
    });
    shown.collect()
}

fn hear(observer: &mut dyn Observer, line: &str) -> Seen {
    observer.observe(Direction::Out, line.as_bytes())
}

/// Greeted; gives what it wrote last.
fn greeted(conversation: Option<&Conversation>) -> (Box<dyn Observer>, Value) {
    let mut observer = Codex.observe(conversation, "");
    let seen = observer.open();
    assert_eq!(write(&mut *observer, &seen)[0]["method"], "initialize");
    let seen = hear(&mut *observer, &answer("drowse-1", json!({})));
    let lines = write(&mut *observer, &seen);
    assert_eq!(lines[0], json!({ "method": "initialized", "params": {} }));
    (observer, lines[1].clone())
}

fn ready() -> Box<dyn Observer> {
    let (mut observer, start) = greeted(None);
    assert_eq!(start["method"], "thread/start");
    let facts = hear(&mut *observer, &opened("drowse-2", THREAD)).facts;
    assert_eq!(
        facts[1..],
        [Fact::Roster(Vec::new()), Fact::Status(AgentStatus::Ready)]
    );
    observer
}

/// A prompt that Codex took into the turn `t1`, which runs; it was written as `drowse-3`.
fn working() -> Box<dyn Observer> {
    let mut observer = ready();
    let seen = observer.prompt("hi");
    let lines = write(&mut *observer, &seen);
    assert_eq!(
        lines[0]["params"]["input"],
        json!([{ "type": "text", "text": "hi" }])
    );
    hear(
        &mut *observer,
        &answer("drowse-3", json!({ "turn": { "id": "t1" } })),
    );
    hear(
        &mut *observer,
        &said("turn/started", json!({ "turn": { "id": "t1" } })),
    );
    observer
}

fn completed(turn: &str) -> String {
    said(
        "turn/completed",
        json!({ "turn": { "id": turn, "items": [], "status": "completed" } }),
    )
}

fn command(what: &str, id: &str, thread: &str, turn: &str) -> String {
    let actions = json!([{ "type": "unknown", "command": "sleep 9" }]);
    let item =
        json!({ "type": "commandExecution", "id": id, "command": "sh", "commandActions": actions });
    said(
        what,
        json!({ "threadId": thread, "turnId": turn, "item": item }),
    )
}

/// Names of the tasks, for each roster among the facts.
fn rosters(facts: &[Fact]) -> Vec<Vec<&str>> {
    let all = facts.iter().filter_map(|fact| match fact {
        Fact::Roster(tasks) => Some(tasks.iter().map(|task| task.id.as_str()).collect()),
        Fact::Status(_) | Fact::Output(_) => None,
    });
    all.collect()
}

/// Recorded transcripts of Codex 0.171, line by line.
#[test]
fn transcripts_are_understood() {
    check(&Codex, "codex");
}

/// D27: only the protocol is added, and options of Codex's screen become what the server reads.
#[test]
fn a_plan_adds_the_subcommand_and_translates_screen_options() {
    let plan = |line: &str| {
        let recipe = Recipe {
            agent: "codex".parse().expect("name"),
            protocol: "codex".parse().expect("name"),
            argv: line.split(' ').map(str::to_owned).collect(),
            cwd: "/w".into(),
            env: std::iter::once(("CODEX_HOME".to_owned(), "/c".to_owned())).collect(),
        };
        let plan = Codex.plan(&recipe, Some(&known(true)), "fresh");
        assert_eq!(plan.env, recipe.env);
        plan.argv.join(" ")
    };
    assert_eq!(plan("codex"), "codex app-server");
    assert_eq!(plan("codex app-server -c a=1"), "codex app-server -c a=1");
    assert_eq!(
        plan("codex -m o3 -c a=1 --sandbox=read-only -a on-request"),
        "codex -c a=1 -c model=\"o3\" -c sandbox_mode=\"read-only\" -c approval_policy=\"on-request\" app-server"
    );
    assert_eq!(
        plan("codex --yolo app-server"),
        "codex app-server -c sandbox_mode=\"danger-full-access\" -c approval_policy=\"never\""
    );
}

/// Row 71: a conversation can be resumed only once a turn of it was seen to end.
#[test]
fn a_turn_that_ended_makes_the_conversation_resumable() {
    let mut observer = working();
    let facts = hear(&mut *observer, &completed("t1")).facts;
    let Fact::Status(AgentStatus::Conversation(now)) = &facts[0] else {
        panic!("{facts:?}")
    };
    assert!(now.resumable);
    assert_eq!(
        (now.native_id.as_str(), now.path.as_deref()),
        (THREAD, Some("/s.jsonl"))
    );
    assert!(ends(&facts)[0].answers);
}

/// Row 71, D24, D25: "no rollout" is the end only of a conversation that had a turn; without one
/// another is begun in its place. Anything else may pass, and is tried again.
#[test]
fn only_a_lost_conversation_cannot_be_resumed() {
    let refused = |resumable: bool, why: &str| {
        let (mut observer, resume) = greeted(Some(&known(resumable)));
        assert_eq!(
            resume["params"],
            json!({ "threadId": THREAD, "excludeTurns": true })
        );
        let seen = hear(&mut *observer, &error("drowse-2", why));
        (seen.facts.clone(), write(&mut *observer, &seen), observer)
    };
    let (facts, lines, _) = refused(true, "no rollout found for thread id x");
    assert!(
        matches!(&facts[..], [Fact::Status(AgentStatus::CannotResume { detail })] if detail.contains(THREAD)),
        "{facts:?}"
    );
    assert!(lines.is_empty());

    let (facts, lines, mut observer) = refused(false, "no rollout found for thread id x");
    assert!(facts.is_empty());
    assert_eq!(lines[0]["method"], "thread/start");
    let facts = hear(&mut *observer, &opened("drowse-3", OTHER)).facts;
    assert!(
        matches!(&facts[0], Fact::Status(AgentStatus::Conversation(now)) if now.native_id == OTHER && !now.resumable)
    );
    assert_eq!(facts.last(), Some(&Fact::Status(AgentStatus::Ready)));

    // D29
    for resumable in [true, false] {
        let (facts, lines, _) = refused(resumable, "thread x already has an active writer");
        assert!(
            matches!(&facts[..], [Fact::Status(AgentStatus::CannotStart { detail, retry: true })] if detail.ends_with("active writer")),
            "{facts:?}"
        );
        assert!(lines.is_empty());
    }
}

/// The first turn was cut short, yet it is on disk: what was resumed can be resumed.
#[test]
fn what_was_resumed_can_be_resumed_again() {
    let (mut observer, _) = greeted(Some(&known(false)));
    let facts = hear(&mut *observer, &opened("drowse-2", THREAD)).facts;
    assert!(matches!(&facts[0], Fact::Status(AgentStatus::Conversation(now)) if now.resumable));
}

/// Behaviour 30, D14: a command holds from the end of its turn until its own, and a sub-agent's
/// turn as long as it runs; what they hold is told before the turn's end.
#[test]
fn what_outlives_its_turn_is_on_the_roster() {
    let mut observer = working();
    let during = feed(
        &mut *observer,
        &[
            &command("item/started", "c1", THREAD, "t1"),
            &command("item/started", "c2", THREAD, "t1"),
            &command("item/completed", "c1", THREAD, "t1"),
        ],
    );
    assert_eq!(during, []);
    let facts = hear(&mut *observer, &completed("t1")).facts;
    assert_eq!(rosters(&facts), [["c2"]]);
    let at = |wanted: fn(&Fact) -> bool| facts.iter().position(wanted);
    assert!(
        at(|fact| matches!(fact, Fact::Roster(_)))
            < at(|fact| matches!(fact, Fact::Status(AgentStatus::TurnEnded(_))))
    );
    let Fact::Roster(tasks) = &facts[1] else {
        panic!("{facts:?}")
    };
    assert_eq!(
        (tasks[0].kind.as_str(), tasks[0].description.as_str()),
        ("command", "sleep 9")
    );

    // A sub-agent, and a command of it that outlives it.
    let prompt = json!({ "type": "collabAgentToolCall", "id": "x", "prompt": "look around", "receiverThreadIds": [OTHER] });
    let turn = json!({ "threadId": OTHER, "turn": { "id": "t2", "status": "completed" } });
    let facts = feed(
        &mut *observer,
        &[
            &said("item/completed", json!({ "item": prompt, "turnId": "t1" })),
            &said("turn/started", turn.clone()),
            &command("item/started", "c3", OTHER, "t2"),
            &said("turn/completed", turn),
            &command("item/completed", "c2", THREAD, "t1"),
            &command("item/completed", "c3", OTHER, "t2"),
        ],
    );
    let expected: [&[&str]; 4] = [&["c2", "t2"], &["c2", "c3"], &["c3"], &[]];
    assert_eq!(rosters(&facts), expected);
    assert!(
        ends(&facts).is_empty(),
        "another's turn ends nothing: {facts:?}"
    );
    let Fact::Roster(tasks) = &facts[0] else {
        panic!("{facts:?}")
    };
    assert_eq!(tasks[1].description, "look around");
}

/// D19: a command that waits for leave when its turn is cut short never runs, and no end of it is
/// told; one that runs goes on.
#[test]
fn a_command_that_was_never_allowed_is_not_on_the_roster() {
    let mut observer = working();
    let asks = json!({ "id": 0, "method": "item/commandExecution/requestApproval",
        "params": { "threadId": THREAD, "turnId": "t1", "itemId": "c1" } });
    let cut = json!({ "turn": { "id": "t1", "status": "interrupted" } });
    let facts = feed(
        &mut *observer,
        &[
            &command("item/started", "c1", THREAD, "t1"),
            &command("item/started", "c2", THREAD, "t1"),
            &asks.to_string(),
            &said("serverRequest/resolved", json!({ "requestId": 0 })),
            &said("turn/completed", cut),
        ],
    );
    assert_eq!(rosters(&facts), [["c2"]]);
}

/// Row 74: a prompt that meets a compaction waits for its end, and is then written once.
#[test]
fn a_prompt_waits_for_the_end_of_a_compaction() {
    let mut observer = ready();
    hear(
        &mut *observer,
        &said("turn/started", json!({ "turn": { "id": "c" } })),
    );
    let seen = observer.prompt("hi");
    write(&mut *observer, &seen);
    let why = "failed to submit turn input: ActiveTurnNotSteerable { turn_kind: Compact }";
    assert_eq!(
        hear(&mut *observer, &error("drowse-3", why)),
        Seen::default()
    );
    // Another daemon goes on from here.
    let checkpoint = observer.checkpoint().expect("it is ready");
    let (mut next, _) = Codex.adopt(&checkpoint, WallTime(0)).expect("it fits");
    for observer in [&mut observer, &mut next] {
        let seen = hear(&mut **observer, &completed("c"));
        assert!(!ends(&seen.facts)[0].answers, "{:?}", seen.facts);
        let lines = write(&mut **observer, &seen);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["params"]["input"][0]["text"], "hi");
        let id = lines[0]["id"].as_str().expect("an id");
        let turn = json!({ "turn": { "id": "t1" } });
        let facts = feed(
            &mut **observer,
            &[
                &answer(id, turn.clone()),
                &said("turn/started", turn),
                &completed("t1"),
            ],
        );
        assert!(ends(&facts)[0].answers);
    }
}

/// An interrupt ends a prompt that waits; one before the turn has an id is written when it has.
#[test]
fn an_interrupt_reaches_the_turn() {
    let mut observer = ready();
    assert_eq!(observer.interrupt(), Seen::default());
    let seen = observer.prompt("hi");
    write(&mut *observer, &seen);
    assert_eq!(observer.interrupt(), Seen::default());
    let seen = hear(
        &mut *observer,
        &said("turn/started", json!({ "turn": { "id": "t1" } })),
    );
    let lines = write(&mut *observer, &seen);
    assert_eq!(lines[0]["method"], "turn/interrupt");
    assert_eq!(
        lines[0]["params"],
        json!({ "threadId": THREAD, "turnId": "t1" })
    );

    let mut observer = ready();
    hear(
        &mut *observer,
        &said("turn/started", json!({ "turn": { "id": "c" } })),
    );
    let seen = observer.prompt("hi");
    write(&mut *observer, &seen);
    hear(&mut *observer, &error("drowse-3", "ActiveTurnNotSteerable"));
    let seen = observer.interrupt();
    write(&mut *observer, &seen);
    let seen = hear(&mut *observer, &completed("c"));
    let last = ends(&seen.facts)[1];
    assert_eq!(
        (&last.outcome, last.answers),
        (&TurnOutcome::Interrupted, true)
    );
    assert!(seen.write.is_empty());
}

/// Codex 0.118 takes a prompt into the running turn under an id of its own, and loses one that
/// meets a compaction: neither is waited for when another turn is over, or has begun.
#[test]
fn a_prompt_with_an_id_of_its_own_is_answered_by_the_turn_that_took_it() {
    let took = said(
        "item/started",
        json!({ "turnId": "t1", "item": { "type": "userMessage", "id": "u" } }),
    );
    let turn = |id: &str| json!({ "turn": { "id": id } });
    let mut observer = working();
    hear(&mut *observer, &took);
    let seen = observer.prompt("more");
    write(&mut *observer, &seen);
    hear(&mut *observer, &answer("drowse-4", turn("t2")));
    hear(&mut *observer, &took);
    assert!(ends(&hear(&mut *observer, &completed("t1")).facts)[0].answers);
    assert_eq!(observer.interrupt(), Seen::default());
    let restated = |observer: &dyn Observer| {
        let checkpoint = observer.checkpoint().expect("it is ready");
        let (_, seen) = Codex.adopt(&checkpoint, WallTime(0)).expect("it fits");
        seen.facts.contains(&Fact::Status(AgentStatus::TurnStarted))
    };
    assert!(!restated(&*observer), "nothing is open");

    let seen = observer.prompt("lost");
    write(&mut *observer, &seen);
    hear(&mut *observer, &answer("drowse-5", turn("t3")));
    hear(&mut *observer, &said("turn/started", turn("t4")));
    assert!(!ends(&hear(&mut *observer, &completed("t4")).facts)[0].answers);
    assert!(!restated(&*observer), "nothing is open");
}

/// D21: a prompt that Codex refuses has failed, and a turn that runs goes on.
#[test]
fn a_refused_prompt_has_failed() {
    let mut observer = working();
    let seen = observer.prompt("more");
    write(&mut *observer, &seen);
    let facts = hear(&mut *observer, &error("drowse-4", "too long")).facts;
    let error = "too long".to_owned();
    assert_eq!(facts, [Fact::Status(AgentStatus::NotTaken { error })]);
    assert_eq!(
        ends(&hear(&mut *observer, &completed("t1")).facts)[0].left,
        0
    );
}

fn asks(observer: &mut dyn Observer, method: &str, mut params: Value) -> String {
    params["threadId"] = json!(THREAD);
    params["turnId"] = json!("t1");
    let line = json!({ "method": method, "id": 0, "params": params });
    let facts = hear(observer, &line.to_string()).facts;
    let [Fact::Status(AgentStatus::Asked(ask))] = &facts[..] else {
        panic!("{facts:?}")
    };
    format!("{} {:?} {}", ask.id, ask.kind, ask.title)
}

fn result(observer: &mut dyn Observer, id: &str, answer: &Answer) -> Value {
    let seen = observer.answer(id, answer);
    assert!(observer.answer(id, answer).write.is_empty(), "once");
    let line: Value = serde_json::from_slice(&seen.write[0]).expect("it is JSON");
    assert_eq!(line["id"], 0);
    line["result"].clone()
}

/// Behaviour 28, D16: all that Codex asks a person, and how it wants to be answered.
#[test]
fn asks_are_answered_in_their_form() {
    let mut observer = working();
    let observer = &mut *observer;
    let (allow, deny) = (Answer::Allow, Answer::Deny);
    let words = |words: &str| Answer::Text(words.to_owned());
    let method = "item/commandExecution/requestApproval";
    let params = json!({ "itemId": "i", "command": "rm x", "reason": "why not" });
    let shown = asks(observer, method, params.clone());
    assert_eq!(shown, "0:i Approval run: rm x (why not)");
    assert_eq!(
        result(observer, "0:i", &allow),
        json!({ "decision": "accept" })
    );
    asks(observer, method, params);
    assert_eq!(
        result(observer, "0:i", &words("no")),
        json!({ "decision": "decline" })
    );

    let change =
        json!({ "type": "fileChange", "id": "f", "changes": [{ "path": "/a" }, { "path": "/b" }] });
    hear(
        observer,
        &said("item/started", json!({ "item": change, "turnId": "t1" })),
    );
    let method = "item/fileChange/requestApproval";
    let shown = asks(observer, method, json!({ "itemId": "f" }));
    assert_eq!(shown, "0:f Approval change /a, /b");
    assert_eq!(
        result(observer, "0:f", &deny),
        json!({ "decision": "decline" })
    );

    let method = "item/permissions/requestApproval";
    let wanted = json!({ "itemId": "p", "permissions": { "network": { "enabled": true } } });
    asks(observer, method, wanted.clone());
    let granted = json!({ "permissions": { "network": { "enabled": true } } });
    assert_eq!(result(observer, "0:p", &allow), granted);
    asks(observer, method, wanted);
    assert_eq!(result(observer, "0:p", &deny), json!({ "permissions": {} }));

    let method = "item/tool/requestUserInput";
    let both = json!([{ "id": "a", "question": "Which?" }, { "id": "b", "question": "Why?" }]);
    let shown = asks(
        observer,
        method,
        json!({ "itemId": "q", "questions": both }),
    );
    assert_eq!(shown, "0:q Question Which?");
    let answers =
        json!({ "answers": { "a": { "answers": ["red"] }, "b": { "answers": ["so\nthere"] } } });
    assert_eq!(result(observer, "0:q", &words("red\nso\nthere")), answers);

    let method = "mcpServer/elicitation/request";
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" }, "s": { "type": "string" } } });
    let params = json!({ "serverName": "m", "message": "how many", "requestedSchema": schema });
    assert_eq!(asks(observer, method, params), "0: Question m: how many");
    let content = json!({ "action": "accept", "content": { "n": 5, "s": "6" } });
    assert_eq!(result(observer, "0:", &words("5\n6")), content);
    let params = json!({ "serverName": "m", "message": "may I" });
    assert_eq!(asks(observer, method, params), "0: Approval m: may I");
    assert_eq!(
        result(observer, "0:", &deny),
        json!({ "action": "decline" })
    );
}

/// D16: what was withdrawn, or answered by somebody else, is settled; and so is all of a turn that
/// ended. What nobody here knows is refused at once, because Codex would wait for ever.
#[test]
fn asks_are_settled_and_unknown_ones_refused() {
    let settled = |facts: &[Fact]| {
        let is = |fact: &&Fact| matches!(fact, Fact::Status(AgentStatus::Settled { .. }));
        facts.iter().filter(is).count()
    };
    let method = "item/commandExecution/requestApproval";
    for over in [
        said("serverRequest/resolved", json!({ "requestId": 0 })),
        r#">{"id":0,"result":{"decision":"accept"}}"#.to_owned(),
        completed("t1"),
    ] {
        let mut observer = working();
        asks(&mut *observer, method, json!({ "itemId": "i" }));
        assert_eq!(settled(&feed(&mut *observer, &[&over])), 1, "{over}");
        assert!(observer.answer("0:i", &Answer::Allow).write.is_empty());
    }
    let mut observer = working();
    let line = json!({ "method": "item/tool/call", "id": "s", "params": {} }).to_string();
    let seen = hear(&mut *observer, &line);
    let refusal: Value = serde_json::from_slice(&seen.write[0]).expect("it is JSON");
    assert_eq!(
        (&refusal["id"], &refusal["error"]["code"]),
        (&json!("s"), &json!(-32601))
    );
    // Not where a host is the client; and that can be gone on with at any time.
    let mut observer = Codex.observe(None, "");
    observer.listen();
    assert!(hear(&mut *observer, &line).write.is_empty());
    let checkpoint = observer.checkpoint().expect("at any time");
    let (mut next, _) = Codex.adopt(&checkpoint, WallTime(0)).expect("it fits");
    assert!(hear(&mut *next, &line).write.is_empty());
}

/// Behaviour 99, D41: what Codex lists as over is over, and only the very turn that was awaited.
#[test]
fn an_adopted_turn_is_over_when_codex_lists_it_so() {
    let mut observer = working();
    hear(&mut *observer, &command("item/started", "c1", THREAD, "t0"));
    let checkpoint = observer.checkpoint().expect("it is ready");
    let adopted = || {
        let (mut next, seen) = Codex.adopt(&checkpoint, WallTime(0)).expect("it fits");
        let lines = write(&mut *next, &seen);
        (next, lines)
    };
    let turns = |lines: &[Value], id: &str, status: &str| {
        assert_eq!(lines[0]["method"], "thread/turns/list");
        let items = json!([{ "type": "agentMessage", "text": "done" }]);
        let turn = json!({ "id": id, "status": status, "items": items });
        answer(
            lines[0]["id"].as_str().expect("an id"),
            json!({ "data": [turn] }),
        )
    };
    let (mut next, lines) = adopted();
    let facts = hear(&mut *next, &turns(&lines, "t0", "completed")).facts;
    assert!(ends(&facts).is_empty());
    let facts = hear(&mut *next, &turns(&lines, "t1", "completed")).facts;
    assert!(ends(&facts).is_empty(), "it was answered once");

    let (mut next, lines) = adopted();
    let facts = hear(&mut *next, &turns(&lines, "t1", "completed")).facts;
    assert_eq!(
        (ends(&facts)[0].text.as_str(), ends(&facts)[0].answers),
        ("done", true)
    );
    let terminals = lines[1]["id"].as_str().expect("an id");
    let facts = hear(&mut *next, &answer(terminals, json!({ "data": [] }))).facts;
    assert_eq!(rosters(&facts), [[""; 0]]);

    let (mut next, lines) = adopted();
    let facts = hear(&mut *next, &turns(&lines, "t2", "inProgress")).facts;
    assert_eq!(facts, [Fact::Status(AgentStatus::TurnStarted)]);
}

/// What is wrong with its settings Codex says only on stderr, and before it is ready.
#[test]
fn an_early_end_is_explained() {
    let mut observer = Codex.observe(None, "");
    let stderr = "WARNING: x\nError: approval_policy is bad\n\nStack backtrace:\n";
    let facts = observer.exited(stderr);
    assert!(
        matches!(&facts[..], [Fact::Status(AgentStatus::Notice { text })] if text == "codex said: Error: approval_policy is bad"),
        "{facts:?}"
    );
    assert!(working().exited(stderr).is_empty());
}

/// A host may have several threads: the session's is the one a person speaks in, never an
/// ephemeral one.
#[test]
fn the_conversation_is_where_people_speak() {
    let mut observer = Codex.observe(None, "");
    let observer = &mut *observer;
    let prompt = |id: u32, thread: &str| {
        let params = json!({ "threadId": thread, "input": [] });
        format!(
            ">{}",
            json!({ "id": id, "method": "turn/start", "params": params })
        )
    };
    let open = |id: u32| format!(r#">{{"id":{id},"method":"thread/start","params":{{}}}}"#);
    let thread = |id: u32, thread: &str, ephemeral: bool| {
        json!({ "id": id, "result": { "thread": { "id": thread, "ephemeral": ephemeral } } })
            .to_string()
    };
    let conversations = |facts: Vec<String>| {
        let named = facts
            .into_iter()
            .filter(|fact| fact.starts_with("Conversation"));
        named.map(|fact| fact.contains(OTHER)).collect::<Vec<_>>()
    };
    let lines = [
        open(1),
        thread(1, "e", true),
        open(2),
        thread(2, THREAD, false),
    ];
    let first = told(observer, &lines.each_ref().map(String::as_str));
    assert!(first.contains(&"Ready".to_owned()));
    assert_eq!(conversations(first), [false]);
    let turn = json!({ "turn": { "id": "t1", "status": "completed" } });
    let lines = [
        prompt(3, THREAD),
        json!({ "id": 3, "result": turn }).to_string(),
        said("turn/started", turn.clone()),
        completed("t1"),
        open(4),
        thread(4, OTHER, false),
    ];
    let told_1 = told(observer, &lines.each_ref().map(String::as_str));
    assert_eq!(conversations(told_1), [false]);
    assert_eq!(conversations(told(observer, &[&prompt(5, OTHER)])), [true]);
}
