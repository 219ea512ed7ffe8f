// SPDX-License-Identifier: Apache-2.0
//! What all-reduces take: between two ranks of this process on loopback, or as ranks of a perf have
//! measured.

use super::codec::{Samples, median};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::net::{IpAddr, Ipv4Addr};
use trimwire_agent::collective::{Algorithm, Collective, Communicator, CommunicatorConfig, Memory, Options};
use trimwire_agent::driver::{Driver, Link, UdpConfig, UdpLink, on_sockets};
use trimwire_agent::endpoint::{EndpointConfig, Reliability};
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET};

/// Coordinates of f32.
const SIZES: [usize; 6] = [1 << 10, 1 << 13, 1 << 15, 1 << 17, 1 << 19, 1 << 21];
/// Faster than loopback: what holds back is the machine.
const LINE_BPS: u64 = 100_000_000_000;
const LIMIT_NS: u64 = 60_000_000_000;

/// (Bytes on the wire, seconds) of all-reduces of every bit.
pub(super) fn on_loopback(rounds: u32) -> Result<Samples> {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let open = || UdpLink::open(UdpConfig::on(&[ip], 0)?);
    let links = [open()?, open()?];
    let addresses = links.each_ref().map(Link::local_address);
    std::thread::scope(|scope| {
        let ranks = (0..).zip(links).map(|(rank, link)| {
            let other = addresses[usize::from(1 - rank)];
            scope.spawn(move || one_rank(rank, link, other, rounds))
        });
        // Both are to run before the first is waited for.
        let ranks: Vec<_> = ranks.collect();
        let mut times = Vec::new();
        for rank in ranks {
            times.push(rank.join().map_err(|_| anyhow!("a rank's thread has ended"))??);
        }
        times.into_iter().next().context("no rank")
    })
}

fn one_rank(rank: u16, link: UdpLink, other: std::net::SocketAddr, rounds: u32) -> Result<Samples> {
    let mut config = on_sockets(EndpointConfig::new(rank, 2, LINE_BPS));
    config.reliability = Reliability::Full;
    config.peers = [(1 - rank, other)].into();
    let mut driver = Driver::new(config, link);
    let mut communicator = Communicator::new(CommunicatorConfig::new(rank, 2));
    let (mut number, mut times) = (0, Vec::new());
    for size in SIZES {
        let mut took = Vec::new();
        for round in 0..=rounds {
            let tensor = Memory::from_vec((0..size).map(|i| (i % 1_000) as f32 - 500.0).collect());
            let options = Options { exact: true, algorithm: Algorithm::Direct, ..Options::default() };
            let now_ns = driver.now_ns();
            communicator.start(
                now_ns,
                number,
                Collective::AllReduce { tensor },
                options,
                driver.endpoint(),
            )?;
            let outcome = driver.run(now_ns.saturating_add(LIMIT_NS), &mut communicator)?;
            let outcome = outcome.with_context(|| format!("{size} coordinates took more than a minute"))?;
            outcome.result?;
            number += 1;
            if round > 0 {
                took.push(outcome.duration_ns as f64 / 1e9);
            }
        }
        times.push((4.0 * size as f64, median(took)));
    }
    driver.linger(100_000_000, 2_000_000_000)?;
    Ok(times)
}

/// Ranks, and (bytes on the wire, seconds), of what a perf printed.
pub(super) fn of_perf(text: &str) -> Result<(u32, Samples)> {
    let report: serde_json::Value =
        serde_json::from_str(text).context("is no JSON of trimwire-agent perf")?;
    let role = report["role"].as_str().unwrap_or("nothing");
    ensure!(role == "all-reduce", "role: '{role}'; all-reduces are what is fitted");
    let world = report["world"].as_u64().filter(|world| (2..=1_024).contains(world));
    let world = world.with_context(|| format!("world: {}; valid are 2 to 1024", report["world"]))?;
    let rows = report["rows"].as_array().context("rows: there are none")?;
    let mut samples = Vec::new();
    for row in rows {
        let number =
            |key: &str| row[key].as_f64().with_context(|| format!("rows: {key}: {} is no number", row[key]));
        let (bytes, seconds, planes, error) =
            (number("bytes")?, number("seconds_p50")?, number("planes")?, number("nmse")?);
        // What is exact counts as one plane of the raw codec.
        let share = if error == 0.0 {
            1.0
        } else {
            ensure!((1.0..=10.0).contains(&planes), "rows: planes: {planes}; valid are 1 to 10");
            Codec::Rht.packet_len(planes as u8, DEFAULT_COORDINATES_PER_PACKET, false) as f64
                / (4 * DEFAULT_COORDINATES_PER_PACKET) as f64
        };
        samples.push((bytes * share, seconds));
    }
    ensure!(samples.len() >= 2, "rows: {}; a constant and a slope need two sizes (-b, -e)", samples.len());
    Ok((world as u32, samples))
}
