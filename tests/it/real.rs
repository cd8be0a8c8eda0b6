//! What the tests with both real agents share: a release looked at from all sides, and figures.

use std::time::{Duration, Instant};

use drowse_tests::agents::{Missing, RealAgent, or_not_run};
use drowse_tests::cli::{Cli, REAL_CEILING, is};
use drowse_tests::process::command_line;
use drowse_tests::wait::say_aloud;
use drowse_tests::{CEILING, MockModel, PipedAgent, ProcIdentity, TreeGuard, scaled, wait_until};
use serde_json::Value;

/// The program under test.
pub(crate) const DROWSE: &str = env!("CARGO_BIN_EXE_drowse-dup");

/// The session all of these tests speak of.
pub(crate) const NAME: &str = "fix-tests";

/// The idle limit of tests that want a release: short, so that they are; long enough for a few
/// verbs to come in between.
pub(crate) fn idle_after() -> Duration {
    scaled(Duration::from_secs(2))
}

/// Everything one of these tests needs, in the order in which it is to be dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) cli: Cli,
    pub(crate) agent: RealAgent,
    pub(crate) model: MockModel,
    pub(crate) guard: TreeGuard,
}

impl Stage {
    /// A daemon that releases after `idle_after`, or never, and a session that has not begun;
    /// `None` when the agent cannot be had, which was said then.
    #[track_caller]
    pub(crate) fn set(
        test: &str,
        agent: fn(&MockModel) -> Result<RealAgent, Missing>,
        idle_after: Option<Duration>,
    ) -> Option<Self> {
        // These tests leave commands running on purpose, to see them ended.
        Self::set_with(test, agent, idle_after, "observed = \"off\"")
    }

    /// The same with more of `[session]`.
    #[track_caller]
    pub(crate) fn set_with(
        test: &str,
        agent: fn(&MockModel) -> Result<RealAgent, Missing>,
        idle_after: Option<Duration>,
        more: &str,
    ) -> Option<Self> {
        let guard = TreeGuard::new(test);
        let model = MockModel::start();
        let agent = or_not_run(test, agent(&model))?;
        let idle_after =
            idle_after.map_or_else(|| "off".to_owned(), |t| format!("{}ms", t.as_millis()));
        let session = format!(
            "idle_after = \"{idle_after}\"\neof_grace = \"500ms\"\nterm_grace = \"1s\"\n{more}"
        );
        let cli = Cli::start(DROWSE, &guard, &agent, &session);
        Some(Self {
            cli,
            agent,
            model,
            guard,
        })
    }

    /// The model was given `text` and, before it, all of `earlier`.
    #[track_caller]
    pub(crate) fn assert_history(&self, text: &str, earlier: &[&str]) {
        let request = self.model.wait_for_request(text, |r| r.has_user(text));
        for said in earlier {
            assert!(request.has_user(said), "{said} in {:?}", request.items);
        }
    }

    /// A shell loop that goes on until there is a file `gate` in the agent's folder. Claude's shell
    /// tool refuses long plain sleeps.
    pub(crate) fn until_gate(&self) -> String {
        let gate = self.agent.work().join("gate");
        format!("until [ -e {} ]; do sleep 0.05; done", gate.display())
    }

    /// The agent forgets the conversation while it is released: its message waits, it is told why,
    /// and only an order begins another. `folder`, below the home, is where the agent keeps it.
    #[track_caller]
    pub(crate) fn assert_lost_conversation(&self, folder: &str) {
        let cli = &self.cli;
        cli.open(NAME, &[]);
        cli.say(NAME, "MOCK:say one");
        cli.ok(&["release", NAME]);
        std::fs::remove_dir_all(self.agent.home().join(folder)).expect("the agent kept it there");
        cli.ok(&["send", NAME, "MOCK:say two", "--no-wait"]);
        cli.wait_state(NAME, "failing");
        let text = cli.ok(&["explain", NAME]);
        for said in ["was asked for conversation", "drowse wake --fresh"] {
            assert!(text.contains(said), "{said:?} in:\n{text}");
        }
        assert_eq!(cli.run(&["wake", NAME]).code, Some(1));
        let asked = self.model.requests();
        assert!(!asked.iter().any(|r| r.has_user("MOCK:say two")));
        cli.ok(&["wake", "--fresh", NAME]);
        let request = self
            .model
            .wait_for_request("two", |r| r.has_user("MOCK:say two"));
        assert!(!request.has_user("MOCK:say one"));
    }

