// SPDX-License-Identifier: Apache-2.0
//! A packet that waits, in a fraction of its memory.
//!
//! Between ingress and egress a packet is its payload and those of its limbs that are not 0 and
//! that something behind the queues may read
//! ([`behind_ingress`](super::flow_cache::split::behind_ingress)): numbers of seven bits a byte,
//! each with the distance from the one before. Headers are in the limbs, so that their bytes are
//! not kept.

use super::code::Code;
use super::packet::{Packet, Requests};

/// The bytes of a packet that waits.
#[derive(Debug)]
pub(super) struct Packed(Box<[u8]>);

impl Packed {
    /// `live` says which limbs to keep.
    pub(super) fn new(packet: &Packet, live: &[bool], room: &mut Vec<u8>) -> Self {
        room.clear();
        let Packet { truncate, ingress_port, ingress_length, length, requests, trace, beyond, .. } = packet;
        let payload_at = packet.payload_at.min(packet.frame.len());
        let payload = packet.payload();
        let Requests { clone, resubmit, recirculate, digest } = *requests;
        let (session, list) = clone.unwrap_or_default();
        for number in [
            truncate.wrapping_add(1) as u64,
            u64::from(*ingress_port),
            u64::from(*ingress_length),
            *length,
            *trace,
            *beyond as u64,
            u64::from(clone.is_some()),
            session.into(),
            list.into(),
            resubmit.into(),
            recirculate.into(),
            digest.into(),
            payload_at as u64,
            payload.len() as u64,
        ] {
            put(room, number);
        }
        room.extend_from_slice(payload);
        let mut next = 0;
        for (at, (&limb, _)) in
            packet.phv.iter().zip(live).enumerate().filter(|(_, (limb, live))| **live && **limb != 0)
        {
            put(room, (at - next) as u64);
            put(room, limb);
            next = at + 1;
        }
        Self(room.as_slice().into())
    }

    /// Makes `packet`, whatever it was, the packet again.
    pub(super) fn unpack(&self, packet: &mut Packet, code: &Code) {
        let mut left = &self.0[..];
        let mut number = || take(&mut left);
        let truncate = (number() as usize).wrapping_sub(1);
        let ingress_port = number() as u16;
        let ingress_length = number() as u32;
        let length = number();
        let (trace, beyond) = (number(), number() as usize);
        let cloned = number() != 0;
        let (session, list) = (number() as u16, number() as u16);
        let (resubmit, recirculate, digest) = (number() as u16, number() as u16, number() as u16);
        let (payload_at, payload) = (number() as usize, number() as usize);
        packet.reset(code, ingress_length as usize);
        (packet.truncate, packet.ingress_port, packet.length) = (truncate, ingress_port, length);
        (packet.trace, packet.beyond, packet.payload_at) = (trace, beyond, payload_at);
        packet.requests =
            Requests { clone: cloned.then_some((session, list)), resubmit, recirculate, digest };
        packet.frame.clear();
        packet.frame.resize(payload_at, 0);
        let (payload, limbs) = left.split_at(payload.min(left.len()));
        packet.frame.extend_from_slice(payload);
        left = limbs;
        let mut next = 0;
        while !left.is_empty() {
            let at = next + take(&mut left) as usize;
            let limb = take(&mut left);
            if let Some(place) = packet.phv.get_mut(at) {
                *place = limb;
            }
            next = at + 1;
        }
    }

    pub(super) fn ingress_port(&self) -> u16 {
        let mut left = &self.0[..];
        take(&mut left);
        take(&mut left) as u16
    }

    pub(super) fn trace(&self) -> u64 {
        let mut left = &self.0[..];
        (0..4).for_each(|_| _ = take(&mut left));
        take(&mut left)
    }
}

/// Seven bits a byte, the least significant first.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    let mut shift = 0;
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 || shift > 63 {
            break;
        }
    }
    number
}
