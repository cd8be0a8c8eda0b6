//! What the command line may say. Texts here are the help people read.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use drowse_messages::{Name, SessionState};

mod say;

pub(crate) use say::{Awaited, MessageArgs, OutcomeArgs, SendArgs, WaitArgs};

/// What is printed below the list of verbs.
const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 error, 2 usage, 3 timeout, 4 no such session, 5 denied, 6 held, \
7 cannot resume, 69 no daemon, 75 try again later, 77 auth, 78 configuration, 124 wait timed out, \
130 Ctrl-C.";

/// Keeps AI coding agents while they work, releases them when idle, wakes them at the next message.
#[derive(Debug, Parser)]
#[command(name = "drowse", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What every verb takes.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What every verb takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub struct Globals {
    /// Folder for database, keys and log [default: $XDG_STATE_HOME/drowse]
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// The daemon's Unix socket [default: in $XDG_RUNTIME_DIR/drowse, or in --state-dir]
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// Configuration file [default: $XDG_CONFIG_HOME/drowse/config.toml]
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Print JSON: one object, or one a line
    #[arg(long, global = true)]
    pub json: bool,
    /// Do not start the daemon when none is running
    #[arg(long, global = true)]
    pub no_start: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the daemon (other verbs start it by themselves)
    Serve(ServeArgs),
    /// Show a release and a wake with a pretended agent
    Demo,
    /// Stand in an agent's place for a host that starts it by a command line
    Run(RunArgs),
    /// What the daemon is asked for.
    #[command(flatten)]
    Asked(AskedVerb),
    /// What is said of a session from inside it, or from beside it.
    #[command(flatten)]
    Told(ToldVerb),
    /// Replace the daemon, by a newer one if there is; with ID, change its environment
    Restart(RestartArgs),
    /// List agents' processes that nobody owns, and end our own
    Orphans(OrphansArgs),
    /// Print what makes an agent tell Drowse of its background work
    Integrate {
        /// Which agent
        agent: IntegratedAgent,
    },
    /// Check that Drowse can work here
    Doctor,
    /// Check or show the configuration
    Config {
        #[command(subcommand)]
        verb: ConfigVerb,
    },
    /// Print completions for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or that of one verb
    Man {
        /// Which verb
        verb: Option<String>,
    },
}

