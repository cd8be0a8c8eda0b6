//! `/metrics`: the status report as OpenMetrics text, in base units.
//!
//! Fed by the status actor's report and by `/proc/self`. Nothing is counted here: each scrape
//! renders what the report says, so a scrape is never activity and costs nothing in between.

use std::fs;
use std::sync::atomic::AtomicU64;

use drowse_messages::StatusReport;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// Media type of the text.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge<u64, AtomicU64>>;

/// Renders a report.
pub(super) fn render(report: &StatusReport) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let build = Gauges::default();
    build
        .get_or_create(&vec![("version", report.version.clone())])
        .set(1);
    registry.register("drowse_build_info", "The version that runs", build);
    sessions(&mut registry, report);
    releases(&mut registry, report);
    gauge(
        &mut registry,
        "drowse_store_failing",
        "1 while the store refuses writes",
        u64::from(report.store_failing),
    );
    let uptime = Gauge::<f64, AtomicU64>::default();
    uptime.set(std::time::Duration::from_millis(report.uptime_ms).as_secs_f64());
    registry.register_with_unit("drowse_uptime", "Age of the daemon", Unit::Seconds, uptime);
    process(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

fn sessions(registry: &mut Registry, report: &StatusReport) {
    let states = Gauges::default();
    for count in &report.states {
        let labels = vec![("state", count.state.code().to_owned())];
        states.get_or_create(&labels).set(count.sessions);
    }
    registry.register("drowse_sessions", "Sessions by state", states);
    gauge(
        registry,
        "drowse_backends",
        "Live backends",
        report.backends,
    );
}

fn releases(registry: &mut Registry, report: &StatusReport) {
    let released = counter(report.released_total);
    registry.register("drowse_released", "Backends released", released);
    let bytes = counter(report.released_bytes_total);
    registry.register_with_unit("drowse_released", "Memory they freed", Unit::Bytes, bytes);
    let stale = counter(report.stale_facts_total);
    registry.register(
        "drowse_stale_facts",
        "Facts of older launches, ignored",
        stale,
    );
    let lagged = Counters::default();
    for subscriber in &report.subscribers {
        let labels = vec![("subscriber", subscriber.name.clone())];
        lagged
            .get_or_create(&labels)
            .inc_by(subscriber.lagged_total);
    }
    registry.register(
        "drowse_events_lagged",
        "Events a subscriber was too slow for",
        lagged,
    );
}

/// The two figures of our own process everybody looks for; one that cannot be read is left out.
fn process(registry: &mut Registry) {
    if let Some(bytes) = resident_bytes() {
        let memory = Gauge::<u64, AtomicU64>::default();
        memory.set(bytes);
        let help = "Memory of the daemon itself";
        registry.register_with_unit("process_resident_memory", help, Unit::Bytes, memory);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is this listing.
        let count = open.count().saturating_sub(1);
        gauge(
            registry,
            "process_open_fds",
            "Open descriptors of the daemon",
            count as u64,
        );
    }
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let gauge = Gauge::<u64, AtomicU64>::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

fn counter(value: u64) -> Counter {
    let counter = Counter::default();
    counter.inc_by(value);
    counter
}
