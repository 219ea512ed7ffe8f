// SPDX-License-Identifier: Apache-2.0
//! The traffic manager: up to eight queues a port, byte limits, a shared buffer, exact line rates.
//! Sans-IO.
//!
//! ```text
//!  enqueue ─► admission: limits, shared buffer ─► queue ─► scheduler: strict, weighted, caps ─► line
//! ```
//!
//! A port serves one packet at a time and is then busy for as long as the frame takes on its line.
//! The caller learns from [`TrafficManager::next_service`] when a port can serve next, takes a
//! packet with [`TrafficManager::dequeue`] and says with [`TrafficManager::transmitted`] how many
//! bytes went out, before it dequeues again.

mod config;
mod scheduler;
mod stats;

pub use config::{Alpha, DepthUnit, PortConfig, QUEUES, QueueConfig, Service, Share, TrafficConfig};
pub use stats::{Count, DropCause, QueueStats};

use config::{CELL, MOST_DEPTH};
use scheduler::Scheduler;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A packet that a port serves.
#[derive(Debug)]
pub struct Dequeued<T> {
    /// The port.
    pub port: u16,
    /// The queue it waited in.
    pub queue: u8,
    /// The packet.
    pub item: T,
    /// When it was enqueued.
    pub enqueued_ns: u64,
    /// What was in the queue when it came, in [`TrafficConfig::depth_unit`].
    pub enqueue_depth: u32,
    /// What it leaves behind in the queue, in the same unit. 0 only when the queue is empty.
    pub dequeue_depth: u32,
    /// When the port begins to send it.
    pub start_ns: u64,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    length: u32,
    enqueued_ns: u64,
    depth: u32,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<Waiting<T>>,
    cells: u64,
    config: QueueConfig,
    stats: QueueStats,
}

impl<T> Queue<T> {
    fn depth(&self, unit: DepthUnit) -> u32 {
        let depth = match unit {
            DepthUnit::Packets => self.waiting.len() as u64,
            DepthUnit::Bytes => self.stats.depth_bytes(),
            DepthUnit::Cells => self.cells,
        };
        depth.min(MOST_DEPTH) as u32
    }

    fn pop(&mut self) -> Option<Waiting<T>> {
        let packet = self.waiting.pop_front()?;
        self.cells -= cells(packet.length);
        Some(packet)
    }
}

fn cells(length: u32) -> u64 {
    u64::from(length).div_ceil(CELL).max(1)
}

#[derive(Debug)]
struct Port<T> {
    number: u16,
    config: PortConfig,
    up: bool,
    queues: [Queue<T>; QUEUES],
    scheduler: Scheduler,
    /// Queue of the packet that is out for egress.
    serving: usize,
    /// When the line is free, and what integer division of the last frame's time left over, in
    /// bit·ns / (bit/s).
    free_at_ns: u64,
    remainder: u64,
    /// The port stands in the service heap, or its packet is out for egress.
    armed: bool,
    /// Packets that may be served until more are granted; `None` is without bound.
    credit: Option<usize>,
}

impl<T> Port<T> {
    fn may_serve(&self) -> bool {
        !self.scheduler.is_idle() && self.credit != Some(0)
    }
}

/// Queues and lines of all ports.
#[derive(Debug)]
pub struct TrafficManager<T> {
    ports: Vec<Port<T>>,
    /// Position in `ports` by port number; ports that were never used have none.
    index: Vec<Option<u32>>,
    /// (time, position) of every port with a backlog, once each.
    service: BinaryHeap<Reverse<(u64, usize)>>,
    fallback: PortConfig,
    config: TrafficConfig,
    /// Bytes that wait in all queues.
    buffered_bytes: u64,
}

impl<T> TrafficManager<T> {
    /// A manager whose ports come into being when first used, configured as `fallback` says, with
    /// eight strict queues.
    pub fn new(fallback: PortConfig) -> Self {
        Self::with_config(fallback, TrafficConfig::default())
    }

    /// [`Self::new`] with queues as `config` says.
    pub fn with_config(fallback: PortConfig, config: TrafficConfig) -> Self {
        Self {
            ports: Vec::new(),
            index: Vec::new(),
            service: BinaryHeap::new(),
            fallback,
            config,
            buffered_bytes: 0,
        }
    }

    /// How queues are set up, changes at run time included.
    pub fn config(&self) -> &TrafficConfig {
        &self.config
    }

    /// A port's line.
    pub fn port_config(&self, port: u16) -> PortConfig {
        self.port(port).map_or(self.fallback, |port| port.config)
    }

    /// A queue's settings; none for a queue that a port does not have.
    pub fn queue_config(&self, port: u16, queue: u8) -> Option<QueueConfig> {
        (queue < self.config.priority_queues).then(|| self.queue_setting(port, queue))
    }

    /// Whether a port is up, as ports are from the start.
    pub fn is_up(&self, port: u16) -> bool {
        self.port(port).is_none_or(|port| port.up)
    }