/// The verbs that ask the daemon, and start it when there is none.
#[derive(Debug, Subcommand)]
pub(crate) enum AskedVerb {
    /// Open a session and print its id
    New(NewArgs),
    /// Send a message and print the answer as it comes
    Send(SendArgs),
    /// Take back a message that waits
    Cancel(MessageArgs),
    /// Queue a parked message again
    Retry(MessageArgs),
    /// Interrupt the turn that runs
    Interrupt {
        /// Id, unique prefix or name
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Record what came of a session, or show it
    Outcome(OutcomeArgs),
    /// Talk to a session, and see what it does; leaving it ends nothing
    Attach {
        /// Id, unique prefix or name
        #[arg(value_name = "ID")]
        id: String,
    },
    /// List sessions
    Ps(PsArgs),
    /// Show all facts of a session
    Show {
        /// Id, unique prefix or name
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Say why a session is as it is, and what happens next
    Explain {
        /// Id, unique prefix or name
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Show what happened to a session
    Logs(LogsArgs),
    /// Show what happened, or what happens, to all sessions
    Events(EventsArgs),
    /// Wait until a session is as wanted
    Wait(WaitArgs),
    /// End processes and keep the sessions; the next message wakes them
    Release(SessionsArgs),
    /// Start processes without a message
    Wake(WakeArgs),
    /// End processes and cancel their work; the next message wakes them
    Stop(StopArgs),
    /// End processes and forget the sessions
    Rm(SessionsArgs),
    /// Keep a process, such as a server, when its session is released or stopped
    Keep(KeepArgs),
}

/// The verbs of the agent kit: inside an agent they speak for its own session.
#[derive(Debug, Subcommand)]
pub(crate) enum ToldVerb {
    /// Say that a background task begins or ends; while it runs its session is not released
    Task {
        #[command(subcommand)]
        verb: TaskVerb,
    },
    /// Keep a session from being released for a while, or while a command runs
    Hold(HoldArgs),
    /// Lift a hold
    Unhold(UnholdArgs),
    /// List what holds sessions
    Holds(OfSession),
}

/// Which session is spoken for.
#[derive(Args, Debug)]
pub(crate) struct OfSession {
    /// Id, unique prefix or name [default: inside an agent, its own]
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskVerb {
    /// A task begins; the same name again changes it
    Start(StartTaskArgs),
    /// It is over
    End {
        /// The name it was begun with
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        of: OfSession,
    },
    /// Tell what a hook of Claude Code reports on stdin; outside an agent, nothing
    Hook,
}

#[derive(Args, Debug)]
pub(crate) struct StartTaskArgs {
    /// What it is called, unique among the session's tasks that are told this way
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// What sort of work it is, in a word [default: task]
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// What it does, for people [default: its name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
    /// It is always there: shown, and holds nothing
    #[arg(long)]
    pub(crate) ambient: bool,
    /// Who tells of it, for people
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfSession,
}

#[derive(Args, Debug)]
pub(crate) struct HoldArgs {
    /// For how long: a duration (20m), at most 24h [default: while the command runs]
    #[arg(
        long = "for",
        value_name = "DURATION",
        required_unless_present = "command"
    )]
    pub(crate) ttl: Option<String>,
    /// What for, for people [default: the command's program]
    #[arg(long, value_name = "TEXT", required_unless_present = "command")]
    pub(crate) why: Option<String>,
    /// Who holds it, for people
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    #[command(flatten)]
    pub(crate) of: OfSession,
    /// Run this and lift the hold when it ends; ends as it did
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct UnholdArgs {
    /// The hold's number, as `hold` printed it
    #[arg(value_name = "HOLD")]
    pub(crate) hold: u64,
    #[command(flatten)]
    pub(crate) of: OfSession,
}

#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Loopback address for HTTP besides the socket, over the configuration's
    #[arg(long, value_name = "ADDR|off", value_parser = listen)]
    pub(crate) listen: Option<String>,
    /// Leave the terminal that started it
    #[arg(long, hide = true)]
    pub(crate) background: bool,
}

fn listen(text: &str) -> Result<String, String> {
    if text == "off" {
        return Ok(text.to_owned());
    }
    let addr: SocketAddr = text
        .parse()
        .map_err(|_| "neither \"off\" nor an address with a port (127.0.0.1:7077)".to_owned())?;
    if addr.ip().is_loopback() {
        Ok(addr.to_string())
    } else {
        Err("not a loopback address: agents are not for the network".to_owned())
    }
}

#[derive(Args, Debug)]
pub(crate) struct NewArgs {
    /// Which agent: a name of the configuration, or of a known agent on PATH
    pub(crate) agent: Name,
    /// The session's name [default: its id]
    #[arg(long)]
    pub(crate) name: Option<Name>,
    /// Where the agent runs [default: here]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Quiet time until a release: a duration (10m) or "off" [default: the configuration's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle_after: Option<String>,
    /// First message; its answer is printed, and the id goes to stderr
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,
    /// More arguments for the agent
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// The agent's name, for its limits in the configuration [default: told by the command]
    #[arg(long)]
    pub(crate) agent: Option<Name>,
    /// The session's name [default: its id]
    #[arg(long)]
    pub(crate) name: Option<Name>,
    /// The protocol that host and agent speak [default: told by the command, else raw]
    #[arg(long)]
    pub(crate) protocol: Option<Name>,
    /// Quiet time until a release: a duration (10m) or "off" [default: the configuration's]
    #[arg(long, value_name = "DURATION")]
    pub(crate) idle_after: Option<String>,
    /// Run the agent directly if there is no daemon and none can be started
    #[arg(long)]
    pub(crate) fallback: bool,
    /// The agent's command line, as the host would have it
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    /// All sessions, not only awake ones and the 50 used last
    #[arg(long)]
    pub(crate) all: bool,
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) state: Option<SessionState>,
}

fn state(text: &str) -> Result<SessionState, String> {
    SessionState::from_code(text).ok_or_else(|| {
        let known = SessionState::ALL.map(SessionState::code);
        format!("there is: {}", known.join(", "))
    })
}

/// 100 events unless asked for more: two screens of what happened last.
const LOG_EVENTS: usize = 100;

#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// Id, unique prefix or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How many events at most, the newest ones
    #[arg(long, value_name = "N", default_value_t = LOG_EVENTS)]
    pub(crate) limit: usize,
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Show what happens from now on, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct SessionsArgs {
    /// Ids, unique prefixes or names
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,
    /// Do not wait until it is done
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// How a daemon is replaced, or one session's environment.
#[derive(Args, Debug)]
pub(crate) struct RestartArgs {
    /// Id, unique prefix or name of a session; without it, the daemon
    #[arg(value_name = "ID")]
    pub(crate) id: Option<String>,
    /// A variable for the session's agent; without "=", as it is here (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]", requires = "id")]
    pub(crate) env: Vec<String>,
    /// A file of such lines; empty ones and those that begin with # are skipped
    #[arg(long, value_name = "FILE", requires = "id")]
    pub(crate) env_file: Option<PathBuf>,
    /// Do not wait until it is done
    #[arg(long, requires = "id")]
    pub(crate) no_wait: bool,
}

#[derive(Args, Debug)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) sessions: SessionsArgs,
    /// End kept processes, too
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub(crate) struct KeepArgs {
    /// The process with this number, and all that is below it
    #[arg(value_name = "PID", value_parser = pid, group = "target", allow_negative_numbers = true)]
    pub(crate) pid: Option<i64>,
    /// Whatever listens on this TCP port
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), group = "target")]
    pub(crate) listen: Option<u16>,
    /// How long: a duration (2h) [default: until the session is removed, or stopped with --all]
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
    /// Look only below this session
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
}

