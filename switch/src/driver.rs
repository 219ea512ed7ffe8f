// SPDX-License-Identifier: Apache-2.0
//! Puts a [`Switch`](crate::Switch) on Linux interfaces: packet sockets and the real clock, on the caller's thread.

mod files;
mod offload;
mod packet_socket;
mod ring;

use crate::SharedSwitch;
use crate::device::Transmit;
use crate::engine::trace::Record;
use crate::pcap::Capture;
use files::Files;
use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

pub use crate::pcap::CaptureError;
pub use offload::Refusal;
use packet_socket::wait;
pub use packet_socket::{PacketSocket, Received, Sent};

/// An interface that has gone is looked for at this interval.
const REOPEN_NS: u64 = 1_000_000_000;
/// The stop flag, and whether interfaces have a carrier, are looked at no less often.
const LONGEST_WAIT_NS: u64 = 10_000_000;
/// Frames a port keeps while the kernel's buffer is full, of one turn in which the interface was found to be slower than the port.
const MOST_OUTGOING: usize = 1024;

/// A port on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Port number.
    pub port: u16,
    /// Interface name.
    pub interface: String,
}

/// Why a driver does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// An interface cannot be opened.
    #[error("port {port}: cannot open interface '{interface}'{}", hint(.source))]
    Open {
        /// Port number.
        port: u16,
        /// Interface name.
        interface: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that stands for an interface cannot be used.
    #[error("--use-files, port {port}: '{}'", path.display())]
    File {
        /// Port number.
        port: u16,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Waiting for frames failed.
    #[error("cannot wait for frames")]
    Wait(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (packet sockets need CAP_NET_RAW: run as root)",
        _ if error.raw_os_error() == Some(libc::ENODEV) => " (no such interface; `ip link` lists them)",
        _ => "",
    }
}

/// Frames of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortStats {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Not sent: the interface was gone, slower than the port's rate, or refused the frame (its MTU).
    pub lost: u64,
    /// Not received: the kernel's receive buffer was full.
    pub missed: u64,
    /// Not received: bursts that cannot be cut up into frames ([`Refusal`]), and frames longer than 9,230 bytes.
    pub refused: u64,
}

/// What a driver counts, readable while it works.
#[derive(Debug, Clone)]
pub struct Counters(Arc<Vec<(u16, PortCounter)>>);

impl Counters {
    /// Frames by port number.
    pub fn read(&self) -> BTreeMap<u16, PortStats> {
        self.0.iter().map(|(port, counter)| (*port, counter.read())).collect()
    }
}

#[derive(Debug, Default)]
struct PortCounter {
    received: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    missed: AtomicU64,
    refused: AtomicU64,
}

impl PortCounter {
    fn read(&self) -> PortStats {
        let Self { received, sent, lost, missed, refused } = self;
        let [received, sent, lost, missed, refused] =
            [received, sent, lost, missed, refused].map(|counter| counter.load(Ordering::Relaxed));
        PortStats { received, sent, lost, missed, refused }
    }

    fn publish(&self, stats: &PortStats) {
        self.received.store(stats.received, Ordering::Relaxed);
        self.sent.store(stats.sent, Ordering::Relaxed);
        self.lost.store(stats.lost, Ordering::Relaxed);
        self.missed.store(stats.missed, Ordering::Relaxed);
        self.refused.store(stats.refused, Ordering::Relaxed);
    }
}

/// Memory of the kernel's for what waits to be received at all ports together, and at one.
const RING_BYTES: usize = 32 << 20;
const MOST_RING_BYTES: usize = 16 << 20;
/// A smaller ring would lose what a socket's buffer, which takes memory only for what waits, has room for.
const LEAST_RING_BYTES: usize = 1 << 20;

/// How often what the kernel had no room for is asked.
const MISSED_NS: u64 = 500_000_000;

/// Wakes a driver after the control plane has changed something.
#[derive(Debug, Clone)]
pub struct Waker(Arc<UnixStream>);

impl Waker {
    /// Makes the driver look at the switch soon. Never blocks: a full pipe is as good as a woken driver.
    pub fn wake(&self) {
        let _ = (&*self.0).write(&[0]);
    }
}

#[derive(Debug)]
struct Port {
    attachment: Attachment,
    socket: Option<PacketSocket>,
    ring_bytes: usize,
    /// Something waits there: a frame, or an error.
    ready: bool,
    reopen_at_ns: u64,
    /// The cable's other end is there.
    carrier: bool,
    outgoing: Vec<Vec<u8>>,
    /// Frames that the interface is trusted to take: one after its buffer was full, twice as many each time that it takes all;
    /// `MOST_OUTGOING` stands for any number. Others wait in the switch's queues, where the program sees them.
    window: usize,
    stats: PortStats,
    warned: bool,
    capture: Option<Capture>,
}

