//! Lets connections in, and serves each until it ends.
//!
//! Fed by the bound sockets. Looks at no request: what one may do is decided behind it.
//! Invariants: a connection is let in only while there is room for it; while nobody is connected,
//! nothing here has a timer. The last is why this is not `actix_web::HttpServer`: a service of
//! `actix-http` keeps a clock that ticks twice a second for as long as the service exists, so here
//! it exists for as long as somebody is connected.

use std::any::Any;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use actix_http::{HttpService, Protocol};
use actix_service::{IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, map_config};
use actix_web::dev::{AppConfig, Extensions};
use actix_web::rt::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use actix_web::{App, middleware, rt, web};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch as signal};

use super::sever::Severable;
use super::{Context, access, routes};

/// 100 ms after the system had no descriptor for a connection: closing one takes less.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What accepts on one socket has in common with what does on another.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) context: web::Data<Context>,
    /// One permit for each connection.
    pub(super) room: Arc<Semaphore>,
    pub(super) stopping: signal::Receiver<bool>,
}

/// A listening socket.
pub(super) trait Listener {
    /// A connection on it.
    type Stream: AsyncRead + AsyncWrite + Unpin + 'static;
    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<(Self::Stream, Option<SocketAddr>)>>;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<(UnixStream, Option<SocketAddr>)> {
        Ok((self.accept().await?.0, None))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let (stream, peer) = self.accept().await?;
        Ok((stream, Some(peer)))
    }
}

/// Serves one connection until its end.
type Serve<T> = dyn Fn(T, Option<SocketAddr>) -> Pin<Box<dyn Future<Output = ()>>>;

impl Door {
    /// Lets connections in until the endpoint stops. Those that are open then go on.
    pub(super) async fn attend<L: Listener>(self, listener: L) {
        let mut latest: Weak<Serve<Severable<L::Stream>>> = Weak::<fn(_, _) -> _>::new();
        while let Some((stream, peer, permit)) = self.next(&listener).await {
            let service = match latest.upgrade() {
                Some(service) => service,
                None => self.service().await,
            };
            latest = Rc::downgrade(&service);
            let stream = Severable::new(stream);
            let sever = stream.sever.clone();
            rt::spawn(async move {
                tokio::select! {
                    () = service(stream, peer) => {}
                    () = sever.severed() => {}
                }
                drop((service, permit));
            });
        }
    }

    async fn next<L: Listener>(
        &self,
        listener: &L,
    ) -> Option<(
        L::Stream,
        Option<SocketAddr>,
        tokio::sync::OwnedSemaphorePermit,
    )> {
        let mut stopping = self.stopping.clone();
        let accepted = async {
            loop {
                let permit = self.room.clone().acquire_owned().await.ok()?;
                match listener.next().await {
                    Ok((stream, peer)) => return Some((stream, peer, permit)),
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection; trying again");
                        tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    }
                }
            }
        };
        tokio::select! {
            // An endpoint that vanished lets nobody in either.
            _ = stopping.wait_for(|stopping| *stopping) => None,
            next = accepted => next,
        }
    }

    /// Makes what serves connections; it lives as long as one of them.
    async fn service<S>(&self) -> Rc<Serve<Severable<S>>>
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let (context, stopping) = (self.context.clone(), self.stopping.clone());
        let bounds = &self.context.bounds;
        let app = App::new()
            .app_data(context)
            .wrap(middleware::from_fn(access::guard))
            .configure(routes::configure)
            .into_factory()
            .map_err(|error: actix_web::Error| error.error_response());
        let service = HttpService::build()
            .keep_alive(bounds.keep_alive)
            .client_request_timeout(bounds.head_timeout)
            .graceful_shutdown_signal(move || {
                let mut stopping = stopping.clone();
                async move { drop(stopping.wait_for(|stopping| *stopping).await) }
            })
            .on_connect_ext(|stream: &Severable<S>, notes: &mut Extensions| {
                access::note_peer(&stream.stream as &dyn Any, notes);
                notes.insert(stream.sever.clone());
            })
            .finish(map_config(app, |()| AppConfig::default()))
            .new_service(())
            .await
            .expect("an app of ours has nothing that could fail to start");
        Rc::new(move |stream, peer| {
            let served = service.call((stream, Protocol::Http1, peer));
            Box::pin(async move {
                if let Err(error) = served.await {
                    tracing::debug!(%error, "a connection ended badly");
                }
            })
        })
    }
}

/// True for what went wrong with a connection that is gone, rather than with accepting.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
