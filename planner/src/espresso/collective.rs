//! α–β times of collective routines (Thakur et al., IJHPCA 2005; Patarasuk and Yuan, JPDC 2009, which Espresso cites).

use super::task::Routine;

/// Time of a collective, ns: `ranks` ranks, each of which has `bytes` before it, over links of `bytes_per_ns` with `latency_ns` a message.
///
/// Before an all-gather each rank has its own part; before a broadcast the root has everything; before a gather each rank has what it gives. Reduce and
/// broadcast take the better of a binomial tree and the long-message algorithm (reduce-scatter and gather; scatter and all-gather).
pub fn time(routine: Routine, ranks: f64, bytes: f64, latency_ns: f64, bytes_per_ns: f64) -> f64 {
    if ranks <= 1.0 {
        return 0.0;
    }
    let transfer = bytes / bytes_per_ns;
    let share = (ranks - 1.0) / ranks;
    let rounds = ranks.log2().ceil();
    match routine {
        Routine::AllReduce => 2.0 * ((ranks - 1.0) * latency_ns + share * transfer),
        Routine::ReduceScatter | Routine::AllToAll => (ranks - 1.0) * latency_ns + share * transfer,
        Routine::AllGather => (ranks - 1.0) * (latency_ns + transfer),
        Routine::Reduce => {
            let long = 2.0 * rounds * latency_ns + 2.0 * share * transfer;
            (rounds * (latency_ns + transfer)).min(long)
        }
        Routine::Broadcast => {
            let long = (rounds + ranks - 1.0) * latency_ns + 2.0 * share * transfer;
            (rounds * (latency_ns + transfer)).min(long)
        }
        Routine::Gather => rounds * latency_ns + (ranks - 1.0) * transfer,
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
