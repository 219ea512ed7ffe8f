// SPDX-License-Identifier: Apache-2.0
//! What a step of a job puts on each rank's link: places beside values, and the growth of an
//! all-gather.

/// How gradients are summed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Transfer {
    /// The bytes themselves, once: laws compared with each other, whatever carries them.
    Once,
    /// A ring or direct all-reduce of so many ranks: 2 (n − 1) / n of the bytes.
    AllReduce {
        /// How many.
        ranks: u32,
    },
    /// An all-gather of entries, as PyTorch's and Horovod's sparse gradients go: each rank gets n −
    /// 1 others' (NetSenseML §5.3; DC2, footnote 2). A ratio of 1 is an all-reduce.
    AllGather {
        /// How many.
        ranks: u32,
        /// Ratios below are sent as NetSenseML's algorithm 2 does: twice as many entries, each an
        /// f16 and a place. 0 for top-k: an f32 and a place.
        quantised_below: f64,
    },
}

impl Transfer {
    /// Bytes on a rank's link, for a gradient of `gradient` bytes in f32 of which `ratio` is sent.
    pub fn bytes(self, gradient: f64, ratio: f64) -> f64 {
        let reduced = |ranks: u32| 2.0 * f64::from(ranks.max(1) - 1) / f64::from(ranks.max(1));
        match self {
            Self::Once => gradient * ratio,
            Self::AllReduce { ranks } => gradient * ratio * reduced(ranks),
            Self::AllGather { ranks, .. } if ratio >= 1.0 => gradient * reduced(ranks),
            Self::AllGather { ranks, quantised_below } => {
                let entry = if ratio < quantised_below { 2.0 * 6.0 } else { 8.0 };
                gradient / 4.0 * ratio * entry * f64::from(ranks.max(1) - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_eight_ranks_values_is_four_fifths_of_an_all_reduce() {
        // Top-k 0.1 of 46.2 MB: 7 · 1.155 M entries of 8 bytes, beside 1.75 · 46.2 MB.
        let sparse = Transfer::AllGather { ranks: 8, quantised_below: 0.0 };
        assert!((sparse.bytes(46.2e6, 0.1) - 64.68e6).abs() < 1.0);
        assert!((Transfer::AllReduce { ranks: 8 }.bytes(46.2e6, 1.0) - 80.85e6).abs() < 1.0);
        assert_eq!(sparse.bytes(46.2e6, 1.0), Transfer::AllReduce { ranks: 8 }.bytes(46.2e6, 1.0));
    }
}
