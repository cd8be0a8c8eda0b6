//! Event streams: what comes, in which order, and when it ends.

use std::time::{Duration, Instant};

use drowse_messages::{MessageId, MessageState, SessionEvent, SessionId};

use super::*;

fn notice(text: &str) -> SessionEvent {
    SessionEvent::Notice {
        text: text.to_owned(),
    }
}

fn output(message: Option<u64>, text: &str) -> SessionEvent {
    SessionEvent::Output {
        message: message.map(MessageId),
        text: text.to_owned(),
    }
}

fn changed(message: u64, state: MessageState) -> SessionEvent {
    SessionEvent::MessageChanged {
        message: MessageId(message),
        state,
        text: "t".to_owned(),
    }
}

/// The next frames as (id, event, text).
fn frames(client: &mut Client, count: usize) -> Vec<(Option<u64>, String, String)> {
    let mut next = || {
        let frame = client.frame().expect("the stream goes on");
        let text = frame.json["text"].as_str().unwrap_or_default().to_owned();
        (frame.id, frame.event, text)
    };
    (0..count).map(|_| next()).collect()
}

fn expected(list: &[(Option<u64>, &str, &str)]) -> Vec<(Option<u64>, String, String)> {
    list.iter()
        .map(|(id, event, text)| (*id, (*event).to_owned(), (*text).to_owned()))
        .collect()
}

/// Waits until the daemon has this many subscribers.
fn subscribers(endpoint: &Endpoint, count: usize) {
    let start = Instant::now();
    while endpoint.daemon.subscribers() != count {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "never {count} subscribers"
        );
        std::thread::yield_now();
    }
}

#[test]
fn a_watcher_gets_a_snapshot_and_then_what_happens() {
    let endpoint = Endpoint::start();
    endpoint.daemon.publish(None, notice("before"));
    let mut client = endpoint.connect();
    client.follow("/v1/events", &[]);
    let snapshot = client.frame().unwrap();
    assert_eq!((snapshot.id, &*snapshot.event), (Some(1), "snapshot"));
    assert_eq!(snapshot.json["status"]["version"], "0.1.0");
    endpoint.daemon.publish(None, notice("a\nb"));
    endpoint.daemon.publish(None, output(None, "piece"));
    endpoint
        .daemon
        .publish(None, SessionEvent::Gap { missed: Some(2) });
    endpoint.daemon.publish(None, notice("c"));
    let list = [
        (Some(2), "notice", "a\nb"),
        (Some(2), "output", "piece"),
        (None, "gap", ""),
        (Some(3), "notice", "c"),
    ];
    assert_eq!(frames(&mut client, 4), expected(&list));
    endpoint.daemon.end();
    assert_eq!(client.frame(), None, "the stream ends with the daemon");
}

/// Behaviour 109: who comes back gets what came in between: no event twice, none missing, also
/// none that is published while the kept ones are read.
#[test]
fn a_watcher_that_comes_back_misses_nothing() {
    let endpoint = Endpoint::start();
    for n in 1..=1200 {
        endpoint.daemon.publish(None, notice(&n.to_string()));
    }
    for (path, headers) in [
        ("/v1/events?after=3", vec![]),
        ("/v1/events", vec!["Last-Event-ID: 3"]),
        ("/v1/events?after=1", vec!["Last-Event-ID: 3"]),
    ] {
        let last = endpoint.daemon.world().seq;
        let during = drowse_messages::Event {
            seq: last + 1,
            at: drowse_messages::WallTime(1),
            session: None,
            what: notice("during"),
        };
        endpoint.daemon.world().publish_after_read = vec![during];
        let mut client = endpoint.connect();
        client.follow(path, &headers);
        // Cut off here, the watcher would have to come back for everything behind 3 again.
        assert_eq!(
            frames(&mut client, 1),
            expected(&[(Some(3), "snapshot", "")])
        );
        let ids: Vec<u64> = (4..=last + 1).collect();
        let count = ids.len();
        let got: Vec<u64> = frames(&mut client, count)
            .into_iter()
            .filter_map(|it| it.0)
            .collect();
        assert_eq!(got, ids);
        endpoint.daemon.publish(None, notice("after"));
        assert_eq!(
            frames(&mut client, 1),
            expected(&[(Some(last + 2), "notice", "after")])
        );
    }
}

/// A live event that was replayed already is not said twice.
#[test]
fn a_repeated_event_is_left_out() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    let again = endpoint.daemon.publish(None, notice("1"));
    let mut client = endpoint.connect();
    client.follow("/v1/events?after=0", &[]);
    assert_eq!(frames(&mut client, 2)[1].0, Some(1));
    endpoint.daemon.world().publish_after_read = vec![again];
    endpoint.get("/v1/sessions/s/log");
    endpoint.daemon.publish(None, notice("2"));
    assert_eq!(
        frames(&mut client, 1),
        expected(&[(Some(2), "notice", "2")])
    );
}

