// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec inspect`: what is in a packet.

mod capture;
mod codes;
mod frame;
mod hex;
mod masks;
mod report;

use super::stdin;
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json};
use anyhow::{Context as _, Result, anyhow, ensure};
use clap::{ArgGroup, Args};
use frame::Datagram;
use masks::Masks;
use report::{Packet, Summary};
use serde::Serialize;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Examples:
  trimwire codec inspect capture.pcapng                    packets from or to UDP port 9217
  trimwire codec inspect --port 0 --limit 0 --json c.pcap  all UDP traffic, every packet, as JSON
  trimwire codec inspect --hex '51 07 0402 00000003 …'        one UDP payload
  trimwire codec inspect payload.bin                       a file that is no capture is one UDP payload

Packets are decoded as long as they arrived: a trimmed packet shows what it still holds. Exit codes: 1 when a
packet is not Trimwire's or is damaged, 3 when the input cannot be read.";

/// Decode packets' headers and planes, from hex or captures.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
#[command(override_usage = "trimwire codec inspect [OPTIONS] <FILE | --pcap FILE | --hex STRING>...")]
#[command(group = ArgGroup::new("packets").required(true).multiple(true).args(["files", "pcap", "hex"]))]
pub(crate) struct Options {
    /// Captures (pcap or pcapng), or files that hold one UDP payload each; - is stdin.
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Capture, pcap or pcapng.
    #[arg(long, value_name = "FILE")]
    pub pcap: Vec<PathBuf>,
    /// UDP payload in hex. Blanks, colons, commas and 0x are ignored.
    #[arg(long, value_name = "STRING")]
    pub hex: Vec<String>,
    /// UDP port to look at in captures, source or destination; 0 takes all.
    #[arg(long, default_value_t = 9217)]
    pub port: u16,
    /// Show at most this many packets; 0 shows all. The summary counts every one.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// Incarnation of a sender, to unmask its DATA headers. Control packets of a capture tell it as
    /// well.
    #[arg(long, value_name = "NUMBER")]
    pub incarnation: Vec<u32>,
    /// Show this many coordinates of each packet.
    #[arg(long, value_name = "K", default_value_t = 8)]
    pub coordinates: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// What the length field of UDP over IPv6 has room for (RFC 768).
const LONGEST_PAYLOAD: usize = 65_535 - 8;

#[derive(Debug, Serialize)]
struct Report {
    packets: Vec<Packet>,
    summary: Summary,
}

/// Decodes and prints.
pub(super) fn run(options: &Options) -> Outcome {
    let mut report = Report { packets: Vec::new(), summary: Summary::default() };
    let mut masks = Masks::new(&options.incarnation);
    let files = options.files.iter().chain(&options.pcap).map(|path| Ok((path, read(path)?)));
    let files: Vec<_> = files.collect::<Result<_>>().map_err(Failure::input)?;
    for (path, bytes) in &files {
        // What is wrong with a capture is said below.
        let _ = capture::each(bytes, &path.display().to_string(), options.port, &mut |datagram| {
            masks.hear(&datagram.payload);
        });
    }
    let mut take = |datagram: Datagram| {
        let packet = Packet::decode(&datagram, options.coordinates, &masks);
        report.summary.count(&packet);
        if options.limit == 0 || report.packets.len() < options.limit {
            report.packets.push(packet);
        }
    };
    for (nth, text) in options.hex.iter().enumerate() {
        let payload = hex::parse(text).with_context(|| format!("--hex number {}", nth + 1));
        take(Datagram::bare(format!("hex {}", nth + 1), payload.map_err(Failure::input)?));
    }
    let mut elsewhere = 0;
    for (path, bytes) in files {
        let name = path.display().to_string();
        if capture::is_capture(&bytes) {
            let counted = capture::each(&bytes, &name, options.port, &mut take).map_err(Failure::input)?;
            elsewhere += counted.elsewhere;
            if let Some(problem) = counted.problem {
                eprintln!("trimwire: {name}: {problem}");
            }
        } else if options.pcap.contains(path) {
            let error =
                anyhow!("{name} is no capture: it begins with neither pcap's nor pcapng's magic number");
            return Err(Failure::input(error));
        } else if !(1..=LONGEST_PAYLOAD).contains(&bytes.len()) {
            let error = anyhow!(
                "{name} is neither a capture (pcap, pcapng) nor a UDP payload: it has {} bytes (valid: 1 to {LONGEST_PAYLOAD})",
                bytes.len()
            );
            return Err(Failure::input(error));
        } else {
            take(Datagram::bare(name, bytes));
        }
    }
    report.summary.elsewhere = elsewhere;
    if options.json {
        print_json(&report)?;
    } else {
        for packet in &report.packets {
            print(&packet.render())?;
        }
        print(&report.summary.render(report.packets.len(), options.port))?;
    }
    match report.summary.bad {
        0 => Ok(()),
        bad => Err(Failure::failed(anyhow!("{bad} of {} packets cannot be decoded", report.summary.packets))),
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if stdin::is(path) {
        return stdin::read();
    }
    ensure!(!path.is_dir(), "{} is a directory; packets are in files", path.display());
    std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests;