    /// The daemon dies, and is replaced, each in the middle of a turn of `shell`, which goes on: its
    /// answer arrives, and the next message finds the same process in the same conversation.
    #[track_caller]
    pub(crate) fn assert_outlives_the_daemon(&mut self) {
        self.cli.open(NAME, &[]);
        self.cli.say(NAME, "MOCK:say one");
        let (agent, before) = (self.cli.agent(NAME), self.cli.show(NAME));
        for (turn, dies) in [(2, true), (4, false)] {
            let shell = format!("MOCK:bash {}; echo through {turn}", self.until_gate());
            let sent = self.cli.json(&["send", NAME, &shell, "--no-wait"]);
            let message = sent["message"].as_u64().expect("a message has a number");
            self.model
                .wait_for_request("the turn", |r| r.has_user(&shell));
            wait_until("the shell", REAL_CEILING, || {
                let Tree(tree) = Tree::of(&self.cli);
                let runs = tree.iter().any(|(_, line)| line.contains("until [ -e"));
                runs.then_some(())
            });
            if dies {
                self.cli.kill_daemon();
                self.cli.serve();
            } else {
                let said = self.cli.ok(&["restart"]);
                assert!(said.ends_with(", 1 session kept\n"), "{said}");
            }
            assert_eq!(self.cli.show(NAME)["state"], "working");
            self.open_gate();
            let answer = self.answer(drowse_messages::MessageId(message));
            assert!(answer.contains(&format!("through {turn}")), "{answer}");
            let next = turn + 1;
            let said = self.cli.say(NAME, "MOCK:say next");
            assert_eq!(said, format!("SAID next (user turns seen: {next})\n"));
            assert_eq!(self.cli.agent(NAME), agent);
            self.close_gate();
        }
        assert_eq!(self.cli.show(NAME)["conversation"], before["conversation"]);
    }

    /// The answer of a message that has to be answered.
    #[track_caller]
    fn answer(&self, message: drowse_messages::MessageId) -> String {
        let saved = wait_until("the fate of a message", REAL_CEILING, || {
            let saved = self
                .cli
                .client(async |client| client.message(message).await);
            saved.state.is_final().then_some(saved)
        });
        assert_eq!(
            saved.state,
            drowse_messages::MessageState::Answered,
            "{saved:?}"
        );
        saved.answer
    }

    /// The next such loop waits again.
    fn close_gate(&self) {
        std::fs::remove_file(self.agent.work().join("gate")).expect("it is open");
    }

    /// Lets that loop end.
    pub(crate) fn open_gate(&self) {
        std::fs::write(self.agent.work().join("gate"), "").expect("the folder is ours");
    }

    /// What holds the session, by kind, as `ps` has it.
    #[track_caller]
    pub(crate) fn holds(&self) -> Vec<String> {
        let list = self.cli.json(&["ps"]);
        let sessions = list["sessions"].as_array().into_iter().flatten();
        let session = sessions.filter(|session| session["name"] == NAME);
        let holds = session.flat_map(|session| session["awake"]["holds"].as_array());
        let kind = |hold: &Value| hold["kind"].as_str().unwrap_or_default().to_owned();
        holds.flatten().map(kind).collect()
    }
}

/// A process tree as it was, with the command lines it had.
#[derive(Debug)]
pub(crate) struct Tree(Vec<(ProcIdentity, String)>);

impl Tree {
    /// What runs for the session now.
    #[track_caller]
    pub(crate) fn of(cli: &Cli) -> Self {
        let described = |who: ProcIdentity| (who, command_line(who.pid));
        Self(cli.tree(NAME).into_iter().map(described).collect())
    }

    /// The one process with `text` in its command line.
    #[track_caller]
    pub(crate) fn find(&self, text: &str) -> ProcIdentity {
        let found = self.0.iter().find(|(_, line)| line.contains(text));
        found.unwrap_or_else(|| panic!("{text:?} is in {self:?}")).0
    }

    /// Waits until all of it is gone; for ends that nobody reports.
    #[track_caller]
    pub(crate) fn wait_gone(&self) {
        for (who, _) in &self.0 {
            who.wait_gone_within(CEILING);
        }
    }

