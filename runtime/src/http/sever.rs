//! A connection that can be ended from inside, whatever its peer does.
//!
//! Fed by `accept.rs`; used for sockets whose peer neither reads nor answers: what waits to be
//! written to it would otherwise wait for ever, and keep its place.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Ends the connection it belongs to.
#[derive(Clone, Debug, Default)]
pub(super) struct Sever(Arc<Notify>);

impl Sever {
    /// Ends it now; what was not written is lost.
    pub(super) fn sever(&self) {
        self.0.notify_one();
    }

    /// Returns once somebody has.
    pub(super) async fn severed(&self) {
        self.0.notified().await;
    }
}

/// A stream with the means to end it.
#[derive(Debug)]
pub(super) struct Severable<S> {
    pub(super) stream: S,
    pub(super) sever: Sever,
}

impl<S> Severable<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            sever: Sever::default(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Severable<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Severable<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
