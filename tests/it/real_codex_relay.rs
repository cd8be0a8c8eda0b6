//! The relay between a host and the real Codex, without Drowse around it: what a host sees of two
//! releases.
//!
//! Not run where Codex cannot be installed, and said so aloud; a failure in CI.

use drowse::adapter::{Adapter, Codex, Pass, Relay};
use drowse_tests::agents::{RealAgent, or_not_run};
use drowse_tests::cli::REAL_CEILING;
use drowse_tests::{MockModel, PipedAgent, TreeGuard};
use serde_json::{Value, json};

/// What a Codex says of its own accord when it is started, or when a thread is taken up again.
const ECHOES: [&str; 6] = [
    "remoteControl/status/changed",
    "thread/started",
    "thread/goal/cleared",
    "mcpServer/startupStatus/updated",
    "deprecationNotice",
    "thread/settings/updated",
];

/// A host, its relay, and the Codex there is now.
struct Hosted<'a> {
    agent: &'a RealAgent,
    guard: &'a TreeGuard,
    relay: Box<dyn Relay>,
    codex: PipedAgent,
    asked: u64,
}

fn json(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("a line of JSON")
}

impl<'a> Hosted<'a> {
    fn new(agent: &'a RealAgent, guard: &'a TreeGuard) -> Self {
        Self {
            agent,
            guard,
            relay: Codex.relay(None).expect("codex has one"),
            codex: spawn(agent, guard),
            asked: 0,
        }
    }

    fn write(&mut self, line: &Value) {
        match self.relay.from_host(line.to_string().as_bytes()) {
            Pass::AsIs => self.codex.send(line),
            Pass::Instead(line) => self.codex.send(&json(&line)),
            other @ (Pass::Swallowed | Pass::Answered(_)) => panic!("{line}: {other:?}"),
        }
    }

    /// What the host hears of the next line.
    fn hear(&mut self) -> Option<Value> {
        let line = self.codex.wait_for("a line", |_| true);
        match self.relay.from_agent(line.to_string().as_bytes()) {
            Pass::AsIs => Some(line),
            Pass::Instead(line) => Some(json(&line)),
            Pass::Swallowed => None,
            Pass::Answered(lines) => {
                for line in lines.split_inclusive(|&byte| byte == b'\n') {
                    self.codex.send(&json(line));
                }
                None
            }
        }
    }

