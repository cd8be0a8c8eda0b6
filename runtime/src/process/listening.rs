//! Which TCP ports the processes of a tree listen on.
//!
//! Fed by reap.rs. Invariant: only listening sockets of the very processes asked about count, each
//! in its own network namespace; what may not be looked at, or is too much, is left out.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use drowse_messages::ProcIdentity;

use super::table::Stat;

/// 32,768 open descriptors of a tree are looked at, about 1 µs each.
const DESCRIPTORS_MAX: usize = 32_768;

/// 64 network namespaces in a tree: one for each container that an agent runs.
const NAMESPACES_MAX: usize = 64;

/// 4,096 listening sockets in one namespace.
const SOCKETS_MAX: usize = 4096;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Listening sockets of one namespace: the inode, and the port.
type Sockets = HashMap<u64, u16>;

/// The ports each of these processes listens on, in order; those that listen nowhere are left
/// out.
pub(super) fn ports_of(tree: &[Stat]) -> HashMap<ProcIdentity, Vec<u16>> {
    let mut namespaces: HashMap<PathBuf, Sockets> = HashMap::new();
    let mut room = DESCRIPTORS_MAX;
    let mut found = HashMap::new();
    for stat in tree {
        let pid = stat.identity.pid();
        let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/net")) else {
            continue;
        };
        if namespaces.len() >= NAMESPACES_MAX && !namespaces.contains_key(&namespace) {
            continue;
        }
        let sockets = namespaces
            .entry(namespace)
            .or_insert_with(|| sockets_seen_by(pid));
        if sockets.is_empty() {
            continue;
        }
        let ports = ports_among(pid, sockets, &mut room);
        if !ports.is_empty() {
            found.insert(stat.identity, ports);
        }
    }
    found
}

fn ports_among(pid: i32, sockets: &Sockets, room: &mut usize) -> Vec<u16> {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let mut ports = Vec::new();
    for descriptor in descriptors.flatten().take(*room) {
        *room -= 1;
        let target = fs::read_link(descriptor.path()).ok();
        let inode = target.and_then(|target| {
            let inode = target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?;
            inode.parse::<u64>().ok()
        });
        ports.extend(inode.and_then(|inode| sockets.get(&inode)));
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

fn sockets_seen_by(pid: i32) -> Sockets {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|file| File::open(format!("/proc/{pid}/net/{file}")).ok())
        .flat_map(|file| listening(BufReader::new(file)))
        .take(SOCKETS_MAX)
        .collect()
}

/// The kernel lists all listening sockets before all others, so reading stops at the first of
/// those: there may be very many.
fn listening(file: impl BufRead) -> impl Iterator<Item = (u64, u16)> {
    // The first line is a heading.
    let lines = file.lines().skip(1).map_while(Result::ok);
    lines.map_while(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (_, port) = fields.nth(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let state = fields.nth(1)?;
        let inode = fields.nth(5)?.parse().ok()?;
        (state == LISTENING).then_some((inode, port))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::table::stat_of;
    use std::net::{TcpListener, TcpStream};

    /// Listening sockets alone, of both families, and not what was accepted from them.
    #[test]
    fn own_ports_are_found() {
        let pid = i32::try_from(std::process::id()).expect("a pid fits");
        let four = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
        let mut expected = vec![port(&four)];
        // There may be no IPv6 here.
        let six = TcpListener::bind("[::1]:0").ok();
        expected.extend(six.as_ref().map(port));
        let client = TcpStream::connect(four.local_addr().expect("bound")).expect("it listens");
        let own = stat_of(pid).expect("we exist");
        let found = ports_of(std::slice::from_ref(&own));
        let ports = found.get(&own.identity).expect("we listen");
        assert!(
            expected.iter().all(|port| ports.contains(port)),
            "{ports:?}"
        );
        let port = client.local_addr().expect("connected").port();
        assert!(!ports.contains(&port), "{ports:?}");
    }

    #[test]
    fn only_the_listening_head_of_the_table_is_read() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4711 1 0 100\n\
             1: 0100007F:8F90 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000 0 4712 1 0 100\n";
        let found: Vec<_> = listening(table.as_bytes()).collect();
        assert_eq!(found, [(4711, 8080)]);
    }
}