/// Takes a switch's trace: records, and how many were lost.
pub type TraceSink = Box<dyn FnMut(&[Record], u64) + Send>;

/// What a turn of the loop leaves to do.
struct Turn {
    /// When the switch wants to be called next.
    due_ns: Option<u64>,
    /// A port may have more frames waiting.
    more: bool,
}

/// Sockets, clock and loop of one switch.
pub struct Driver {
    switch: SharedSwitch,
    ports: Vec<Port>,
    /// In the place of interfaces.
    files: Option<Files>,
    index: BTreeMap<u16, usize>,
    start: Instant,
    woken: UnixStream,
    waker: Waker,
    /// Buffers of sent frames, to be given back at the next turn.
    spent: Vec<Vec<u8>>,
    unattached: u64,
    /// The clock's time in ns since 1970 when the driver's was 0.
    start_unix_ns: u64,
    trace: Option<TraceSink>,
    counters: Counters,
    missed_at_ns: u64,
    /// When the latest batch was looked at.
    turn_ns: u64,
    carrier_at_ns: u64,
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
            ports.push(Port::new(attachment, socket, 0, ring_bytes));
        }
        Self::with_ports(switch, ports, None)
    }

    /// Takes pcap files for interfaces: what `NAME_in.pcap` holds comes in from `wait` on, in the order of its times and as fast as
    /// the switch works; what leaves is written to `NAME_out.pcap`.
    pub fn with_files(
        switch: SharedSwitch,
        attachments: Vec<Attachment>,
        wait: Duration,
    ) -> Result<Self, DriverError> {
        let start_ns = wait.as_nanos().try_into().unwrap_or(u64::MAX);
        let files = Files::open(&attachments, start_ns)
            .map_err(|(Attachment { port, .. }, path, source)| DriverError::File { port, path, source })?;
        let ports =
            attachments.into_iter().map(|attachment| Port::new(attachment, None, u64::MAX, 0)).collect();
        Self::with_ports(switch, ports, Some(files))
    }

    #[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
    fn with_ports(switch: SharedSwitch, ports: Vec<Port>, files: Option<Files>) -> Result<Self, DriverError> {
        let counters =
            ports.iter().map(|port: &Port| (port.attachment.port, PortCounter::default())).collect();
        let counters = Counters(Arc::new(counters));
        let index = ports.iter().enumerate().map(|(i, port)| (port.attachment.port, i)).collect();
        let (woken, waker) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        waker.set_nonblocking(true)?;
        let waker = Waker(Arc::new(waker));
        Ok(Self {
            switch,
            ports,
            files,
            index,
            start: Instant::now(),
            woken,
            waker,
            spent: Vec::new(),
            unattached: 0,
            start_unix_ns: unix_time_ns(),
            turn_ns: 0,
            trace: None,
            counters,
            missed_at_ns: 0,
            carrier_at_ns: 0,
        })
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

    /// Captures what comes in and goes out from here on, for each interface in two files of an existing folder.
    pub fn capture(&mut self, folder: &Path) -> Result<(), CaptureError> {
        for port in &mut self.ports {
            port.capture = Some(Capture::create(folder, &port.attachment.interface)?);
        }
        Ok(())
    }

    /// Gives what the switch notes about packets to `sink`, on the thread that runs the driver.
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
        while !stop.load(Ordering::Relaxed) {
            let Turn { due_ns, more } = self.turn();
            let now_ns = self.now_ns();
            let wait_ns = match due_ns {
                // The others are asked all the same whether they have something.
                _ if more => 0,
                Some(at_ns) => at_ns.saturating_sub(now_ns).min(LONGEST_WAIT_NS),
                None => LONGEST_WAIT_NS,
            };
            let mut descriptors = vec![(self.woken.as_raw_fd(), libc::POLLIN)];
            descriptors.extend(self.ports.iter().filter_map(|port| {
                let more = if port.outgoing.is_empty() { 0 } else { libc::POLLOUT };
                Some((port.socket.as_ref()?.as_raw_fd(), libc::POLLIN | more))
            }));
            let ready = wait(&descriptors, wait_ns)?;
            let ports = self.ports.iter_mut().filter(|port| port.socket.is_some());
            ports.zip(ready.into_iter().skip(1)).for_each(|(port, ready)| port.ready |= ready);
            let mut signals = [0; 64];
            while matches!((&self.woken).read(&mut signals), Ok(n) if n == signals.len()) {}
        }
        for port in &mut self.ports {
            port.stats.missed += port.socket.as_ref().map_or(0, PacketSocket::missed);
        }
        self.publish();
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Receives what waits, at most a batch a port, lets the switch work, sends what leaves.
    /// Sending takes most of the time and is done without the lock, so that the control plane gets its turn under load.
    fn turn(&mut self) -> Turn {
        let now_ns = self.now_ns();
        let before_ns = std::mem::replace(&mut self.turn_ns, now_ns);
        let mut more = false;
        for port in self.ports.iter_mut().filter(|port| port.socket.is_none() && now_ns >= port.reopen_at_ns)
        {
            port.reopen(now_ns);
        }
        let unix_ns = self.start_unix_ns + now_ns;
        let mut switch = self.switch.lock().unwrap_or_else(PoisonError::into_inner);
        self.spent.drain(..).for_each(|frame| switch.recycle(frame));
        for port in self.ports.iter().filter(|port| port.window < MOST_OUTGOING) {
            let frames = if port.outgoing.is_empty() { port.window } else { 0 };
            switch.grant(now_ns, port.attachment.port, Some(frames));
        }
        for port in self.ports.iter_mut().filter(|port| port.ready) {
            let number = port.attachment.port;
            let Some(socket) = &mut port.socket else { continue };
            let capture = &mut port.capture;
            let start_unix_ns = self.start_unix_ns;
            let received = socket.receive(|arrived, frame| {
                if let Some(capture) = capture {
                    capture.received(arrived.unwrap_or(unix_ns), frame);
                }
                // Meters and time stamps see when it came, not when its batch was looked at: after the batch before, and before now,
                // whatever somebody does to the system's clock.
                let at_ns = arrived.map_or(now_ns, |unix_ns| unix_ns.saturating_sub(start_unix_ns));
                switch.handle_frame(at_ns.clamp(before_ns, now_ns), number, frame);
            });
            match received {
                Ok(received) => {
                    port.ready = received.full;
                    more |= received.full;
                    port.stats.received += received.frames;
                    port.stats.missed += received.missed;
                    port.refused(received.refused, received.refusal);
                }
                Err(error) => port.failed(&error, now_ns),
            }
        }
        let mut files_ns = None;
        if let Some(files) = &mut self.files {
            files_ns = files.receive(now_ns, |number, frame| {
                switch.handle_frame(now_ns, number, frame);
                if let Some(&i) = self.index.get(&number) {
                    self.ports[i].stats.received += 1;
                }
            });
        }
        if switch.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            switch.handle_timeout(now_ns);
        }
        while let Some(Transmit { port, frame, .. }) = switch.poll_transmit() {
            if let Some(&i) = self.index.get(&port) {
                self.ports[i].outgoing.push(frame);
            } else {
                self.unattached += 1;
                self.spent.push(frame);
                // Controllers hear of it, as of a cable that is not there.
                if self.files.is_none() {
                    switch.set_link_up(port, false);
                }
            }
        }
        if now_ns >= self.carrier_at_ns {
            self.carrier_at_ns = now_ns + LONGEST_WAIT_NS;
            self.ports.iter_mut().for_each(Port::look_at_carrier);
        }
        for port in &self.ports {
            let up = port.socket.is_some() && port.carrier;
            switch.set_link_up(port.attachment.port, up || self.files.is_some());
        }
        let due_ns = [switch.poll_timeout(), files_ns].into_iter().flatten().min();
        let (records, lost) = match &self.trace {
            Some(_) => switch.take_trace(),
            None => Default::default(),
        };
        drop(switch);
        if let Some(sink) = self.trace.as_mut().filter(|_| !records.is_empty() || lost > 0) {
            sink(&records, lost);
        }
        for port in &mut self.ports {
            match &mut self.files {
                Some(files) => port.write(files, &mut self.spent, unix_ns),
                None => port.flush(&mut self.spent, now_ns, unix_ns),
            }
        }
        let free =
            self.ports.iter_mut().filter(|port| port.outgoing.is_empty() && port.window < MOST_OUTGOING);
        for port in free {
            port.window *= 2;
            more = true;
            if port.window >= MOST_OUTGOING {
                let mut switch = self.switch.lock().unwrap_or_else(PoisonError::into_inner);
                switch.grant(now_ns, port.attachment.port, None);
            }
        }
        if now_ns >= self.missed_at_ns {
            self.missed_at_ns = now_ns + MISSED_NS;
            // Whoever set the system's clock has moved the one by which the kernel notes arrivals.
            self.start_unix_ns = unix_time_ns().saturating_sub(self.now_ns());
            for port in &mut self.ports {
                port.stats.missed += port.socket.as_ref().map_or(0, PacketSocket::missed);
            }
        }
        self.publish();
        Turn { due_ns, more }
    }

    fn publish(&self) {
        for (port, (_, counter)) in self.ports.iter().zip(self.counters.0.iter()) {
            counter.publish(&port.stats);
        }
    }
}

