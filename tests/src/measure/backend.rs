//! A backend to measure: a keeper and an agent below it, without a daemon.
//!
//! Invariant: [`Backend::finish`] leaves no process and no cgroup.

use std::path::Path;
use std::time::Duration;

use drowse::process::cgroup::Cgroup;
use drowse::process::cgroup::place::Cgroups;
use drowse::process::control::{Launch, ToKeeper};
use drowse::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use drowse::process::reap::{Scope, run};
use drowse::process::spawn::KeeperProgram;
use drowse::process::table::is_gone;
use drowse_messages::{Incarnation, ProcIdentity, ReapStep, SessionId};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Names the program whose keepers are measured, if not the one built with the benches.
const PROGRAM_VARIABLE: &str = "DROWSE_BENCH_PROGRAM";

/// Nothing here ends by a grace.
const GRACE: Duration = Duration::from_millis(100);

/// The program that keepers are started from: the one that the environment names, else `usual`.
#[must_use]
pub fn keeper_program(usual: &str) -> KeeperProgram {
    let named = std::env::var_os(PROGRAM_VARIABLE);
    let path = named.unwrap_or_else(|| usual.into());
    super::line(format_args!("keepers are {}", path.display()));
    KeeperProgram::at(Path::new(&path))
}

/// See the module.
#[derive(Debug)]
pub struct Backend {
    /// Of its keeper.
    pub link: KeeperLink,
    /// The agent.
    pub agent: ProcIdentity,
    /// The agent's pipes.
    pub stdio: AgentStdio,
    /// The cgroup in which the agent was born, if one was asked for.
    pub cgroup: Option<Cgroup>,
}

impl Backend {
    /// Starts `argv`, in a cgroup of its own if there is a place for it.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(program: &KeeperProgram, argv: &[&str], place: Option<&Cgroups>) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static LAUNCHES: AtomicU32 = AtomicU32::new(1);
        let session = SessionId::from_random(1);
        let incarnation = Incarnation(LAUNCHES.fetch_add(1, Ordering::Relaxed));
        let make = |place: &Cgroups| place.create(session, incarnation);
        let cgroup = place.map(|place| make(place).expect("its place was tried"));
        let launch = Launch {
            argv: argv.iter().map(Into::into).collect(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: "/".into(),
            cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
            socket: None,
            orphan_grace: Duration::ZERO,
            eof_grace: GRACE,
            term_grace: GRACE,
            nofile: None,
        };
        let spawned = KeeperLink::spawn(program, session, launch).await;
        let mut link = spawned.expect("a keeper starts");
        match link.next_message().await {
            Ok(Some(KeeperEvent::Started { agent, stdio })) => Self {
                link,
                agent,
                stdio,
                cgroup,
            },
            other => panic!("no agent, but {other:?}"),
        }
    }

    /// Ends what is left below the keeper, lets it leave, and collects it.
    ///
    /// # Panics
    /// When something cannot be ended.
    pub async fn finish(mut self) {
        let keeper = self.link.keeper();
        match run(ReapStep::Kill, &Scope::keeper(keeper)) {
            Ok(outcome) => assert!(outcome.empty, "left: {:?}", outcome.survivors),
            Err(error) => assert!(is_gone(&error), "{error}"),
        }
        // It may have left already; then there is nobody to tell.
        drop(self.link.send(ToKeeper::Leave).await);
        while let Ok(Some(_)) = self.link.next_message().await {}
        waitpid(Pid::from_raw(keeper.pid()), None).expect("the keeper is our child");
        if let Some(cgroup) = self.cgroup {
            cgroup.remove().expect("nobody is in it");
        }
    }
}
