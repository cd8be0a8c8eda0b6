//! What the figures are held to: the bars of docs/PERFORMANCE.md, said in plain text.

use std::collections::BTreeMap;

use drowse_tests::measure::line;

use super::{MIDDLE, Medians};

/// A ratio of two medians and what it may be.
struct Bar {
    what: String,
    measured: Option<f64>,
    bound: Bound,
}

#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

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
    for bar in bars(medians) {
        line(bar.verdict());
    }
}

fn bars(medians: &Medians) -> Vec<Bar> {
    let median = |among, way: &str| medians.get(&(MIDDLE, among, way.to_owned())).copied();
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    let mut bars = Vec::new();
    for (way, bound) in [("drowse, cgroup", 1.3), ("drowse, keeper", 4.0)] {
        for among in [false, true] {
            let where_ = if among { ", among 10,000 others" } else { "" };
            bars.push(Bar {
                what: format!("{way} / cgroup.kill, 31 processes{where_}"),
                measured: ratio(median(among, way), median(among, "cgroup.kill")),
                bound: Bound::AtMost(bound),
            });
        }
        bars.push(Bar {
            what: format!("{way}: 10,000 others / none, 31 processes"),
            measured: ratio(median(true, way), median(false, way)),
            bound: Bound::AtMost(1.2),
        });
        for (peer, bound) in [("kill_tree", 50.0), ("psutil", 50.0), ("tree-kill", 1000.0)] {
            bars.push(Bar {
                what: format!("{peer} / {way}, 31 processes among 10,000 others"),
                measured: ratio(median(true, peer), median(true, way)),
                bound: Bound::AtLeast(bound),
            });
        }
    }
    bars
}

impl Bar {
    fn verdict(&self) -> String {
        let (sign, bound) = match self.bound {
            Bound::AtMost(bound) => ("<=", bound),
            Bound::AtLeast(bound) => (">=", bound),
        };
        let verdict = match (self.measured, self.bound) {
            (None, _) => "not measured".to_owned(),
            (Some(ratio), Bound::AtMost(bound)) if ratio <= bound => format!("{ratio:.2}, met"),
            (Some(ratio), Bound::AtLeast(bound)) if ratio >= bound => format!("{ratio:.0}, met"),
            (Some(ratio), _) => format!("{ratio:.2}, MISSED"),
        };
        format!("{} {sign} {bound}: {verdict}", self.what)
    }
}
