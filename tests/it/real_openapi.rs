//! The API against its own document: Schemathesis asks the real service for everything the
//! document allows, and for much that it does not.
//!
//! Not run where Schemathesis cannot be installed (python3 with venv and pip, and the network
//! once), and said so aloud.

use std::fs;

use drowse_tests::schemathesis::Schemathesis;
use drowse_tests::wait::say_aloud;
use drowse_tests::{TestDaemon, daemon};

/// 25 cases for each operation besides those for each bound of each parameter: some seconds.
const EXAMPLES: &str = "25";

/// What is the same for each run. An order is refused for how things stand, not for its form, so
/// that what fits the document is taken is not asked for. Its seed makes a failure come again.
const ARGS: [&str; 15] = [
    "--phases",
    "examples,coverage,fuzzing,stateful",
    "--max-examples",
    EXAMPLES,
    "--seed",
    "7",
    "--exclude-checks",
    "positive_data_acceptance",
    "--generation-database",
    "none",
    "--request-timeout",
    "10",
    "--no-color",
    "--warnings",
    "off",
];

struct Stage {
    daemon: TestDaemon,
    schemathesis: Schemathesis,
    url: String,
    token: String,
}

impl Stage {
    fn set(test: &'static str) -> Option<Self> {
        let schemathesis = match Schemathesis::install() {
            Ok(installed) => installed,
            Err(missing) => {
                say_aloud(&format!("NOT RUN: {test}: {missing}"));
                return None;
            }
        };
        // A port that was free a moment ago: it has to be known before the daemon runs.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback is there");
        let address = free.local_addr().expect("it is bound");
        drop(free);
        let daemon = daemon!(test)
            .config(&format!("[server]\nlisten = \"{address}\"\n"))
            .start();
        let token = fs::read_to_string(daemon.state_dir().join("token")).expect("it listens");
        Some(Self {
            daemon,
            schemathesis,
            url: format!("http://{address}"),
            token: token.trim().to_owned(),
        })
    }

    /// Runs it, and fails with what it found.
    fn run(&self, config: &str, select: &[&str]) {
        let folder = self.daemon.path("schemathesis");
        fs::create_dir_all(&folder).expect("the folder is ours");
        fs::write(folder.join("schemathesis.toml"), config).expect("the folder is ours");
        let document = format!("{}/openapi.json", self.url);
        let token = format!("Authorization: Bearer {}", self.token);
        let mut args = vec!["--config-file", "schemathesis.toml", "run", &document];
        args.extend(["--header", &token]);
        args.extend(ARGS);
        args.extend(select);
        let output = self.schemathesis.run(&folder, &args);
        let said = String::from_utf8_lossy(&output.stdout).replace(&self.token, "TOKEN");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}\n{errors}");
        assert!(said.contains(" passed"), "it asked nothing: {said}");
        assert!(self.daemon.identity().is_alive());
    }
}

/// Whatever is asked, there is no status of 500 or more, and every answer is one that the document
/// has: status, kind, headers and body. Left out are the event stream, which does not end, and the
/// restart, which ends every connection.
#[test]
fn every_answer_is_as_documented() {
    let test = "every_answer_is_as_documented";
    let Some(stage) = Stage::set(test) else {
        return;
    };
    stage.run(
        "",
        &[
            "--exclude-path",
            "/v1/events",
            "--exclude-path",
            "/v1/restart",
        ],
    );
    let page = stage.daemon.get(async |client| {
        let all = drowse_client::ListQuery::default();
        client.sessions(&all).await
    });
    for session in page.sessions {
        let id = session.id.to_string();
        stage.daemon.get(async |client| client.remove(&id).await);
    }
}

/// The same for a session that there is, with an agent that answers and fails, and asks.
#[test]
fn every_answer_about_a_session_is_as_documented() {
    let test = "every_answer_about_a_session_is_as_documented";
    let Some(stage) = Stage::set(test) else {
        return;
    };
    let mut new = stage.daemon.new_session("fake");
    new.name = Some("known".parse().expect("it is a name"));
    let id = stage.daemon.open_as(&new);
    for text in ["FAKE:say one", "FAKE:fail overloaded", "FAKE:bg 600"] {
        stage.daemon.send(&id, text);
    }
    let message = stage.daemon.post(&id, "FAKE:approve rm");
    stage.daemon.wait_report(&id, "a question", |report| {
        report.awake.as_ref().is_some_and(|it| !it.asks.is_empty())
    });
    let known =
        format!("[parameters]\n\"path.session\" = \"known\"\n\"path.message\" = {message}\n");
    let of_one = "/v1/(sessions/|messages/)";
    stage.run(
        &known,
        &["--include-path-regex", of_one, "--exclude-method", "DELETE"],
    );
    stage.daemon.get(async |client| client.stop(&id).await);
    stage.daemon.wait_gone(&id);
    stage.run(
        &known,
        &[
            "--include-path-regex",
            of_one,
            "--exclude-method",
            "POST",
            "--exclude-method",
            "DELETE",
        ],
    );
    stage.daemon.get(async |client| client.remove(&id).await);
}
