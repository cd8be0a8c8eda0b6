//! The command line: parses it, does what it says, and ends with a code of [`crate::exit`].
//!
//! Fed by `main`. Each verb is a module; what they print comes from `render`, which is pure.
//! Invariant: stdout carries the result and nothing else, everything else goes to stderr after
//! `drowse: `, and a reader that goes away ends a verb quietly. It decides nothing about sessions:
//! it asks the daemon, which it starts when there is none.

use std::ffi::OsString;
use std::future::Future;
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use drowse_client::Client;

mod account;
mod again;
mod args;
mod ask;
mod attach;
mod autostart;
mod console;
mod doctor;
mod failure;
mod follow;
mod hold;
mod hook;
mod inbox;
mod integrate;
mod keep;
mod kit;
mod look;
mod open;
mod order;
mod orphans;
mod render;
mod restart;
mod run;
mod settings;
mod talk;
mod wait;

pub use args::{Cli, Globals};

use crate::daemon::{Daemon, ServeOptions};
use crate::demo;
use crate::exit::Exit;
use crate::paths::{PathSources, Paths};
use args::{AskedVerb, RestartArgs, ServeArgs, ToldVerb, Verb};
pub(crate) use autostart::ensure as ensure_daemon;
use console::{Console, End};
pub(crate) use failure::Failure;
use kit::Inside;

use crate::chain::chain;
use order::Order;

/// Runs the command line given, program name first.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Cli::try_parse_from(args) {
        Ok(cli) => run(cli),
        Err(error) => {
            // Help and version are errors to clap too, with a code of 0, for stdout. A reader
            // that has gone away needs no second message.
            drop(error.print());
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage.code()))
        }
    }
}

fn run(cli: Cli) -> ExitCode {
    let globals = cli.globals;
    let print = |verb: &dyn Fn(&mut Console<'_>) -> Result<Exit, Failure>| {
        End::with_stdio(globals.json, verb)
    };
    match cli.verb {
        Verb::Serve(args) => serve(&globals, &args),
        Verb::Demo => demo::run(&globals),
        Verb::Run(args) => run::run(globals, args),
        Verb::Asked(verb) => print(&|console| with_runtime(asked(&globals, &verb, console))),
        Verb::Told(verb) => print(&|console| with_runtime(told(&globals, &verb, console))),
        Verb::Restart(args) => print(&|console| with_runtime(restart(&globals, &args, console))),
        Verb::Orphans(args) => print(&|console| orphans::run(&globals, &args, console)),
        Verb::Integrate { agent } => print(&|console| integrate::run(agent, console)),
        Verb::Doctor => print(&|console| with_runtime(doctor::run(&globals, console))),
        Verb::Config { verb } => print(&|console| settings::run(&globals, verb, console)),
        Verb::Completions { shell } => print(&|console| completions(shell, console)),
        Verb::Man { verb } => print(&|console| man(verb.as_deref(), console)),
    }
}

async fn asked(
    globals: &Globals,
    verb: &AskedVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let client = connected(globals).await?;
    match verb {
        AskedVerb::New(args) => open::run(&client, args, console).await,
        AskedVerb::Send(args) => talk::run(&client, args, console).await,
        AskedVerb::Cancel(args) => inbox::cancel(&client, args.message, console).await,
        AskedVerb::Retry(args) => inbox::retry(&client, args.message, console).await,
        AskedVerb::Interrupt { id } => inbox::interrupt(&client, id, console).await,
        AskedVerb::Outcome(args) => inbox::outcome(&client, args, console).await,
        AskedVerb::Attach { id } => attach::run(&client, id, console).await,
        AskedVerb::Ps(args) => look::ps(&client, args, console).await,
        AskedVerb::Show { id } => look::show(&client, id, console).await,
        AskedVerb::Explain { id } => look::explain(&client, id, console).await,
        AskedVerb::Logs(args) => follow::logs(&client, args, console).await,
        AskedVerb::Events(args) => follow::events(&client, args, console).await,
        AskedVerb::Wait(args) => wait::run(&client, args, console).await,
        AskedVerb::Release(args) => order::run(&client, Order::Release, args, console).await,
        AskedVerb::Wake(args) => {
            let order = Order::Wake { fresh: args.fresh };
            order::run(&client, order, &args.sessions, console).await
        }
        AskedVerb::Stop(args) => {
            let order = Order::Stop { all: args.all };
            order::run(&client, order, &args.sessions, console).await
        }
        AskedVerb::Rm(args) => order::run(&client, Order::Remove, args, console).await,
        AskedVerb::Keep(args) => keep::run(&client, args, console).await,
    }
}

/// Only for a daemon that runs: one that was started for it would have no process to speak of.
async fn told(
    globals: &Globals,
    verb: &ToldVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let inside = Inside::of_process(globals)?;
    match verb {
        ToldVerb::Task { verb } => kit::task(&inside, verb, console).await,
        ToldVerb::Hold(args) => hold::run(&inside, args, console).await,
        ToldVerb::Unhold(args) => kit::unhold(&inside, args, console).await,
        ToldVerb::Holds(of) => kit::holds(&inside, of, console).await,
    }
}

/// Only for a daemon that runs: one that is started for it would be the newest already.
async fn restart(
    globals: &Globals,
    args: &RestartArgs,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    if let Some(id) = &args.id {
        let client = connected(globals).await?;
        return account::run(&client, id, args, console).await;
    }
    let paths = places(globals)?;
    paths.check()?;
    let client = Client::unix(&paths.socket).named("drowse-cli");
    restart::run(&client, &paths, console).await
}

/// A client of the daemon, which is started when there is none, unless that was forbidden.
async fn connected(globals: &Globals) -> Result<Client, Failure> {
    let paths = places(globals)?;
    paths.check()?;
    let client = Client::unix(&paths.socket).named("drowse-cli");
    autostart::ensure(&client, &paths, globals).await?;
    Ok(client)
}

/// Says on stderr why a command of ours ended badly.
pub(crate) fn say_error(error: &dyn std::error::Error) {
    let _ended = End::of(Failure::new(Exit::Error, chain(error)));
}

fn places(globals: &Globals) -> Result<Paths, Failure> {
    let sources = PathSources::of_process(globals.state_dir.clone(), globals.socket.clone());
    Ok(Paths::resolve(&sources)?)
}

fn serve(globals: &Globals, args: &ServeArgs) -> ExitCode {
    let paths = match places(globals) {
        Ok(paths) => paths,
        Err(failure) => return End::of(failure),
    };
    if args.background {
        // It fails only when we lead a process session already, which is what is wanted.
        let _leads_already = rustix::process::setsid();
    }
    let config = globals.config.clone();
    Daemon::builder(ServeOptions {
        config,
        paths,
        listen: args.listen.clone(),
    })
    .own_process()
    .run()
}

fn completions(shell: Shell, console: &mut Console<'_>) -> Result<Exit, Failure> {
    // Into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "drowse", &mut script);
    console.out.write_all(&script)?;
    Ok(Exit::Ok)
}

fn man(verb: Option<&str>, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    command.build();
    let page = match verb {
        None => command,
        Some(verb) => command
            .find_subcommand(verb)
            .cloned()
            .ok_or_else(|| Failure::new(Exit::Usage, format!("there is no verb {verb:?}")))?,
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text)?;
    console.out.write_all(&text)?;
    Ok(Exit::Ok)
}

/// One thread is enough: a verb waits for one answer at a time.
fn with_runtime(verb: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(verb)
}
