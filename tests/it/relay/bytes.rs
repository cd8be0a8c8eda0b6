//! Byte for byte, both ways, whatever the bytes.

use drowse_tests::host::Host;

use super::*;

/// Pseudo-random bytes with every value among them, newlines and NULs too.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

/// D38, D39: a byte without a newline, 1 MB and 20 MB, NULs and what is not UTF-8.
#[test]
fn any_bytes_pass_as_they_are() {
    let daemon = daemon!("relay-bytes").limit("idle_after", "1h").start();
    let mut host = host_of(&daemon, &["cat"]);
    let mut expected = Vec::new();
    for length in [1, 5, 200, 1 << 20, 20 << 20] {
        let bytes = noise(length);
        let mut stdin = host.take_stdin();
        let said = bytes.clone();
        let writer = std::thread::spawn(move || {
            stdin.write_all(&said).expect("it is read");
            stdin
        });
        expected.extend(bytes);
        host.wait_bytes(expected.len());
        host.give_stdin(writer.join().expect("it only writes"));
    }
    assert!(host.heard() == expected, "{} bytes", host.heard_bytes());
    host.close();
    host.wait_code(0);
}

/// D38, D39: long lines, broken ones and half ones of an agent whose protocol is looked at.
#[test]
fn odd_lines_of_an_agent_pass_as_they_are() {
    let daemon = daemon!("relay-odd").limit("idle_after", "1h").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    initialize(&mut host);
    for what in [
        "line 1000000",
        "line 20000000",
        "bytewise hello",
        "invalid-utf8",
    ] {
        let before = host.heard_bytes();
        turn(&mut host, &format!("FAKE:{what}"));
        let size = what.split(' ').nth(1).and_then(|size| size.parse().ok());
        let grown = host.heard_bytes() - before;
        assert!(grown >= size.unwrap_or(1), "{what}: {grown}");
    }
    let has_bad_bytes = std::str::from_utf8(&host.heard()).is_err();
    assert!(has_bad_bytes, "what is not UTF-8 is not mended");
    host.close();
    host.wait_code(0);
}

/// A long line of the host's reaches an agent whose protocol is looked at.
#[test]
fn a_long_line_of_a_host_arrives() {
    let daemon = daemon!("relay-long").limit("idle_after", "1h").start();
    let mut host = host(&daemon, Dialect::Claude, &[]);
    for length in [1 << 20, 20 << 20] {
        let text = "x".repeat(length);
        let said = turn(&mut host, &text);
        assert!(said.len() > length, "{} bytes came back", said.len());
    }
    host.close();
    host.wait_code(0);
}

/// The last line of all needs no newline, in either direction.
#[test]
fn a_last_line_needs_no_end() {
    let daemon = daemon!("relay-last").limit("idle_after", "1h").start();
    let mut host = host_of(
        &daemon,
        &["sh", "-c", "read -r line; printf 'got:%s' \"$line\""],
    );
    host.write(b"no end");
    host.close();
    host.wait_exit();
    assert_eq!(host.heard(), b"got:no end");
    let mut host = super::host(&daemon, Dialect::Claude, &[]);
    turn(&mut host, "FAKE:say hello");
    prompt(&mut host, "FAKE:no-newline-exit");
    host.wait_exit();
    assert_ne!(host.heard().last(), Some(&b'\n'));
}

/// A host that reads nothing stops its agent, and fills nobody's memory; once it reads it has all.
#[test]
fn a_host_that_does_not_read_stops_its_agent() {
    let daemon = daemon!("relay-deaf").limit("idle_after", "1h").start();
    let flood = "head -c 200000000 /dev/zero; echo done >&2";
    let command = daemon.command(&words_of(&["sh", "-c", flood]));
    let mut host = Host::spawn_deaf(command);
    let before = rss(&daemon);
    // Nothing is to happen: the time is given to a flood that would take a tenth of it.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        host.complaints(),
        "",
        "the agent is stopped by its full pipe"
    );
    let grown = rss(&daemon).saturating_sub(before);
    assert!(grown < 32 << 20, "the daemon grew by {grown} bytes");
    let shim = rss_of(host.identity().pid);
    assert!(shim < 64 << 20, "the shim holds {shim} bytes");
    host.listen();
    host.wait_code(0);
    assert_eq!(host.heard_bytes(), 200_000_000);
    assert_eq!(host.complaints(), "done\n");
}

fn rss(daemon: &TestDaemon) -> u64 {
    rss_of(daemon.identity().pid)
}

fn rss_of(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok())
        .expect("the kernel says")
        * 1024
}
