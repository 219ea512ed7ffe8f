// SPDX-License-Identifier: Apache-2.0
//! A perfect link between threads of one process.
#![forbid(unsafe_code)]

use super::link::{Link, LinkError, LinkStats, Take};
use crate::burst::{Arrived, Burst, Origin};
use bytes::Bytes;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Datagrams handed over at once.
const BATCH: usize = 64;
/// Port that every end listens on.
const LISTENING: u16 = 9217;
/// Source ports of DATA.
const PATHS: std::ops::Range<u16> = 49_152..49_168;

#[derive(Debug)]
struct Arrival {
    source: SocketAddr,
    tos: u8,
    payload: Bytes,
}

#[derive(Debug, Default)]
struct Mailbox {
    arrivals: Mutex<VecDeque<Arrival>>,
    arrived: Condvar,
}

/// One rank's end of a network in memory.
#[derive(Debug)]
pub struct MemoryLink {
    own: u16,
    mailboxes: Arc<[Mailbox]>,
    stats: LinkStats,
}

impl MemoryLink {
    /// The ends of a network of `world` ranks, in order of rank.
    pub fn network(world: u16) -> Vec<Self> {
        let mailboxes: Arc<[Mailbox]> = (0..world).map(|_| Mailbox::default()).collect();
        (0..world)
            .map(|own| Self { own, mailboxes: Arc::clone(&mailboxes), stats: LinkStats::default() })
            .collect()
    }

    /// The address of a rank's end.
    pub fn address(rank: u16) -> SocketAddr {
        let [high, low] = rank.to_be_bytes();
        SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, high, low)), LISTENING)
    }
}

fn rank(address: SocketAddr) -> Option<usize> {
    match address.ip() {
        IpAddr::V4(v4) if address.port() == LISTENING => match v4.octets() {
            [10, 0, high, low] => Some(usize::from(u16::from_be_bytes([high, low]))),
            _ => None,
        },
        _ => None,
    }
}

impl Link for MemoryLink {
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError> {
        for burst in batch.drain(..) {
            let count = burst.count() as u64;
            let Some(mailbox) = rank(burst.to).and_then(|rank| self.mailboxes.get(rank)) else {
                self.stats.unaddressed += count;
                continue;
            };
            self.stats.sent += count;
            self.stats.sent_bytes += burst.payload.len() as u64;
            let mut source = Self::address(self.own);
            if let Origin::Path(path) = burst.origin {
                source.set_port(PATHS.start + path % PATHS.len() as u16);
            }
            let mut arrivals = mailbox.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            arrivals.extend(burst.datagrams().map(|datagram| Arrival {
                source,
                tos: burst.tos,
                payload: burst.payload.slice_ref(datagram),
            }));
            mailbox.arrived.notify_one();
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError> {
        let Some(mailbox) = self.mailboxes.get(usize::from(self.own)) else { return Ok(0) };
        let arrived: Vec<Arrival> = {
            let mut arrivals = mailbox.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
            let count = arrivals.len().min(BATCH);
            arrivals.drain(..count).collect()
        };
        for arrival in &arrived {
            self.stats.received += 1;
            self.stats.received_bytes += arrival.payload.len() as u64;
            take(Arrived::now(arrival.source, arrival.tos), &arrival.payload);
        }
        Ok(arrived.len())
    }

    fn wait(&mut self, timeout_ns: u64, _room: bool) -> Result<(), LinkError> {
        let Some(mailbox) = self.mailboxes.get(usize::from(self.own)) else { return Ok(()) };
        let arrivals = mailbox.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        if arrivals.is_empty() {
            // Whether it was the time or a datagram makes no difference: the caller looks.
            drop(mailbox.arrived.wait_timeout(arrivals, Duration::from_nanos(timeout_ns)));
        }
        Ok(())
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }

    fn data_ports(&self) -> Vec<u16> {
        PATHS.collect()
    }

    fn local_address(&self) -> SocketAddr {
        Self::address(self.own)
    }
}
