// SPDX-License-Identifier: Apache-2.0
//! Puts a [`Switch`](crate::Switch) on Linux interfaces: packet sockets and the real clock, on the
//! caller's thread and others.

mod counters;
mod error;
mod offload;
mod packet_socket;
mod port;
mod ring;
mod waker;
mod worker;

use crate::SharedSwitch;
use crate::pcap::Capture;
use counters::PortCounter;
use port::Port;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use waker::waker;
use worker::{Mailbox, Shared, Worker};

pub use crate::pcap::CaptureError;
pub use counters::{Counters, PortStats};
pub use error::DriverError;
pub use offload::Refusal;
pub use packet_socket::{PacketSocket, Received, Sent};
pub use port::Attachment;
pub use waker::Waker;
pub use worker::TraceSink;

/// Memory of the kernel's for what waits to be received at all ports together, and at one.
const RING_BYTES: usize = 32 << 20;
const MOST_RING_BYTES: usize = 16 << 20;
/// A smaller ring would lose what a socket's buffer, which takes memory only for what waits, has
/// room for.
const LEAST_RING_BYTES: usize = 1 << 20;

/// Sockets, clock and threads of one switch.
pub struct Driver {
    switch: SharedSwitch,
    /// In the order of their attachments.
    ports: Vec<Port>,
    threads: usize,
    start: Instant,
    /// The first thread's.
    woken: UnixStream,
    waker: Waker,
    unattached: u64,
    trace: Option<TraceSink>,
    counters: Counters,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Driver {
    /// Opens all interfaces. One that is down is waited for.
    pub fn new(switch: SharedSwitch, attachments: Vec<Attachment>) -> Result<Self, DriverError> {
        let share = (RING_BYTES / attachments.len().max(1)).min(MOST_RING_BYTES);
        let ring_bytes = if share < LEAST_RING_BYTES { 0 } else { share };
        let mut ports = Vec::new();
        for attachment in attachments {
            let Attachment { port, interface } = &attachment;
            let socket = match PacketSocket::open(interface, ring_bytes) {
                Ok(socket) => Some(socket),
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => {
                    tracing::warn!("port {port}: interface '{interface}' is down; trying again every second");
                    None
                }
                Err(source) => {
                    return Err(DriverError::Open { port: *port, interface: interface.clone(), source });
                }
            };
            ports.push(Port::new(ports.len(), attachment, socket, 0, ring_bytes));
        }
        Self::with_ports(switch, ports)
    }

    #[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
    fn with_ports(switch: SharedSwitch, ports: Vec<Port>) -> Result<Self, DriverError> {
        let counters =
            ports.iter().map(|port: &Port| (port.attachment.port, PortCounter::default())).collect();
        let counters = Counters(Arc::new(counters));
        let (woken, waker) = waker()?;
        Ok(Self {
            switch,
            ports,
            threads: 1,
            start: Instant::now(),
            woken,
            waker,
            unattached: 0,
            trace: None,
            counters,
        })
    }

    /// Has so many threads move frames, each at its own ports: as many as there are ports at most.
    pub fn set_threads(&mut self, threads: usize) {
        self.threads = threads;
    }

    /// Wakes this driver.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The clock by which this driver runs the switch, in ns.
    pub fn clock(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let start = self.start;
        move || start.elapsed().as_nanos() as u64
    }

    /// Captures what comes in and goes out from here on, for each interface in two files of an
    /// existing folder.
    pub fn capture(&mut self, folder: &Path) -> Result<(), CaptureError> {
        for port in &mut self.ports {
            port.capture = Some(Capture::create(folder, &port.attachment.interface)?);
        }
        Ok(())
    }

    /// Gives what the switch notes about packets to `sink`, in order, on whichever thread has it.
    pub fn set_trace_sink(&mut self, sink: TraceSink) {
        self.trace = Some(sink);
    }

    /// Counters that can be read while the driver runs.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Frames by port number.
    pub fn stats(&self) -> BTreeMap<u16, PortStats> {
        self.ports.iter().map(|port| (port.attachment.port, port.stats)).collect()
    }

    /// Frames for ports that are on no interface.
    pub fn unattached(&self) -> u64 {
        self.unattached
    }

    /// Moves frames until `stop` is set.
    pub fn run(&mut self, stop: &AtomicBool) -> Result<(), DriverError> {
        let threads = self.threads.clamp(1, self.ports.len().max(1));
        let mut ends = vec![(self.woken.try_clone()?, self.waker.clone())];
        for _ in 1..threads {
            ends.push(waker()?);
        }
        let mut owners =
            vec![
                None;
                self.ports.iter().map(|port| usize::from(port.attachment.port) + 1).max().unwrap_or(0)
            ];
        let mut shares: Vec<Vec<Port>> = (0..threads).map(|_| Vec::new()).collect();
        for (port, owner) in std::mem::take(&mut self.ports).into_iter().zip((0..threads).cycle()) {
            owners[usize::from(port.attachment.port)] = Some((owner, shares[owner].len()));
            shares[owner].push(port);
        }
        let shared = Shared {
            switch: Arc::clone(&self.switch),
            start: self.start,
            counters: self.counters.clone(),
            trace: self.trace.take().map(Mutex::new),
            mailboxes: ends.iter().map(|(_, waker)| Mailbox::new(waker.clone())).collect(),
            owners,
            watch: Mutex::new((0, 0)),
            ended: AtomicBool::new(false),
        };
        let mut workers = Vec::new();
        for (number, (ports, (woken, _))) in shares.into_iter().zip(ends).enumerate() {
            workers.push(Worker::new(number, ports, woken));
        }
        let (first, others) = workers.split_at_mut(1);
        let result = std::thread::scope(|scope| {
            let mut handles = Vec::new();
            let mut result = Ok(());
            for worker in others {
                let name = std::thread::Builder::new().name(format!("ports-{}", handles.len() + 1));
                match name.spawn_scoped(scope, || worker.run(&shared, stop)) {
                    Ok(handle) => handles.push(handle),
                    Err(error) => {
                        shared.ended.store(true, Ordering::Relaxed);
                        result = Err(DriverError::Thread(error));
                    }
                }
            }
            let own = first.iter_mut().map(|worker| worker.run(&shared, stop));
            let result = own.fold(result, Result::and);
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handles.into_iter().map(join).fold(result, Result::and)
        });
        self.trace = shared.trace.map(|sink| sink.into_inner().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            self.unattached += worker.unattached;
            self.ports.extend(worker.ports);
        }
        self.ports.sort_by_key(|port| port.place);
        result
    }
}
