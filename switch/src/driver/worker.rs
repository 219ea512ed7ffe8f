// SPDX-License-Identifier: Apache-2.0
//! One thread of a driver: it receives and sends at its own ports, and has the switch to itself
//! while that works.
//!
//! ```text
//!  its ports ─► receive ┐                                      ┌─► its ports' frames ─► send
//!                       └► lock ─► the switch, one for all ────┤
//!                                                              └─► mailboxes ─► other threads send
//! ```
//!
//! Each port belongs to one thread, and mailboxes are filled and emptied under the switch's lock
//! alone, so that the frames of a port leave in the order in which the switch gave them.

use super::counters::Counters;
use super::error::DriverError;
use super::packet_socket::{PacketSocket, wait};
use super::port::{MOST_OUTGOING, Port};
use super::waker::{Waker, unix_time_ns};
use crate::device::Transmit;
use crate::engine::trace::Record;
use crate::{SharedSwitch, Switch};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Instant;

/// Takes a switch's trace: records, and how many were lost.
pub type TraceSink = Box<dyn FnMut(&[Record], u64) + Send>;

/// The stop flag, and whether interfaces have a carrier, are looked at no less often.
const LONGEST_WAIT_NS: u64 = 10_000_000;
/// How often what the kernel had no room for is asked.
const MISSED_NS: u64 = 500_000_000;

/// What a driver's threads share.
pub(super) struct Shared {
    pub(super) switch: SharedSwitch,
    pub(super) start: Instant,
    pub(super) counters: Counters,
    pub(super) trace: Option<Mutex<TraceSink>>,
    pub(super) mailboxes: Vec<Mailbox>,
    /// By port number: the thread that has it, and its place there.
    pub(super) owners: Vec<Option<(usize, usize)>>,
    /// Who calls the switch when it wants to be called next, and when that is.
    pub(super) watch: Mutex<(usize, u64)>,
    /// A thread has ended, so that the others have to.
    pub(super) ended: AtomicBool,
}

/// Frames that other threads have for a thread's ports.
pub(super) struct Mailbox {
    frames: Mutex<Vec<(usize, Vec<u8>)>>,
    /// Its thread waits, and has to be woken.
    asleep: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    pub(super) fn new(waker: Waker) -> Self {
        Self { frames: Mutex::default(), asleep: AtomicBool::new(false), waker }
    }
}

/// Looks for a lock that another thread has, before this one sleeps: to be woken takes longer than
/// a batch does.
const LOOKS: u32 = 200;

/// The switch, as soon as no other thread has it.
fn soon(switch: &SharedSwitch) -> MutexGuard<'_, Switch> {
    for _ in 0..LOOKS {
        match switch.try_lock() {
            Ok(switch) => return switch,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    locked(switch)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the other threads when this one ends, however.
struct Ending<'a>(&'a Shared);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
        self.0.mailboxes.iter().for_each(|mailbox| mailbox.waker.wake());
    }
}

/// What a turn of the loop leaves to do.
struct Turn {
    /// When this thread is to call the switch next.
    due_ns: Option<u64>,
    /// A port may have more frames waiting.
    more: bool,
}

pub(super) struct Worker {
    number: usize,
    pub(super) ports: Vec<Port>,
    woken: UnixStream,
    /// Buffers of sent frames, to be given back at the next turn.
    spent: Vec<Vec<u8>>,
    /// Frames of ports that are on no interface.
    pub(super) unattached: u64,
    /// Those for each mailbox, while it is filled.
    posted: Vec<Vec<(usize, Vec<u8>)>>,
    /// The clock's time in ns since 1970 when the driver's was 0.
    start_unix_ns: u64,
    /// When the latest batch was looked at.
    turn_ns: u64,
    missed_at_ns: u64,
    carrier_at_ns: u64,
}

impl Worker {
    pub(super) fn new(number: usize, ports: Vec<Port>, woken: UnixStream) -> Self {
        Self {
            number,
            ports,
            woken,
            spent: Vec::new(),
            unattached: 0,
            posted: Vec::new(),
            start_unix_ns: unix_time_ns(),
            turn_ns: 0,
            missed_at_ns: 0,
            carrier_at_ns: 0,
        }
    }

    /// Moves frames until `stop` is set, or another thread has ended.
    pub(super) fn run(&mut self, shared: &Shared, stop: &AtomicBool) -> Result<(), DriverError> {
        let _ending = Ending(shared);
        self.start_unix_ns = unix_time_ns().saturating_sub(now_ns(shared));
        self.posted.resize_with(shared.mailboxes.len(), Vec::new);
        let mailbox = &shared.mailboxes[self.number];
        while !stop.load(Ordering::Relaxed) && !shared.ended.load(Ordering::Relaxed) {
            let Turn { due_ns, more } = self.turn(shared);
            let mut wait_ns = match due_ns {
                // The others are asked all the same whether they have something.
                _ if more => 0,
                Some(at_ns) => at_ns.saturating_sub(now_ns(shared)).min(LONGEST_WAIT_NS),
                None => LONGEST_WAIT_NS,
            };
            if wait_ns > 0 {
                mailbox.asleep.store(true, Ordering::SeqCst);
                if !locked(&mailbox.frames).is_empty() {
                    wait_ns = 0;
                }
            }
            let mut descriptors = vec![(self.woken.as_raw_fd(), libc::POLLIN)];
            descriptors.extend(self.ports.iter().filter_map(|port| {
                let more = if port.outgoing.is_empty() { 0 } else { libc::POLLOUT };
                Some((port.socket.as_ref()?.as_raw_fd(), libc::POLLIN | more))
            }));
            let ready = wait(&descriptors, wait_ns)?;
            mailbox.asleep.store(false, Ordering::SeqCst);
            let ports = self.ports.iter_mut().filter(|port| port.socket.is_some());
            ports.zip(ready.into_iter().skip(1)).for_each(|(port, ready)| port.ready |= ready);
            let mut signals = [0; 64];
            while matches!((&self.woken).read(&mut signals), Ok(n) if n == signals.len()) {}
        }
        for port in &mut self.ports {
            port.stats.missed += port.socket.as_ref().map_or(0, PacketSocket::missed);
        }
        self.publish(shared);
        Ok(())
    }