    /// Everything that was in it is gone; to be asked when the daemon has said so. The keeper
    /// leaves last, on its own.
    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        let (keeper, below) = self.0.split_first().expect("a tree has a keeper");
        let left: Vec<_> = below.iter().filter(|(who, _)| who.is_alive()).collect();
        assert!(left.is_empty(), "still alive: {left:?}");
        keeper.0.wait_gone_within(CEILING);
    }
}

/// Waits for the end of the session's process, and gives the report of it.
#[track_caller]
pub(crate) fn wait_end(watch: &mut PipedAgent) -> Value {
    watch.wait_for("the release", is("released"))["end"].clone()
}

/// Waits for a release for idleness: the tree is gone by identity, and `explain` says why, when,
/// how many processes it had and what that freed.
#[track_caller]
pub(crate) fn wait_idle_release(cli: &Cli, watch: &mut PipedAgent, tree: &Tree) -> Value {
    let end = wait_end(watch);
    tree.assert_gone();
    assert_eq!(end["reason"], "idle", "{end}");
    assert_eq!(end["by"]["kind"], "rule");
    let ended = end["processes"].as_array().map_or(0, Vec::len);
    let freed = end["released_bytes"].as_u64().unwrap_or(0);
    assert!(freed > 50_000_000, "a real agent frees more: {end}");
    cli.wait_state(NAME, "released");
    let text = cli.ok(&["explain", NAME]);
    let processes = if ended == 1 { "process" } else { "processes" };
    let counted = format!("idle, by drowse: {ended} {processes} ended, ");
    for said in [
        "is released",
        "It has been released for",
        "since ",
        &counted,
        " MB freed",
    ] {
        assert!(text.contains(said), "{said:?} in:\n{text}");
    }
    end
}

/// The message after a release reaches the same conversation, and the model is given all of it.
#[track_caller]
pub(crate) fn assert_woken(stage: &Stage, earlier: &[&str], before: &Value) {
    let cli = &stage.cli;
    let turns = earlier.len() + 1;
    let woken = Instant::now();
    let mut saying = cli.saying(NAME, "MOCK:say awake");
    saying.wait_for("the first output", is("output"));
    let took = woken.elapsed();
    let answered = saying.wait_for("the answer", is_final);
    assert_eq!(
        answered["text"],
        format!("SAID awake (user turns seen: {turns})")
    );
    stage.assert_history("MOCK:say awake", earlier);
    let after = cli.show(NAME);
    assert_eq!(after["conversation"], before["conversation"]);
    assert_eq!(
        after["incarnation"].as_u64(),
        before["incarnation"].as_u64().map(|n| n + 1)
    );
    say_aloud(&format!(
        "  {}: send to first output of a released session {} ms",
        after["agent"].as_str().unwrap_or_default(),
        took.as_millis()
    ));
}

/// Whether an event says what finally became of a message.
pub(crate) fn is_final(line: &Value) -> bool {
    let state = line["state"].as_str().unwrap_or_default();
    line["event"] == "message_changed" && !["queued", "delivered"].contains(&state)
}

/// Says what a release freed, and how long the bare agent takes from its start to its first
/// output, `first` being what it is told and `is_output` what that looks like.
pub(crate) fn say_figures(
    bare: PipedAgent,
    end: &Value,
    first: &[Value],
    is_output: impl FnMut(&Value) -> bool,
) {
    let began = Instant::now();
    let mut bare = bare.with_ceiling(REAL_CEILING);
    for line in first {
        bare.send(line);
    }
    bare.wait_for("output of the bare agent", is_output);
    let took = began.elapsed();
    let megabytes = end["released_bytes"].as_u64().unwrap_or(0) / 1_000_000;
    let processes = end["processes"].as_array().map_or(0, Vec::len);
    say_aloud(&format!(
        "  freed {megabytes} MB ({processes} processes); the bare agent, started anew, has first \
         output after {} ms",
        took.as_millis()
    ));
    bare.kill_tree();
}

/// The milliseconds between two events.
#[track_caller]
pub(crate) fn between(first: &Value, second: &Value) -> Duration {
    let at = |event: &Value| event["at"].as_u64().expect("an event has a time");
    Duration::from_millis(at(second).saturating_sub(at(first)))
}
