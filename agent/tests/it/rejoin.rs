// SPDX-License-Identifier: Apache-2.0
//! A rank that starts anew is let into a job that goes on, on sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use trimwire_agent::collective::{Collective, CommunicatorConfig, Memory, Options, Outcome};
use trimwire_agent::driver::channels::split;
use trimwire_agent::driver::{Channels, Driver, Shared, UdpConfig, UdpLink, UntilEpoch, on_sockets};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Reliability};
use trimwire_agent::epoch::Epoch;
use trimwire_agent::transcript::Filter;
use trimwire_encoder::SealKey;

const SECOND: u64 = 1_000_000_000;
const COORDINATES: usize = 5_000;
const WORLD: u16 = 3;

struct Process {
    driver: Driver<UdpLink>,
    communicator: Channels,
    rank: u16,
    next: u32,
}

impl Process {
    fn start(rank: u16, links: Vec<UdpLink>, addresses: &[SocketAddr], sealed: bool) -> Self {
        let mut endpoint = on_sockets(EndpointConfig::new(rank, WORLD, 1_000_000_000));
        endpoint.reliability = Reliability::Full;
        endpoint.timeouts.give_up_ns = 3 * SECOND;
        endpoint.seal = sealed.then(|| SealKey::from_bytes(&[7; 32]).expect("a key"));
        endpoint.peers = (0..)
            .zip(addresses)
            .filter(|&(other, _)| other != rank)
            .map(|(other, &at)| (other, at))
            .collect();
        let config = CommunicatorConfig { job_seed: 3, row_log2: 8, ..CommunicatorConfig::new(rank, WORLD) };
        let configs = split(&endpoint, links.len() as u16).expect("ports enough");
        let mut channels = configs.into_iter().zip(links);
        let (endpoint, link) = channels.next().expect("one at least");
        let mut driver = Driver::new(endpoint, link);
        let others = channels.collect();
        let communicator =
            Channels::begin(&config, &mut driver, others, &Filter::default(), None).expect("begins");
        Self { driver, communicator, rank, next: 0 }
    }

    fn leave(mut self, quiet_ns: u64) {
        self.communicator.stop();
        self.driver.linger(quiet_ns, 5 * SECOND).expect("link");
        self.communicator.wait();
    }

    /// A sum to which every rank contributes its number and one.
    fn sum(&mut self) -> Result<Vec<f32>, String> {
        let tensor = Memory::from_vec(vec![f32::from(self.rank) + 1.0; COORDINATES]);
        let Self { driver, communicator, next, .. } = self;
        let (now_ns, exact) = (driver.now_ns(), Options { exact: true, ..Options::default() });
        let number = *next;
        *next += 1;
        communicator
            .start(now_ns, number, Collective::AllReduce { tensor }, exact, driver.endpoint())
            .map_err(|error| error.to_string())?;
        let until_ns = now_ns + 60 * SECOND;
        let outcome: Outcome = driver.run(until_ns, communicator).expect("link").expect("in time");
        outcome.result.map_err(|error| error.to_string())?;
        Ok(outcome.into_f32().expect("f32"))
    }

    fn until_epoch(&mut self) -> Epoch {
        let Self { driver, communicator, .. } = self;
        let until_ns = driver.now_ns() + 60 * SECOND;
        let epoch = driver
            .run(until_ns, &mut UntilEpoch(communicator))
            .expect("link")
            .expect("in time")
            .expect("begins");
        self.next = epoch.first;
        epoch
    }

    fn shrink(&mut self) -> Epoch {
        let now_ns = self.driver.now_ns();
        self.communicator.shrink(now_ns, &[], self.driver.endpoint()).expect("may ask");
        self.until_epoch()
    }

    fn knocks(&mut self) -> bool {
        let now_ns = self.driver.now_ns();
        let idle = &mut |_, _, _: &mut Endpoint| ControlFlow::<()>::Continue(());
        self.driver.run(now_ns + SECOND / 100, idle).expect("link");
        !self.driver.endpoint().knocking(now_ns).is_empty()
    }
}

fn open(port: u16, channels: u16) -> Vec<UdpLink> {
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let config = UdpConfig { data_sockets: 4, ..UdpConfig::new(own) };
    UdpLink::open_channels(&config, channels, &Shared::default()).expect("loopback")
}

#[test]
fn a_rank_that_has_died_and_started_anew_sums_with_the_others_again() {
    for (sealed, channels) in [(false, 1), (true, 1), (false, 2), (true, 2)] {
        let links: Vec<Vec<UdpLink>> = (0..WORLD).map(|_| open(0, channels)).collect();
        let addresses: Vec<SocketAddr> =
            links.iter().map(|links| trimwire_agent::driver::Link::local_address(&links[0])).collect();
        let (step, knocked) = (Barrier::new(2), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for (rank, links) in (0..WORLD).zip(links) {
                let (step, knocked, addresses) = (&step, &knocked, &addresses);
                let mut process = Process::start(rank, links, addresses, sealed);
                scope.spawn(move || {
                    assert_eq!(process.sum().expect("of three"), vec![6.0; COORDINATES]);
                    if rank == 2 {
                        // When the others have their sum, too, it dies, and starts anew on the same
                        // port.
                        process.leave(SECOND / 20);
                        let links = open(addresses[2].port(), channels);
                        let mut process = Process::start(rank, links, addresses, sealed);
                        let now_ns = process.driver.now_ns();
                        process.communicator.join(now_ns, process.driver.endpoint());
                        let epoch = process.until_epoch();
                        assert_eq!((epoch.number, epoch.arrivals), (2, vec![2]));
                        assert_eq!(process.sum().expect("of three"), vec![6.0; COORDINATES]);
                        return process.leave(SECOND / 2);
                    }
                    let error = process.sum().expect_err("rank 2 is dead");
                    assert!(error.contains("rank 2"), "{error}");
                    let epoch = process.shrink();
                    assert_eq!((epoch.number, &epoch.members[..]), (1, &[0, 1][..]));
                    assert_eq!(process.sum().expect("of two"), vec![3.0; COORDINATES]);
                    // As a training loop would: every rank says in its sum whether somebody knocks,
                    // and all hear it.
                    while knocked.load(Ordering::SeqCst) < 2 {
                        if process.knocks() {
                            knocked.fetch_add(1, Ordering::SeqCst);
                            while knocked.load(Ordering::SeqCst) < 2 {
                                process.knocks();
                            }
                        }
                    }
                    step.wait();
                    let now_ns = process.driver.now_ns();
                    process.communicator.grow(now_ns, &[], process.driver.endpoint()).expect("may ask");
                    let epoch = process.until_epoch();
                    assert_eq!((epoch.number, &epoch.members[..]), (2, &[0, 1, 2][..]));
                    assert_eq!(process.sum().expect("of three"), vec![6.0; COORDINATES]);
                    process.leave(SECOND / 2);
                });
            }
        });
    }
}
