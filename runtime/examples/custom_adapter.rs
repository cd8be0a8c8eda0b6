//! A new kind of agent: an adapter says how to start it, what its lines mean and what to write.
//!
//! The agent here is a calculator, `bc`-like, written in shell: one line in, one line out. It has no
//! memory, so the adapter says that it can be taken up again, and the session is released when idle.
//! The daemon may be killed or replaced in the middle of a sum: what `checkpoint` leaves is all that
//! `adopt` needs to follow the same calculator from there.
//!
//! `cargo run --example custom_adapter`

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example speaks to its reader"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

use drowse::adapter::{Adapter, Direction, Fact, Observer, Plan, Seen};
use drowse::messages::{
    AgentStatus, Answer, Conversation, LimitOverrides, MessageState, Name, OpenSession, Priority,
    Recipe, SendMessage, SessionEvent, SessionId, TurnEnded, TurnOutcome, WallTime, Who,
};
use drowse::paths::{PathSources, Paths};
use drowse::{Daemon, DaemonHandle, ExtensionContext, ServeOptions};

/// The protocol of the calculator.
#[derive(Debug)]
struct Calculator;

impl Adapter for Calculator {
    fn protocol(&self) -> Name {
        "calculator".parse().expect("it is a name")
    }

    fn can_resume(&self) -> bool {
        true
    }

    fn reports_tasks(&self) -> bool {
        false
    }

    fn plan(&self, recipe: &Recipe, _: Option<&Conversation>, _: &str) -> Plan {
        Plan {
            argv: recipe.argv.clone(),
            env: recipe.env.clone(),
        }
    }

    fn observe(&self, _: Option<&Conversation>, fresh_id: &str) -> Box<dyn Observer> {
        Box::new(Sums {
            id: fresh_id.to_owned(),
            sums: false,
        })
    }

    fn adopt(&self, checkpoint: &[u8], _: WallTime) -> Option<(Box<dyn Observer>, Seen)> {
        // What an earlier release left may be of another form, and is then no checkpoint of ours.
        let (mark, id) = checkpoint.split_first_chunk()?;
        let sums = match mark {
            SUMS => true,
            RESTS => false,
            _ => return None,
        };
        let id = String::from_utf8(id.to_vec()).ok()?;
        // The session knows its conversation; what the agent does now is said anew.
        let started = sums.then_some(Fact::Status(AgentStatus::TurnStarted));
        let seen = Seen {
            facts: started.into_iter().collect(),
            write: Vec::new(),
        };
        Some((Box::new(Sums { id, sums }), seen))
    }
}

/// How a checkpoint begins while a sum is worked on, and while none is.
const SUMS: &[u8; 1] = b"+";
const RESTS: &[u8; 1] = b"=";

/// Follows one calculator.
#[derive(Debug)]
struct Sums {
    id: String,
    /// It was given one and has not answered.
    sums: bool,
}

impl Observer for Sums {
    fn open(&mut self) -> Seen {
        let conversation = Conversation {
            native_id: self.id.clone(),
            resumable: true,
            ..Conversation::default()
        };
        let facts = vec![
            Fact::Status(AgentStatus::Conversation(conversation)),
            Fact::Status(AgentStatus::Ready),
        ];
        Seen {
            facts,
            write: Vec::new(),
        }
    }

    fn observe(&mut self, direction: Direction, line: &[u8]) -> Seen {
        self.sums = direction == Direction::In;
        let facts = match direction {
            Direction::In => vec![Fact::Status(AgentStatus::TurnStarted)],
            Direction::Out => {
                let text = String::from_utf8_lossy(line).into_owned();
                let outcome = TurnOutcome::Completed;
                let ended = TurnEnded {
                    outcome,
                    text,
                    answers: true,
                    left: 0,
                };
                vec![Fact::Status(AgentStatus::TurnEnded(ended))]
            }
        };
        Seen {
            facts,
            write: Vec::new(),
        }
    }

    fn prompt(&mut self, text: &str) -> Seen {
        Seen {
            facts: Vec::new(),
            write: vec![format!("{text}\n").into_bytes()],
        }
    }

    fn interrupt(&mut self) -> Seen {
        Seen::default()
    }

    fn answer(&mut self, _: &str, _: &Answer) -> Seen {
        Seen::default()
    }

    fn close(&mut self) -> Seen {
        Seen::default()
    }

    fn exited(&mut self, _: &str) -> Vec<Fact> {
        Vec::new()
    }

    fn checkpoint(&self) -> Option<Vec<u8>> {
        let mark = if self.sums { SUMS } else { RESTS };
        Some([mark.as_slice(), self.id.as_bytes()].concat())
    }
}

fn main() -> ExitCode {
    if let Some(code) = drowse::keeper_if_asked() {
        return code;
    }
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let state_dir = Some(folder.path().join("state"));
    let paths = Paths::resolve(&PathSources {
        state_dir,
        ..PathSources::default()
    })?;
    let options = ServeOptions {
        config: None,
        paths,
        listen: None,
    };
    let (done, answer) = std::sync::mpsc::channel();
    let code = Daemon::builder(options)
        .adapter(Calculator)
        .extend("user", move |cx: ExtensionContext| {
            actix_rt::spawn(async move {
                let daemon = cx.daemon();
                // Whoever waits for the answer is below, and stays until it has come.
                let _heard = done.send(ask(&daemon).await.map_err(|error| error.to_string()));
                daemon.drain().await;
            });
        })
        .run();
    println!("6 * 7 is {}", answer.recv()??);
    Ok(code)
}

async fn ask(daemon: &DaemonHandle) -> Result<String, Box<dyn Error>> {
    let script = r#"while read -r a op b; do expr "$a" "$op" "$b"; done"#;
    let recipe = Recipe {
        agent: "sums".parse()?,
        protocol: "calculator".parse()?,
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        cwd: std::env::temp_dir(),
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
    };
    let id = SessionId::from_random(0x0606_0707);
    let limits = LimitOverrides::default();
    daemon
        .open(OpenSession {
            id,
            name: None,
            recipe,
            limits,
        })
        .await?;
    let mut events = daemon.subscribe("example", 64, Some(id));
    let by = Who::Extension("user".to_owned());
    daemon
        .send(
            id,
            SendMessage {
                text: "6 * 7".to_owned(),
                key: None,
                priority: Priority::default(),
                by,
            },
        )
        .await?;
    while let Some(event) = events.next().await {
        if let SessionEvent::MessageChanged { state, text, .. } = event.what {
            match state {
                MessageState::Answered => return Ok(text),
                MessageState::Queued | MessageState::Delivered => {}
                MessageState::Failed
                | MessageState::Unknown
                | MessageState::Cancelled
                | MessageState::Parked => {
                    return Err(text.into());
                }
            }
        }
    }
    Err("the daemon ended first".into())
}
