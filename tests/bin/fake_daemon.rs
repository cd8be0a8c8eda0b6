//! A daemon reduced to one backend, there to be killed:
//! `fake-daemon KEEPER-PROGRAM SOCKET ORPHAN-GRACE-MS AGENT-ARGV..`.
//!
//! An empty SOCKET is none. Copies what the agent says to its own standard output. Obeys lines on its standard input, and
//! says `done` on standard error after each: `checkpoint TEXT`, `say TEXT`, `end`.

use std::path::Path;
use std::time::Duration;

use drowse::process::control::{Checkpoint, Launch, ToKeeper};
use drowse::process::link::{AgentStdio, KeeperEvent, KeeperLink};
use drowse::process::spawn::KeeperProgram;
use drowse_messages::SessionId;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args_os().skip(1);
    let program = KeeperProgram::at(Path::new(&args.next().expect("a keeper program")));
    let socket = args.next().expect("a socket");
    let orphan_grace = args.next().expect("a grace").into_string();
    let orphan_grace = orphan_grace.expect("text").parse().expect("a number");
    let launch = Launch {
        argv: args.collect(),
        env: std::env::vars_os().collect(),
        cwd: "/".into(),
        cgroup: None,
        socket: (!socket.is_empty()).then(|| socket.into()),
        orphan_grace: Duration::from_millis(orphan_grace),
        eof_grace: Duration::from_millis(50),
        term_grace: Duration::from_millis(100),
        nofile: None,
    };
    let mut link = KeeperLink::spawn(&program, SessionId::from_random(1), launch)
        .await
        .expect("a keeper starts");
    let Ok(Some(KeeperEvent::Started { stdio, .. })) = link.next_message().await else {
        panic!("the agent does not start");
    };
    serve(link, stdio).await;
}

async fn serve(mut link: KeeperLink, stdio: AgentStdio) {
    let mut stdin = stdio.stdin.expect("it is new");
    let (mut stdout, _stderr) = (stdio.stdout, stdio.stderr);
    tokio::spawn(async move { tokio::io::copy(&mut stdout, &mut tokio::io::stdout()).await });
    let mut orders: Lines<BufReader<Stdin>> = BufReader::new(tokio::io::stdin()).lines();
    loop {
        let order = tokio::select! {
            event = link.next_message() => match event.expect("a keeper is understood") {
                Some(_) => continue,
                None => return,
            },
            order = orders.next_line() => order.expect("text"),
        };
        let Some(order) = order else { return };
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("checkpoint", text) => {
                let checkpoint = Checkpoint(text.into());
                let sent = link.send(ToKeeper::Checkpoint(checkpoint)).await;
                sent.expect("a keeper listens");
            }
            ("say", text) => {
                let line = format!("{text}\n");
                let said = stdin.write_all(line.as_bytes()).await;
                said.expect("the agent reads");
            }
            ("end", "") => {
                link.end();
                return done().await;
            }
            _ => panic!("no order {order:?}"),
        }
        done().await;
    }
}

async fn done() {
    let told = tokio::io::stderr().write_all(b"done\n").await;
    told.expect("somebody reads");
}
