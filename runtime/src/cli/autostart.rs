//! Starts the daemon when none is running.
//!
//! Fed by every verb that asks it. Invariant: of several that find no daemon at once, one starts
//! one and the others wait for it (a lock on a file, which the kernel lifts with its holder). A
//! daemon that does not come up is reported with what it said last.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use drowse_client::{Client, ClientError, Transport};
use tokio::time::{sleep, timeout};

use crate::cli::args::Globals;
use crate::cli::failure::Failure;
use crate::exit::Exit;
use crate::paths::Paths;

/// 15 s from the first look to a daemon that takes requests: opening a database of 100,000
/// sessions takes a second or two, on a machine under load a few times that.
const START_MAX: Duration = Duration::from_secs(15);

/// 20 ms between two looks: shorter than anybody notices, longer than a look takes.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// 8 MiB of log are kept, and as much of the one before.
const LOG_BYTES_MAX: u64 = 8 << 20;

/// 4 KiB of what a daemon said last are looked at when it did not come up.
const LAST_WORDS_BYTES_MAX: u64 = 4096;

/// 10 lines of them are shown.
const LAST_WORDS_LINES_MAX: usize = 10;

/// Returns once a daemon takes requests.
pub(crate) async fn ensure(
    client: &Client,
    paths: &Paths,
    globals: &Globals,
) -> Result<(), Failure> {
    let late = || {
        let (seconds, log) = (START_MAX.as_secs(), paths.serve_log());
        let text = format!("the daemon did not become ready within {seconds} s");
        Failure::new(Exit::NoDaemon, text).with(&format!("its log is {}", log.display()))
    };
    timeout(START_MAX, start_or_wait(client, paths, globals))
        .await
        .unwrap_or_else(|_| Err(late()))
}

/// What is where the daemon should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nobody,
    /// One that does not take requests: not yet, or not any more.
    Busy,
    Ready,
}

async fn look(client: &Client) -> Result<Seen, Failure> {
    match client.ready().await {
        Ok(true) => Ok(Seen::Ready),
        Ok(false) => Ok(Seen::Busy),
        Err(error) if error.is_no_daemon() => Ok(Seen::Nobody),
        // It went away while it was asked.
        Err(ClientError::Transport(Transport::Lost { .. })) => Ok(Seen::Busy),
        Err(error) => Err(error.into()),
    }
}

async fn start_or_wait(client: &Client, paths: &Paths, globals: &Globals) -> Result<(), Failure> {
    // One that starts becomes ready, one that ends goes away: both are waited for.
    loop {
        match look(client).await? {
            Seen::Ready => return Ok(()),
            Seen::Busy => sleep(LOOK_EVERY).await,
            Seen::Nobody => break,
        }
    }
    if globals.no_start {
        let text = format!("no daemon is running (socket {})", paths.socket.display());
        return Err(Failure::new(Exit::NoDaemon, text));
    }
    paths.create()?;
    let _lock = locked(&paths.start_lock()).await?;
    if look(client).await? == Seen::Ready {
        return Ok(());
    }
    let mut log = open_log(&paths.serve_log())?;
    let begin = log.seek(SeekFrom::End(0))?;
    let mut child = spawn(paths, globals, &log)?;
    loop {
        // In this order: when it ends because another one runs already, that one is ready.
        let ended = child.try_wait()?;
        match (look(client).await?, ended) {
            (Seen::Ready, _) => return Ok(()),
            (Seen::Nobody, Some(status)) => {
                return Err(did_not_start(status, &paths.serve_log(), begin));
            }
            (Seen::Nobody | Seen::Busy, _) => sleep(LOOK_EVERY).await,
        }
    }
}

async fn locked(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| cannot("open", path, &error))?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => sleep(LOOK_EVERY).await,
            Err(TryLockError::Error(error)) => return Err(cannot("lock", path, &error)),
        }
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    let text = format!("failed to {what} {}: {error}", path.display());
    Failure::new(Exit::NoDaemon, text)
}

fn open_log(path: &Path) -> Result<File, Failure> {
    if path.metadata().is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        let old = path.with_extension("log.old");
        std::fs::rename(path, &old).map_err(|error| cannot("put aside", path, &error))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(|error| cannot("open", path, &error))
}

fn spawn(paths: &Paths, globals: &Globals, log: &File) -> Result<Child, Failure> {
    // The running program itself, also when its file was replaced or removed since.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("drowse")
        .args(["serve", "--background"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?)
        // It must not keep the caller's folder from being unmounted.
        .current_dir("/");
    if globals.state_dir.is_some() {
        command.arg("--state-dir").arg(&paths.state_dir);
    }
    if globals.socket.is_some() {
        command.arg("--socket").arg(&paths.socket);
    }
    if let Some(config) = &globals.config {
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    command.spawn().map_err(|error| {
        Failure::new(
            Exit::NoDaemon,
            format!("failed to start the daemon: {error}"),
        )
    })
}

fn did_not_start(status: ExitStatus, log: &Path, begin: u64) -> Failure {
    let exit = match status.code() {
        Some(code) if code == i32::from(Exit::Config.code()) => Exit::Config,
        Some(_) | None => Exit::NoDaemon,
    };
    // Without its words the failure is still told.
    let words = last_words(log, begin).unwrap_or_default();
    let text = format!("the daemon did not start ({status}); it said:\n{words}");
    Failure::new(exit, text).with(&format!("all of it is in {}", log.display()))
}

/// The last lines written to the log after `begin`.
fn last_words(log: &Path, begin: u64) -> io::Result<String> {
    let mut file = File::open(log)?;
    let end = file.seek(SeekFrom::End(0))?;
    let start = begin.max(end.saturating_sub(LAST_WORDS_BYTES_MAX));
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(LAST_WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(LAST_WORDS_LINES_MAX)..];
    let indented: Vec<String> = shown.iter().map(|line| format!("  {line}")).collect();
    Ok(indented.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Of several that want to start the daemon, one does; the others wait for it, and are not
    /// refused.
    #[test]
    fn the_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("start.lock");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(async {
            let first = locked(&path).await.unwrap();
            let mut second = pin!(locked(&path));
            let mut context = Context::from_waker(Waker::noop());
            assert!(second.as_mut().poll(&mut context).is_pending());
            drop(first);
            second.await.unwrap();
        });
    }

    #[test]
    fn only_the_last_words_of_this_start_are_shown() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("serve.log");
        let lines: Vec<String> = (1..=12).map(|number| format!("line {number}")).collect();
        std::fs::write(&log, format!("of yesterday\n{}\n", lines.join("\n"))).unwrap();
        let words = last_words(&log, 13).unwrap();
        assert!(
            words.starts_with("  line 3\n") && words.ends_with("\n  line 12"),
            "{words}"
        );
        assert_eq!(last_words(&log, 13 + 79).unwrap(), "  line 12");
    }
}