/// D12: what the kernel takes for more than one process is no process.
fn pid(text: &str) -> Result<i64, String> {
    let number = text.parse::<i32>().ok().filter(|&pid| pid > 1);
    number
        .map(i64::from)
        .ok_or_else(|| "not the number of a process".to_owned())
}

#[derive(Args, Debug)]
pub(crate) struct WakeArgs {
    #[command(flatten)]
    pub(crate) sessions: SessionsArgs,
    /// Begin a new conversation if the old one cannot be resumed
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Args, Debug)]
pub(crate) struct OrphansArgs {
    /// End those that this state folder's daemon started and that no keeper leads to
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) reap: bool,
    /// List and end nothing, as without any option
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IntegratedAgent {
    /// Hooks for the settings of Claude Code
    Claude,
    /// An extension of Pi
    Pi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum ConfigVerb {
    /// Say whether the configuration is right
    Check,
    /// Print the configuration in effect
    Show,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_is_the_agents() {
        let line = [
            "drowse",
            "new",
            "claude",
            "--idle-after",
            "10m",
            "--",
            "--model",
            "x",
        ];
        let Verb::Asked(AskedVerb::New(args)) = Cli::try_parse_from(line).unwrap().verb else {
            panic!("new is new");
        };
        assert_eq!(args.args, ["--model", "x"]);
        assert_eq!(args.idle_after.as_deref(), Some("10m"));
    }

    #[test]
    fn flags_for_all_may_stand_anywhere() {
        for line in ["drowse --json ps", "drowse ps --json"] {
            assert!(Cli::try_parse_from(line.split(' ')).unwrap().globals.json);
        }
    }

    /// What is wrong with the command line ends with 2, also an agent's impossible name.
    #[test]
    fn usage_errors_end_with_2() {
        for line in [
            "drowse",
            "drowse frobnicate",
            "drowse new Claude",
            "drowse ps --state asleep",
            "drowse release",
            "drowse keep",
            "drowse keep 0",
            "drowse keep 1",
            "drowse keep -1",
            "drowse keep -5",
            "drowse keep 2147483648",
            "drowse keep node",
            "drowse keep 4711 --listen 3000",
            "drowse wait",
            "drowse wait x",
            "drowse wait x --for sleep",
            "drowse wait x --for idle --timeout soon",
            "drowse attach",
            "drowse keep --listen 0",
            "drowse keep --listen 65536",
            "drowse serve --listen 0.0.0.0:80",
            "drowse restart --env A=b",
            "drowse task",
            "drowse task start",
            "drowse hold",
            "drowse hold --for 20m",
            "drowse unhold x",
        ] {
            let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
    }

    /// The help is what people learn the program from: a change to it is a change to read.
    #[test]
    fn the_help_is_as_written_down() {
        let help = Cli::command().term_width(100).render_help().to_string();
        let kept = include_str!("help.txt");
        assert_eq!(help.trim_end(), kept.trim_end(), "\nnow:\n{help}");
    }
}
