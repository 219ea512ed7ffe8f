// SPDX-License-Identifier: Apache-2.0
//! How ranks find each other: rank 0 listens on TCP, the others come, and all leave with the same account of the job.
//!
//! ```text
//!  rank 1 ── (TLS) ── proof ──► rank 0       its proof: where there is a job key
//!         ── offer ───────────►  │           rank, world, address, incarnation, MTU, processors, terms
//!  rank 2 ── offer ───────────►  │           ... until all are there, something differs, or time is up
//!         ◄────────── answer ── ─┘           the same to everyone: all addresses, seed, MTU, channels; or who is to blame
//! ```
//!
//! [`meet`] does all of it, on the caller's thread, and [`Launch`] says where, after torchrun's environment or a file of hosts. The account itself knows nothing of sockets; the rest is on
//! the real clock, as a driver is.
//!
//! What it deliberately does not do: it starts no processes, notices no rank that dies later (the transport does), and ends when all have met. Ranks that start again meet again,
//! as the next generation.
#![forbid(unsafe_code)]

mod channel;
mod client;
mod config;
mod error;
mod frame;
mod hosts;
mod launch;
mod master;
mod meeting;
mod message;
mod proof;
mod refusal;
mod server;
#[cfg(test)]
mod tests;
mod tls;

pub use config::Config;
pub use error::RendezvousError;
pub use hosts::{Host, Hosts, HostsError};
pub use launch::{DEFAULT_PORT, Launch, LaunchError, Settings};
pub use master::Master;
pub use message::{Member, Offer, TERM_LEN_MAX, TERMS_MAX};
pub use refusal::Refusal;
pub use tls::{Certificates, Security};

use crate::driver::Clock;
use client::Attempt;
use meeting::Meeting;
use message::{Agreed, VERSION_TERM};
use rustls::crypto::ring::default_provider;
use server::Server;
use std::io;
use std::net::IpAddr;
use std::time::Duration;
use trimwire_encoder::SealKey;

/// For so long rank 0 tries to listen where somebody does: its predecessor may be about to go.
const LISTENING_NS: u64 = 10_000_000_000;
/// Another rank 0 answers a second one at once.
const ASKING_NS: u64 = 2_000_000_000;
const PAUSE: Duration = Duration::from_millis(100);

/// What all ranks have agreed on.
#[derive(Debug, Clone)]
pub struct Roster {
    /// How often the job has been started.
    pub generation: u32,
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

impl Roster {
    fn new(agreed: Agreed, security: &Security) -> Self {
        let Agreed { generation, job, seed, mtu, channels, fresh, members } = agreed;
        let seal = security.key.as_ref().map(|key| proof::packets_key(key, &fresh));
        Self { generation, job, seed, mtu, channels, members, seal }
    }
}

/// Meets the other ranks; returns when all are there, or when it is clear that they will not be.
///
/// # Errors
/// Every rank that is there hears the same [`Refusal`] of rank 0; others hear why they did not get to it.
pub fn meet(offer: Offer, config: &Config) -> Result<Roster, RendezvousError> {
    let offer = offer.term(VERSION_TERM, &env!("CARGO_PKG_VERSION"));
    if let Some(flaw) = offer.flaw() {
        return Err(RendezvousError::Offer(flaw));
    }
    let clock = Clock::start();
    let agreed =
        if offer.rank == 0 { serve(offer, config, clock) } else { client::join(&offer, config, clock) };
    agreed.map(|agreed| Roster::new(agreed, &config.security))
}

fn serve(offer: Offer, config: &Config, clock: Clock) -> Result<Agreed, RendezvousError> {
    let tls = config.security.server()?;
    let listeners = listen(&offer, config, clock)?;
    let source = listeners.first().and_then(|listener| listener.local_addr().ok());
    let source = source.unwrap_or(offer.address);
    if !config.security.is_some() && offer.world > 1 && !source.ip().is_loopback() {
        tracing::warn!(
            "anybody who reaches TCP {source} can take a rank's place: a job key (--seal-key) or certificates \
             (--tls-ca, --tls-cert, --tls-key) keep strangers out"
        );
    }
    let (mut seed, mut fresh) = ([0; 8], [0; 32]);
    let provider = default_provider();
    for bytes in [&mut seed[..], &mut fresh[..]] {
        let filled = provider.secure_random.fill(bytes);
        filled.map_err(|_| RendezvousError::Io {
            what: "draw a seed",
            source: io::Error::other("the system has no random numbers"),
        })?;
    }
    // 63 bits: who keeps it in a signed number keeps it whole.
    let meeting = Meeting::new(offer, source, u64::from_be_bytes(seed) >> 1, fresh);
    Server::new(listeners, tls, config.security.key.clone(), meeting, clock)?.run(config.timeout)
}

/// Where another one listens already, asks whether that is rank 0, too: then everyone hears of it.
fn listen(
    offer: &Offer,
    config: &Config,
    clock: Clock,
) -> Result<Vec<std::net::TcpListener>, RendezvousError> {
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
        let tls = config.security.client(&config.master.host)?;
        for address in config.master.resolve().unwrap_or_default() {
            let asked = client::attempt(offer, config, tls.clone(), address, clock, until_ns, ASKING_NS);
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

/// The address from which this host sends to rank 0: tried as long as ranks wait for each other, since names come up as hosts do.
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
