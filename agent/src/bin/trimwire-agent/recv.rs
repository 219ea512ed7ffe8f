//! `trimwire-agent recv`.

use crate::args::RecvArgs;
use crate::report::{Received, Report, Totals, table};
use crate::units::rate_text;
use crate::{Failure, bad_input, failed, gradient, print};
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use trimwire_agent::endpoint::{Endpoint, Event, Expectation};
use trimwire_agent::transfer::{TransferError, TransferStats};
use trimwire_encoder::{Codec, Decoding, Job, Layout, PLANES, RowReceiver, expected_nmse, nmse};

/// A sender whose STOP was lost asks again within its longest time-out, 100 ms.
const QUIET_NS: u64 = 250_000_000;
const LINGER_NS: u64 = 5_000_000_000;

/// Rows of a message, as they came.
type Rows = Vec<Box<RowReceiver>>;

enum End {
    Delivered(u64, u16, u32, TransferStats),
    Failed(u16, TransferError),
}

pub(crate) fn run(args: &RecvArgs) -> Result<bool, Failure> {
    let rank = args.rank;
    let world = args.from.iter().map(|source| source.rank).chain([rank]).max().unwrap_or(0) + 1;
    let (file, coordinates) = args.gradient.load()?;
    let layout = args.codec.layout(coordinates)?;
    let port = args.link.port();
    let mut peers = BTreeMap::new();
    let mut left = BTreeMap::new();
    for source in &args.from {
        if source.rank == rank {
            return Err(bad_input(anyhow!("--from {rank} is this rank; --rank changes it")));
        }
        if let Some(address) = source.address {
            peers.insert(source.rank, address.or_port(port));
        }
        left.insert(source.rank, 0);
    }
    let v6 = peers.values().next().is_some_and(SocketAddr::is_ipv6);
    let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
    let mut driver = args.link.driver(rank, world, peers, SocketAddr::new(any, port), None)?;
    let decoding = Decoding::from(args.decoding);
    let seed = args.link.seed();
    let expectation = Expectation {
        layout: layout.clone(),
        codec: Codec::Rht,
        job: Job::new(seed),
        decoding,
        reliability: args.link.reliability(),
        planes: args.codec.planes,
        until_ns: None,
        origin: None,
        agree: false,
    };
    for &from in left.keys() {
        let now_ns = driver.now_ns();
        driver.endpoint().expect(now_ns, from, 0, expectation.clone()).map_err(failed)?;
    }

    let mut arriving: BTreeMap<u16, Rows> = BTreeMap::new();
    let (mut delivered, mut failures) = (Vec::new(), Vec::new());
    let mut bytes_before = 0;
    let mut started_ns = None;
    while !left.is_empty() {
        let end = driver.run(u64::MAX, &mut |now_ns, event, _: &mut Endpoint| match event {
            Event::Row { from, row, .. } => {
                arriving.entry(from).or_default().push(row);
                ControlFlow::Continue(())
            }
            Event::Received { from, message, stats } => {
                ControlFlow::Break(End::Delivered(now_ns, from, message, stats))
            }
            Event::Failed { peer, error, .. } => ControlFlow::Break(End::Failed(peer, error)),
            _ => ControlFlow::Continue(()),
        });
        match end.map_err(failed)?.ok_or_else(|| failed(anyhow!("the transfer did not end")))? {
            End::Delivered(now_ns, from, id, stats) => {
                let done = arriving.remove(&from).unwrap_or_default();
                // The next message is expected before this one is decoded, which takes longer.
                let next = id + 1;
                if next < args.gradient.messages {
                    driver.endpoint().expect(now_ns, from, next, expectation.clone()).map_err(failed)?;
                } else {
                    left.remove(&from);
                }
                let first_ns = driver.take_first_received_ns().or(started_ns).unwrap_or(now_ns);
                started_ns = Some(now_ns);
                let bytes = driver.link_stats().received_bytes;
                delivered.push((from, id, done, stats, now_ns - first_ns, bytes - bytes_before));
                bytes_before = bytes;
            }
            End::Failed(peer, error) => {
                failures.push(error.to_string());
                left.remove(&peer);
            }
        }
    }
    driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;

    let messages = delivered.into_iter().map(|(from, id, rows, stats, took_ns, bytes)| {
        let made;
        let expected = if let Some(values) = &file {
            values
        } else {
            made = gradient::gaussian(coordinates, seed, from, id);
            &made
        };
        received(from, id, &layout, &rows, decoding, expected, stats, took_ns, bytes)
    });
    let messages = messages.collect::<Result<Vec<Received>, Failure>>()?;
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
    let report = Report { role: "recv", rank, seed, coordinates, messages, failures, totals };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report))?;
    }
    report.failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(report.failures.is_empty())
}

