//! A perfect link between threads of one process.
#![forbid(unsafe_code)]

use super::link::{Link, LinkError, LinkStats};
use crate::endpoint::Transmit;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

const BATCH: usize = 64;

#[derive(Debug, Default)]
struct Mailbox {
    datagrams: Mutex<VecDeque<(u8, Vec<u8>)>>,
    arrival: Condvar,
}

/// One rank's end of a network in memory.
#[derive(Debug)]
pub struct MemoryLink {
    own: usize,
    mailboxes: Arc<[Mailbox]>,
    stats: LinkStats,
}

impl MemoryLink {
    /// The ends of a network of `world` ranks, in order of rank.
    pub fn network(world: u16) -> Vec<Self> {
        let mailboxes: Arc<[Mailbox]> = (0..world).map(|_| Mailbox::default()).collect();
        (0..usize::from(world))
            .map(|own| Self { own, mailboxes: Arc::clone(&mailboxes), stats: LinkStats::default() })
            .collect()
    }
}

impl Link for MemoryLink {
    fn batch(&self) -> usize {
        BATCH
    }

    fn send(&mut self, batch: &mut Vec<Transmit>) -> Result<(), LinkError> {
        for datagram in batch.drain(..) {
            let Some(mailbox) = self.mailboxes.get(usize::from(datagram.to_rank)) else {
                self.stats.unaddressed += 1;
                continue;
            };
            self.stats.sent += 1;
            self.stats.sent_bytes += datagram.payload.len() as u64;
            let mut datagrams = mailbox.datagrams.lock().unwrap_or_else(PoisonError::into_inner);
            datagrams.push_back((datagram.tos, datagram.payload));
            mailbox.arrival.notify_one();
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut dyn FnMut(u8, &[u8])) -> Result<usize, LinkError> {
        let Some(mailbox) = self.mailboxes.get(self.own) else { return Ok(0) };
        let arrived: Vec<_> = {
            let mut datagrams = mailbox.datagrams.lock().unwrap_or_else(PoisonError::into_inner);
            let count = datagrams.len().min(BATCH);
            datagrams.drain(..count).collect()
        };
        for (tos, payload) in &arrived {
            self.stats.received += 1;
            self.stats.received_bytes += payload.len() as u64;
            take(*tos, payload);
        }
        Ok(arrived.len())
    }

    fn wait(&mut self, timeout_ns: u64, _room: bool) -> Result<(), LinkError> {
        let Some(mailbox) = self.mailboxes.get(self.own) else { return Ok(()) };
        let datagrams = mailbox.datagrams.lock().unwrap_or_else(PoisonError::into_inner);
        if datagrams.is_empty() {
            // Whether it was the time or a datagram makes no difference: the caller looks.
            drop(mailbox.arrival.wait_timeout(datagrams, Duration::from_nanos(timeout_ns)));
        }
        Ok(())
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }
}
