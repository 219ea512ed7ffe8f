//! P4Runtime v1 over gRPC for a shared switch, on a thread and a tokio runtime of its own.

mod arbitration;
mod meters;
mod outcome;
mod packet_io;
mod replication;
mod service;
mod translate;

use crate::SharedSwitch;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;
use tokio_stream::wrappers::TcpListenerStream;

/// Called after the control plane has changed something, so that a driver looks at the switch.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What may be set beside the address.
#[derive(Clone, Default)]
pub struct ServerOptions {
    /// Called after every change and packet-out.
    pub waker: Option<Wake>,
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
    let listener = std::net::TcpListener::bind(addr).map_err(|source| ServeError::Bind { addr, source })?;
    listener.set_nonblocking(true)?;
    let local_addr = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("p4runtime".to_owned()).spawn(move || {
        runtime.block_on(async move {
            let listener = match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!("P4Runtime server: {error}"),
            };
            let admin = crate::admin::service(Arc::clone(&switch), options.waker.clone());
            let service = service::Service::new(switch, options.waker);
            tokio::spawn(service.clone().pump_packet_ins());
            let serving = tonic::transport::Server::builder()
                .add_service(admin)
                .add_service(trimwire_p4runtime::server::service(service))
                .serve_with_incoming(TcpListenerStream::new(listener));
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
