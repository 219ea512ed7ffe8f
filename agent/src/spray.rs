// SPDX-License-Identifier: Apache-2.0
//! Chooses the path of a burst: all equally, and less those that lose packets or always trim.
//!
//! Links with gray failures lose packets at random for weeks without anything being reported (MLT
//! §6.3 tests 0.01 to 1 %; above 0.1 % a link counts as broken). A sender that sprays sees it: one
//! source port's packets arrive less often than the others'.
#![forbid(unsafe_code)]

use crate::snapshot::PathStats;

/// The least weight of a path: as few packets as still show when it has healed.
const PROBE: f64 = 1.0 / 64.0;
/// Shares are estimated over this many packets if small, and over fewer if large: a share p needs
/// some 1/p packets to be seen.
const SLOWEST_GAIN: f64 = 1.0 / 1_024.0;
const FASTEST_GAIN: f64 = 1.0 / 64.0;
/// An excess over the other paths halves a path's weight at this share of lost, and of trimmed
/// packets. Loss costs whole packets, and slowing down does not help against it; trims cost little,
/// and a path that is merely busy should keep its part.
const HALVED_BY_LOSS: f64 = 0.005;
const HALVED_BY_TRIMS: f64 = 0.1;
/// So many standard deviations of the estimate are chance.
const CHANCE: f64 = 3.0;
/// What was seen counts for half after so long without anything being sent.
const FORGET_NS: f64 = 10e9;

/// A share of packets, estimated.
#[derive(Debug, Clone, Copy, Default)]
struct MovingAverage(f64);

impl MovingAverage {
    fn gain(self) -> f64 {
        self.0.clamp(SLOWEST_GAIN, FASTEST_GAIN)
    }

    /// Takes `packets`, a `share` of which counts. 1 − (1 − g)ⁿ as n g / (1 + n g): powers are
    /// rounded differently on different machines.
    fn observe(&mut self, packets: u32, share: f64) {
        let gain = f64::from(packets) * self.gain();
        self.0 += (share - self.0) * gain / (1.0 + gain);
    }

    /// How far it is above what the others have, beyond chance.
    fn excess(self, others: f64) -> f64 {
        let others = MovingAverage(others);
        let deviation = (others.0.max(SLOWEST_GAIN) * (1.0 - others.0).max(0.0) * others.gain() / 2.0).sqrt();
        (self.0 - others.0 - CHANCE * deviation).max(0.0)
    }
}

#[derive(Debug, Clone, Copy)]
struct Path {
    lost: MovingAverage,
    trimmed: MovingAverage,
    weight: f64,
    /// What it has coming, in choices.
    credit: f64,
    stats: PathStats,
}

/// The paths to one peer (source ports, or whatever switches choose a path by), and which to use
/// next. Same seed and same calls, same choices.
///
/// Call [`choose`](Spray::choose) once per burst, and [`on_arrived`](Spray::on_arrived) and
/// [`on_lost`](Spray::on_lost) when reports say what became of it. 88 bytes a path; a choice costs
/// O(1), amortised over a turn of all paths.
#[derive(Debug, Clone)]
pub struct Spray {
    paths: Vec<Path>,
    /// A permutation of the paths, drawn anew for each turn.
    order: Vec<u16>,
    next: usize,
    random: u64,
    turned_ns: u64,
    weights: f64,
}

impl Spray {
    /// Equal paths; 0 counts as 1.
    pub fn new(paths: u16, seed: u64) -> Self {
        let paths = paths.max(1);
        let path = Path {
            lost: MovingAverage::default(),
            trimmed: MovingAverage::default(),
            weight: 1.0,
            credit: 0.0,
            stats: PathStats::default(),
        };
        Self {
            paths: vec![path; usize::from(paths)],
            order: (0..paths).collect(),
            next: usize::from(paths),
            random: seed,
            turned_ns: 0,
            weights: f64::from(paths),
        }
    }

    /// The path of the next burst. In a turn every path is passed once, in an order that is drawn
    /// for it, and taken when it has a whole choice coming; the best path always has.
    pub fn choose(&mut self, now_ns: u64) -> u16 {
        self.choose_among(now_ns, |_| true)
    }

    /// The same among the paths that fit; one has to.
    pub fn choose_among(&mut self, now_ns: u64, fits: impl Fn(u16) -> bool) -> u16 {
        loop {
            if self.next == self.order.len() {
                self.turn(now_ns);
            }
            let remaining = self.order.len() - self.next;
            let other = self.next + (self.draw() % remaining as u64) as usize;
            self.order.swap(self.next, other);
            let chosen = self.order[self.next];
            self.next += 1;
            if !fits(chosen) {
                continue;
            }
            let path = &mut self.paths[usize::from(chosen)];
            path.credit += path.weight;
            if path.credit >= 1.0 {
                path.credit -= 1.0;
                return chosen;
            }
        }
    }

