//! The real agents behind `drowse run`, spoken to as a host would: three releases in one life of the
//! host, and the whole conversation in what the model is given.
//!
//! The host adds no argument and no variable for Drowse's sake. Not run where an agent cannot be
//! installed, and said so aloud; a failure in CI.

use drowse_tests::agents::RealAgent;
use drowse_tests::host::Host;
use serde_json::{Value, json};

use crate::real::{NAME, Stage, idle_after};

/// The agent as a host of its own would start it, behind the shim.
fn host(stage: &Stage, args: &[&str]) -> Host {
    let model_args = stage.agent.model_args();
    let mut words = vec!["run", "--name", NAME, "--"];
    words.extend(stage.agent.program().iter().map(String::as_str));
    words.extend(args);
    words.extend(model_args.iter().map(String::as_str));
    let mut command = stage.cli.command(&words);
    command.current_dir(stage.agent.work());
    // What only Drowse asks for.
    command.env_remove("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS");
    Host::spawn(command)
}

fn prompt(host: &mut Host, text: &str) {
    let content = json!([{ "type": "text", "text": text }]);
    host.send(&json!({ "type": "user", "message": { "role": "user", "content": content } }));
}

fn answer(host: &mut Host) -> String {
    let result = host.wait_line("a result", |line| line["type"] == "result");
    result["result"].as_str().unwrap_or_default().to_owned()
}

fn assert_clean(host: &Host) {
    let heard = String::from_utf8_lossy(&host.heard()).into_owned();
    assert!(!heard.contains("\"drowse-"), "{heard}");
}

/// What a host without any wish of Drowse's starts Claude with.
const CLAUDE: [&str; 8] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
];

/// D27: without echoes, partial messages and state events: turns are seen, a background command
/// holds until it ends, and three releases pass unnoticed with the whole conversation kept.
#[test]
fn real_relay_claude_three_releases_with_the_whole_conversation() {
    let test = "real_relay_claude_three_releases_with_the_whole_conversation";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    let mut host = host(&stage, &CLAUDE);
    let request = json!({ "subtype": "initialize" });
    host.send(&json!({ "type": "control_request", "request_id": "h1", "request": request }));
    host.wait_line("its answer", |line| line["response"]["request_id"] == "h1");
    let mut earlier = Vec::new();
    let mut conversation = Value::Null;
    for word in ["one", "two", "three", "four"] {
        let text = format!("MOCK:say {word}");
        prompt(&mut host, &text);
        let turns = earlier.len() + 1;
        assert_eq!(
            answer(&mut host),
            format!("SAID {word} (user turns seen: {turns})")
        );
        let before: Vec<&str> = earlier.iter().map(String::as_str).collect();
        stage.assert_history(&text, &before);
        earlier.push(text);
        stage.cli.wait_state(NAME, "released");
        let shown = stage.cli.show(NAME);
        assert_eq!(shown["end"]["reason"], "idle");
        let now = shown["conversation"]["native_id"].clone();
        assert!(conversation.is_null() || conversation == now);
        conversation = now;
    }
    let responses = host.lines().into_iter();
    let responses = responses.filter(|line| line["type"] == "control_response");
    assert_eq!(responses.count(), 1, "the handshake was answered once");
    prompt(&mut host, &format!("MOCK:bg {}", stage.until_gate()));
    answer(&mut host);
    stage.cli.wait_state(NAME, "waiting");
    assert_eq!(stage.holds(), ["task"]);
    stage.open_gate();
    stage.cli.wait_state(NAME, "released");
    assert_clean(&host);
    host.close();
    host.wait_code(0);
}

/// What Claude asks a person holds, and is answered by the host.
#[test]
fn real_relay_claude_asks_its_host() {
    let test = "real_relay_claude_asks_its_host";
    let Some(stage) = Stage::set(test, RealAgent::claude, Some(idle_after())) else {
        return;
    };
    // The last mode given is the one that counts.
    let model_args = stage.agent.model_args();
    let mut words = vec!["run", "--name", NAME, "--"];
    words.extend(stage.agent.program().iter().map(String::as_str));
    words.extend(CLAUDE);
    words.extend(model_args.iter().take(2).map(String::as_str));
    let mut command = stage.cli.command(&words);
    command.current_dir(stage.agent.work());
    command.env_remove("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS");
    let mut host = Host::spawn(command);
    prompt(&mut host, "MOCK:bash touch asked");
    let ask = host.wait_line("what it asks", |line| {
        line["request"]["subtype"] == "can_use_tool"
    });
    stage.cli.wait_state(NAME, "needs_you");
    let input = ask["request"]["input"].clone();
    let response = json!({ "subtype": "success", "request_id": ask["request_id"],
        "response": { "behavior": "allow", "updatedInput": input } });
    host.send(&json!({ "type": "control_response", "response": response }));
    answer(&mut host);
    stage.cli.wait_state(NAME, "released");
    host.close();
    host.wait_code(0);
}

/// The same with Pi, which has no handshake.
#[test]
fn real_relay_pi_three_releases_with_the_whole_conversation() {
    let test = "real_relay_pi_three_releases_with_the_whole_conversation";
    let Some(stage) = Stage::set(test, RealAgent::pi, Some(idle_after())) else {
        return;
    };
    let mut host = host(&stage, &["--mode", "rpc"]);
    let mut earlier: Vec<String> = Vec::new();
    for word in ["one", "two", "three", "four"] {
        let text = format!("MOCK:say {word}");
        host.send(&json!({ "id": word, "type": "prompt", "message": text }));
        let said = host.wait_line("the answer", |line| {
            line["type"] == "message_end" && line["message"]["role"] == "assistant"
        });
        let turns = earlier.len() + 1;
        let content = said["message"]["content"].to_string();
        assert!(
            content.contains(&format!("SAID {word} (user turns seen: {turns})")),
            "{said}"
        );
        let before: Vec<&str> = earlier.iter().map(String::as_str).collect();
        stage.assert_history(&text, &before);
        earlier.push(text);
        stage.cli.wait_state(NAME, "released");
    }
    assert_clean(&host);
    host.close();
    host.wait_code(0);
}
