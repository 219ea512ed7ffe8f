// SPDX-License-Identifier: Apache-2.0
//! P4Runtime v1 over gRPC for a shared switch, on a tokio runtime of its own.

mod arbitration;
mod batch;
mod connections;
mod costs;
mod digests;
mod entities;
mod gate;
mod identity;
mod install;
mod ledger;
mod limits;
mod notify;
mod outcome;
mod outgoing;
mod p4data;
mod pace;
mod packet_io;
mod peer;
mod pipeline_config;
mod reading;
mod reconcile;
mod refusal;
mod role;
mod service;
mod stages;
mod state;
mod stream;
mod tls;

pub use crate::wake::Wake;
pub use identity::Identities;
pub use install::{InstallError, install};
pub use limits::Limits;
pub use tls::Tls;

use crate::SharedSwitch;
use crate::admin::Act;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// A client that has vanished without a word (power, cable) is noticed after these two: its place
/// as primary has to become free. C++ servers and clients alike take pings at this rate.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that HTTP/2 takes in of a call, and of a connection, before anybody has looked at them;
/// and of a call's headers (gRPC's advice).
const WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;
const HEADER_BYTES: u32 = 8 << 10;

/// What may be set beside the address.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Called after packet-outs, and after changes of when the switch wants to be called.
    pub waker: Option<Wake>,
    /// The clock, in ns, by which a driver runs the switch. Without one, idle time-outs and digests
    /// go by the latest time that the switch has been told.
    pub clock: Option<Arc<dyn Fn() -> u64 + Send + Sync>>,
    /// Without it, connections are in the clear.
    pub tls: Option<Tls>,
    /// What clients may cost.
    pub limits: Limits,
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen for P4Runtime on {addr}: {source}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Certificates or key cannot be used.
    #[error("TLS: {0}")]
    Tls(String),
    /// No thread or runtime to be had.
    #[error("cannot start the P4Runtime server: {0}")]
    Runtime(#[from] io::Error),
}

/// A running server; it stops when this is dropped.
#[derive(Debug)]
pub struct ServerHandle {
    local_addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ServerHandle {
    /// Where it listens: with port 0 asked for, the port it got.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops it and waits until it has.
    pub fn shutdown(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Serves `switch` on `addr`; port 0 takes a free one.
pub fn serve(switch: SharedSwitch, addr: SocketAddr) -> Result<ServerHandle, ServeError> {
    serve_with(switch, addr, ServerOptions::default())
}

/// [`serve`] with options.
pub fn serve_with(
    switch: SharedSwitch,
    addr: SocketAddr,
    options: ServerOptions,
) -> Result<ServerHandle, ServeError> {
    let has_names = options.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if !options.limits.identities.is_empty() && !has_names {
        let words = "controllers and viewers are known by their certificates, and no client has to show one";
        return Err(ServeError::Tls(words.to_owned()));
    }
    let listener = std::net::TcpListener::bind(addr).map_err(|source| ServeError::Bind { addr, source })?;
    listener.set_nonblocking(true)?;
    let local_addr = listener.local_addr()?;
    let mut builder = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(Some(peer::CALLS as u32))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_max_header_list_size(HEADER_BYTES);
    if let Some(tls) = &options.tls {
        let config = tls.config().timeout(options.limits.patience);
        builder = builder.tls_config(config).map_err(|error| ServeError::Tls(causes(&error)))?;
    }
    // Two: what one stranger's message takes (a pipeline to decode, say) others do not wait for.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("p4runtime")
        .enable_all()
        .build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("p4runtime".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!("P4Runtime server: {error}"),
            };
            let limits = Arc::new(options.limits);
            let connections = connections::accept(listener, Arc::clone(&limits), options.tls.is_some());
            let service = state::Service::new(
                Arc::clone(&switch),
                options.waker.clone(),
                options.clock,
                Arc::clone(&limits),
            );
            let (arbitration, identities) = (service.clone(), limits.identities.clone());
            let admin = crate::admin::service(
                switch,
                options.waker,
                Box::new(move |act, extensions| match act {
                    Act::Read => identities.reads(extensions),
                    Act::Write => identities.writes(extensions).map(drop),
                }),
                Box::new(move |role| arbitration.state().arbitration.reset(role)),
            );
            tokio::spawn(service.clone().pump());
            let budget = gate::Budget::new(limits);
            let serving = builder
                .add_service(gate::Gate::new(admin, budget.clone()))
                .add_service(gate::Gate::new(trimwire_p4runtime::server::service(service), budget))
                .serve_with_incoming(connections);
            // Open streams never end by themselves, so the server is dropped rather than drained.
            tokio::select! {
                result = serving => if let Err(error) = result {
                    tracing::error!("P4Runtime server: {error}");
                },
                _ = stopped => {}
            }
        });
    })?;
    Ok(ServerHandle { local_addr, stop: Some(stop), thread: Some(thread) })
}

/// An error and what is behind it: tonic's own words for TLS are "transport error".
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