    /// So many of a path's packets arrived, `trimmed` of them trimmed. Paths that there are not
    /// count as none.
    pub fn on_arrived(&mut self, path: u16, packets: u32, trimmed: u32) {
        let Some(path) = self.paths.get_mut(usize::from(path)) else { return };
        path.stats.arrived += u64::from(packets);
        path.stats.trimmed += u64::from(trimmed.min(packets));
        if packets > 0 {
            path.lost.observe(packets, 0.0);
            path.trimmed.observe(packets, f64::from(trimmed.min(packets)) / f64::from(packets));
        }
    }

    /// So many of a path's packets were lost.
    pub fn on_lost(&mut self, path: u16, packets: u32) {
        if let Some(path) = self.paths.get_mut(usize::from(path)) {
            path.lost.observe(packets, 1.0);
            path.stats.lost += u64::from(packets);
        }
    }

    /// So many packets of so many payload bytes left on a path.
    pub fn on_sent(&mut self, path: u16, packets: u32, bytes: u64) {
        if let Some(path) = self.paths.get_mut(usize::from(path)) {
            path.stats.sent += u64::from(packets);
            path.stats.bytes_sent += bytes;
        }
    }

    /// A packet of a path arrived whole, and its round trip is known (RFC 6298 §2.3's α for the
    /// mean).
    pub fn on_round_trip(&mut self, path: u16, rtt_ns: u64) {
        let Some(PathStats { rtt_ns: mean, .. }) =
            self.paths.get_mut(usize::from(path)).map(|path| &mut path.stats)
        else {
            return;
        };
        *mean = if *mean == 0 { rtt_ns.max(1) } else { *mean - *mean / 8 + rtt_ns / 8 };
    }

    /// A path's totals.
    pub fn stats(&self, path: u16) -> Option<&PathStats> {
        self.paths.get(usize::from(path)).map(|path| &path.stats)
    }

    /// The share of the bursts that a path gets, in [0, 1].
    pub fn share(&self, path: u16) -> f64 {
        self.paths.get(usize::from(path)).map_or(0.0, |path| path.weight / self.weights)
    }

