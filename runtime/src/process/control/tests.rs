//! Frames: what goes in comes out, in any pieces, and what is no frame is refused.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use super::*;

fn launch() -> Launch {
    Launch {
        argv: vec!["agent".into(), OsString::from_vec(vec![0xff, b' ', b'\n'])],
        env: vec![
            ("TOKEN".into(), "s3cret".into()),
            ("EMPTY".into(), "".into()),
        ],
        cwd: "/tmp".into(),
        cgroup: Some("/sys/fs/cgroup/drowse/a".into()),
        socket: Some("/var/lib/drowse/keepers/a".into()),
        orphan_grace: Duration::from_secs(60),
        eof_grace: Duration::from_secs(2),
        term_grace: Duration::from_millis(u64::MAX),
        nofile: Some((1024, u64::MAX)),
    }
}

fn every_message_to_a_keeper() -> Vec<ToKeeper> {
    let bare = Launch {
        argv: Vec::new(),
        env: Vec::new(),
        cgroup: None,
        socket: None,
        nofile: None,
        ..launch()
    };
    let until = Duration::from_millis(1500);
    vec![
        ToKeeper::Launch(launch()),
        ToKeeper::TakeOver,
        ToKeeper::CloseStdin,
        ToKeeper::Launch(bare),
        ToKeeper::Checkpoint(Checkpoint(b"as far as here\0".to_vec())),
        ToKeeper::Checkpoint(Checkpoint::default()),
        ToKeeper::Retire { until: None },
        ToKeeper::Retire { until: Some(until) },
        ToKeeper::End,
        ToKeeper::Leave,
    ]
}

fn agent() -> ProcIdentity {
    ProcIdentity::new(77, u64::MAX).expect("a pid above 1")
}

fn held() -> FromKeeper {
    FromKeeper::Held {
        agent: agent(),
        exited: Some(ExitStatus::Signal(9)),
        empty: true,
        stdin_open: false,
        retired: false,
        checkpoint: Checkpoint(vec![7; CHECKPOINT_BYTES_MAX]),
    }
}

/// Frames arrive in any pieces and come out whole and in order.
#[test]
fn frames_survive_any_cut() {
    let expected = every_message_to_a_keeper();
    let bytes: Vec<u8> = expected
        .iter()
        .flat_map(|message| message.encode().expect("short"))
        .collect();
    for size in 1..bytes.len() {
        let mut buffer = FrameBuffer::default();
        let mut got = Vec::new();
        for piece in bytes.chunks(size) {
            buffer.push(piece);
            while let Some(message) = buffer.next_to_keeper().expect("well formed") {
                got.push(message);
            }
        }
        assert_eq!(got, expected, "pieces of {size}");
    }
}

#[test]
fn a_duration_beyond_what_a_frame_holds_becomes_the_longest() {
    let mut endless = launch();
    endless.term_grace = Duration::MAX;
    let mut buffer = FrameBuffer::default();
    buffer.push(&ToKeeper::Launch(endless).encode().expect("short"));
    assert_eq!(
        buffer.next_to_keeper(),
        Ok(Some(ToKeeper::Launch(launch())))
    );
}

#[test]
fn every_message_from_a_keeper_reads_back() {
    use LaunchStep::{Cwd, Pipes, Program, Socket};
    let mut all = vec![
        FromKeeper::Started(agent()),
        FromKeeper::Empty,
        FromKeeper::Ending,
        FromKeeper::Refused,
        held(),
        FromKeeper::Held {
            agent: agent(),
            exited: None,
            empty: false,
            stdin_open: true,
            retired: true,
            checkpoint: Checkpoint::default(),
        },
    ];
    all.extend(
        [Cwd, Pipes, Program, Socket]
            .map(|step| FromKeeper::LaunchFailed(LaunchError { step, errno: 2 })),
    );
    all.extend([ExitStatus::Code(3), ExitStatus::Signal(9)].map(FromKeeper::Exited));
    for message in all {
        let mut buffer = FrameBuffer::default();
        let bytes = message.encode().expect("short");
        let (start, end) = bytes.split_at(bytes.len() - 1);
        buffer.push(start);
        assert_eq!(buffer.next_from_keeper(), Ok(None), "{message:?} cut");
        buffer.push(end);
        assert_eq!(buffer.next_from_keeper(), Ok(Some(message)));
    }
}

