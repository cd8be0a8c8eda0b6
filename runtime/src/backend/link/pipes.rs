//! Reads an agent's pipes.
//!
//! Fed by `link.rs`. Invariant: a pipe that was found empty is not called readable again before
//! something came: a link that is woken for nothing would be woken for ever, and everything else
//! on its thread would wait.

use std::io;

use tokio::net::unix::pipe;

/// Waits until a pipe can be read; one that fails can: the read says what is wrong with it.
/// `None`: for ever.
pub(super) async fn readable(pipe: Option<&pipe::Receiver>) {
    match pipe {
        Some(pipe) => drop(pipe.readable().await),
        None => std::future::pending().await,
    }
}

/// Nothing is in it. A copy of what is may be shorter: an agent can make its pipe larger.
pub(super) fn is_empty(pipe: &pipe::Receiver) -> bool {
    rustix::io::ioctl_fionread(pipe).is_ok_and(|bytes| bytes == 0)
}

/// All that was in it is taken: the next wait is for what comes.
pub(super) fn was_emptied(pipe: &pipe::Receiver) {
    let empty = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    // It is told to have been found empty, which is the purpose.
    let _empty = pipe.try_io(empty);
}

/// Reads what there is. The last words of an agent that has ended are asked of the kernel first:
/// tokio may not have heard of them yet, and would say that there are none.
pub(super) fn try_read(
    pipe: Option<&pipe::Receiver>,
    is_last: bool,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let Some(pipe) = pipe else { return Ok(0) };
    if is_last {
        match rustix::io::read(pipe, &mut *buffer) {
            // Only tokio's own read tells tokio that there is nothing any more.
            Err(rustix::io::Errno::AGAIN) => {}
            read => return Ok(read?),
        }
    }
    pipe.try_read(buffer)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// D36: whoever still holds the output of an agent that has ended keeps its link from nothing.
    /// It hung, and the daemon with it, when the last words were read before tokio heard of them.
    #[tokio::test]
    async fn a_pipe_that_was_emptied_is_waited_for() {
        let (read, write) = io::pipe().expect("there are descriptors");
        rustix::io::ioctl_fionbio(&read, true).expect("a pipe can");
        let pipe = pipe::Receiver::from_owned_fd(read.into()).expect("it is a pipe");
        let mut side = write;
        side.write_all(b"last words").expect("it has room");
        readable(Some(&pipe)).await;
        let mut buffer = [0; 64];
        let words = try_read(Some(&pipe), true, &mut buffer).expect("they are there");
        assert_eq!(&buffer[..words], b"last words");
        let nothing = try_read(Some(&pipe), true, &mut buffer).expect_err("it is empty");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        tokio::select! {
            biased;
            () = readable(Some(&pipe)) => panic!("it is readable without end"),
            () = std::future::ready(()) => {}
        }
        side.write_all(b"more").expect("it has room");
        readable(Some(&pipe)).await;
        assert_eq!(
            try_read(Some(&pipe), true, &mut buffer).expect("it is there"),
            4
        );
    }
}