/// The system's clock.
#[expect(clippy::disallowed_methods, reason = "the driver is where the real clock comes in")]
fn unix_time_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

impl Port {
    fn new(
        attachment: Attachment,
        socket: Option<PacketSocket>,
        reopen_at_ns: u64,
        ring_bytes: usize,
    ) -> Self {
        Self {
            attachment,
            socket,
            ring_bytes,
            ready: true,
            reopen_at_ns,
            outgoing: Vec::new(),
            window: MOST_OUTGOING,
            stats: PortStats::default(),
            warned: false,
            capture: None,
            carrier: true,
        }
    }

    /// An interface without carrier is up, takes frames, and loses them.
    fn look_at_carrier(&mut self) {
        let carrier =
            self.socket.as_ref().is_none_or(|socket| socket.has_carrier(&self.attachment.interface));
        if std::mem::replace(&mut self.carrier, carrier) != carrier {
            let (Attachment { port, interface }, word) =
                (&self.attachment, if carrier { "has its carrier back" } else { "has lost its carrier" });
            tracing::warn!("port {port}: interface '{interface}' {word}");
        }
    }

    /// Writes everything to the port's file.
    fn write(&mut self, files: &mut Files, spent: &mut Vec<Vec<u8>>, unix_ns: u64) {
        let Attachment { port, interface } = &self.attachment;
        for frame in &self.outgoing {
            match files.send(*port, unix_ns, frame) {
                Ok(()) => self.stats.sent += 1,
                Err(error) => {
                    self.stats.lost += 1;
                    if !std::mem::replace(&mut self.warned, true) {
                        tracing::error!("port {port}: '{interface}_out.pcap': {error}");
                    }
                }
            }
        }
        spent.append(&mut self.outgoing);
    }

