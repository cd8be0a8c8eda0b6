//! `/v1/kept`, and the stop that ends what is kept (behaviour 146).

use std::time::Duration;

use drowse_actors::KeepWish;
use drowse_messages::{KeepTarget, KeptReport, Order, StopHow, Who};

use super::Endpoint;

fn kept(endpoint: &Endpoint) -> KeptReport {
    let report = serde_json::from_str(
        r#"{"session":"000000000007","session_name":"s","outlives":true,
            "process":{"identity":{"pid":4720,"start_ticks":9},"parent":4710,"name":"node",
                       "pss_bytes":0,"listens":[3000]},
            "rule":"listen:3000","since":1000000}"#,
    );
    let report: KeptReport = report.unwrap();
    let mut world = endpoint.daemon.world();
    world.sessions[0].kept = vec![report.clone()];
    report
}

#[test]
fn kept_processes_are_listed_and_wishes_passed_on() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    let report = kept(&endpoint);
    let id = endpoint.daemon.world().sessions[0].id;
    let reply = endpoint.connect().ask("GET", "/v1/kept", &[], b"");
    let listed: Vec<KeptReport> = serde_json::from_str(&reply.text()).unwrap();
    assert_eq!((reply.status, listed), (200, vec![report.clone()]));
    for (body, target, ttl, session) in [
        (r#"{"pid":4720}"#, KeepTarget::Pid(4720), None, None),
        (
            r#"{"listen":3000,"ttl":"2h","session":"s"}"#,
            KeepTarget::Listen(3000),
            Some(Duration::from_secs(7200)),
            Some(id),
        ),
    ] {
        let headers = ["User-Agent: drowse-cli/0.1"];
        let reply = endpoint
            .connect()
            .ask("POST", "/v1/kept", &headers, body.as_bytes());
        let answer: KeptReport = serde_json::from_str(&reply.text()).unwrap();
        assert_eq!((reply.status, answer), (201, report.clone()));
        let by = Who::Client("drowse-cli".to_owned());
        let wish = KeepWish {
            target,
            session,
            ttl,
            by,
        };
        assert_eq!(endpoint.daemon.world().keeps.pop(), Some(wish));
    }
}

/// D12: what is no process and no port never gets further.
#[test]
fn a_wish_that_makes_no_sense_is_refused_in_words() {
    let endpoint = Endpoint::start();
    for (body, words) in [
        (r#"{"pid":0}"#, "pid: 0 is no pid of a process"),
        (r#"{"pid":1}"#, "pid: 1 is no pid of a process"),
        (r#"{"pid":-5}"#, "pid: -5 is no pid of a process"),
        (
            r#"{"pid":2147483648}"#,
            "pid: 2147483648 is no pid of a process",
        ),
        (r#"{"listen":0}"#, "listen: 0 is no TCP port"),
        (r#"{"listen":65536}"#, "listen: 65536 is no TCP port"),
        (r#"{}"#, "body: needs either pid or listen"),
        (
            r#"{"pid":7,"listen":80}"#,
            "body: needs either pid or listen",
        ),
        (
            r#"{"pid":7,"ttl":"soon"}"#,
            "ttl: is not a duration; expected a duration such as",
        ),
        (
            r#"{"pid":7,"ttl":"0"}"#,
            "ttl: is shorter than a millisecond",
        ),
        (r#"{"pid":7,"ttl":"-2h"}"#, "ttl: is negative"),
        (r#"{"pid":7,"ttl":"5"}"#, "ttl: is a number without a unit"),
        (r#"{"pid":"node"}"#, "pid: invalid type"),
        (r#"{"pidd":7}"#, "unknown field"),
    ] {
        let reply = endpoint
            .connect()
            .ask("POST", "/v1/kept", &[], body.as_bytes());
        let text = reply.text();
        assert_eq!(reply.status, 400, "{body}: {text}");
        assert!(text.contains(words), "{body}: {text}");
    }
    assert!(endpoint.daemon.world().keeps.is_empty());
}

#[test]
fn a_stop_says_whether_it_means_what_is_kept() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    for (body, how) in [
        ("", StopHow::Stop),
        ("{}", StopHow::Stop),
        (r#"{"kept":false}"#, StopHow::Stop),
        (r#"{"kept":true}"#, StopHow::StopAll),
    ] {
        let reply = endpoint
            .connect()
            .ask("POST", "/v1/sessions/s/stop", &[], body.as_bytes());
        assert_eq!(reply.status, 202);
        let (_, order) = endpoint.daemon.world().orders.pop().unwrap();
        assert!(
            matches!(order, Order::Stop(stop) if stop.how == how),
            "{body}"
        );
    }
}
