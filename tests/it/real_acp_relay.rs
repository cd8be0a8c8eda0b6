//! The relay between a host and real agents that speak the Agent Client Protocol, without Drowse
//! around it: what a host sees of two releases.
//!
//! opencode is resumed; Gemini and Qwen, which are loaded and say all of it again, are run where all
//! agents are wanted: Gemini must be left alone for a minute, each time.

use std::collections::BTreeMap;
use std::time::Duration;

use drowse::adapter::{Acp, Adapter, Pass, Relay};
use drowse_messages::{Conversation, Recipe};
use drowse_tests::agents::{Missing, RealAgent, all_wanted, or_not_run};
use drowse_tests::cli::REAL_CEILING;
use drowse_tests::{MockModel, PipedAgent, TreeGuard};
use serde_json::{Value, json};

/// A host, its relay, and the process there is now.
struct Hosted<'a> {
    agent: &'a RealAgent,
    guard: &'a TreeGuard,
    relay: Box<dyn Relay>,
    process: PipedAgent,
    asked: u64,
}

fn json_of(line: &[u8]) -> Value {
    serde_json::from_slice(line).expect("a line of JSON")
}

/// A process of the agent, as it is started for a host; `taken_up`: in this conversation.
fn spawn(agent: &RealAgent, guard: &TreeGuard, taken_up: Option<&Value>) -> PipedAgent {
    let words = [agent.program(), &agent.protocol_args(), &agent.model_args()];
    let recipe = Recipe {
        agent: agent.make().name().parse().expect("a name"),
        protocol: "acp".parse().expect("a name"),
        argv: words.concat(),
        cwd: agent.work(),
        env: BTreeMap::new(),
    };
    let conversation = taken_up.map(|id| Conversation {
        native_id: id.as_str().expect("an id is text").to_owned(),
        resumable: true,
        ..Conversation::default()
    });
    let plan = Acp.relay_plan(&recipe, conversation.as_ref());
    let more: Vec<&str> = plan
        .argv
        .iter()
        .skip(recipe.argv.len())
        .map(String::as_str)
        .collect();
    PipedAgent::spawn(agent.command(&more), guard).with_ceiling(REAL_CEILING)
}

/// A kill would leave the inner ones of two processes.
fn end(process: &mut PipedAgent) {
    process.close_stdin();
    process.wait_exit();
}

impl<'a> Hosted<'a> {
    fn new(agent: &'a RealAgent, guard: &'a TreeGuard) -> Self {
        Self {
            agent,
            guard,
            relay: Acp.relay(None).expect("it has one"),
            process: spawn(agent, guard, None),
            asked: 0,
        }
    }

    fn write(&mut self, line: &Value) {
        match self.relay.from_host(line.to_string().as_bytes()) {
            Pass::AsIs => self.process.send(line),
            Pass::Instead(line) => self.process.send(&json_of(&line)),
            other @ (Pass::Swallowed | Pass::Answered(_)) => panic!("{line}: {other:?}"),
        }
    }

    /// What the host hears of the next line.
    fn hear(&mut self) -> Option<Value> {
        let line = self.process.wait_for("a line", |_| true);
        match self.relay.from_agent(line.to_string().as_bytes()) {
            Pass::AsIs => Some(line),
            Pass::Instead(line) => Some(json_of(&line)),
            Pass::Swallowed => None,
            Pass::Answered(line) => {
                self.process.send(&json_of(&line));
                None
            }
        }
    }

    /// The answer to a request, and the texts that the host heard meanwhile. What is asked of it
    /// is allowed.
    fn request(&mut self, method: &str, params: &Value) -> (Value, Vec<String>) {
        self.asked += 1;
        let id = self.asked;
        self.write(&json!({ "id": id, "jsonrpc": "2.0", "method": method, "params": params }));
        let mut texts = Vec::new();
        loop {
            let Some(line) = self.hear() else { continue };
            if line["method"] == "session/request_permission" {
                let options = line["params"]["options"].as_array();
                let mut options = options.into_iter().flatten();
                let once = options.find(|it| it["kind"] == "allow_once");
                let chosen = once.expect("it is offered")["optionId"].clone();
                let outcome = json!({ "outcome": "selected", "optionId": chosen });
                let result = json!({ "outcome": outcome });
                self.write(&json!({ "id": line["id"], "jsonrpc": "2.0", "result": result }));
            } else if line["id"] == id && line["method"].is_null() {
                assert!(line["error"].is_null(), "{line}");
                return (line["result"].clone(), texts);
            } else if let Some(text) = line["params"]["update"]["content"]["text"].as_str() {
                texts.push(text.to_owned());
            }
        }
    }

