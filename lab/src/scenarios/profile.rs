// SPDX-License-Identifier: Apache-2.0
//! What the bottleneck has for us at a time.

/// A piecewise constant bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name, for tables.
    pub name: &'static str,
    /// From when on, ns, and how much, bit/s; ascending, from 0 on.
    pub pieces: Vec<(u64, f64)>,
    /// When it ends, ns.
    pub end_ns: u64,
}

const SECOND: u64 = 1_000_000_000;

impl Profile {
    /// bit/s at a time.
    pub fn at(&self, now_ns: u64) -> f64 {
        let after = self.pieces.partition_point(|(from, _)| *from <= now_ns);
        self.pieces[..after].last().or(self.pieces.first()).map_or(1.0, |(_, rate)| *rate)
    }

    /// The greatest rate, bit/s: the line's.
    pub fn line_bps(&self) -> f64 {
        self.pieces.iter().map(|(_, rate)| *rate).fold(1.0, f64::max)
    }
}

/// The scenarios of NetSenseML §5.2 and DC2 §V-A. Where the papers show a curve only, the curve is
/// like theirs, not theirs.
pub fn profiles(seed: u64) -> Vec<Profile> {
    let constrained = [
        ("constrained, 200 Mbit/s", 0.2e9),
        ("constrained, 800 Mbit/s", 0.8e9),
        ("constrained, 10 Gbit/s", 10e9),
    ];
    let mut all: Vec<Profile> = constrained
        .into_iter()
        .map(|(name, rate)| Profile { name, pieces: vec![(0, rate)], end_ns: 60 * SECOND })
        .collect();
    all.push(Profile {
        name: "degrading",
        pieces: (0..10).map(|i| (i * 12 * SECOND, (2000.0 - 200.0 * i as f64) * 1e6)).collect(),
        end_ns: 120 * SECOND,
    });
    // iperf3 on the same link of 1 Gbit/s, on for a while and off for a while: up to four flows
    // beside us.
    let mut random = seed;
    let mut fluctuating = Vec::new();
    let mut now = 0;
    while now < 120 * SECOND {
        let flows = (uniform(&mut random) * 5.0) as u32;
        fluctuating.push((now, 1e9 / f64::from(flows + 1)));
        now += (SECOND as f64 * (0.5 + 4.0 * uniform(&mut random))) as u64;
    }
    all.push(Profile { name: "fluctuating", pieces: fluctuating, end_ns: 120 * SECOND });
    // Figure 3: about steady in a cluster of one's own; between a tenth and all of it, anew every
    // second or so, in a public cloud.
    let mut steady = Vec::new();
    let mut cloud = Vec::new();
    for i in 0..120 {
        steady.push((i * SECOND, 10e9 * (0.95 + 0.05 * uniform(&mut random))));
        cloud.push((i * SECOND, 10e9 * 10_f64.powf(-uniform(&mut random))));
    }
    all.push(Profile { name: "DC2, static", pieces: steady, end_ns: 120 * SECOND });
    all.push(Profile { name: "DC2, dynamic", pieces: cloud, end_ns: 120 * SECOND });
    all
}

/// SplitMix64, 0 to 1.
pub(super) fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}
