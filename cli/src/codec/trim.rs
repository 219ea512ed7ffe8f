// SPDX-License-Identifier: Apache-2.0
//! Which packets a measurement trims, and how deep.

use rand::RngExt as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use trimwire_encoder::papers::Scheme;
use trimwire_encoder::{HEADER_LEN, Layout, Reach};

/// Bytes in front of the UDP payload in an untagged Ethernet frame, without the checksum behind it.
pub(crate) const FRAME_OVERHEAD: usize = 14 + 20 + 8;

/// What packets hold when they are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Their codec.
    pub codec: Scheme,
    /// Its planes that they carry, from the first on.
    pub planes: u8,
}

/// How deep a trim goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Whole planes that are left; 0 loses the packet.
    Planes(u8),
    /// Bytes of the UDP payload that are left; less than a header loses the packet.
    Payload(usize),
}

impl Depth {
    /// A switch's trim to frames of `bytes`.
    pub(crate) fn frame(bytes: usize) -> Self {
        Self::Payload(bytes.saturating_sub(FRAME_OVERHEAD))
    }

    /// Bytes that are left of a packet of `n` coordinates; 0 when it is lost.
    pub(crate) fn payload(self, sent: Sent, n: usize) -> usize {
        match self {
            Self::Planes(0) => 0,
            Self::Planes(planes) => sent.codec.packet_len(planes.min(sent.planes), n),
            Self::Payload(bytes) if bytes < HEADER_LEN => 0,
            Self::Payload(bytes) => bytes.min(sent.payload(n)),
        }
    }

    /// Planes of the coordinates of a trimmed packet, as shares: `(planes, share)`. A plane that
    /// arrived in part counts for the coordinates that it reaches.
    pub(crate) fn shares(self, sent: Sent, n: usize) -> [(u8, f64); 2] {
        let body = self.payload(sent, n).saturating_sub(HEADER_LEN);
        let Reach { planes, more } = sent.codec.reach(body, n);
        let share = more as f64 / n as f64;
        [(planes, 1.0 - share), (planes + 1, share)]
    }
}

impl Sent {
    /// Bytes of a packet's UDP payload.
    pub(crate) fn payload(self, n: usize) -> usize {
        self.codec.packet_len(self.planes, n)
    }
}

/// Shares of the whole message for [`Scheme::expected_nmse`] when share `rate` of the packets is
/// trimmed.
pub(crate) fn message_shares(layout: &Layout, sent: Sent, depth: Depth, rate: f64) -> Vec<(u8, f64)> {
    let mut shares = vec![0.0; usize::from(sent.codec.planes()) + 2];
    for index in 0..layout.packets() {
        let n = layout.packet_range(index).len();
        for (planes, share) in depth.shares(sent, n) {
            shares[usize::from(planes)] += rate * share * n as f64;
        }
    }
    let all = layout.padded_coordinates() as f64;
    shares[usize::from(sent.planes)] += (1.0 - rate) * all;
    shares.iter().enumerate().filter(|(_, s)| **s > 0.0).map(|(b, s)| (b as u8, s / all)).collect()
}

/// Chooses the packets to trim in message after message: the same share of every row's, to within
/// one packet, drawn at random inside the row.
#[derive(Debug)]
pub(crate) struct Chooser {
    rate: f64,
    rng: ChaCha8Rng,
    /// Packets that should have been trimmed so far, less those that were, so that rounding does
    /// not add up.
    owed: f64,
}

impl Chooser {
    /// Trims share `rate` of the packets.
    pub(crate) fn new(rate: f64, mut rng: ChaCha8Rng) -> Self {
        let owed = rng.random::<f64>();
        Self { rate, rng, owed }
    }

    /// Marks the packets of the next message that are trimmed.
    pub(crate) fn choose(&mut self, layout: &Layout) -> Vec<bool> {
        let mut trimmed = vec![false; layout.packets()];
        for row in 0..layout.rows() {
            let packets = &mut trimmed[layout.row_packets(row)];
            self.owed += self.rate * packets.len() as f64;
            // The tolerance keeps 0.1 + 0.1 + … from ending just below a whole packet.
            let count = ((self.owed + 1e-9).floor().max(0.0) as usize).min(packets.len());
            self.owed -= count as f64;
            packets[..count].fill(true);
            packets.shuffle(&mut self.rng);
        }
        trimmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng as _;

    #[test]
    fn the_same_share_of_every_row_is_trimmed() {
        let layout = Layout::new(5 << 15, 448).unwrap();
        for rate in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0] {
            let mut chooser = Chooser::new(rate, ChaCha8Rng::seed_from_u64(3));
            let mut total = 0;
            for _ in 0..4 {
                let trimmed = chooser.choose(&layout);
                for row in 0..layout.rows() {
                    let packets = layout.row_packets(row);
                    let exact = rate * packets.len() as f64;
                    let count = trimmed[packets].iter().filter(|trimmed| **trimmed).count();
                    assert!((count as f64 - exact).abs() <= 1.0, "{count} of {exact}");
                    total += count;
                }
            }
            assert!((total as f64 - rate * 4.0 * layout.packets() as f64).abs() <= 1.0);
        }
    }

    proptest! {
        #[test]
        fn shares_of_a_trimmed_packet_add_up_to_one_and_follow_its_bytes(
            bytes in 0usize..1600, blocks in 1usize..17, fewer in 0u8..12,
        ) {
            let n = 32 * blocks;
            for codec in Scheme::ALL {
                let sent = Sent { codec, planes: codec.planes() - fewer % codec.planes() };
                let [(few, a), (more, b)] = Depth::Payload(bytes).shares(sent, n);
                prop_assert!((a + b - 1.0).abs() < 1e-12 && a >= 0.0 && b >= 0.0);
                prop_assert!(few <= more && (more <= sent.planes || b == 0.0));
                let kept = Depth::Payload(bytes).payload(sent, n);
                prop_assert!(kept <= bytes && kept <= sent.payload(n));
                prop_assert!(kept == 0 || codec.packet_len(few, n) <= kept);
            }
        }
    }

    #[test]
    fn whole_planes_are_one_share() {
        for codec in Scheme::ALL {
            let sent = Sent { codec, planes: codec.planes() };
            for planes in 1..=codec.planes() {
                let [(b, share), (_, rest)] = Depth::Planes(planes).shares(sent, 320);
                assert_eq!((b, share, rest), (planes, 1.0, 0.0), "{codec}");
            }
            assert_eq!(Depth::Planes(0).shares(sent, 320)[0], (0, 1.0));
        }
    }

    #[test]
    fn what_is_not_trimmed_counts_with_the_planes_that_were_sent() {
        let layout = Layout::new(1 << 15, 704).unwrap();
        let sent = Sent { codec: Scheme::Wire(trimwire_encoder::Codec::Rht), planes: 9 };
        assert_eq!(message_shares(&layout, sent, Depth::Planes(1), 0.25), [(1, 0.25), (9, 0.75)]);
        assert_eq!(message_shares(&layout, sent, Depth::Planes(10), 1.0), [(9, 1.0)]);
    }
}
