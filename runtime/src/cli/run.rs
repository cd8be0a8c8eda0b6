//! `drowse run`: stands in an agent's place for a host. The work is in `relay/shim.rs`; here is how
//! it begins and how it ends.
//!
//! Invariants: stdout carries the agent's bytes and nothing else; a host that gets no session is
//! told why on stderr, or gets the bare agent if it asked for that (`--fallback`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use super::args::{Globals, RunArgs};
use super::console::End;
use super::failure::Failure;
use super::places;
use crate::config::find_program;
use crate::exit::Exit;
use crate::relay::shim::{
    Connect, OpenRelay, Outcome, Refusal, Shim, VERSION, end_as, new_key, take_signals,
};

/// What a shell says of a command that is not there.
const NOT_FOUND: u8 = 127;

pub(super) fn run(globals: Globals, args: RunArgs) -> ExitCode {
    let fallback = args.fallback.then(|| args.command.clone());
    match begin(globals, args) {
        Ok(shim) => end(shim.run()),
        Err(Begin::NotFound(program)) => {
            let text = format!("there is no program {program:?} that could be run");
            let _said = End::of(Failure::new(Exit::Error, text));
            ExitCode::from(NOT_FOUND)
        }
        Err(Begin::NoDaemon(failure)) => match fallback {
            Some(command) => run_bare(command, &failure),
            None => End::of(failure),
        },
        Err(Begin::Failed(failure)) => End::of(failure),
    }
}

/// Why there is no session.
enum Begin {
    NotFound(String),
    /// None is there, and none could be started, or it takes nothing new.
    NoDaemon(Failure),
    Failed(Failure),
}

impl From<Failure> for Begin {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn begin(globals: Globals, args: RunArgs) -> Result<Shim, Begin> {
    let as_text = |word: OsString| {
        word.into_string().map_err(|word| {
            let text = format!("{word:?} is not UTF-8, and no session can keep it");
            Failure::new(Exit::Usage, text)
        })
    };
    let argv = args.command.into_iter().map(as_text);
    let argv = argv.collect::<Result<Vec<String>, Failure>>()?;
    let cwd = std::env::current_dir().map_err(Failure::from)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let program = argv.first().cloned().unwrap_or_default();
    if find_program(&program, &path, &cwd).is_none() {
        return Err(Begin::NotFound(program));
    }
    let paths = places(&globals)?;
    paths.check().map_err(Failure::from)?;
    let key = new_key().map_err(Failure::from)?;
    let signals = take_signals().map_err(Failure::from)?;
    let connect = Connect::new(paths, globals, key.clone());
    let limits = args.idle_after.map(|text| ("idle_after".to_owned(), text));
    let opened = connect.open(OpenRelay {
        version: VERSION,
        pid: std::process::id().cast_signed(),
        key,
        argv,
        cwd,
        env: environment(),
        agent: args.agent,
        protocol: args.protocol,
        name: args.name,
        limits: limits.into_iter().collect(),
    });
    match opened {
        Ok(opened) => Ok(Shim::new(connect, opened, signals)),
        Err(Refusal::NoDaemon(failure)) => Err(Begin::NoDaemon(failure)),
        Err(Refusal::Refused(refused)) => Err(if refused.again {
            Begin::NoDaemon(Failure::new(Exit::Temporary, refused.text))
        } else {
            Begin::Failed(Failure::new(Exit::Usage, refused.text))
        }),
    }
}

/// As the host would have had it without Drowse.
fn run_bare(command: Vec<OsString>, failure: &Failure) -> ExitCode {
    let text = format!("{failure}\nrunning the agent directly: it will not be released when idle");
    let _said = End::of(Failure::new(Exit::Error, text));
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let error = Command::new(&program).args(words).exec();
    let text = format!("failed to run {program:?}: {error}");
    let _said = End::of(Failure::new(Exit::Error, text));
    ExitCode::from(NOT_FOUND)
}

fn end(outcome: Outcome) -> ExitCode {
    match outcome {
        Outcome::As(status) => ExitCode::from(end_as(status)),
        Outcome::Quietly => Exit::Ok.into(),
        Outcome::Failed(text) => End::of(Failure::new(Exit::Temporary, text)),
    }
}

/// The whole environment. Variables that are not UTF-8 are left out: no session can keep them.
fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}
