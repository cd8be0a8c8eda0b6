//! What the keep rules mean outlives every step, untouched; the rest of the tree does not.

use super::arms::{Delegation, as_nobody, cgroups};
use super::support::*;
use drowse::process::cgroup::place::Cgroups;
use drowse::process::table::walk;
use drowse_messages::{KeepRule, ProcIdentity, ProcReport, ReapStep};

/// The agent, a server of three processes in a group of their own, and two others.
const SERVER: &str = "report;fork[group;report;fork[report;fork[report;listen;byte;sleep];sleep];\
                      sleep];fork[setsid;report;sleep];fork[report;sleep];sleep";

fn identities(reports: &[ProcReport]) -> Vec<ProcIdentity> {
    let mut found: Vec<_> = reports.iter().map(|report| report.identity).collect();
    found.sort();
    found
}

fn is_stopped(process: ProcIdentity) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid()));
    stat.expect("alive").contains(") T ")
}

async fn with_server(cgroups: Option<&Cgroups>, rule: impl Fn(&ProcReport) -> KeepRule) {
    let pool = pool();
    let mut backend = Backend::start_in(cgroups, SERVER).await;
    let mut listening = Vec::new();
    // Once somebody listens, all of the server is there.
    let mut snapshot = backend.step(&pool, ReapStep::Snapshot).await;
    wait_for_tree(&mut backend).await;
    while listening.is_empty() {
        snapshot = backend.step(&pool, ReapStep::Snapshot).await;
        listening = snapshot.processes.clone();
        listening.retain(|process| !process.listens.is_empty());
    }
    assert_eq!(
        (snapshot.processes.len(), listening.len()),
        (6, 1),
        "{snapshot:?}"
    );
    assert!(snapshot.kept.is_empty() && snapshot.processes.iter().all(|p| p.scan == 0));

    backend.keep = vec![rule(&listening[0])];
    let snapshot = backend.step(&pool, ReapStep::Snapshot).await;
    let (kept, others) = (identities(&snapshot.kept), identities(&snapshot.processes));
    assert_eq!((kept.len(), others.len()), (3, 3), "{snapshot:?}");
    assert!(kept.contains(&listening[0].identity) && !kept.contains(&backend.agent));
    assert!(
        snapshot
            .kept
            .iter()
            .any(|process| process.listens == listening[0].listens)
    );
    assert!(!snapshot.empty);

    backend.keep = kept.iter().copied().map(KeepRule::Process).collect();
    for step in [ReapStep::Terminate, ReapStep::Kill, ReapStep::Verify] {
        let report = backend.step(&pool, step).await;
        assert_eq!(identities(&report.kept), kept, "{report:?}");
        let touched = identities(&report.processes);
        assert!(
            touched.iter().all(|process| others.contains(process)),
            "{report:?}"
        );
        assert!(
            kept.iter()
                .all(|process| is_alive(*process) && !is_stopped(*process))
        );
        assert!(step == ReapStep::Terminate || report.empty, "{report:?}");
    }
    assert!(!others.iter().any(|process| is_alive(*process)));

    backend.keep.clear();
    let report = backend.step(&pool, ReapStep::Kill).await;
    assert!(
        report.empty && identities(&report.processes) == kept,
        "{report:?}"
    );
    backend.leave(&pool).await;
}

/// Six reports, and a byte that is no part of a line.
async fn wait_for_tree(backend: &mut Backend) {
    backend
        .until(|said| said.iter().filter(|&&byte| byte == b'\n').count() == 6)
        .await;
}

fn by_its_port() {
    let rule = |server: &ProcReport| KeepRule::Listen(server.listens[0]);
    on_runtime(with_server(None, rule));
    if let Some(cgroups) = cgroups() {
        on_runtime(with_server(Some(&cgroups), rule));
        assert!(!cgroups.folder().exists());
    }
}

/// D09: by port, and with the shells above it.
#[test]
fn a_server_is_kept_by_its_port() {
    by_its_port();
}

#[test]
fn a_server_is_kept_by_its_port_as_nobody() {
    let test = "process::kept::a_server_is_kept_by_its_port_as_nobody";
    if as_nobody(test, Delegation::Cgroup) {
        by_its_port();
    }
}

#[test]
fn a_server_is_kept_by_its_identity() {
    let rule = |server: &ProcReport| KeepRule::Process(server.identity);
    on_runtime(with_server(None, rule));
}

/// By the file of its program, and the agent itself never.
#[test]
fn a_program_is_kept_by_its_name() {
    on_runtime(async {
        let pool = pool();
        let argv = [
            "/bin/sh",
            "-c",
            "sleep 3600 & echo x; exec /bin/sh -c 'read line'",
        ];
        for name in ["sleep", "sh", "dash", "bash"] {
            let mut backend = Backend::run_in(None, &argv).await;
            backend.line().await;
            wait_until("each runs its program", || {
                let tree = walk(backend.link.keeper()).expect("the keeper runs");
                let mut names: Vec<_> = tree.iter().map(|stat| &*stat.name).collect();
                names.sort_unstable();
                names == ["sh", "sleep"]
            });
            backend.keep = vec![KeepRule::Exe(name.to_owned())];
            let snapshot = backend.step(&pool, ReapStep::Snapshot).await;
            let kept: Vec<_> = snapshot.kept.iter().map(|process| &*process.name).collect();
            let expected: &[&str] = if name == "sleep" { &["sleep"] } else { &[] };
            assert_eq!(kept, expected, "{snapshot:?}");
            backend.keep.clear();
            assert!(backend.step(&pool, ReapStep::Kill).await.empty);
            backend.leave(&pool).await;
        }
    });
}
