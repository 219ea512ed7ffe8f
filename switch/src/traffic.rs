//! The traffic manager: eight strict-priority queues a port, byte limits, exact line rates. Sans-IO.
//!
//! A port serves the head of its highest non-empty queue and is then busy for as long as the frame takes on its line.
//! The caller learns from [`TrafficManager::next_service`] when a port can serve next, takes a packet with
//! [`TrafficManager::dequeue`] and says with [`TrafficManager::transmitted`] how many bytes went out, before it dequeues again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// Queues a port; 7 is served first.
pub const QUEUES: usize = 8;

/// One port's line and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Line rate, bit/s; 0 serves at once, as BMv2 does.
    pub rate_bps: u64,
    /// A queue takes no packet that would lift it above this many bytes.
    pub queue_limit_bytes: u64,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { rate_bps: 0, queue_limit_bytes: 4 << 20 }
    }
}

/// Counters of one queue. `offered = enqueued + dropped` and `enqueued = dequeued + resident`, in packets and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Packets taken in.
    pub enqueued_packets: u64,
    /// Their bytes.
    pub enqueued_bytes: u64,
    /// Packets served.
    pub dequeued_packets: u64,
    /// Their bytes.
    pub dequeued_bytes: u64,
    /// Packets refused because the queue was full.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Most bytes that ever waited.
    pub watermark_bytes: u64,
}

impl QueueStats {
    /// Bytes waiting.
    pub fn depth_bytes(&self) -> u64 {
        self.enqueued_bytes - self.dequeued_bytes
    }

    /// Packets waiting.
    pub fn depth_packets(&self) -> u64 {
        self.enqueued_packets - self.dequeued_packets
    }
}

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
    /// Packets that were in the queue when it came.
    pub enqueue_depth: u32,
    /// Packets it leaves behind in the queue.
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
struct Port<T> {
    number: u16,
    config: PortConfig,
    queues: [VecDeque<Waiting<T>>; QUEUES],
    stats: [QueueStats; QUEUES],
    /// When the line is free, and what integer division of the last frame's time left over, in bit·ns / (bit/s).
    free_at_ns: u64,
    remainder: u64,
    /// The port stands in the service heap, or its packet is out for egress.
    armed: bool,
}

/// Queues and lines of all ports.
#[derive(Debug)]
pub struct TrafficManager<T> {
    ports: Vec<Port<T>>,
    /// Position in `ports` by port number.
    index: BTreeMap<u16, usize>,
    /// (time, position) of every port with a backlog, once each.
    service: BinaryHeap<Reverse<(u64, usize)>>,
    fallback: PortConfig,
}

impl<T> TrafficManager<T> {
    /// A manager whose ports come into being when first used, configured as `fallback` says.
    pub fn new(fallback: PortConfig) -> Self {
        Self { ports: Vec::new(), index: BTreeMap::new(), service: BinaryHeap::new(), fallback }
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

    /// Queues a packet of `length` bytes; gives it back when the queue is full or does not exist.
    pub fn enqueue(&mut self, now_ns: u64, port: u16, queue: u8, length: u32, item: T) -> Result<(), T> {
        let position = self.position(port);
        let port = &mut self.ports[position];
        let Some((waiting, stats)) =
            port.queues.get_mut(usize::from(queue)).zip(port.stats.get_mut(usize::from(queue)))
        else {
            return Err(item);
        };
        if stats.depth_bytes() + u64::from(length) > port.config.queue_limit_bytes {
            stats.dropped_packets += 1;
            stats.dropped_bytes += u64::from(length);
            return Err(item);
        }
        stats.enqueued_packets += 1;
        stats.enqueued_bytes += u64::from(length);
        stats.watermark_bytes = stats.watermark_bytes.max(stats.depth_bytes());
        let depth = waiting.len() as u32;
        waiting.push_back(Waiting { item, length, enqueued_ns: now_ns, depth });
        if !port.armed {
            port.armed = true;
            self.service.push(Reverse((now_ns.max(port.free_at_ns), position)));
        }
        Ok(())
    }

    /// When a port can serve next; `None` when all queues are empty.
    pub fn next_service(&self) -> Option<u64> {
        self.service.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Takes the packet that a port serves at or before `now_ns`: of the port that could serve first, the head of its
    /// highest queue. [`Self::transmitted`] has to follow.
    pub fn dequeue(&mut self, now_ns: u64) -> Option<Dequeued<T>> {
        let &Reverse((start_ns, position)) = self.service.peek()?;
        if start_ns > now_ns {
            return None;
        }
        self.service.pop();
        let port = &mut self.ports[position];
        let queue = port.queues.iter().rposition(|queue| !queue.is_empty())?;
        let Waiting { item, length, enqueued_ns, depth } = port.queues[queue].pop_front()?;
        port.stats[queue].dequeued_packets += 1;
        port.stats[queue].dequeued_bytes += u64::from(length);
        Some(Dequeued {
            port: port.number,
            queue: queue as u8,
            item,
            enqueued_ns,
            enqueue_depth: depth,
            dequeue_depth: port.queues[queue].len() as u32,
            start_ns,
        })
    }

    /// The packet last taken from `port` puts `bytes` on the line from `start_ns` on (0: egress dropped it). Gives the
    /// time at which its last bit leaves.
    pub fn transmitted(&mut self, port: u16, start_ns: u64, bytes: usize) -> u64 {
        let position = self.position(port);
        let port = &mut self.ports[position];
        if start_ns > port.free_at_ns {
            port.remainder = 0; // the line was idle: nothing is carried over
        }
        let rate = u128::from(port.config.rate_bps);
        let end_ns = if rate == 0 {
            start_ns
        } else {
            // bits · 10⁹ / rate, the division's rest carried to the next frame: no drift however long the train.
            let time = bytes as u128 * 8 * 1_000_000_000 + u128::from(port.remainder);
            port.remainder = (time % rate) as u64;
            start_ns + (time / rate) as u64
        };
        port.free_at_ns = end_ns;
        port.armed = port.queues.iter().any(|queue| !queue.is_empty());
        if port.armed {
            self.service.push(Reverse((end_ns, position)));
        }
        end_ns
    }

    /// Counters of a queue; zero for one that was never used.
    pub fn stats(&self, port: u16, queue: u8) -> QueueStats {
        self.index
            .get(&port)
            .and_then(|&position| self.ports[position].stats.get(usize::from(queue)))
            .copied()
            .unwrap_or_default()
    }

    /// The ports that exist, by number.
    pub fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        self.index.keys().copied()
    }

    /// Takes out everything that waits; it counts as dropped.
    pub fn flush(&mut self, mut discard: impl FnMut(T)) {
        self.service.clear();
        for port in &mut self.ports {
            port.armed = false;
            for (queue, stats) in port.queues.iter_mut().zip(&mut port.stats) {
                for waiting in queue.drain(..) {
                    stats.enqueued_packets -= 1;
                    stats.enqueued_bytes -= u64::from(waiting.length);
                    stats.dropped_packets += 1;
                    stats.dropped_bytes += u64::from(waiting.length);
                    discard(waiting.item);
                }
            }
        }
    }

    fn position(&mut self, number: u16) -> usize {
        let Self { ports, index, fallback, .. } = self;
        *index.entry(number).or_insert_with(|| {
            ports.push(Port {
                number,
                config: *fallback,
                queues: std::array::from_fn(|_| VecDeque::new()),
                stats: [QueueStats::default(); QUEUES],
                free_at_ns: 0,
                remainder: 0,
                armed: false,
            });
            ports.len() - 1
        })
    }
}

#[cfg(test)]
mod tests;
