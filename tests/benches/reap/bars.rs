//! What the figures are held to: the bars of docs/PERFORMANCE.md, said in plain text.

use std::collections::BTreeMap;

use drowse_tests::measure::{Bar, line};

use super::{MIDDLE, Medians};

/// Prints each bar, what was measured, and whether it is met.
pub(super) fn judge(medians: &Medians, escaped: &BTreeMap<String, usize>) {
    line("\n# bars");
    for way in ["drowse, cgroup", "drowse, keeper"] {
        let verdict = match escaped.get(way) {
            None => "not measured".to_owned(),
            Some(0) => "met".to_owned(),
            Some(left) => format!("MISSED: {left}"),
        };
        line(format_args!(
            "{way}: nobody survives in any shape: {verdict}"
        ));
    }
    for (what, measured, bar) in bars(medians) {
        line(bar.verdict(&what, measured));
    }
}

/// What is measured, the ratio of two medians, and its bar.
fn bars(medians: &Medians) -> Vec<(String, Option<f64>, Bar)> {
    let median = |among, way: &str| medians.get(&(MIDDLE, among, way.to_owned())).copied();
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let mut bars = Vec::new();
    for (way, most) in [("drowse, cgroup", 1.3), ("drowse, keeper", 4.0)] {
        for among in [false, true] {
            let place = if among { ", among 10,000 others" } else { "" };
            bars.push((
                format!("{way} / cgroup.kill, 31 processes{place}"),
                ratio(median(among, way), median(among, "cgroup.kill")),
                Bar::AtMost(most),
            ));
        }
        bars.push((
            format!("{way}: 10,000 others / none, 31 processes"),
            ratio(median(true, way), median(false, way)),
            Bar::AtMost(1.2),
        ));
        for (peer, least) in [("kill_tree", 50.0), ("psutil", 50.0), ("tree-kill", 1000.0)] {
            bars.push((
                format!("{peer} / {way}, 31 processes among 10,000 others"),
                ratio(median(true, peer), median(true, way)),
                Bar::AtLeast(least),
            ));
        }
    }
    bars
}
