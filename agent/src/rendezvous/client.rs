// SPDX-License-Identifier: Apache-2.0
//! A rank's way to rank 0: tries until somebody listens there, makes its offer, and waits for what comes of it.
#![forbid(unsafe_code)]

use super::channel::{Channel, ChannelError};
use super::config::Config;
use super::error::RendezvousError;
use super::frame::{FrameError, Kind};
use super::message::{Agreed, Answer, Offer};
use super::proof::{Side, is_proven, prove};
use super::refusal::Refusal;
use crate::driver::Clock;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A connection that is not there after this time is tried again.
const CONNECTING_NS: u64 = 3_000_000_000;
/// Rank 0 hears out in this time who does not dawdle, though others wait.
const HEARING_NS: u64 = 10_000_000_000;
/// Rank 0 may have begun to wait so much later, and takes this long to tell everyone.
const AFTER_NS: u64 = 15_000_000_000;
/// Between attempts, doubling.
const PAUSE_LEAST_NS: u64 = 20_000_000;
const PAUSE_MOST_NS: u64 = 500_000_000;

/// What an attempt came to.
pub(super) enum Attempt {
    /// Another one may go better.
    Again(String),
    /// No other one would.
    Final(RendezvousError),
}

/// Tries until `config.timeout` is over.
pub(super) fn join(offer: &Offer, config: &Config, clock: Clock) -> Result<Agreed, RendezvousError> {
    let tls = config.security.client(&config.master.host)?;
    let deadline_ns = clock.now_ns().saturating_add(config.timeout.as_nanos() as u64);
    let patience_ns = (config.timeout.as_nanos() as u64).saturating_add(AFTER_NS);
    let mut pause_ns = PAUSE_LEAST_NS;
    loop {
        // Each time anew: names come up, and change, as hosts do.
        let last = match config.master.resolve() {
            Ok(addresses) => {
                let mut last = String::new();
                for address in addresses {
                    match attempt(offer, config, tls.clone(), address, clock, deadline_ns, patience_ns) {
                        Ok(agreed) => return Ok(agreed),
                        Err(Attempt::Final(error)) => return Err(error),
                        Err(Attempt::Again(why)) => last = why,
                    }
                }
                last
            }
            Err(error) => error.to_string(),
        };
        let left_ns = deadline_ns.saturating_sub(clock.now_ns());
        if left_ns == 0 {
            let (master, seconds) = (config.master.to_string(), config.timeout.as_secs());
            return Err(RendezvousError::Unanswered { master, seconds, last });
        }
        tracing::debug!("rank {}: {last}; trying again", offer.rank);
        std::thread::sleep(Duration::from_nanos(pause_ns.min(left_ns)));
        pause_ns = (pause_ns * 2).min(PAUSE_MOST_NS);
    }
}

/// One connection, which has to be there by `deadline_ns`; what comes of the offer may take `patience_ns`.
pub(super) fn attempt(
    offer: &Offer,
    config: &Config,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    address: SocketAddr,
    clock: Clock,
    deadline_ns: u64,
    patience_ns: u64,
) -> Result<Agreed, Attempt> {
    let left_ns = deadline_ns.saturating_sub(clock.now_ns()).clamp(1_000_000, CONNECTING_NS);
    let tcp = TcpStream::connect_timeout(&address, Duration::from_nanos(left_ns))
        .map_err(|error| Attempt::Again(error.to_string()))?;
    // Where nobody listens, the system may give an outgoing connection the very port that it looks for.
    if tcp.local_addr().is_ok_and(|own| own == address) {
        return Err(Attempt::Again("nobody listens".to_owned()));
    }
    let stranger = |reason: String| Attempt::Final(RendezvousError::Stranger { address, reason });
    // What is wrong with the line may be better next time, what is wrong with who speaks on it will not.
    let judge = |error: ChannelError| match error {
        ChannelError::Io(_) => Attempt::Again(format!("it {error}")),
        ChannelError::Frame(_) | ChannelError::Tls(_) => stranger(error.to_string()),
    };
    let hearing_ns = clock.now_ns().saturating_add(HEARING_NS);
    let mut channel = Channel::connect(tcp, tls, clock, hearing_ns).map_err(judge)?;
    if let Some(key) = &config.security.key {
        let binding =
            channel.binding().ok_or_else(|| stranger("gives nothing to bind a proof to".to_owned()))?;
        channel.send(Kind::Proof, &prove(key, Side::Client, &binding)).map_err(judge)?;
        match channel.receive(&[Kind::Proof, Kind::Answer]).map_err(judge)? {
            (Kind::Proof, proof) if is_proven(key, Side::Server, &binding, &proof) => {}
            // Whoever it is, it is not to hear more.
            (Kind::Answer, answer) => {
                return Err(match serde_json::from_slice(&answer) {
                    Ok(Answer::Refused(refusal)) => Attempt::Final(RendezvousError::Refused(refusal)),
                    _ => stranger(FrameError::Kind.to_string()),
                });
            }
            _ => return Err(stranger(FrameError::Proof.to_string())),
        }
    }
    let body = serde_json::to_vec(offer).map_err(|error| stranger(error.to_string()))?;
    channel.send(Kind::Offer, &body).map_err(judge)?;
    channel.set_deadline(clock.now_ns().saturating_add(patience_ns));
    let (_, answer) = channel.receive(&[Kind::Answer]).map_err(judge)?;
    channel.close();
    let answer = serde_json::from_slice(&answer).map_err(|_| stranger(FrameError::Body.to_string()))?;
    match answer {
        Answer::Agreed(agreed) => match agreed.flaw(offer) {
            None => Ok(agreed),
            Some(flaw) => Err(stranger(format!("has agreed on something else: {flaw}"))),
        },
        // Rank 0 of the generation before is about to go.
        Answer::Refused(refusal) => match refusal {
            Refusal::Generation { generation, current, .. } if generation > current => {
                Err(Attempt::Again(refusal.to_string()))
            }
            refusal => Err(Attempt::Final(RendezvousError::Refused(refusal))),
        },
    }
}