    /// Receives what waits, at most a batch a port, lets the switch work, sends what leaves.
    /// Sending takes most of the time and is done without the lock, so that the control plane and
    /// other threads get their turn under load.
    fn turn(&mut self, shared: &Shared) -> Turn {
        let now_ns = now_ns(shared);
        let before_ns = std::mem::replace(&mut self.turn_ns, now_ns);
        let mut more = false;
        for port in self.ports.iter_mut().filter(|port| port.socket.is_none() && now_ns >= port.reopen_at_ns)
        {
            port.reopen(now_ns);
        }
        let unix_ns = self.start_unix_ns + now_ns;
        let mut switch = soon(&shared.switch);
        // What others have for these ports left the switch before what it gives now.
        for (place, frame) in locked(&shared.mailboxes[self.number].frames).drain(..) {
            self.ports[place].outgoing.push(frame);
        }
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
                // Meters and time stamps see when it came, not when its batch was looked at: after
                // the batch before, and before now, whatever somebody does to the system's clock.
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
        if switch.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            switch.handle_timeout(now_ns);
        }
        while let Some(Transmit { port, frame, .. }) = switch.poll_transmit() {
            match shared.owners.get(usize::from(port)).copied().flatten() {
                Some((owner, place)) if owner == self.number => self.ports[place].outgoing.push(frame),
                Some((owner, place)) => self.posted[owner].push((place, frame)),
                None => {
                    self.unattached += 1;
                    self.spent.push(frame);
                    // Controllers hear of it, as of a cable that is not there.
                    switch.set_link_up(port, false);
                }
            }
        }
        for (mailbox, posted) in shared.mailboxes.iter().zip(&mut self.posted) {
            if !posted.is_empty() {
                locked(&mailbox.frames).append(posted);
                if mailbox.asleep.swap(false, Ordering::SeqCst) {
                    mailbox.waker.wake();
                }
            }
        }
        if now_ns >= self.carrier_at_ns {
            self.carrier_at_ns = now_ns + LONGEST_WAIT_NS;
            self.ports.iter_mut().for_each(Port::look_at_carrier);
        }
        for port in &self.ports {
            let up = port.socket.is_some() && port.carrier;
            switch.set_link_up(port.attachment.port, up);
        }
        let due_ns = self.watch(shared, now_ns, switch.poll_timeout());
        // Taken before the switch is given away, so that the notes stay in order.
        let mut sink = shared.trace.as_ref().map(locked);
        let (records, lost) = if sink.is_some() { switch.take_trace() } else { Default::default() };
        drop(switch);
        if let Some(sink) = sink.as_mut().filter(|_| !records.is_empty() || lost > 0) {
            sink(&records, lost);
        }
        drop(sink);
        for port in &mut self.ports {
            port.flush(&mut self.spent, now_ns, unix_ns);
        }
        let free =
            self.ports.iter_mut().filter(|port| port.outgoing.is_empty() && port.window < MOST_OUTGOING);
        for port in free {
            port.window *= 2;
            more = true;
            if port.window >= MOST_OUTGOING {
                locked(&shared.switch).grant(now_ns, port.attachment.port, None);
            }
        }
        if now_ns >= self.missed_at_ns {
            self.missed_at_ns = now_ns + MISSED_NS;
            // Whoever set the system's clock has moved the one by which the kernel notes arrivals.
            self.start_unix_ns = unix_time_ns().saturating_sub(self::now_ns(shared));
            for port in &mut self.ports {
                port.stats.missed += port.socket.as_ref().map_or(0, PacketSocket::missed);
            }
        }
        self.publish(shared);
        Turn { due_ns, more }
    }

    /// When this thread is to call the switch that wants to be called at `due_ns`; `None` where
    /// another one does, which looks again before it sleeps again.
    fn watch(&self, shared: &Shared, now_ns: u64, due_ns: Option<u64>) -> Option<u64> {
        let mut watch = locked(&shared.watch);
        let (watcher, at_ns) = *watch;
        let Some(due_ns) = due_ns else {
            // Nobody is to rely on a thread that waits for nothing.
            if watcher == self.number {
                *watch = (self.number, 0);
            }
            return None;
        };
        let is_watched = watcher != self.number && (now_ns + 1..=due_ns).contains(&at_ns);
        if is_watched {
            return None;
        }
        *watch = (self.number, due_ns);
        Some(due_ns)
    }

    fn publish(&self, shared: &Shared) {
        for port in &self.ports {
            shared.counters.publish(port.place, &port.stats);
        }
    }
}

fn now_ns(shared: &Shared) -> u64 {
    shared.start.elapsed().as_nanos() as u64
}
