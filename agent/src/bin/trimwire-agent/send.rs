//! `trimwire-agent send`.

use crate::args::SendArgs;
use crate::report::{Report, Sent, Totals, table};
use crate::units::rate_text;
use crate::{Failure, bad_input, failed, gradient, print};
use anyhow::anyhow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;
use trimwire_agent::endpoint::{Endpoint, Event, SendError};
use trimwire_encoder::{Encoder, Envelope, Job, Message};

pub(crate) fn run(args: &SendArgs) -> Result<bool, Failure> {
    let (rank, to_rank) = (args.rank, args.to_rank);
    let world = rank.max(to_rank) + 1;
    if rank == to_rank {
        return Err(bad_input(SendError::Rank { rank, to: to_rank, world }));
    }
    let (file, coordinates) = args.gradient.load()?;
    let layout = args.codec.layout(coordinates)?;
    let to = args.to.or_port(args.link.port());
    let any = if to.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let fallback = SocketAddr::new(any, args.link.port());
    let peers = BTreeMap::from([(to_rank, to)]);
    let mut driver = args.link.driver(rank, world, peers, fallback, Some((&args.rate, args.rate_law)))?;

    let encoder = Encoder::new(layout, Job::new(args.link.seed()));
    let encoder = match driver.endpoint().sealer() {
        Some(sealer) => encoder.sealed(sealer),
        None => encoder,
    };
    let (mut messages, mut failures) = (Vec::new(), Vec::new());
    for id in 0..args.gradient.messages {
        let made;
        let values = if let Some(values) = &file {
            values
        } else {
            made = gradient::gaussian(coordinates, args.link.seed(), rank, id);
            &made
        };
        let stream = driver.endpoint().stream();
        let envelope = Envelope { stream, message: id };
        let mut message = Message::default();
        encoder.encode(values, envelope, args.codec.planes, &mut message).map_err(bad_input)?;
        let now_ns = driver.now_ns();
        driver.endpoint().send(now_ns, to_rank, &message).map_err(failed)?;
        // The endpoint's own time-outs end it earlier.
        let outcome = driver.run(u64::MAX, &mut |_, event, _: &mut Endpoint| match event {
            Event::Sent { stats, .. } => ControlFlow::Break(Ok(stats)),
            Event::Failed { error, .. } => ControlFlow::Break(Err(error)),
            _ => ControlFlow::Continue(()),
        });
        match outcome.map_err(failed)?.ok_or_else(|| failed(anyhow!("the transfer did not end")))? {
            Ok(stats) => {
                let seconds = stats.duration_ns as f64 / 1e9;
                messages.push(Sent {
                    to: to_rank,
                    message: id,
                    packets: stats.packets,
                    missing: stats.missing,
                    repaired: stats.repaired,
                    probes: stats.probes,
                    payload_bytes: stats.bytes_sent,
                    retransmitted_bytes: stats.retransmitted_bytes,
                    seconds,
                    bitrate_bps: stats.bytes_sent as f64 * 8.0 / seconds.max(1e-9),
                });
            }
            Err(error) => {
                failures.push(error.to_string());
                break;
            }
        }
    }
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
    let seed = args.link.seed();
    let report = Report { role: "send", rank, seed, coordinates, messages, failures, totals };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report))?;
    }
    report.failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(report.failures.is_empty())
}

fn text(report: &Report<Sent>) -> String {
    let rows: Vec<Vec<String>> = report
        .messages
        .iter()
        .map(|sent| {
            vec![
                sent.message.to_string(),
                sent.packets.to_string(),
                sent.repaired.to_string(),
                sent.missing.to_string(),
                sent.probes.to_string(),
                format!("{:.3}", sent.seconds * 1e3),
                rate_text(sent.bitrate_bps),
            ]
        })
        .collect();
    table(&["message", "packets", "repaired", "missing", "probes", "time ms", "bitrate"], &rows)
}