    /// A turn; all that the host hears the agent say in it.
    fn turn(&mut self, session: &Value, text: &str) -> String {
        let prompt = json!([{ "type": "text", "text": text }]);
        let params = json!({ "sessionId": session, "prompt": prompt });
        self.request("session/prompt", &params).1.concat()
    }

    /// Nothing happens for a while.
    fn leave_alone(&mut self, rest: Duration) {
        assert!(rest.is_zero() || self.process.is_silent_for(rest));
    }

    /// The process goes, and the next one takes over without the host's doing or hearing anything.
    fn replace(&mut self, session: &Value) {
        let memory = self.relay.memory();
        let next = spawn(self.agent, self.guard, Some(session));
        end(&mut std::mem::replace(&mut self.process, next));
        self.relay = Acp.relay(Some(&memory)).expect("it has one");
        for line in self.relay.reopen() {
            self.process.send(&json_of(&line));
        }
        while !self.relay.is_open() {
            assert_eq!(self.hear(), None);
        }
    }
}

/// Behaviours 67, 73, D16, D27: two releases that a host does not notice. Its conversation has its
/// history, nothing of which is said again, and what the agent asks is answered by the host.
#[track_caller]
fn not_noticed(test: &str, agent: fn(&MockModel) -> Result<RealAgent, Missing>, rest: Duration) {
    let guard = TreeGuard::new(test);
    let model = MockModel::start();
    let Some(agent) = or_not_run(test, agent(&model)) else {
        return;
    };
    let mut hosted = Hosted::new(&agent, &guard);
    let files = json!({ "readTextFile": false, "writeTextFile": false });
    let can = json!({ "fs": files, "terminal": false });
    let hello = json!({ "protocolVersion": 1, "clientCapabilities": can,
        "clientInfo": { "name": "host", "version": "1" } });
    hosted.request("initialize", &hello);
    let new = json!({ "cwd": agent.work(), "mcpServers": [] });
    let session = hosted.request("session/new", &new).0["sessionId"].clone();
    let said = hosted.turn(&session, "MOCK:say one");
    assert_eq!(said, "SAID one (user turns seen: 1)");
    hosted.leave_alone(rest);

    hosted.replace(&session);
    let said = hosted.turn(&session, "MOCK:bash touch GATE");
    assert!(agent.work().join("GATE").exists(), "{said}");
    assert!(!said.contains("SAID one"), "said again: {said}");
    hosted.leave_alone(rest);

    hosted.replace(&session);
    let said = hosted.turn(&session, "MOCK:say three");
    assert_eq!(said, "SAID three (user turns seen: 3)");
    let request = model.wait_for_request("three", |r| r.has_user("MOCK:say three"));
    assert!(request.has_user("MOCK:say one") && request.has_user("touch GATE"));
    end(&mut hosted.process);
}

#[test]
fn a_host_does_not_notice_that_opencode_is_another() {
    let test = "a_host_does_not_notice_that_opencode_is_another";
    not_noticed(test, RealAgent::opencode, Duration::ZERO);
}

#[test]
fn a_host_does_not_notice_that_qwen_is_another() {
    let test = "a_host_does_not_notice_that_qwen_is_another";
    if all_wanted(test) {
        not_noticed(test, RealAgent::qwen, Duration::ZERO);
    }
}

#[test]
fn a_host_does_not_notice_that_gemini_is_another() {
    let test = "a_host_does_not_notice_that_gemini_is_another";
    if all_wanted(test) {
        not_noticed(test, RealAgent::gemini, Duration::from_secs(62));
    }
}
