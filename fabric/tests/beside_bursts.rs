//! All-reduces of the real agent, over slow links through the real program, beside neighbours' bursts.

mod fabric_program;

use fabric_program::programmed;
use trimwire_agent::collective::{CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_agent::rate::RateConfig;
use trimwire_fabric::cluster::{Cluster, ClusterConfig};
use trimwire_fabric::cross_traffic::CrossTraffic;

const WORKERS: u16 = 4;
const RATE: u64 = 50_000_000;
/// The thresholds of the program are bytes, those of 10 Gbit/s: times are so many times longer here.
const SLOWER: u64 = 10_000_000_000 / RATE;
/// A mebibyte of f32.
const LENGTH: usize = 262_144;

/// How long `steps` all-reduces took, shortest first, ns. With `others` times the line rate of neighbours, a fifth of the time, or with nobody else.
fn durations(others: u16, rate: RateConfig, steps: u32) -> Vec<u64> {
    let config = ClusterConfig {
        workers: WORKERS,
        link_bps: RATE,
        delay_ns: 10_000,
        cross_groups: 1,
        cross_per_group: others,
        cross: (others > 0).then_some(CrossTraffic {
            burst_ns: 200_000 * SLOWER,
            gap_ns: 800_000 * SLOWER,
            payload: 1_472,
            tos: 19 << 2 | 2,
        }),
        seed: 1,
        sample_ns: 1_000_000_000,
    };
    let switch = programmed(&config, true);
    let mut cluster = Cluster::new(&config, switch, 9217, |rank| {
        let endpoint = EndpointConfig {
            reliability: Reliability::Bounded { loss: 0.0 },
            traffic: Traffic::Trimmable,
            trim_delay_ns: 20_000 * SLOWER,
            rate,
            ..EndpointConfig::new(rank, WORKERS, RATE)
        };
        (endpoint, CommunicatorConfig::new(rank, WORKERS), Options::default())
    })
    .unwrap();
    let value = |rank: usize, i: usize| ((i * 7919 + rank * 104_729) % 2_001) as f32 / 1e3 - 1.0;
    let gradients: Vec<Vec<f32>> =
        (0..usize::from(WORKERS)).map(|rank| (0..LENGTH).map(|i| value(rank, i)).collect()).collect();
    let mut durations: Vec<u64> = (0..steps)
        .map(|step| {
            let start_ns = cluster.now_ns() + 100_000 * SLOWER;
            cluster.run_until(start_ns);
            let done = cluster.all_reduce(step, gradients.clone()).unwrap();
            done.iter().map(|rank| rank.at_ns).max().unwrap() - start_ns
        })
        .collect();
    durations.sort_unstable();
    durations
}

/// No rank's rate to another stays low after a burst. (Of forty all-reduces beside 3:1, four took more than 1.25 times what they take alone, and the slowest 2.3 times.)
#[test]
fn beside_bursts_hardly_an_all_reduce_takes_longer_than_without() {
    let law = EndpointConfig::new(0, WORKERS, RATE).rate;
    let idle_ns = durations(0, law, 2)[1] as f64;
    for others in [2, 7] {
        let busy = durations(others, law, 40);
        let over_idle = |nth: usize| busy[nth] as f64 / idle_ns;
        assert!(over_idle(35) < 1.1 && over_idle(39) < 1.5, "{others}: {:?}", [20, 35, 39].map(over_idle));
    }
}
