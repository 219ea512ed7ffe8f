// SPDX-License-Identifier: Apache-2.0
//! What Python asks of epochs: who is left, who comes back.

use super::locks::lock;
use crate::TransportError;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;
use trimwire_agent::driver::{Channels, LinkStats};
use trimwire_agent::endpoint::Endpoint;
use trimwire_agent::epoch::Epoch;
use trimwire_agent::snapshot::Snapshot;

/// A wait is interrupted so often to see whether the user has pressed Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(200);

/// How it ends, for who waits.
pub(super) type Reply = Sender<Result<Epoch, String>>;

/// What the network's thread is asked for.
pub(super) enum Request {
    /// The next epoch, without these ranks, and with those that knock if they are to be let in.
    Next { exclude: Vec<u16>, admit: bool, reply: Reply },
    /// To be let in.
    Join { reply: Reply },
    /// A rank has started anew, and listens there.
    Admit { rank: u16, address: SocketAddr },
    /// What there is to tell of the peers.
    Snapshot { reply: Sender<Snapshot> },
    /// Who knocks.
    Knocking { reply: Sender<Vec<u16>> },
}

/// Rank and number of ranks, in this epoch.
#[derive(Debug)]
pub(super) struct Place(Mutex<(u16, u16)>);

impl Place {
    pub(super) fn new(rank: u16, world: u16) -> Self {
        Self(Mutex::new((rank, world)))
    }

    pub(super) fn rank(&self) -> u16 {
        lock(&self.0).0
    }

    pub(super) fn world(&self) -> u16 {
        lock(&self.0).1
    }

    fn set(&self, place: (u16, u16)) {
        *lock(&self.0) = place;
    }
}

/// Who waits for an epoch, on the network's thread.
#[derive(Default)]
pub(super) struct Waiting(VecDeque<Reply>);

impl Waiting {
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        request: Request,
        communicator: &mut Channels,
        endpoint: &mut Endpoint,
    ) {
        match request {
            Request::Next { exclude, admit, reply } => {
                let asked = if admit {
                    communicator.grow(now_ns, &exclude, endpoint)
                } else {
                    communicator.shrink(now_ns, &exclude, endpoint)
                };
                match asked {
                    Ok(()) => self.0.push_back(reply),
                    // Who does not listen any more need not hear.
                    Err(error) => drop(reply.send(Err(error.to_string()))),
                }
            }
            Request::Join { reply } => {
                communicator.join(now_ns, endpoint);
                self.0.push_back(reply);
            }
            Request::Admit { rank, address } => communicator.admit(now_ns, rank, address, endpoint),
            Request::Snapshot { reply } => {
                let mut snapshot = endpoint.snapshot();
                communicator.counts().add(&mut snapshot, &mut LinkStats::default());
                // Who does not listen any more need not hear.
                drop(reply.send(snapshot));
            }
            Request::Knocking { reply } => drop(reply.send(endpoint.knocking(now_ns).into_iter().collect())),
        }
    }

    /// Tells who waits how it has ended; gives the number of the next operation where an epoch has
    /// begun.
    pub(super) fn settle(&mut self, communicator: &mut Channels, place: &Place) -> Option<u32> {
        // Without anybody who waits an epoch waits itself: it may have begun a moment too late.
        let reply = self.0.pop_front()?;
        let Some(ended) = communicator.poll_epoch() else {
            self.0.push_front(reply);
            return None;
        };
        let first = ended.as_ref().ok().map(|epoch| epoch.first);
        place.set((communicator.config().rank, communicator.config().world));
        let _ = reply.send(ended.map_err(|error| error.to_string()));
        first
    }

    /// Nothing comes any more.
    pub(super) fn fail(&mut self, why: &str) {
        for reply in self.0.drain(..) {
            let _ = reply.send(Err(why.to_owned()));
        }
    }
}

/// Waits for an answer of the network's thread.
pub(super) fn wait<T: Send>(py: Python<'_>, answer: Receiver<T>) -> PyResult<T> {
    let answer = Mutex::new(answer);
    loop {
        match py.detach(|| lock(&answer).recv_timeout(SIGNALS)) {
            Ok(said) => return Ok(said),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(TransportError::new_err("the network's thread has ended"));
            }
        }
    }
}

/// Number, ranks, and which of them were let in.
pub(super) fn told(epoch: Result<Epoch, String>) -> PyResult<(u32, Vec<u16>, Vec<u16>)> {
    let epoch = epoch.map_err(TransportError::new_err)?;
    Ok((epoch.number, epoch.members, epoch.arrivals))
}
