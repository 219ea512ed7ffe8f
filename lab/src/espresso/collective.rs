// SPDX-License-Identifier: Apache-2.0
//! α–β times of collective routines (Thakur et al., IJHPCA 2005; Patarasuk and Yuan, JPDC 2009,
//! which Espresso cites).

use super::task::Routine;

/// `constant + slope · bytes`, ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Affine {
    pub constant: f64,
    pub slope: f64,
}

impl Affine {
    pub(super) fn at(self, bytes: f64) -> f64 {
        self.constant + self.slope * bytes
    }
}

/// Time of a collective, ns: `ranks` ranks, each of which has `bytes` before it, over links of
/// `bytes_per_ns` with `latency_ns` a message.
///
/// Before an all-gather each rank has its own part; before a broadcast the root has everything;
/// before a gather each rank has what it gives. Reduce and broadcast take the better of a binomial
/// tree and the long-message algorithm (reduce-scatter and gather; scatter and all-gather).
pub fn time(routine: Routine, ranks: f64, bytes: f64, latency_ns: f64, bytes_per_ns: f64) -> f64 {
    let [one, other] = lines(routine, ranks, latency_ns, bytes_per_ns);
    one.at(bytes).min(other.at(bytes))
}

/// The same as the lesser of two lines, equal ones where there is one algorithm.
pub(super) fn lines(routine: Routine, ranks: f64, latency_ns: f64, bytes_per_ns: f64) -> [Affine; 2] {
    let line =
        |rounds: f64, share: f64| Affine { constant: rounds * latency_ns, slope: share / bytes_per_ns };
    if ranks <= 1.0 {
        return [Affine { constant: 0.0, slope: 0.0 }; 2];
    }
    let share = (ranks - 1.0) / ranks;
    let rounds = ranks.log2().ceil();
    match routine {
        Routine::AllReduce => [line(2.0 * (ranks - 1.0), 2.0 * share); 2],
        Routine::ReduceScatter | Routine::AllToAll => [line(ranks - 1.0, share); 2],
        Routine::AllGather => [line(ranks - 1.0, ranks - 1.0); 2],
        Routine::Reduce => [line(rounds, rounds), line(2.0 * rounds, 2.0 * share)],
        Routine::Broadcast => [line(rounds, rounds), line(rounds + ranks - 1.0, 2.0 * share)],
        Routine::Gather => [line(rounds, ranks - 1.0); 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Messages of a ring passed on one by one, every link busy in every round.
    #[test]
    fn a_ring_takes_its_rounds() {
        for ranks in 2_u32..9 {
            let (bytes, latency, speed) = (8000.0, 5.0, 2.0);
            let round = |size: f64| latency + size / speed;
            let steps = |rounds: u32, size: f64| (0..rounds).map(|_| round(size)).sum::<f64>();
            let n = f64::from(ranks);
            let near = |routine, wanted: f64| {
                let got = time(routine, n, bytes, latency, speed);
                assert!((got - wanted).abs() < 1e-6, "{routine:?} {ranks}: {got} for {wanted}");
            };
            near(Routine::ReduceScatter, steps(ranks - 1, bytes / n));
            near(Routine::AllGather, steps(ranks - 1, bytes));
            near(Routine::AllReduce, steps(2 * (ranks - 1), bytes / n));
        }
    }

    proptest! {
        #[test]
        fn more_bytes_never_take_less_time(ranks in 1_u32..100, bytes in 0.0..1e9_f64, more in 0.0..1e9_f64) {
            use Routine::{AllGather, AllReduce, AllToAll, Broadcast, Gather, Reduce, ReduceScatter};
            for routine in [AllReduce, ReduceScatter, Reduce, AllGather, Broadcast, AllToAll, Gather] {
                let of = |bytes| time(routine, f64::from(ranks), bytes, 1e3, 1.0);
                prop_assert!(of(bytes) <= of(bytes + more));
            }
        }
    }
}
