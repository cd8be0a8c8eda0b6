//! Hosts that are not ours, behind whose back an agent is released three times: the ACP library's
//! client, the official MCP client, the Claude Agent SDK. Each is a script in `hosts` that says what
//! a test tells it to, knows nothing of Drowse, and has `drowse run` in front of its agent's command.
//!
//! Not run where agent or library cannot be installed, and said so aloud; a failure in CI.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use drowse_tests::MockModel;
use drowse_tests::agents::{Library, Missing, RealAgent, library_or_not_run};
use drowse_tests::host::Host;
use serde_json::Value;

use crate::real::{DROWSE, NAME, Stage, idle_after};

/// What a host says, in its own words, before each release and after the last.
const WORDS: [&str; 4] = ["one", "two", "three", "four"];

struct Guest {
    stage: Stage,
    modules: PathBuf,
}

impl Guest {
    fn set(
        test: &str,
        agent: fn(&MockModel) -> Result<RealAgent, Missing>,
        library: Library,
    ) -> Option<Self> {
        let modules = library_or_not_run(test, library)?;
        let stage = Stage::set(test, agent, Some(idle_after()))?;
        Some(Self { stage, modules })
    }

    /// `drowse run` with the agent's command, as words of a command line.
    fn behind_drowse(&self, options: &[&str], words: &[String]) -> Vec<String> {
        let mut run = vec!["run", "--name", NAME];
        run.extend(options);
        run.push("--");
        let command = self.stage.cli.command(&run);
        let mut all = vec![DROWSE.to_owned()];
        all.extend(
            command
                .get_args()
                .map(|it| it.to_string_lossy().into_owned()),
        );
        all.extend_from_slice(words);
        all
    }

    /// The host `script`, told to start `agent`.
    fn host(&self, script: &str, agent: &[String]) -> Host {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("it/hosts");
        // The same surroundings as a verb of Drowse's has, without the program.
        let verb = self.stage.cli.command(&[]);
        let mut command = std::process::Command::new("node");
        command
            .arg(scripts.join(script))
            .arg(&self.modules)
            .args(agent)
            .env_clear()
            .envs(
                verb.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .env_remove("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS")
            .current_dir(self.stage.agent.work());
        let mut host = Host::spawn(command);
        host.wait_line("a host that is ready", |line| line["host"] == "ready");
        host
    }

    /// Each word is answered, and the agent is released after each but the last; the host never
    /// hears of an end before it ends itself.
    fn talk(&self, mut host: Host, say: impl Fn(&str) -> String, answer: impl Fn(usize) -> String) {
        for (turn, word) in WORDS.iter().enumerate() {
            host.write(format!("{}\n", say(word)).as_bytes());
            let heard = host.wait_line("an answer", |line| line["host"].is_string());
            assert_eq!(heard["text"], answer(turn), "{heard}");
            if turn + 1 < WORDS.len() {
                self.stage.cli.wait_state(NAME, "released");
                let shown = self.stage.cli.show(NAME);
                assert_eq!(shown["end"]["reason"], "idle", "{shown}");
            }
        }
        host.close();
        let end = host.wait_line("the end", |line| line["host"].is_string());
        assert_eq!(end["host"], "agent ended", "{end}");
        assert!(
            matches!(end["code"], Value::Null) || end["code"] == 0,
            "{end}"
        );
        host.wait_code(0);
    }
}

fn said(turn: usize) -> String {
    format!("SAID {} (user turns seen: {})", WORDS[turn], turn + 1)
}

/// D27: an editor's library holds one ACP session over three releases of opencode.
#[test]
fn real_hosts_an_acp_client_notices_no_release() {
    let test = "real_hosts_an_acp_client_notices_no_release";
    let Some(guest) = Guest::set(test, RealAgent::opencode, Library::Acp) else {
        return;
    };
    let mut words = guest.stage.agent.program().to_vec();
    words.push("acp".to_owned());
    let host = guest.host("acp.mjs", &guest.behind_drowse(&[], &words));
    let say = |word: &str| format!("MOCK:say {word}");
    guest.talk(host, say, |turn| format!("{} [end_turn]", said(turn)));
}

/// D27: the official MCP client holds one session with a stateless server over three releases.
#[test]
fn real_hosts_an_mcp_client_notices_no_release() {
    let test = "real_hosts_an_mcp_client_notices_no_release";
    let stateless = |_: &MockModel| RealAgent::mcp_server(true);
    let Some(guest) = Guest::set(test, stateless, Library::Mcp) else {
        return;
    };
    let server = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let server = guest.modules.join(server).display().to_string();
    let words = ["node".to_owned(), server];
    let options = ["--agent", "stubborn", "--protocol", "mcp"];
    let host = guest.host("mcp.mjs", &guest.behind_drowse(&options, &words));
    guest.talk(host, str::to_owned, |turn| format!("Echo: {}", WORDS[turn]));
}

/// D27: the Claude Agent SDK, with a script of one line as its executable.
#[test]
fn real_hosts_the_claude_agent_sdk_notices_no_release() {
    let test = "real_hosts_the_claude_agent_sdk_notices_no_release";
    let Some(guest) = Guest::set(test, RealAgent::claude, Library::ClaudeSdk) else {
        return;
    };
    let words = guest.behind_drowse(&[], guest.stage.agent.program());
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = guest.stage.agent.home().join("claude");
    fs::write(
        &script,
        format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" ")),
    )
    .expect("the folder is ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let host = guest.host("claude_sdk.mjs", &[script.display().to_string()]);
    guest.talk(host, |word| format!("MOCK:say {word}"), said);
}
