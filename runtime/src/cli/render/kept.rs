//! Kept processes, as a line each and as the second table of `ps`.

use drowse_messages::{KeptProcess, KeptReport, ProcReport, SessionReport};

use super::{View, long, one_line, short, table};

const HEADINGS: [&str; 8] = [
    "KEPT", "NAME", "PORTS", "SESSION", "RULE", "SINCE", "ENDS-IN", "OUTLIVES",
];

/// `node (pid 4711, port 3000)`.
pub(crate) fn process(process: &ProcReport) -> String {
    let ports = ports(process, " ");
    let word = match process.listens.len() {
        0 => "",
        1 => ", port ",
        _ => ", ports ",
    };
    let (name, pid) = (one_line(&process.name), process.identity.pid());
    format!("{name} (pid {pid}{word}{ports})")
}

fn ports(process: &ProcReport, between: &str) -> String {
    let ports: Vec<String> = process.listens.iter().map(ToString::to_string).collect();
    ports.join(between)
}

/// `node (pid 4711, port 3000) by listen:3000, for 4m, ends in 1h 56m`.
pub(crate) fn kept(kept: &KeptProcess, view: &View<'_>) -> String {
    let since = long(view.since(kept.since));
    let ends = kept.until.map_or_else(String::new, |until| {
        format!(", ends in {}", long(until.since(view.now)))
    });
    let rule = one_line(&kept.rule.to_string()).into_owned();
    format!("{} by {rule}, for {since}{ends}", process(&kept.process))
}

/// What `keep` says of what it did.
pub(crate) fn kept_line(report: &KeptReport, view: &View<'_>) -> String {
    let (what, whose) = (
        process(&report.kept.process),
        one_line(&report.session_name),
    );
    let until = report.kept.until.map_or_else(String::new, |until| {
        format!(" for {}", long(until.since(view.now)))
    });
    format!("{what} of {whose} is kept{until}")
}

/// The second table of `ps`; empty when nothing is kept.
pub(crate) fn kept_table(sessions: &[SessionReport], view: &View<'_>) -> String {
    let all = sessions.iter().flat_map(|session| &session.kept);
    let rows: Vec<Vec<String>> = all.map(|report| row(report, view)).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n{}", table(&HEADINGS, &rows, view.columns))
}

fn row(report: &KeptReport, view: &View<'_>) -> Vec<String> {
    let kept = &report.kept;
    let ports = ports(&kept.process, ",");
    let ends = kept.until.map(|until| short(until.since(view.now)));
    let none = || "-".to_owned();
    vec![
        kept.process.identity.pid().to_string(),
        one_line(&kept.process.name).into_owned(),
        Some(ports)
            .filter(|ports| !ports.is_empty())
            .unwrap_or_else(none),
        one_line(&report.session_name).into_owned(),
        one_line(&kept.rule.to_string()).into_owned(),
        short(view.since(kept.since)),
        ends.unwrap_or_else(none),
        if report.outlives { "yes" } else { "later" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::render::tests::{resting, view};

    fn reports() -> Vec<KeptReport> {
        serde_json::from_str(
            r#"[{"session":"000000000007","session_name":"fix-tests","outlives":true,
                 "process":{"identity":{"pid":4720,"start_ticks":9},"parent":4710,"name":"node",
                            "pss_bytes":0,"listens":[3000,9229]},
                 "rule":"listen:3000","since":1000000,"until":8260000},
                {"session":"000000000007","session_name":"fix-tests","outlives":false,
                 "process":{"identity":{"pid":4730,"start_ticks":9},"parent":4711,"name":"post\ngres",
                            "pss_bytes":0},
                 "rule":"pid:4730@9","since":1060000}]"#,
        )
        .unwrap()
    }

    /// Behaviour 146: pid, name, ports, owner, rule, since when and for how long.
    #[test]
    fn the_list_of_kept_processes_is_aligned() {
        let mut session = resting();
        assert_eq!(kept_table(&[session.clone()], &view()), "");
        session.kept = reports();
        let expected = "
KEPT  NAME      PORTS      SESSION    RULE         SINCE  ENDS-IN  OUTLIVES
4720  node      3000,9229  fix-tests  listen:3000  1m     2h       yes
4730  post gres  -          fix-tests  pid:4730@9   0s     -        later
";
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(
            squeezed(&kept_table(&[session], &view())),
            squeezed(expected)
        );
    }

    #[test]
    fn a_kept_process_reads_as_a_phrase() {
        let reports = reports();
        assert_eq!(
            kept(&reports[0].kept, &view()),
            "node (pid 4720, ports 3000 9229) by listen:3000, for 1m, ends in 2h"
        );
        assert_eq!(
            kept_line(&reports[1], &view()),
            "post gres (pid 4730) of fix-tests is kept"
        );
    }
}
