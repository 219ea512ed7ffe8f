// SPDX-License-Identifier: Apache-2.0
//! What tells a session's DATA from a stranger's (docs/reference/wire-format.md §1, "The mask").

use super::sizes::HEADER_LEN;

/// What the sender's incarnation hides in the headers of its DATA: 48 bits, which are
/// exclusive-ored over message and check. Who cannot read the network does not know them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HeaderMask {
    message: u32,
    check: u16,
}

impl HeaderMask {
    /// Of packets outside of sessions (files, test vectors), and of sealed ones, whose tags know
    /// the incarnation.
    pub const NONE: Self = Self { message: 0, check: 0 };

    /// An incarnation's; [`Self::NONE`] of 0, which none has. SplitMix64's finaliser (Steele, Lea,
    /// Flood 2014).
    pub const fn of(incarnation: u32) -> Self {
        let mut z = (incarnation as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        Self { message: (z >> 32) as u32, check: z as u16 }
    }

    /// Puts it over a packet's header, or takes it off. What is shorter than a header stays as it
    /// is.
    #[inline]
    pub fn apply(self, packet: &mut [u8]) {
        let Some(head) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
        let cover =
            |bytes: &mut [u8], with: &[u8]| bytes.iter_mut().zip(with).for_each(|(to, with)| *to ^= with);
        cover(&mut head[4..8], &self.message.to_be_bytes());
        cover(&mut head[HEADER_LEN - 2..], &self.check.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_taken_off_by_putting_it_on_again_and_covers_message_and_check_alone() {
        let mask = HeaderMask { message: 0x0102_0304, check: 0x0506 };
        let mut packet = [0; HEADER_LEN + 3];
        mask.apply(&mut packet);
        assert_eq!(packet, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 6, 0, 0, 0]);
        mask.apply(&mut packet);
        assert_eq!(packet, [0; HEADER_LEN + 3]);
        let mut short = [7; HEADER_LEN - 1];
        mask.apply(&mut short);
        assert_eq!(short, [7; HEADER_LEN - 1]);
    }

    #[test]
    fn neighbouring_incarnations_have_nothing_in_common() {
        assert_eq!(HeaderMask::of(0), HeaderMask::NONE);
        for incarnation in 0..10_000 {
            let (a, b) = (HeaderMask::of(incarnation), HeaderMask::of(incarnation + 1));
            assert!(a.message != b.message && (a.message ^ b.message).count_ones() > 2, "{incarnation}");
        }
    }
}