    /// Bytes that wait in all queues.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered_bytes
    }

    /// Sets a port's line and limits; what waits stays.
    pub fn configure(&mut self, port: u16, config: PortConfig) {
        let position = self.position(port);
        let port = &mut self.ports[position];
        if port.config.rate_bps != config.rate_bps {
            port.remainder = 0; // a rest of the former rate means nothing at the other
        }
        port.config = config;
    }

    /// Sets a queue, of one port or (`None`) of all; what waits stays. False when there is no such
    /// queue.
    pub fn configure_queue(&mut self, port: Option<u16>, queue: u8, config: QueueConfig) -> bool {
        if queue >= self.config.priority_queues {
            return false;
        }
        if let Some(port) = port {
            self.config.queues.insert((port, queue), config);
        } else {
            self.config.queues.retain(|&(_, other), _| other != queue);
            self.config.default_queues[usize::from(queue)] = config;
        }
        for existing in
            self.ports.iter_mut().filter(|existing| port.is_none_or(|port| port == existing.number))
        {
            existing.queues[usize::from(queue)].config = config;
            existing.scheduler.configure(usize::from(queue), &config);
        }
        true
    }

    /// Sets the shared buffer; `None` is without bound. What waits stays.
    pub fn configure_buffer(&mut self, bytes: Option<u64>) {
        self.config.buffer_bytes = bytes;
    }

    /// Takes a port up or down. A port that goes down drops what waits and takes nothing until it
    /// is up again.
    pub fn set_up(&mut self, port: u16, up: bool, discard: impl FnMut(T)) {
        let position = self.position(port);
        self.ports[position].up = up;
        if !up {
            self.drain(position, DropCause::PortDown, discard);
        }
    }

    /// Lets a port serve at most so many packets from `now_ns` on, whatever its line's rate
    /// (`None`: any number): for what is behind the line and takes no more. What is not served
    /// waits.
    pub fn grant(&mut self, now_ns: u64, port: u16, packets: Option<usize>) {
        let position = self.position(port);
        let port = &mut self.ports[position];
        port.credit = packets;
        if port.armed && !port.may_serve() {
            port.armed = false;
            self.service.retain(|&Reverse((_, other))| other != position);
        } else if !port.armed && port.may_serve() {
            port.armed = true;
            self.service.push(Reverse((now_ns.max(port.free_at_ns), position)));
        }
    }

    /// Whether a queue takes a packet of `length` bytes.
    pub fn admits(&self, port: u16, queue: u8, length: u32) -> bool {
        let Some(port) = self.port(port) else { return true };
        let Some(queue) = port.queues.get(usize::from(queue)) else { return false };
        let limit = queue.config.limit_bytes.unwrap_or(port.config.queue_limit_bytes);
        let buffer = self.config.buffer_bytes.map(|bytes| (bytes, self.buffered_bytes));
        port.up && refusal(queue.stats.depth_bytes(), length, limit, buffer, queue.config.alpha).is_none()
    }

    /// Queues a packet of `length` bytes; gives it back when it is dropped ([`QueueStats::drops`]
    /// tells why) or there is no such queue.
    pub fn enqueue(&mut self, now_ns: u64, port: u16, queue: u8, length: u32, item: T) -> Result<(), T> {
        if queue >= self.config.priority_queues {
            return Err(item);
        }
        let position = self.position(port);
        let unit = self.config.depth_unit;
        let port = &mut self.ports[position];
        let number = usize::from(queue);
        let queue = &mut port.queues[number];
        let refused = if port.up {
            let limit = queue.config.limit_bytes.unwrap_or(port.config.queue_limit_bytes);
            let buffer = self.config.buffer_bytes.map(|bytes| (bytes, self.buffered_bytes));
            refusal(queue.stats.depth_bytes(), length, limit, buffer, queue.config.alpha)
        } else {
            Some(DropCause::PortDown)
        };
        if let Some(cause) = refused {
            queue.stats.refuse(length, cause);
            return Err(item);
        }
        let depth = queue.depth(unit);
        queue.stats.enqueue(length);
        queue.cells += cells(length);
        queue.waiting.push_back(Waiting { item, length, enqueued_ns: now_ns, depth });
        self.buffered_bytes += u64::from(length);
        port.scheduler.set_backlog(number, true);
        if !port.armed && port.may_serve() {
            port.armed = true;
            self.service.push(Reverse((now_ns.max(port.free_at_ns), position)));
        }
        Ok(())
    }

    /// When a port can serve next; `None` when all queues are empty.
    pub fn next_service(&self) -> Option<u64> {
        self.service.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Takes the packet that a port serves at or before `now_ns`, of the port that could serve
    /// first. [`Self::transmitted`] has to follow.
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Dequeued<T>> {
        let &Reverse((start_ns, position)) = self.service.peek()?;
        if start_ns > now_ns {
            return None;
        }
        self.service.pop();
        let port = &mut self.ports[position];
        if start_ns > port.free_at_ns {
            port.scheduler.forget();
        }
        let queues = &port.queues;
        let number =
            port.scheduler.choose(|queue| queues[queue].waiting.front().map_or(0, |head| head.length))?;
        let queue = &mut port.queues[number];
        let Waiting { item, length, enqueued_ns, depth } = queue.pop()?;
        queue.stats.dequeue(length);
        self.buffered_bytes -= u64::from(length);
        port.scheduler.set_backlog(number, !queue.waiting.is_empty());
        port.serving = number;
        port.credit = port.credit.map(|packets| packets.saturating_sub(1));
        Some(Dequeued {
            port: port.number,
            queue: number as u8,
            item,
            enqueued_ns,
            enqueue_depth: depth,
            dequeue_depth: queue.depth(self.config.depth_unit),
            start_ns,
        })
    }

    /// The packet last taken from `port` puts `bytes` on the line from `start_ns` on (0: egress
    /// dropped it). Gives the time at which its last bit leaves.
    pub fn transmitted(&mut self, port: u16, start_ns: u64, bytes: usize) -> u64 {
        let position = self.position(port);
        let port = &mut self.ports[position];
        if start_ns > port.free_at_ns {
            port.remainder = 0; // the line was idle: nothing is carried over
        }
        port.scheduler.charge(port.serving, bytes);
        let rate = u128::from(port.config.rate_bps);
        let end_ns = if rate == 0 {
            start_ns
        } else {
            // bits · 10⁹ / rate, the division's rest carried to the next frame: no drift however
            // long the train.
            let time = bytes as u128 * 8 * 1_000_000_000 + u128::from(port.remainder);
            port.remainder = (time % rate) as u64;
            start_ns + (time / rate) as u64
        };
        port.free_at_ns = end_ns;
        port.armed = port.may_serve();
        if port.armed {
            self.service.push(Reverse((end_ns, position)));
        }
        end_ns
    }

    /// Counters of a queue; zero for one that was never used.
    pub fn stats(&self, port: u16, queue: u8) -> QueueStats {
        self.port(port)
            .and_then(|port| port.queues.get(usize::from(queue)))
            .map(|queue| queue.stats)
            .unwrap_or_default()
    }

    /// The ports that exist, by number.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.index.iter().zip(0..).filter_map(|(position, number)| position.map(|_| number))
    }

    /// Takes out everything that waits; it counts as dropped.
    pub fn flush(&mut self, mut discard: impl FnMut(T)) {
        for position in 0..self.ports.len() {
            self.drain(position, DropCause::ProgramLoaded, &mut discard);
        }
    }

    fn drain(&mut self, position: usize, cause: DropCause, mut discard: impl FnMut(T)) {
        let port = &mut self.ports[position];
        for (number, queue) in port.queues.iter_mut().enumerate() {
            while let Some(packet) = queue.pop() {
                queue.stats.discard(packet.length, cause);
                self.buffered_bytes -= u64::from(packet.length);
                discard(packet.item);
            }
            port.scheduler.set_backlog(number, false);
        }
        port.armed = false;
        self.service.retain(|&Reverse((_, other))| other != position);
    }

    fn port(&self, number: u16) -> Option<&Port<T>> {
        let position = (*self.index.get(usize::from(number))?)?;
        self.ports.get(position as usize)
    }

    fn queue_setting(&self, port: u16, queue: u8) -> QueueConfig {
        let TrafficConfig { queues, default_queues, .. } = &self.config;
        queues.get(&(port, queue)).copied().unwrap_or(default_queues[usize::from(queue)])
    }

    fn position(&mut self, number: u16) -> usize {
        if let Some(&Some(position)) = self.index.get(usize::from(number)) {
            return position as usize;
        }
        if self.index.len() <= usize::from(number) {
            self.index.resize(usize::from(number) + 1, None);
        }
        let configs: [QueueConfig; QUEUES] =
            std::array::from_fn(|queue| self.queue_setting(number, queue as u8));
        let position = self.ports.len();
        self.index[usize::from(number)] = Some(position as u32);
        self.ports.push(Port {
            number,
            config: self.fallback,
            up: true,
            queues: configs.map(|config| Queue {
                waiting: VecDeque::new(),
                cells: 0,
                config,
                stats: QueueStats::default(),
            }),
            scheduler: Scheduler::new(&configs),
            serving: 0,
            free_at_ns: 0,
            remainder: 0,
            armed: false,
            credit: None,
        });
        position
    }
}

/// Why a packet is not taken in, if so; `buffer` is the shared buffer's size and what waits in it.
fn refusal(
    depth: u64,
    length: u32,
    limit: u64,
    buffer: Option<(u64, u64)>,
    alpha: Option<Alpha>,
) -> Option<DropCause> {
    if depth + u64::from(length) > limit {
        return Some(DropCause::QueueLimit);
    }
    let (size, used) = buffer?;
    if used + u64::from(length) > size {
        return Some(DropCause::BufferFull);
    }
    let below = alpha.is_none_or(|alpha| alpha.admits(depth, size - used));
    (!below).then_some(DropCause::DynamicThreshold)
}

#[cfg(test)]
mod tests;
