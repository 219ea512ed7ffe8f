// SPDX-License-Identifier: Apache-2.0
//! A job that starts again with other ranks: they meet again, and nothing of the generation before
//! gets in.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::time::Duration;
use trimwire_agent::collective::{Collective, Communicator, CommunicatorConfig, Memory, Options, Outcome};
use trimwire_agent::driver::{Driver, Link, UdpConfig, UdpLink, incarnation, on_sockets};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, EndpointStats, Reliability};
use trimwire_agent::rendezvous::{Config, Master, Offer, Roster, meet};
use trimwire_bmv2_tests::ports;
use trimwire_encoder::SealKey;

const SECOND: u64 = 1_000_000_000;
const COORDINATES: usize = 5_000;

/// A rank that has met the others.
struct Process {
    rank: u16,
    driver: Driver<UdpLink>,
    communicator: Communicator,
    agreed: Roster,
}

impl Process {
    fn meet(rank: u16, world: u16, config: &Config) -> Self {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let link = UdpLink::open(UdpConfig { data_sockets: 4, ..UdpConfig::new(own) }).expect("loopback");
        let offer = Offer::new(rank, world, link.local_address(), incarnation());
        let own = offer.incarnation;
        let agreed = meet(offer, config).expect("meets");
        Self::start(rank, own, agreed, link)
    }

    fn start(rank: u16, incarnation: u32, agreed: Roster, link: UdpLink) -> Self {
        let world = agreed.members.len() as u16;
        let mut endpoint = on_sockets(EndpointConfig::new(rank, world, 1_000_000_000));
        endpoint.incarnation = incarnation;
        endpoint.reliability = Reliability::Full;
        endpoint.timeouts.give_up_ns = 60 * SECOND;
        (endpoint.job, endpoint.seal) = (agreed.job, agreed.seal.clone());
        for (other, member) in (0..).zip(&agreed.members).filter(|&(other, _)| other != rank) {
            endpoint.peers.insert(other, member.address);
            endpoint.incarnations.insert(other, member.incarnation);
        }
        let config = CommunicatorConfig {
            job_seed: agreed.seed,
            row_log2: 10,
            ..CommunicatorConfig::new(rank, world)
        };
        Self { rank, driver: Driver::new(endpoint, link), communicator: Communicator::new(config), agreed }
    }

    /// Begins a sum to which every rank contributes its number and one.
    fn begin(&mut self, number: u32) {
        let tensor = Memory::from_vec(vec![f32::from(self.rank) + 1.0; COORDINATES]);
        let (now_ns, exact) = (self.driver.now_ns(), Options { exact: true, ..Options::default() });
        let started = self.communicator.start(
            now_ns,
            number,
            Collective::AllReduce { tensor },
            exact,
            self.driver.endpoint(),
        );
        started.expect("starts");
    }

    fn end(&mut self) -> Vec<f32> {
        let Self { driver, communicator, .. } = self;
        let until_ns = driver.now_ns() + 60 * SECOND;
        let outcome: Outcome = driver.run(until_ns, communicator).expect("link").expect("in time");
        outcome.result.as_ref().expect("sums");
        driver.linger(50_000_000, 5 * SECOND).expect("link");
        outcome.into_f32().expect("f32")
    }

    fn stats(&mut self) -> EndpointStats {
        *self.driver.endpoint().stats()
    }
}

fn exactly(sum: f32) -> Vec<f32> {
    vec![sum; COORDINATES]
}

fn on_threads<T: Send, R: Send>(of: impl IntoIterator<Item = T>, run: impl Fn(T) -> R + Sync) -> Vec<R> {
    let run = &run;
    std::thread::scope(|scope| {
        let threads: Vec<_> = of.into_iter().map(|one| scope.spawn(move || run(one))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

#[test]
fn three_of_four_ranks_meet_again_and_packets_of_the_generation_before_do_nothing() {
    for key in [None, Some([7; 32])] {
        let port = ports::free("127.0.0.1");
        let key = key.map(|bytes| SealKey::from_bytes(&bytes).expect("a key"));
        let config = Config {
            master: Master { host: "127.0.0.1".to_owned(), port },
            key,
            timeout: Duration::from_secs(60),
        };
        let mut first: Vec<Process> = on_threads(0..4, |rank| Process::meet(rank, 4, &config));
        let sums = on_threads(&mut first, |rank| {
            rank.begin(0);
            rank.end()
        });
        assert!(sums.iter().all(|sum| *sum == exactly(10.0)));

        // Rank 3 goes. The others start anew; their old endpoints do not know, and go on with the
        // next operation.
        first.truncate(3);
        let mut second: Vec<Process> = on_threads(0..3, |rank| Process::meet(rank, 3, &config));
        for (old, new) in first.iter_mut().zip(&second) {
            assert_ne!(old.agreed.members, new.agreed.members);
            // They even know where the new ones listen.
            for (rank, member) in (0..).zip(&new.agreed.members) {
                old.driver.endpoint().set_peer(rank, member.address);
            }
            old.begin(1);
        }
        let ends =
            on_threads(first.into_iter().map(Err).chain(second.drain(..).map(Ok)), |rank| match rank {
                Ok(mut new) => {
                    new.begin(1);
                    let sum = new.end();
                    // The old ones knock for a while.
                    let until_ns = new.driver.now_ns() + SECOND;
                    let idle = &mut |_, _, _: &mut Endpoint| ControlFlow::<()>::Continue(());
                    new.driver.run(until_ns, idle).expect("link");
                    Some((sum, new.stats()))
                }
                Err(mut old) => {
                    let until_ns = old.driver.now_ns() + SECOND;
                    let outcome = old.driver.run(until_ns, &mut old.communicator).expect("link");
                    assert!(outcome.is_none_or(|outcome| outcome.result.is_err()), "it takes four");
                    None
                }
            });
        for (sum, stats) in ends.into_iter().flatten() {
            assert_eq!(sum, exactly(6.0));
            assert!(stats.foreign + stats.unsealed > 0, "the old ones were heard: {stats:?}");
            assert_eq!((stats.failed, stats.malformed), (0, 0), "{stats:?}");
        }
    }
}