/// Two releases that share this version understand each other's bytes.
#[test]
fn the_bytes_of_a_version_do_not_change() {
    let to = |message: ToKeeper| message.encode().expect("short");
    let from = |message: FromKeeper| message.encode().expect("short");
    let until = Some(Duration::from_millis(258));
    assert_eq!(to(ToKeeper::CloseStdin), [2, 2, 0, 0, 0, 0]);
    assert_eq!(to(ToKeeper::Leave), [2, 3, 0, 0, 0, 0]);
    assert_eq!(
        to(ToKeeper::Checkpoint(Checkpoint(b"ab".to_vec()))),
        [2, 4, 2, 0, 0, 0, b'a', b'b']
    );
    assert_eq!(
        to(ToKeeper::Retire { until }),
        [2, 5, 9, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(to(ToKeeper::Retire { until: None }), [2, 5, 1, 0, 0, 0, 0]);
    assert_eq!(to(ToKeeper::End), [2, 6, 0, 0, 0, 0]);
    assert_eq!(to(ToKeeper::TakeOver), [2, 7, 0, 0, 0, 0]);
    assert_eq!(from(FromKeeper::Ending), [2, 70, 0, 0, 0, 0]);
    assert_eq!(from(FromKeeper::Refused), [2, 71, 0, 0, 0, 0]);
    let held = FromKeeper::Held {
        agent: ProcIdentity::new(258, 3).expect("a pid above 1"),
        exited: Some(ExitStatus::Code(4)),
        empty: false,
        stdin_open: true,
        retired: false,
        checkpoint: Checkpoint(b"c".to_vec()),
    };
    let expected: Vec<u8> = [
        &[2, 69, 22, 0, 0, 0][..],
        &[2, 1, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 4, 0, 0, 0],
        &[0, 1, 0, b'c'],
    ]
    .concat();
    assert_eq!(from(held), expected);
}

#[test]
fn what_is_no_frame_is_refused() {
    let refused = |bytes: &[u8]| {
        let mut buffer = FrameBuffer::default();
        buffer.push(bytes);
        buffer.next_to_keeper().expect_err("it is not a frame")
    };
    assert_eq!(refused(&[1, 3, 0, 0, 0, 0]), ControlError::Version(1));
    assert_eq!(refused(&[2, 200, 0, 0, 0, 0]), ControlError::Malformed(200));
    assert_eq!(refused(&[2, 3, 1, 0, 0, 0, 7]), ControlError::Malformed(3));
    assert_eq!(refused(&[2, 5, 1, 0, 0, 0, 2]), ControlError::Malformed(5));
    assert_eq!(
        refused(&[2, 1, 4, 0, 0, 0, 255, 255, 255, 255]),
        ControlError::Malformed(1)
    );
    let too_long = refused(&[2, 1, 255, 255, 255, 255]);
    assert_eq!(too_long, ControlError::TooLong(u32::MAX as usize));
    let mut huge = launch();
    huge.argv
        .push(OsString::from_vec(vec![b'x'; FRAME_BYTES_MAX]));
    assert!(ToKeeper::Launch(huge).encode().is_err());
}

/// A keeper's memory is bounded, whoever speaks to it.
#[test]
fn a_checkpoint_is_bounded_on_both_sides() {
    let length = CHECKPOINT_BYTES_MAX + 1;
    let message = ToKeeper::Checkpoint(Checkpoint(vec![0; length]));
    assert_eq!(
        message.encode(),
        Err(ControlError::CheckpointTooLong(length))
    );
    let mut buffer = FrameBuffer::default();
    let prefix = u32::try_from(length).expect("short").to_le_bytes();
    buffer.push(&[&[2, 4], &prefix[..]].concat());
    buffer.push(&vec![0; length]);
    assert_eq!(buffer.next_to_keeper(), Err(ControlError::Malformed(4)));
}

/// Arguments, environment and what agents said are secrets.
#[test]
fn a_launch_and_a_checkpoint_do_not_show_their_secrets() {
    assert!(!format!("{:?}", launch()).contains("s3cret"));
    let checkpoint = ToKeeper::Checkpoint(Checkpoint(b"s3cret".to_vec()));
    assert_eq!(format!("{checkpoint:?}"), "Checkpoint(Checkpoint(6 bytes))");
}