    /// Weighs the paths anew: each against the others as they are used.
    fn turn(&mut self, now_ns: u64) {
        let idle_ns = now_ns.saturating_sub(self.turned_ns);
        let kept = FORGET_NS / (FORGET_NS + idle_ns as f64);
        self.turned_ns = self.turned_ns.max(now_ns);
        self.next = 0;
        let (mut all, mut lost, mut trimmed) = (0.0, 0.0, 0.0);
        for path in &mut self.paths {
            path.lost.0 *= kept;
            path.trimmed.0 *= kept;
            all += path.weight;
            lost += path.weight * path.lost.0;
            trimmed += path.weight * path.trimmed.0;
        }
        let mut best: f64 = 0.0;
        for path in &mut self.paths {
            let others = all - path.weight;
            if others > 0.0 {
                let others_lost = ((lost - path.weight * path.lost.0) / others).clamp(0.0, 1.0);
                let others_trimmed = ((trimmed - path.weight * path.trimmed.0) / others).clamp(0.0, 1.0);
                path.weight = 1.0
                    / (1.0 + path.lost.excess(others_lost) / HALVED_BY_LOSS)
                    / (1.0 + path.trimmed.excess(others_trimmed) / HALVED_BY_TRIMS);
            }
            best = best.max(path.weight);
        }
        // The best has the weight 1, so that a turn takes at least one path.
        self.weights = 0.0;
        for path in &mut self.paths {
            path.weight = (path.weight / best).max(PROBE);
            self.weights += path.weight;
        }
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BURST: u32 = 8;

    /// Sends bursts over paths that lose and trim these shares at random. Returns each path's part
    /// of the bursts.
    fn run(spray: &mut Spray, bursts: u32, now_ns: &mut u64, fate: &[(f64, f64)]) -> Vec<f64> {
        let mut taken = vec![0_u32; fate.len()];
        let mut random = Spray::new(1, 99);
        let mut chance = |share: f64| ((random.draw() >> 11) as f64) < share * (1_u64 << 53) as f64;
        for _ in 0..bursts {
            *now_ns += 10_000;
            let path = spray.choose(*now_ns);
            taken[usize::from(path)] += 1;
            let (loss, trims) = fate[usize::from(path)];
            let lost = (0..BURST).filter(|_| chance(loss)).count() as u32;
            let trimmed = (0..BURST - lost).filter(|_| chance(trims)).count() as u32;
            spray.on_arrived(path, BURST - lost, trimmed);
            spray.on_lost(path, lost);
        }
        taken.iter().map(|&taken| f64::from(taken) / f64::from(bursts)).collect()
    }

    #[test]
    fn equal_paths_are_used_equally_whatever_all_of_them_lose() {
        for fate in [(0.0, 0.0), (0.001, 0.0), (0.0, 0.3), (0.05, 0.5), (1.0, 0.0)] {
            let parts = run(&mut Spray::new(16, 7), 16_000, &mut 0, &[fate; 16]);
            for part in parts {
                assert!((part * 16.0 - 1.0).abs() < 0.03, "{fate:?}: {part}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_choices_and_another_one_others() {
        let choices = |seed| {
            let mut spray = Spray::new(64, seed);
            (0..200).map(|now| spray.choose(now)).collect::<Vec<_>>()
        };
        assert_eq!(choices(1), choices(1));
        assert_ne!(choices(1), choices(2));
    }

    #[test]
    fn a_dead_path_is_left_but_for_probes_and_comes_back_when_it_heals() {
        let mut spray = Spray::new(16, 3);
        let (mut now_ns, mut fate) = (0, [(0.0, 0.0); 16]);
        run(&mut spray, 1_600, &mut now_ns, &fate);
        fate[5] = (1.0, 0.0);
        run(&mut spray, 1_600, &mut now_ns, &fate);
        let parts = run(&mut spray, 64_000, &mut now_ns, &fate);
        let probes = parts[5] * (15.0 + PROBE) / PROBE;
        assert!((0.9..1.1).contains(&probes), "{} of the bursts", parts[5]);
        fate[5] = (0.0, 0.0);
        let healing = run(&mut spray, 80_000, &mut now_ns, &fate);
        assert!(healing[5] > parts[5]);
        assert!((spray.share(5) * 16.0 - 1.0).abs() < 0.03, "{}", spray.share(5));
    }

    #[test]
    fn a_dead_path_has_cost_few_packets_when_it_is_left() {
        let mut spray = Spray::new(16, 3);
        let mut fate = [(0.0, 0.0); 16];
        fate[5] = (1.0, 0.0);
        let parts = run(&mut spray, 1_600, &mut 0, &fate);
        assert!(parts[5] * 1_600.0 < 20.0, "{} of 100 bursts", parts[5] * 1_600.0);
    }

    #[test]
    fn a_gray_failure_of_one_percent_is_used_less() {
        let mut spray = Spray::new(16, 3);
        let mut fate = [(0.0, 0.0); 16];
        fate[9] = (0.01, 0.0);
        let mut now_ns = 0;
        run(&mut spray, 16_000, &mut now_ns, &fate);
        let parts = run(&mut spray, 160_000, &mut now_ns, &fate);
        assert!(parts[9] * 16.0 < 0.6, "{} of an equal part", parts[9] * 16.0);
        assert!(parts.iter().enumerate().all(|(path, part)| path == 9 || part * 16.0 > 1.0), "{parts:?}");
    }

    #[test]
    fn a_path_that_is_always_trimmed_is_used_less_and_a_busy_network_evenly() {
        let mut fate = [(0.0, 0.1); 8];
        fate[2] = (0.0, 1.0);
        let parts = run(&mut Spray::new(8, 3), 16_000, &mut 0, &fate);
        assert!(parts[2] * 8.0 < 0.3, "{}", parts[2] * 8.0);
    }

    #[test]
    fn what_was_seen_long_ago_is_forgotten() {
        let mut spray = Spray::new(4, 3);
        let mut now_ns = 0;
        run(&mut spray, 4_000, &mut now_ns, &[(0.5, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]);
        assert!(spray.share(0) < 0.05);
        for _ in 0..4 {
            now_ns += 1_000_000_000_000;
            for _ in 0..8 {
                spray.choose(now_ns);
            }
        }
        assert!((spray.share(0) - 0.25).abs() < 0.01, "{}", spray.share(0));
    }

    proptest! {
        #[test]
        fn any_reports_leave_weights_that_add_up_and_every_path_in_use(
            paths in 0_u16..40,
            seed: u64,
            reports in prop::collection::vec((any::<u16>(), any::<u32>(), any::<u32>(), any::<bool>(), any::<u64>()), 0..200),
        ) {
            let mut spray = Spray::new(paths, seed);
            let paths = paths.max(1);
            for (path, packets, trimmed, small, now_ns) in reports {
                let path = if small { path % paths } else { path };
                spray.on_arrived(path, packets, trimmed);
                spray.on_lost(path, trimmed);
                prop_assert!(spray.choose(now_ns) < paths);
                let sum: f64 = (0..paths).map(|path| spray.share(path)).sum();
                prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
                let most = (0..paths).map(|path| spray.share(path)).fold(0.0, f64::max);
                for path in 0..paths {
                    prop_assert!(spray.share(path) >= most * PROBE * 0.999);
                }
            }
        }
    }
}
