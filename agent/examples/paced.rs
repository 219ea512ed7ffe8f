// SPDX-License-Identifier: Apache-2.0
//! What pacing costs, and how far from each other packets arrive that should be as far apart as the
//! rate says: gradients that are encoded beforehand, from one rank to another.
//!
//!     paced receive 10.0.0.2:9300 10.0.0.1:9300
//!     paced send 10.0.0.1:9300 10.0.0.2:9300 1000000000 user        # or kernel, or auto
//!
//! Each end prints its processor time as JSON when all messages are over. Spacing is what a capture
//! at the receiver's interface shows.

use anyhow::{Context as _, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::json;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use trimwire_agent::driver::{Driver, Pacing, UdpConfig, UdpLink, on_sockets};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event, Expectation, Reliability};
use trimwire_agent::rate::RateConfig;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoding, Encoder, Envelope, Job, Layout, Message, PLANES,
};

const SECOND: u64 = 1_000_000_000;
const JOB: Job = Job::new(1);

#[derive(Debug, Parser)]
#[command(about = "One-way transfer at a fixed rate, without the codec's time")]
struct Args {
    #[command(subcommand)]
    end: End,
    /// Messages, all of which are kept encoded in memory.
    #[arg(long, default_value_t = 8, global = true)]
    messages: u32,
    /// Coordinates of each.
    #[arg(long, default_value_t = 1 << 18, global = true)]
    coordinates: usize,
}

#[derive(Debug, Subcommand)]
enum End {
    Receive { own: SocketAddr, peer: SocketAddr },
    Send { own: SocketAddr, peer: SocketAddr, rate_bps: u64, pacing: PacingName },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PacingName {
    Auto,
    Kernel,
    User,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.end {
        End::Receive { own, peer } => receive(&args, own, peer),
        End::Send { own, peer, rate_bps, pacing } => {
            let pacing = match pacing {
                PacingName::Auto => Pacing::Auto,
                PacingName::Kernel => Pacing::Kernel,
                PacingName::User => Pacing::User,
            };
            send(&args, own, peer, rate_bps, pacing)
        }
    }
}

fn driver(
    rank: u16,
    own: SocketAddr,
    peer: SocketAddr,
    rate_bps: u64,
    pacing: Pacing,
) -> anyhow::Result<Driver<UdpLink>> {
    let mut config = EndpointConfig::new(rank, 2, rate_bps);
    config.rate = RateConfig::Fixed(None);
    config.reliability = Reliability::Full;
    config.peers.insert(1 - rank, peer);
    let mut config = on_sockets(config);
    config.pace_at_line = true;
    Ok(Driver::new(config, UdpLink::open(UdpConfig { pacing, ..UdpConfig::new(own) })?))
}

fn layout(args: &Args) -> anyhow::Result<Layout> {
    Ok(Layout::new(args.coordinates, DEFAULT_COORDINATES_PER_PACKET)?)
}

/// Seconds of processor time of this process so far: its own, and the kernel's for it.
fn processor_seconds() -> anyhow::Result<(f64, f64)> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let seconds = |time: nix::sys::time::TimeVal| time.num_microseconds() as f64 / 1e6;
    Ok((seconds(usage.user_time()), seconds(usage.system_time())))
}

fn receive(args: &Args, own: SocketAddr, peer: SocketAddr) -> anyhow::Result<()> {
    let mut driver = driver(1, own, peer, 100_000_000_000, Pacing::User)?;
    let now_ns = driver.now_ns();
    for message in 1..=args.messages {
        let expectation = Expectation {
            layout: layout(args)?,
            codec: Codec::Rht,
            job: JOB,
            decoding: Decoding::Unbiased,
            reliability: Reliability::Full,
            planes: PLANES,
            until_ns: None,
            keep: None,
            origin: None,
            agree: false,
        };
        driver.endpoint().expect(now_ns, 0, message, expectation)?;
    }
    let mut left = args.messages;
    let outcome = driver.run(120 * SECOND, &mut |_, event, endpoint: &mut Endpoint| match event {
        Event::Row { row, .. } => {
            endpoint.recycle(*row);
            ControlFlow::Continue(())
        }
        Event::Received { .. } => {
            left -= 1;
            if left == 0 { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
        }
        Event::Failed { .. } => ControlFlow::Break(Err(format!("{event:?}"))),
        _ => ControlFlow::Continue(()),
    })?;
    ensure!(outcome == Some(Ok(())), "{outcome:?}, {left} messages left");
    driver.linger(SECOND / 5, SECOND)?;
    println!(
        "{}",
        json!({ "processor_seconds": processor_seconds()?, "sockets": driver.link_stats().received })
    );
    Ok(())
}

fn send(args: &Args, own: SocketAddr, peer: SocketAddr, rate_bps: u64, pacing: Pacing) -> anyhow::Result<()> {
    let mut driver = driver(0, own, peer, rate_bps, pacing)?;
    let gradient: Vec<f32> =
        (0..args.coordinates).map(|i| ((i * 7_919) % 1_000) as f32 / 500.0 - 1.0).collect();
    let encoder = Encoder::new(layout(args)?, JOB);
    let mut messages = Vec::new();
    for message in 1..=args.messages {
        let mut encoded = Message::default();
        let stream = driver.endpoint().stream();
        encoder.encode(&gradient, Envelope { stream, message }, PLANES, &mut encoded)?;
        messages.push(encoded);
    }
    let before = processor_seconds()?;
    let begun_ns = driver.now_ns();
    for message in &messages {
        driver.endpoint().send(begun_ns, 1, message).context("send")?;
    }
    let mut left = args.messages;
    let outcome = driver.run(120 * SECOND, &mut |_, event, _: &mut Endpoint| match event {
        Event::Sent { .. } => {
            left -= 1;
            if left == 0 { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
        }
        Event::Failed { .. } => ControlFlow::Break(Err(format!("{event:?}"))),
        _ => ControlFlow::Continue(()),
    })?;
    let Some(Ok(())) = outcome else { bail!("{outcome:?}, {left} messages left") };
    let seconds = (driver.now_ns() - begun_ns) as f64 / 1e9;
    let after = processor_seconds()?;
    let (kernel, stats, rtt_ns) =
        (driver.link().is_paced_by_kernel(), *driver.endpoint().stats(), driver.endpoint().rtt_ns(1));
    println!(
        "{}",
        json!({
            "paced_by": if kernel { "kernel" } else { "this process" },
            "seconds": seconds,
            "user_seconds": after.0 - before.0,
            "system_seconds": after.1 - before.1,
            "bps": driver.link_stats().sent_bytes as f64 * 8.0 / seconds,
            "packets": stats.data_sent,
            "repairs": stats.repairs_sent,
            "unheld": stats.unheld,
            "rtt_us": rtt_ns.map(|rtt_ns| rtt_ns as f64 / 1e3),
        })
    );
    Ok(())
}
