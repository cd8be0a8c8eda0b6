//! What an agent inherits of its daemon's standing, and what it does not.

use std::fs;

use super::support::*;
use drowse_messages::ReapStep;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Where the kernel keeps a process's standing when memory runs out.
const OOM_SCORE_ADJ: &str = "/proc/self/oom_score_adj";

/// An agent's own words on its limit of descriptors, nice value, `oom_score_adj` and umask, and
/// the keeper's limit of descriptors.
async fn standing(nofile: Option<(u64, u64)>) -> (String, (u64, u64)) {
    let session = new_session();
    let mut plan = launch(session, &[TREE_AGENT, "standing;sleep"]);
    plan.nofile = nofile;
    let mut backend = Backend::launch(session, plan).await;
    let line = backend.line().await;
    let limits = fs::read_to_string(format!("/proc/{}/limits", backend.link.keeper().pid()));
    let limits = limits.expect("alive");
    let mut numbers = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .expect("a limit")
        .split_whitespace()
        .map(|number| number.parse().expect("a number"));
    let mut next = || numbers.next().expect("two numbers");
    let keepers = (next(), next());
    let pool = pool();
    backend.step(&pool, ReapStep::Kill).await;
    backend.leave(&pool).await;
    let (_, standing) = line.trim_end().split_once(" nofile=").expect("a standing");
    (standing.to_owned(), keepers)
}

/// D50: a daemon raises its limit of descriptors for itself alone; programs that use select(2), or
/// close all they may have, are harmed by a high one. The keeper keeps its own.
#[test]
fn an_agent_has_the_limits_the_daemon_started_with() {
    if !alone("process::standing::an_agent_has_the_limits_the_daemon_started_with") {
        return;
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit that exists");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("anybody may");
    on_runtime(async {
        let (agents, keepers) = standing(Some((123, hard))).await;
        assert!(agents.starts_with(&format!("123:{hard} ")), "{agents}");
        assert_eq!(keepers, (hard, hard));
        let (agents, _) = standing(None).await;
        assert!(agents.starts_with(&format!("{hard}:{hard} ")), "{agents}");
        // One that the daemon could not have had is as good as its highest.
        let (agents, _) = standing(Some((u64::MAX, u64::MAX))).await;
        assert!(agents.starts_with(&format!("{hard}:{hard} ")), "{agents}");
        // Few, but enough for its streams; and its tree can be ended all the same.
        let (agents, keepers) = standing(Some((16, 100))).await;
        assert!(agents.starts_with("16:100 "), "{agents}");
        assert_eq!(keepers, (100, 100));
    });
}

/// D50: what protects a daemon does not protect its agents, and what holds it back does hold them.
#[test]
fn an_agent_has_no_privilege_of_the_daemon() {
    if !alone("process::standing::an_agent_has_no_privilege_of_the_daemon") {
        return;
    }
    let set = |nice, oom_score_adj: &str| {
        let set = rustix::process::setpriority_process(None, nice);
        set.is_ok() && fs::write(OOM_SCORE_ADJ, oom_score_adj).is_ok()
    };
    if !set(-5, "-500") {
        println!("SKIPPED an_agent_has_no_privilege_of_the_daemon: we cannot have any ourselves");
        return;
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o27));
    on_runtime(async {
        let (agents, _) = standing(None).await;
        let expected = " nice=0 oom_score_adj=0 umask=27";
        assert!(agents.ends_with(expected), "{agents}");
        assert!(set(7, "300"));
        let (agents, _) = standing(None).await;
        let expected = " nice=7 oom_score_adj=300 umask=27";
        assert!(agents.ends_with(expected), "{agents}");
    });
}
