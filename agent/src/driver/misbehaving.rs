// SPDX-License-Identifier: Apache-2.0
//! A link that loses, trims, duplicates and reorders on purpose.
#![forbid(unsafe_code)]

use super::link::{Link, LinkError, LinkStats, Take};
use super::wake::Wake;
use crate::burst::{Arrived, Burst};
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use trimwire_encoder::Codec;
use trimwire_encoder::wire::{HEADER_LEN, Header, Kind, Prefix};

/// What happens to arriving datagrams; shares are in [0, 1].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// Share that is lost.
    pub drop: f64,
    /// Share of DATA of which a random prefix, at least the header, arrives.
    pub truncate: f64,
    /// Share of DATA that is trimmed as switches trim at their deepest: to the length of a packet
    /// of one plane, whatever the packet holds.
    pub trim: f64,
    /// Share that arrives twice.
    pub duplicate: f64,
    /// Share that arrives after the datagram behind it.
    pub reorder: f64,
    /// Share of which one byte is changed.
    pub corrupt: f64,
}

/// Any link, with faults on arrival. The same seed and arrivals give the same faults.
#[derive(Debug)]
pub struct Misbehaving<L> {
    link: L,
    faults: Faults,
    state: u64,
    held: Option<(Arrived, Vec<u8>)>,
    /// DSCP written on what is trimmed.
    trimmed_dscp: u8,
}

impl<L: Link> Misbehaving<L> {
    /// Puts faults on a link.
    pub fn new(link: L, faults: Faults, seed: u64, trimmed_dscp: u8) -> Self {
        Self { link, faults, state: seed, held: None, trimmed_dscp }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn chance(state: &mut u64, share: f64) -> bool {
    ((next(state) >> 11) as f64) < share * (1_u64 << 53) as f64
}

impl<L: Link> Link for Misbehaving<L> {
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError> {
        self.link.send(batch)
    }

    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError> {
        let Self { link, faults, state, held, trimmed_dscp } = self;
        let count = link.receive(&mut |arrived, payload| {
            if chance(state, faults.drop) {
                return;
            }
            let (mut arrived, mut payload) = (arrived, payload.to_vec());
            let data = Prefix::parse(&payload).is_ok_and(|prefix| prefix.kind == Kind::Data);
            let whole = payload.len();
            let length = if data && chance(state, faults.truncate) {
                let body = whole.saturating_sub(HEADER_LEN).max(1) as u64;
                HEADER_LEN + (next(state) % body) as usize
            } else if data && faults.trim > 0.0 && chance(state, faults.trim) {
                Header::coordinates_of(&payload)
                    .map_or(whole, |coordinates| Codec::Rht.packet_len(1, coordinates, false))
            } else {
                whole
            };
            if length < whole {
                payload.truncate(length);
                arrived.tos = *trimmed_dscp << 2 | arrived.tos & 3;
            }
            if chance(state, faults.corrupt) {
                let at = next(state) as usize % payload.len().max(1);
                if let Some(byte) = payload.get_mut(at) {
                    *byte ^= 1 << (next(state) % 8);
                }
            }
            let copies = 1 + usize::from(chance(state, faults.duplicate));
            if held.is_none() && chance(state, faults.reorder) {
                *held = Some((arrived, payload));
                return;
            }
            for _ in 0..copies {
                take(arrived, &payload);
            }
            if let Some((arrived, payload)) = held.take() {
                take(arrived, &payload);
            }
        })?;
        // A datagram with none behind it is not held for ever.
        if count == 0
            && let Some((arrived, payload)) = held.take()
        {
            take(arrived, &payload);
        }
        Ok(count)
    }

    fn mtu(&self) -> Option<u16> {
        self.link.mtu()
    }

    fn wake_by(&mut self, wake: Arc<Wake>) -> bool {
        self.link.wake_by(wake)
    }

    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError> {
        self.link.wait(if self.held.is_some() { timeout_ns.min(1_000_000) } else { timeout_ns }, room)
    }

    fn stats(&self) -> LinkStats {
        self.link.stats()
    }

    fn data_ports(&self) -> Vec<u16> {
        self.link.data_ports()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.link.addresses()
    }

    fn local_address(&self) -> SocketAddr {
        self.link.local_address()
    }
}