#[expect(clippy::too_many_arguments, reason = "the columns of one row")]
fn received(
    from: u16,
    message: u32,
    layout: &Layout,
    rows: &Rows,
    decoding: Decoding,
    expected: &[f32],
    stats: TransferStats,
    took_ns: u64,
    bytes: u64,
) -> Result<Received, Failure> {
    let mut planes = BTreeMap::new();
    let mut got = vec![0.0; expected.len()];
    for row in rows {
        for index in layout.row_packets(row.row()) {
            *planes.entry(row.coverage(index)).or_insert(0) += 1;
        }
        row.decode_into(&mut got[layout.row_coordinates(row.row())]).map_err(failed)?;
    }
    let seconds = took_ns as f64 / 1e9;
    let per_second = |bytes: u64| bytes as f64 * 8.0 / seconds.max(1e-9);
    Ok(Received {
        from,
        message,
        packets: stats.packets,
        full: stats.full,
        cut: stats.cut,
        missing: stats.missing,
        duplicates: stats.duplicates,
        planes,
        nmse: nmse(&got, expected),
        nmse_expected: predicted(layout, rows, decoding, expected),
        seconds,
        goodput_bps: per_second(bytes),
        gradient_bps: per_second(expected.len() as u64 * 4),
    })
}

/// The formula of docs/wire-format.md §9 for each row, weighted by the rows' energies.
fn predicted(layout: &Layout, rows: &Rows, decoding: Decoding, expected: &[f32]) -> f64 {
    let (mut error, mut energy) = (0.0, 0.0);
    for receiver in rows {
        let row = receiver.row();
        let range = layout.row_range(row);
        let mut shares: BTreeMap<u8, f64> = BTreeMap::new();
        for index in layout.row_packets(row) {
            let planes = receiver.coverage(index);
            if planes < PLANES {
                let share = layout.packet_range(index).len() as f64 / range.len() as f64;
                *shares.entry(planes).or_default() += share;
            }
        }
        let shares: Vec<(u8, f64)> = shares.into_iter().collect();
        // A row of which nothing arrived is decoded as zeros.
        let row_error =
            expected_nmse(Codec::Rht, decoding, &shares).filter(|nmse| nmse.is_finite()).unwrap_or(1.0);
        let values = expected.get(layout.row_coordinates(row)).unwrap_or_default();
        let row_energy: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        error += row_error * row_energy;
        energy += row_energy;
    }
    if energy == 0.0 { 0.0 } else { error / energy }
}

fn text(report: &Report<Received>) -> String {
    let rows: Vec<Vec<String>> = report
        .messages
        .iter()
        .map(|got| {
            vec![
                got.from.to_string(),
                got.message.to_string(),
                got.packets.to_string(),
                got.full.to_string(),
                got.cut.to_string(),
                got.missing.to_string(),
                format!("{:.3e}", got.nmse),
                format!("{:.3e}", got.nmse_expected),
                format!("{:.3}", got.seconds * 1e3),
                rate_text(got.goodput_bps),
                rate_text(got.gradient_bps),
            ]
        })
        .collect();
    let headings = [
        "from", "message", "packets", "full", "cut", "missing", "nmse", "expected", "time ms", "goodput",
        "gradient",
    ];
    table(&headings, &rows)
}