#[test]
fn a_gap_says_that_events_are_no_longer_kept() {
    let endpoint = Endpoint::start();
    let session = SessionId::from_random(7);
    for n in 1..=6 {
        let whose = (n % 2 == 0).then_some(session);
        endpoint.daemon.publish(whose, notice(&n.to_string()));
    }
    endpoint.daemon.world().kept.retain(|event| event.seq > 3);
    let mut client = endpoint.connect();
    client.follow("/v1/events?after=1", &[]);
    client.frame();
    let gap = client.frame().unwrap();
    assert_eq!(
        (gap.id, &*gap.event, &gap.json["missed"]),
        (None, "gap", &serde_json::json!(2))
    );
    let rest = [
        (Some(4), "notice", "4"),
        (Some(5), "notice", "5"),
        (Some(6), "notice", "6"),
    ];
    assert_eq!(frames(&mut client, 3), expected(&rest));
    // Nothing is missing behind 3, although the numbers of one session have holes.
    let mut client = endpoint.connect();
    endpoint.session("s");
    endpoint.daemon.world().sessions[0].id = session;
    client.follow("/v1/events?session=s&after=3", &[]);
    client.frame();
    assert_eq!(frames(&mut client, 2), expected(&[rest[0], rest[2]]));
    // A number from the future belongs to another store.
    let mut client = endpoint.connect();
    client.follow("/v1/events?after=99", &[]);
    let list = [(Some(99), "snapshot", ""), (None, "gap", "")];
    assert_eq!(frames(&mut client, 2), expected(&list));
    // A store that cannot be read is a gap of unknown size, not the end.
    endpoint.refuse(Refusal::StoreFailed {
        detail: "disk".to_owned(),
    });
    let mut client = endpoint.connect();
    client.follow("/v1/events?after=4", &[]);
    assert_eq!(
        frames(&mut client, 2)[1],
        (None, "gap".to_owned(), String::new())
    );
}

#[test]
fn a_silent_stream_says_that_it_lives() {
    let heartbeat_every = Duration::from_millis(50);
    let endpoint = Endpoint::with(
        "",
        Bounds {
            heartbeat_every,
            ..Bounds::default()
        },
    );
    let mut client = endpoint.connect();
    client.follow("/v1/events", &[]);
    client.frame();
    assert_eq!(client.chunk().as_deref(), Some(": heartbeat\n\n"));
    assert_eq!(client.chunk().as_deref(), Some(": heartbeat\n\n"));
}

/// A client that is gone leaves nothing: its subscription and its place are free again.
#[test]
fn a_cut_client_frees_its_place() {
    let heartbeat_every = Duration::from_millis(20);
    let endpoint = Endpoint::with(
        "",
        Bounds {
            heartbeat_every,
            streams_max: 1,
            ..Bounds::default()
        },
    );
    let mut client = endpoint.connect();
    client.follow("/v1/events", &[]);
    client.frame();
    let reply = endpoint.get("/v1/events");
    assert_eq!(
        (reply.status, &*problem(&reply).code),
        (503, "too_many_streams")
    );
    assert_eq!(endpoint.get("/livez").status, 200);
    subscribers(&endpoint, 1);
    drop(client);
    subscribers(&endpoint, 0);
    let mut client = endpoint.connect();
    client.follow("/v1/events", &[]);
    assert_eq!(client.frame().unwrap().event, "snapshot");
}

#[test]
fn streams_end_when_the_endpoint_stops() {
    let mut endpoint = Endpoint::start();
    let mut client = endpoint.connect();
    client.follow("/v1/events", &[]);
    client.frame();
    endpoint.daemon.publish(None, SessionEvent::Draining);
    let start = Instant::now();
    endpoint.stop();
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "it does not wait for the bound"
    );
    assert_eq!(
        frames(&mut client, 1),
        expected(&[(Some(1), "draining", "")])
    );
    assert_eq!(client.frame(), None);
}