    /// Sends what the interface takes; keeps some of the rest.
    fn flush(&mut self, spent: &mut Vec<Vec<u8>>, now_ns: u64, unix_ns: u64) {
        if self.outgoing.is_empty() {
            return;
        }
        let sent = match self.socket.as_ref().map(|socket| socket.send(&self.outgoing)) {
            Some(Ok(sent)) => sent,
            gone => {
                if let Some(Err(error)) = gone {
                    self.failed(&error, now_ns);
                }
                Sent { taken: self.outgoing.len(), refused: self.outgoing.len() }
            }
        };
        self.stats.sent += (sent.taken - sent.refused) as u64;
        self.stats.lost += sent.refused as u64;
        if let Some(capture) = self.capture.as_mut().filter(|_| self.socket.is_some()) {
            self.outgoing.iter().take(sent.taken).for_each(|frame| capture.sent(unix_ns, frame));
        }
        spent.extend(self.outgoing.drain(..sent.taken));
        if !self.outgoing.is_empty() {
            self.window = 1;
        }
        if self.outgoing.len() > MOST_OUTGOING {
            self.stats.lost += (self.outgoing.len() - MOST_OUTGOING) as u64;
            spent.extend(self.outgoing.drain(MOST_OUTGOING..));
        }
    }

    /// Frames came that are none.
    fn refused(&mut self, count: u64, why: Option<Refusal>) {
        self.stats.refused += count;
        if let Some(why) = why.filter(|_| !std::mem::replace(&mut self.warned, true)) {
            let Attachment { port, interface } = &self.attachment;
            tracing::warn!(
                "port {port}: interface '{interface}' gives what is no frame and cannot be split into frames: {why}; it is dropped. \
                 Turn such bursts off at the sender: ethtool -K IFACE tso off gso off gro off lro off"
            );
        }
    }

    /// The interface went away or down; the others go on.
    fn failed(&mut self, error: &io::Error, now_ns: u64) {
        let Attachment { port, interface } = &self.attachment;
        tracing::warn!("port {port}: interface '{interface}': {error}; trying again every second");
        if let Some(socket) = self.socket.take() {
            self.stats.missed += socket.missed();
        }
        self.reopen_at_ns = now_ns + REOPEN_NS;
    }

    fn reopen(&mut self, now_ns: u64) {
        let Attachment { port, interface } = &self.attachment;
        match PacketSocket::open(interface, self.ring_bytes) {
            Ok(socket) => {
                tracing::info!("port {port}: interface '{interface}' is back");
                (self.socket, self.ready) = (Some(socket), true);
            }
            Err(_) => self.reopen_at_ns = now_ns + REOPEN_NS,
        }
    }
}