    /// All that the host hears until one satisfies `is_last`, which is the last of it.
    fn until(&mut self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut heard = Vec::new();
        loop {
            heard.extend(self.hear());
            if heard.last().is_some_and(&is_last) {
                return heard;
            }
        }
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.write(&json!({ "id": id, "method": method, "params": params }));
        let answers = |line: &Value| line["id"] == id && line["method"].is_null();
        let answer = self.until(answers).pop().expect("the last one");
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    fn open(&mut self, params: &Value) -> String {
        let started = self.request("thread/start", params);
        let id = started["thread"]["id"].as_str();
        id.expect("a thread has an id").to_owned()
    }

    /// A turn of a thread; all that the host hears of it after its answer.
    fn turn(&mut self, thread: &str, text: &str, more: &Value) -> Vec<Value> {
        let mut params = json!({ "threadId": thread, "input": [{ "type": "text", "text": text }] });
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        self.request("turn/start", &params);
        self.until(|line| line["method"] == "turn/completed")
    }

    /// The process goes, and the next one takes over without the host's doing or hearing anything.
    fn replace(&mut self) {
        let memory = self.relay.memory();
        let next = spawn(self.agent, self.guard);
        std::mem::replace(&mut self.codex, next).kill_tree();
        self.relay = Codex.relay(Some(&memory)).expect("codex has one");
        for line in self.relay.reopen() {
            self.codex.send(&json(&line));
        }
        while !self.relay.is_open() {
            assert_eq!(self.hear(), None);
        }
    }
}

fn spawn(agent: &RealAgent, guard: &TreeGuard) -> PipedAgent {
    PipedAgent::spawn(agent.command(&[]), guard).with_ceiling(REAL_CEILING)
}

fn answer(heard: &[Value]) -> &str {
    let turn = &heard.last().expect("it ended")["params"]["turn"];
    turn["items"][0]["text"].as_str().unwrap_or_default()
}

/// Behaviours 60, 67, D16, D27: two releases that a host does not notice. The thread it spoke in has
/// its history and is as it set it last; one in which nothing was said yet is there under its id;
/// and what the agent asks is answered once, by the answer that was given for it.
#[test]
fn a_host_does_not_notice_that_codex_is_another() {
    let test = "a_host_does_not_notice_that_codex_is_another";
    let guard = TreeGuard::new(test);
    let model = MockModel::start();
    let Some(agent) = or_not_run(test, RealAgent::codex(&model)) else {
        return;
    };
    let mut hosted = Hosted::new(&agent, &guard);
    let client = json!({ "clientInfo": { "name": "host", "version": "1" } });
    hosted.request("initialize", &client);
    hosted.write(&json!({ "method": "initialized" }));
    let cwd = json!({ "cwd": agent.work(), "sandbox": "workspace-write" });
    let [spoken, silent] = [hosted.open(&cwd), hosted.open(&cwd)];
    let safer = json!({ "approvalPolicy": "on-request", "sandboxPolicy": { "type": "readOnly" } });
    let heard = hosted.turn(&spoken, "MOCK:say one", &safer);
    assert_eq!(answer(&heard), "SAID one (user turns seen: 1)");

    hosted.replace();
    let file = agent.work().join("allowed");
    let input = json!({
        "cmd": format!("touch {}", file.display()), "sandbox_permissions": "require_escalated",
        "justification": "need it", "yield_time_ms": 30_000,
    });
    let text = format!("MOCK:tool exec_command {input}");
    let input = json!([{ "type": "text", "text": text }]);
    hosted.request("turn/start", &json!({ "threadId": spoken, "input": input }));
    // It asks: the safer settings hold.
    let asks = |line: &Value| line["method"] == "item/commandExecution/requestApproval";
    let mut heard = hosted.until(asks);
    let id = heard.last().expect("it asks")["id"].clone();
    assert!(id.is_string(), "not one that the former process used: {id}");
    let late = json!({ "id": 0, "result": { "decision": "accept" } }).to_string();
    assert_eq!(hosted.relay.from_host(late.as_bytes()), Pass::Swallowed);
    hosted.write(&json!({ "id": id, "result": { "decision": "accept" } }));
    heard.extend(hosted.until(|line| line["method"] == "turn/completed"));
    let resolved = heard
        .iter()
        .find(|line| line["method"] == "serverRequest/resolved");
    assert_eq!(resolved.expect("it is told")["params"]["requestId"], id);
    assert!(file.exists());
    assert!(answer(&heard).contains("user turns seen: 2"), "{heard:?}");
    for line in &heard {
        let method = line["method"].as_str().unwrap_or_default();
        assert!(!ECHOES.contains(&method), "{line}");
        assert!(
            line["id"]
                .as_str()
                .is_none_or(|id| id.starts_with("drowse-asks-")),
            "{line}"
        );
    }

    let heard = hosted.turn(&silent, "MOCK:say first", &json!({}));
    assert_eq!(answer(&heard), "SAID first (user turns seen: 1)");
    let threads = heard.iter().map(|line| &line["params"]["threadId"]);
    for thread in threads.filter(|thread| !thread.is_null()) {
        assert_eq!(thread, &silent);
    }

    hosted.replace();
    for (thread, turns) in [(&silent, 2), (&spoken, 3)] {
        let heard = hosted.turn(thread, "MOCK:say on", &json!({}));
        assert_eq!(
            answer(&heard),
            format!("SAID on (user turns seen: {turns})")
        );
    }
    let request = model.wait_for_request("the last", |r| {
        r.has_user("MOCK:say on") && r.has_user("MOCK:say one")
    });
    assert!(!request.has_user("MOCK:say first"));
}