/// A message's own events, from its acceptance to its final state, and nobody else's.
#[test]
fn a_message_can_be_followed_to_its_end() {
    let endpoint = Endpoint::start();
    let id = endpoint.opened("s");
    endpoint.post("/v1/sessions/s/messages", "{\"text\":\"first\"}");
    let headers = ["Accept: text/event-stream", "Idempotency-Key: k"];
    let send = |client: &mut Client| {
        client.begin(
            "POST",
            "/v1/sessions/s/messages",
            &headers,
            b"{\"text\":\"second\"}",
        );
        client.stream_begins();
    };
    let earlier = drowse_messages::Event {
        seq: 2,
        at: drowse_messages::WallTime(1),
        session: Some(id),
        what: notice("before it was accepted"),
    };
    endpoint.daemon.world().publish_after_read = vec![earlier];
    let mut client = endpoint.connect();
    send(&mut client);
    assert_eq!(frames(&mut client, 1)[0].1, "message_queued");
    for what in [
        output(Some(1), "of the first"),
        changed(1, MessageState::Answered),
        SessionEvent::TurnStarted { message: None },
        output(None, "of its own"),
        changed(2, MessageState::Delivered),
        SessionEvent::TurnStarted {
            message: Some(MessageId(2)),
        },
        output(Some(2), "piece"),
        notice("n"),
        changed(2, MessageState::Answered),
        notice("too late"),
    ] {
        endpoint.daemon.publish(Some(id), what);
    }
    let events: Vec<String> = frames(&mut client, 5)
        .into_iter()
        .map(|frame| frame.1)
        .collect();
    let all = [
        "message_changed",
        "turn_started",
        "output",
        "notice",
        "message_changed",
    ];
    assert_eq!(events, all);
    assert_eq!(client.frame(), None);
    // A repeat of a settled message gets its final state at once.
    endpoint.daemon.world().messages[1].0.state = MessageState::Answered;
    let mut client = endpoint.connect();
    send(&mut client);
    let last = client.frame().unwrap();
    assert_eq!((last.id, &*last.event), (None, "message_changed"));
    assert_eq!(
        (&last.json["state"], &last.json["message"]),
        (&"answered".into(), &2.into())
    );
    assert_eq!(client.frame(), None);
}

/// `Prefer: wait` (RFC 7240): the answer itself, once it is there; a place to look for it else.
#[test]
fn an_answer_can_be_waited_for() {
    let endpoint = Endpoint::start();
    let id = endpoint.opened("s");
    let path = "/v1/sessions/s/messages";
    let body = "{\"text\":\"hi\"}".as_bytes();
    let mut client = endpoint.connect();
    client.begin("POST", path, &["Prefer: respond-async, wait=30"], body);
    // It is read before anything can have become of it.
    let mut other = endpoint.connect();
    let until = Instant::now() + Duration::from_secs(10);
    while other.ask("GET", path, &[], b"").json() == serde_json::json!([]) {
        assert!(Instant::now() < until, "the message never came");
    }
    endpoint.daemon.world().messages[0].0.state = MessageState::Answered;
    endpoint.daemon.world().messages[0].0.answer = "hello".to_owned();
    endpoint
        .daemon
        .publish(Some(id), changed(1, MessageState::Answered));
    let reply = client.reply();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("preference-applied"), Some("wait=30"));
    assert_eq!(reply.json()["answer"], "hello");
    // Nothing comes of this one in time.
    let late = client.ask("POST", path, &["Prefer: wait=0"], body);
    assert_eq!(
        (late.status, late.header("location")),
        (202, Some("/v1/messages/2"))
    );
    assert_eq!(late.header("preference-applied"), None);
    let wrong = client.ask("POST", path, &["Prefer: wait=soon"], body);
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    assert!(wrong.text().contains("prefer: wait="), "{}", wrong.text());
}

/// The end of a message may be among what a slow reader lost: the store knows it.
#[test]
fn a_followed_message_ends_even_across_a_gap() {
    let endpoint = Endpoint::start();
    let id = endpoint.opened("s");
    let mut client = endpoint.connect();
    let headers = ["Accept: text/event-stream"];
    client.begin(
        "POST",
        "/v1/sessions/s/messages",
        &headers,
        b"{\"text\":\"x\"}",
    );
    client.stream_begins();
    client.frame();
    endpoint.daemon.world().messages[0].0.state = MessageState::Failed;
    endpoint
        .daemon
        .publish(Some(id), SessionEvent::Gap { missed: Some(1) });
    assert_eq!(client.frame().unwrap().event, "gap");
    assert_eq!(client.frame().unwrap().json["state"], "failed");
    assert_eq!(client.frame(), None);
}

/// A refused message is a problem, not a stream.
#[test]
fn a_refused_message_begins_no_stream() {
    let endpoint = Endpoint::start();
    endpoint.session("s");
    endpoint.refuse(Refusal::InboxFull { queued: 64 });
    let headers = ["Accept: text/event-stream"];
    let path = "/v1/sessions/s/messages";
    let reply = endpoint
        .connect()
        .ask("POST", path, &headers, b"{\"text\":\"x\"}");
    assert_eq!((reply.status, &*problem(&reply).code), (429, "inbox_full"));
    subscribers(&endpoint, 0);
}
