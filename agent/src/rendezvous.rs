// SPDX-License-Identifier: Apache-2.0
//! How ranks find each other: rank 0 listens on TCP, the others connect, and all leave with the
//! same description of the job.
//!
//! ```text
//!  rank 1 ── hello ──► rank 0            a nonce from either side
//!         ◄── hello ──
//!         ── offer ──►  │                rank, world, address, incarnation, MTU, processors
//!  rank 2 ── … ──────►  │                until all are there, something differs, or time is up
//!         ◄─ answer ── ─┘                the same to everyone: addresses, seed, MTU, channels; or who is to blame
//! ```
//!
//! Words are lines of JSON. With a job key, offers and answers carry an HMAC over both nonces, so
//! that both sides prove that they know the key. Nothing is encrypted.
//!
//! [`meet`] does all of it, on the caller's thread; [`Launch`] reads torchrun's variables. The
//! account ([`meeting`]) knows nothing of sockets; the rest is on the real clock, as a driver is.
//!
//! What it deliberately does not do: it starts no processes, notices no rank that dies later (the
//! transport does), and ends when all have met. Ranks that start again meet again.
#![forbid(unsafe_code)]

mod client;
mod error;
mod launch;
mod master;
mod meeting;
mod message;
mod proof;
mod refusal;
mod server;

#[cfg(test)]
mod tests;

pub use error::RendezvousError;
pub use launch::{DEFAULT_PORT, Launch, LaunchError, Settings};
pub use master::Master;
pub use message::{Member, Offer};
pub use refusal::Refusal;

use crate::driver::Clock;
use client::Attempt;
use meeting::Meeting;
use message::Agreed;
use server::Server;
use std::io::{self, Read as _};
use std::net::{IpAddr, TcpListener};
use std::time::Duration;
use trimwire_encoder::SealKey;

/// Rank 0 tries this long to listen on a port that is taken: its predecessor may be about to end.
const LISTENING_NS: u64 = 10_000_000_000;
/// Another rank 0 answers a second one at once.
const ASKING_NS: u64 = 2_000_000_000;
const PAUSE: Duration = Duration::from_millis(100);

/// Where and how ranks meet.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where rank 0 listens.
    pub master: Master,
    /// The job's key, the same on all ranks. Without one, every client can take a rank's place.
    /// With one, packets are sealed under a key derived from it.
    pub key: Option<SealKey>,
    /// How long ranks wait for each other.
    pub timeout: Duration,
}

/// What all ranks have agreed on.
#[derive(Debug, Clone)]
pub struct Roster {
    /// Number of the job.
    pub job: u8,
    /// Seed of rotations and gradients.
    pub seed: u64,
    /// The smallest MTU of the ranks' interfaces, bytes, as far as they know theirs.
    pub mtu: Option<u32>,
    /// Channels of each rank by their processors; 1 where a rank does not tell its own.
    pub channels: u16,
    /// All ranks, in order.
    pub members: Vec<Member>,
    /// The key of this run's packets, where there is a job key: no other run has it.
    pub seal: Option<SealKey>,
}

/// Meets the other ranks; returns when all are there, or when it is clear that they will not be.
///
/// # Errors
/// Every rank that is there hears the same [`Refusal`] of rank 0; others hear why they did not get
/// to it.
pub fn meet(offer: Offer, config: &Config) -> Result<Roster, RendezvousError> {
    if let Some(flaw) = offer.flaw() {
        return Err(RendezvousError::Offer(flaw));
    }
    let clock = Clock::start();
    let agreed =
        if offer.rank == 0 { serve(offer, config, clock) } else { client::join(&offer, config, clock) };
    let Agreed { job, seed, mtu, channels, fresh, members } = agreed?;
    let seal = config.key.as_ref().map(|key| proof::packets_key(key, &fresh));
    Ok(Roster { job, seed, mtu, channels, members, seal })
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> Result<[u8; N], RendezvousError> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|source| RendezvousError::Io { what: "read /dev/urandom", source })?;
    Ok(bytes)
}

fn serve(offer: Offer, config: &Config, clock: Clock) -> Result<Agreed, RendezvousError> {
    let listeners = listen(&offer, config, clock)?;
    let source = listeners.first().and_then(|listener| listener.local_addr().ok());
    let source = source.unwrap_or(offer.address);
    if config.key.is_none() && offer.world > 1 && !source.ip().is_loopback() {
        tracing::warn!(
            "anybody who reaches TCP {source} can take a rank's place: a job key (--seal-key) keeps strangers out"
        );
    }
    // 63 bits: who keeps it in a signed number keeps it whole.
    let meeting = Meeting::new(offer, source, u64::from_be_bytes(random()?) >> 1, random()?);
    Server::new(listeners, config.key.clone(), meeting, clock)?.run(config.timeout)
}

/// Where the port is taken, asks whether another rank 0 listens there: then everyone hears of it.
fn listen(offer: &Offer, config: &Config, clock: Clock) -> Result<Vec<TcpListener>, RendezvousError> {
    let until_ns = LISTENING_NS.min(config.timeout.as_nanos() as u64);
    loop {
        let source = match config.master.listen() {
            Ok(listeners) => return Ok(listeners),
            Err(source) => source,
        };
        let refused = |source| RendezvousError::Listen { address: config.master.to_string(), source };
        if source.kind() != io::ErrorKind::AddrInUse {
            return Err(refused(source));
        }
        for address in config.master.resolve().unwrap_or_default() {
            let asked = client::attempt(offer, config, address, clock, until_ns, ASKING_NS);
            if let Err(Attempt::Final(error @ RendezvousError::Refused(_))) = asked {
                return Err(error);
            }
        }
        if clock.now_ns() >= until_ns {
            return Err(refused(source));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The address from which this host sends to rank 0: tried as long as ranks wait for each other,
/// since names come up as hosts do.
///
/// # Errors
/// When no route leads there, or the name has no address, for all that time.
pub fn own_address(config: &Config) -> Result<IpAddr, RendezvousError> {
    let clock = Clock::start();
    let timeout_ns = config.timeout.as_nanos() as u64;
    loop {
        let last = match config.master.own_address() {
            Ok(own) => return Ok(own),
            Err(error) => error.to_string(),
        };
        if clock.now_ns() >= timeout_ns {
            let (master, seconds) = (config.master.to_string(), config.timeout.as_secs());
            return Err(RendezvousError::Unanswered { master, seconds, last });
        }
        std::thread::sleep(PAUSE);
    }
}
