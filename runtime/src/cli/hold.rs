//! `hold`: keeps a session for a while, or while a command runs.
//!
//! A hold for a command is short and renewed while the command runs, so that it is over soon after
//! this verb itself was killed (behaviour 143). Invariants: the command is started only once the
//! hold is taken; whatever becomes of the daemon meanwhile, the command is left alone, and this ends
//! as it did.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use drowse_messages::{HoldId, NewHold, ProcIdentity, TakenHold};
use rustix::process::{PidfdFlags, Signal as Number, pidfd_open};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::args::HoldArgs;
use super::console::Console;
use super::failure::Failure;
use super::kit::{Inside, Way};
use crate::chain::chain;
use crate::exit::Exit;
use crate::process::signal::Signaller;
use crate::process::table::identify;

/// A minute: so long a session stays that is held for a command when this verb was killed.
const TTL: Duration = Duration::from_secs(60);

/// A third of it, so that one renewal may be lost to a restart of the daemon.
const RENEW_EVERY: Duration = Duration::from_secs(20);

/// 126 and 127 are what a shell says of a command that it cannot run, and that there is none.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub(super) async fn run(
    inside: &Inside,
    args: &HoldArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let way = inside.way(&args.of)?;
    let lasts = args.ttl.clone();
    let new = NewHold {
        ttl: lasts.unwrap_or_else(|| humantime::format_duration(TTL).to_string()),
        why: args.why.clone().unwrap_or_else(|| program(&args.command)),
        owner: args.owner.clone(),
        id: None,
    };
    let taken = way.client.take_hold(&way.session, &new).await?;
    if args.command.is_empty() {
        return print(&taken, console);
    }
    let renewed = args.ttl.is_none();
    let hold = Held {
        way,
        new: NewHold {
            id: Some(taken.id),
            ..new
        },
        id: taken.id,
        renewed,
        warned: false,
    };
    hold.during(&args.command, console).await
}

fn print(taken: &TakenHold, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if console.json {
        console.object(taken)?;
    } else {
        writeln!(console.out, "{}", taken.id)?;
    }
    Ok(Exit::Ok)
}

/// The base name of a command's program. Its arguments may be secrets.
fn program(command: &[OsString]) -> String {
    let program = command.first().map(Path::new);
    let name = program.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A hold that lasts as long as a command.
struct Held {
    way: Way,
    /// What renews it.
    new: NewHold,
    id: HoldId,
    renewed: bool,
    /// A renewal has failed, and that was said.
    warned: bool,
}

impl Held {
    async fn during(
        mut self,
        command: &[OsString],
        console: &mut Console<'_>,
    ) -> Result<Exit, Failure> {
        let ended = self.run(command, console).await;
        if let Err(error) = self.way.client.lift_hold(&self.way.session, self.id).await {
            // It ends by itself.
            console.tell(&format!("the hold was not lifted: {}", chain(&error)))?;
        }
        ended.map(|status| Exit::Command(code(status)))
    }

    async fn run(
        &mut self,
        command: &[OsString],
        console: &mut Console<'_>,
    ) -> Result<ExitStatus, Failure> {
        // Ctrl-C and Ctrl-\ reach the command by the terminal; the rest is passed on.
        let mut here = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::quit())?,
        ];
        let mut passed = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        let (program, args) = command.split_first().expect("it is not empty");
        let child = Command::new(program).args(args).spawn();
        let child = child.map_err(|error| cannot_start(program, &error))?;
        let running = Running::of(&child)?;
        let mut ended = wait_for(child);
        let mut renewals = interval_at(Instant::now() + RENEW_EVERY, RENEW_EVERY);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let [interrupt, quit] = &mut here;
        let [terminate, hangup] = &mut passed;
        loop {
            tokio::select! {
                status = &mut ended => return Ok(status.map_err(std::io::Error::other)??),
                _ = renewals.tick(), if self.renewed => self.renew(console).await?,
                _ = interrupt.recv() => {}
                _ = quit.recv() => {}
                _ = heard(terminate) => running.pass_on(Number::TERM),
                _ = heard(hangup) => running.pass_on(Number::HUP),
            }
        }
    }

    /// Makes it last longer. A daemon that is away comes back, or not: the command goes on.
    async fn renew(&mut self, console: &mut Console<'_>) -> Result<(), Failure> {
        let renewed = self
            .way
            .client
            .take_hold(&self.way.session, &self.new)
            .await;
        if let Err(error) = renewed
            && !std::mem::replace(&mut self.warned, true)
        {
            let why = chain(&error);
            console.tell(&format!("the session is not held any more: {why}"))?;
        }
        Ok(())
    }
}

async fn heard(signal: &mut Signal) {
    // No more of them can come only when the runtime ends, and this with it.
    if signal.recv().await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// A command that was started, as signals reach it.
struct Running {
    identity: ProcIdentity,
    descriptor: OwnedFd,
}

impl Running {
    /// To be called before somebody waits for it: so long the number is its own.
    fn of(child: &Child) -> Result<Self, Failure> {
        let pid = child.id().cast_signed();
        let identity = identify(pid)?;
        let pid = rustix::process::Pid::from_raw(pid).expect("a child's number is above 0");
        let opened = pidfd_open(pid, PidfdFlags::empty());
        let descriptor = opened.map_err(std::io::Error::from)?;
        Ok(Self {
            identity,
            descriptor,
        })
    }

    fn pass_on(&self, signal: Number) {
        // It may have ended at this moment.
        let _gone = Signaller::new().send_through(&self.descriptor, self.identity, signal);
    }
}

/// Waits on a thread of its own, because that cannot be given up; it ends with the command, or
/// with this process.
fn wait_for(mut child: Child) -> oneshot::Receiver<std::io::Result<ExitStatus>> {
    let (tell, ended) = oneshot::channel();
    std::thread::spawn(move || {
        let status = child.wait();
        let _gone = tell.send(status);
    });
    ended
}

fn cannot_start(program: &OsString, error: &std::io::Error) -> Failure {
    let code = if error.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_RUN
    };
    let text = format!("cannot run {}: {error}", program.to_string_lossy());
    Failure::new(Exit::Command(code), text)
}

/// As a shell says it: 128 and the signal's number for one that a signal ended.
fn code(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| signal.saturating_add(128));
    let code = status.code().or(signal);
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(Exit::Error.code())
}
