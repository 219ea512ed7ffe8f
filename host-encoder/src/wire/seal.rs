// SPDX-License-Identifier: Apache-2.0
//! Sealed packets: authentication tags inside of a DATA packet that stay of use when switches trim
//! it (docs/reference/wire-format.md §12).
//!
//! ```text
//! header │ plane 0 │ tag │ planes 1 to 7 │ tag │ planes 8 to e − 1 │ tag
//! ─────────────────►      each tag is over all that stands in front of it,
//! ────────────────────────────────────────►      earlier tags included
//! ──────────────────────────────────────────────────────────────────►
//! ```
//!
//! A tag is the first eight bytes of AEGISMAC-128L (RFC 10032, section 8.1) under a key of the
//! job's incarnation, with the packet's first sixteen bytes for a nonce. These say which packet it
//! is, so that no state of the MAC is used for two packets. The MAC does not depend on that: under
//! one key and nonce it may tag several inputs, as the prefixes of one packet are.
//!
//! This module does not know where planes end: callers pass the offsets at which tags begin.
//! Nothing here is secret but the key, and packets stay readable.

use std::fmt;

use super::sizes::TAG_LEN;
#[cfg(target_arch = "x86_64")]
use crate::simd::aegis::Vaes;
use aegis::aegis128l::Aegis128LMac;
use hkdf::Hkdf;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes at a packet's front that are the MAC's nonce: version to σ. No tag begins in front of
/// their end.
pub const NONCE_LEN: usize = 16;

/// Bytes that the MAC takes in again, for the next tag, rather than put its state aside, which
/// takes as long.
const AGAIN: usize = 256;

/// What HKDF's `info` begins with, so that other uses of the job's key get other keys.
const INFO: &[u8; 15] = b"trimwire seal 3";

/// The crate's tags have 16 or 32 bytes, of which a packet carries [`TAG_LEN`].
type Mac = Aegis128LMac<16>;

/// A key that is not one of a job's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job key of {0} bytes (valid: 16, 32)")]
pub struct SealKeyError(pub usize);

/// The key that all ranks of a job share: 16 or 32 bytes from a good source of randomness. Wiped
/// when dropped.
#[derive(Clone)]
pub struct SealKey(Zeroizing<Vec<u8>>);

impl SealKey {
    /// Copies a key of 16 or 32 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SealKeyError> {
        match bytes.len() {
            16 | 32 => Ok(Self(Zeroizing::new(bytes.to_vec()))),
            other => Err(SealKeyError(other)),
        }
    }

    /// 32 bytes for another use of the key (HKDF-SHA256, RFC 5869): `salt` makes them fresh, `info`
    /// names the use.
    pub fn derive(&self, salt: &[u8], info: &[u8]) -> Zeroizing<[u8; 32]> {
        let mut derived = Zeroizing::new([0; 32]);
        Hkdf::<Sha256>::new(Some(salt), &self.0)
            .expand(info, derived.as_mut())
            .expect("32 bytes are within what HKDF can give");
        derived
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKey").finish_non_exhaustive()
    }
}

/// Seals packets of one incarnation of a job, and says how much of a packet that arrived may be
/// believed.
///
/// An incarnation is one run of the job: whoever restarts it with the same key counts on. Within an
/// incarnation, the numbers in a header (job, rank, message, packet, first plane) should not come
/// again with other planes: no tag would give way, but a receiver could not tell an old packet from
/// a current one.
#[derive(Clone)]
pub struct Sealer {
    key: Zeroizing<[u8; 16]>,
}

impl Sealer {
    /// Derives the incarnation's key. It has 128 bits whatever the job's has.
    pub fn new(key: &SealKey, incarnation: u32) -> Self {
        let mut derived = Zeroizing::new([0; 16]);
        Hkdf::<Sha256>::new(None, &key.0)
            .expand_multi_info(&[INFO, &incarnation.to_be_bytes()], derived.as_mut())
            .expect("16 bytes are within what HKDF can give");
        Self { key: derived }
    }

    /// Writes a tag at each of `boundaries`, over all bytes in front of it.
    ///
    /// # Panics
    ///
    /// If boundaries do not ascend by at least [`TAG_LEN`], the first one is below [`NONCE_LEN`],
    /// or the last one leaves no room for its tag.
    pub fn seal(&self, packet: &mut [u8], boundaries: &[usize]) {
        self.seal_all(&mut [packet], boundaries);
    }

