// SPDX-License-Identifier: Apache-2.0
//! Promises of parameter servers that know nothing of what comes.

use crate::group::Group;
use crate::network::{Faults, Random};
use proptest::prelude::*;
use trimwire_agent::collective::{Collective, Memory, Options, Outcome};
use trimwire_agent::endpoint::Reliability;
use trimwire_agent::serve::{Notice, PushPull, Server, lowest_worker};
use trimwire_encoder::nmse;

const SECOND: u64 = 1_000_000_000;
const SERVERS: [u16; 2] = [0, 3];
const WORKERS: [usize; 2] = [1, 2];

const ADVERSARY: Faults = Faults {
    data_delay_ns: 100_000,
    control_delay_ns: 100_000,
    jitter_ns: 100_000,
    drop_data: 0.1,
    drop_control: 0.2,
    trim: 0.3,
    trim_to_at_least: 200,
    duplicate: 0.2,
    ..Faults::NONE
};

/// Runs to the end; servers take their own outcomes, workers' are given by rank.
fn run(group: &mut Group, servers: &mut [(usize, Server)], until_ns: u64) -> Vec<(usize, Outcome)> {
    let mut results = Vec::new();
    group.run_taken(
        until_ns,
        |_, _, _| {},
        |now_ns, rank, outcome, communicator, endpoint| match servers
            .iter_mut()
            .find(|(server, _)| *server == rank)
        {
            Some((_, server)) => {
                server.on_outcome(now_ns, outcome, communicator, endpoint).expect("goes on");
            }
            None => results.push((rank, outcome)),
        },
    );
    results
}

fn tell(group: &mut Group, rank: usize, number: u32, notice: &Notice) {
    let (now_ns, endpoint) = (group.network.now_ns, &mut group.network.endpoints[rank]);
    notice.tell(now_ns, number, &SERVERS, &mut group.communicators[rank], endpoint).expect("begins");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    #[test]
    fn servers_sum_whatever_comes_and_end_when_the_workers_leave(
        faults in ADVERSARY.any_up_to(), seed: u64, lengths in prop::collection::vec(0_usize..9_000, 1..4), exact: bool,
    ) {
        let mut group = Group::new(4, faults, seed, Reliability::Full, 12);
        let mut servers = Vec::new();
        for rank in SERVERS {
            let (now_ns, rank) = (group.network.now_ns, usize::from(rank));
            let (communicator, endpoint) = (&mut group.communicators[rank], &mut group.network.endpoints[rank]);
            servers.push((rank, Server::begin(now_ns, 1, SERVERS.to_vec(), communicator, endpoint).expect("begins")));
        }
        let gradient = |rank: usize, nth: usize| Random(seed ^ (rank * 10 + nth) as u64).gradient(lengths[nth]);
        let options = Options { exact, reliability: Some(Reliability::Full), ..Options::default() };
        for rank in WORKERS {
            for (nth, &length) in lengths.iter().enumerate() {
                let number = 1 + 2 * nth as u32;
                tell(&mut group, rank, number, &Notice::PushPull(PushPull { length, options: options.clone() }));
                let tensor = Some(Memory::from_vec(gradient(rank, nth)));
                let collective = Collective::PushPull { tensor, length, servers: SERVERS.to_vec() };
                group.start(rank, number + 1, collective, &options).expect("begins");
            }
            tell(&mut group, rank, 1 + 2 * lengths.len() as u32, &Notice::Leave);
        }
        let mut pulled = 0;
        for (rank, outcome) in run(&mut group, &mut servers, 300 * SECOND) {
            let number = outcome.number;
            prop_assert!(outcome.result.is_ok(), "rank {}: {:?}", rank, outcome.result);
            if number % 2 == 1 {
                continue;
            }
            let nth = (number as usize - 2) / 2;
            let sum: Vec<f32> = gradient(1, nth).iter().zip(&gradient(2, nth)).map(|(a, b)| a + b).collect();
            let got = outcome.into_f32().expect("f32");
            prop_assert_eq!(got.len(), sum.len());
            let most = if exact { 1e-30 } else { 1e-9 };
            prop_assert!(sum.is_empty() || nmse(&got, &sum) < most);
            pulled += 1;
        }
        prop_assert_eq!(pulled, 2 * lengths.len());
        prop_assert!(servers.iter().all(|(_, server)| server.is_done()));
        prop_assert!(group.is_quiet());
    }
}

#[test]
fn a_worker_that_dies_is_named_to_the_server() {
    let mut group = Group::new(4, Faults::NONE, 1, Reliability::Full, 12);
    let mut servers = Vec::new();
    for rank in SERVERS.map(usize::from) {
        let (communicator, endpoint) = (&mut group.communicators[rank], &mut group.network.endpoints[rank]);
        servers.push((rank, Server::begin(0, 1, SERVERS.to_vec(), communicator, endpoint).expect("begins")));
    }
    assert_eq!(lowest_worker(4, &SERVERS), Some(1));
    let options = Options { reliability: Some(Reliability::Full), ..Options::default() };
    let length = 2_000;
    // Rank 2 never comes to it: it dies when the others have met it.
    for rank in WORKERS {
        tell(&mut group, rank, 1, &Notice::PushPull(PushPull { length, options: options.clone() }));
    }
    let tensor = Some(Memory::from_vec(vec![1.0_f32; length]));
    let push = Collective::PushPull { tensor, length, servers: SERVERS.to_vec() };
    group.start(1, 2, push, &options).expect("begins");
    run(&mut group, &mut servers, SECOND / 100);
    group.network.dead[2] = true;
    let outcomes = group.run(60 * SECOND);
    for rank in [0, 1, 3] {
        let error = outcomes.iter().find_map(|(of, outcome)| {
            outcome.result.as_ref().err().filter(|_| *of == rank && outcome.number == 2)
        });
        let error = error.unwrap_or_else(|| panic!("rank {rank} was told nothing: {outcomes:?}")).to_string();
        assert!(error.contains("rank 2"), "{error}");
    }
}