    /// [`Self::seal`] of one packet, or of two that are as long as each other, which takes as long
    /// where vectors can do AES.
    pub(crate) fn seal_all(&self, packets: &mut [&mut [u8]], boundaries: &[usize]) {
        let mut tagged = NONCE_LEN;
        for &boundary in boundaries {
            assert!(boundary >= tagged, "a tag at byte {boundary}");
            tagged = boundary + TAG_LEN;
        }
        #[cfg(target_arch = "x86_64")]
        if let (Some(vaes), [first, ..], [.., last]) = (Vaes::detect(), &*packets, &*packets) {
            let mut macs = vaes.start(&self.key, [nonce_of(first), nonce_of(last)]);
            for &boundary in boundaries {
                let tags = macs.tags([&*packets[0], &*packets[packets.len() - 1]], boundary);
                for (packet, tag) in packets.iter_mut().zip(tags) {
                    packet[boundary..boundary + TAG_LEN].copy_from_slice(&tag);
                }
            }
            return;
        }
        for packet in packets {
            self.seal_one(packet, boundaries);
        }
    }

    /// [`Self::seal`] on any machine.
    fn seal_one(&self, packet: &mut [u8], boundaries: &[usize]) {
        let Some(&last) = boundaries.last() else { return };
        let (mut mac, mut taken_in) = (self.mac(nonce_of(packet)), 0);
        for &boundary in boundaries {
            mac.update(&packet[taken_in..boundary]);
            let tag = if boundary == last || boundary <= AGAIN {
                taken_in = 0;
                mac.finalize_and_reset()
            } else {
                taken_in = boundary;
                mac.clone().finalize_and_reset()
            };
            packet[boundary..boundary + TAG_LEN].copy_from_slice(&tag[..TAG_LEN]);
        }
    }

    /// The tag of all of a packet's content; `None` where that has no nonce.
    fn tag(&self, content: &[u8]) -> Option<[u8; TAG_LEN]> {
        let nonce = content.first_chunk()?;
        #[cfg(target_arch = "x86_64")]
        if let Some(vaes) = Vaes::detect() {
            let [tag, _] = vaes.start(&self.key, [nonce; 2]).tags([content; 2], content.len());
            return Some(tag);
        }
        let mut mac = self.mac(nonce);
        mac.update(content);
        mac.finalize_and_reset().first_chunk().copied()
    }

    /// How many bytes of a packet, from its front, may be believed: the offset of the last tag that
    /// arrived whole, or 0 where that tag is wrong, or none arrived whole.
    ///
    /// Only the last whole tag is looked at. It covers all in front of it, earlier tags included;
    /// and where it is wrong, someone changed the packet, which no trim does, and an earlier tag
    /// that still fits makes the rest no better company. What arrived of a tag that is itself
    /// incomplete is ignored. `boundaries` are those of the packet as it was sent. Any input is
    /// fine; the time taken depends on lengths alone.
    pub fn believed(&self, packet: &[u8], boundaries: &[usize]) -> usize {
        let whole =
            |&boundary: &usize| packet.len().checked_sub(TAG_LEN).is_some_and(|room| boundary <= room);
        let Some(last) = boundaries.iter().copied().filter(whole).max() else { return 0 };
        let (content, rest) = packet.split_at(last);
        let Some(tag) = self.tag(content) else { return 0 };
        if tag.ct_eq(&rest[..TAG_LEN]).into() { last } else { 0 }
    }

    /// A MAC that has taken in nothing. Whoever wants its tag asks for one that is reset
    /// afterwards: the crate's other way moves the whole state once more.
    fn mac(&self, nonce: &[u8; NONCE_LEN]) -> Mac {
        Mac::new_with_nonce(&self.key, nonce)
    }
}

fn nonce_of(packet: &[u8]) -> &[u8; NONCE_LEN] {
    packet.first_chunk().expect("a packet reaches beyond its first 16 bytes")
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_packets_get_the_tags_of_each(
            first in prop::collection::vec(any::<u8>(), 700), second in prop::collection::vec(any::<u8>(), 700),
            mut steps in prop::collection::vec(0..200_usize, 0..4),
        ) {
            let mut at = NONCE_LEN;
            for step in &mut steps {
                (*step, at) = (at + *step, at + *step + TAG_LEN);
            }
            let sealer = Sealer::new(&SealKey::from_bytes(&[5; 16]).unwrap(), 9);
            let (mut one, mut both) = ([first.clone(), second.clone()], [first, second]);
            one.iter_mut().for_each(|packet| sealer.seal_one(packet, &steps));
            let [a, b] = &mut both;
            sealer.seal_all(&mut [a, b], &steps);
            prop_assert_eq!(&one, &both);
            if let Some(last) = steps.last() {
                prop_assert_eq!(sealer.believed(&both[1], &steps), *last);
            }
        }
    }
}
