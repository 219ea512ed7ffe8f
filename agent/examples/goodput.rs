// SPDX-License-Identifier: Apache-2.0
//! How much a link carries one way, beside iperf3: two network namespaces, a veth pair, a core a side.
//!
//!     cargo build --release -p trimwire-agent --example goodput && sudo target/release/examples/goodput
//!
//! Rows take turns (`--rounds`), and each round's ratio to iperf3 is of the same few seconds; the median round is printed. What counts is
//! what arrives. `--json` prints every round.

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trimwire_agent::burst::{Burst, Origin};
use trimwire_agent::driver::{Link, Receive, UdpConfig, UdpLink};

#[derive(Debug, Parser)]
#[command(about = "One-way goodput of a link over veth, beside iperf3's")]
struct Args {
    #[command(subcommand)]
    end: Option<End>,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measurements of each row.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Payload bytes of the datagrams.
    #[arg(long, value_delimiter = ',', default_values_t = [1_362, 1_458])]
    length: Vec<usize>,
    /// Turn the interfaces' checksum and segmentation offloads off (ethtool).
    #[arg(long)]
    no_offloads: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The two ends, which the program starts itself.
#[derive(Debug, Subcommand)]
enum End {
    #[command(hide = true)]
    Receive {
        bind: SocketAddr,
        #[arg(long)]
        raw: bool,
    },
    #[command(hide = true)]
    Send {
        bind: SocketAddr,
        to: SocketAddr,
        length: usize,
        /// Datagrams of a burst.
        burst: usize,
        #[arg(long)]
        segmentation: bool,
        seconds: f64,
    },
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    match args.end {
        None => compare(&args),
        Some(End::Receive { bind, raw }) => receive(bind, raw),
        Some(End::Send { bind, to, length, burst, segmentation, seconds }) => {
            send(bind, to, length, burst, segmentation, seconds)
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

/// Counts until nothing has come for half a second.
fn receive(bind: SocketAddr, raw: bool) -> anyhow::Result<()> {
    let mut config = UdpConfig::new(bind);
    config.receive = if raw { Receive::Raw } else { Receive::Socket };
    let mut link = UdpLink::open(config)?;
    println!("ready");
    let (mut first, mut last, mut checksum) = (None, now(), 0_u64);
    loop {
        let count = link.receive(&mut |_, payload| checksum += u64::from(payload[0]))?;
        if count > 0 {
            last = now();
            first.get_or_insert(last);
        } else if first.is_some() && last.elapsed() > Duration::from_millis(500) {
            break;
        } else {
            link.wait(100_000_000, false)?;
        }
    }
    let seconds = first.map_or(0.0, |first| (last - first).as_secs_f64());
    let stats = link.stats();
    let report = json!({"seconds": seconds, "datagrams": stats.received, "bytes": stats.received_bytes, "sum": checksum});
    println!("{report}");
    Ok(())
}

fn send(
    bind: SocketAddr,
    to: SocketAddr,
    length: usize,
    burst: usize,
    segmentation: bool,
    seconds: f64,
) -> anyhow::Result<()> {
    let mut link = UdpLink::open(UdpConfig { segmentation, ..UdpConfig::new(bind) })?;
    // 8 MiB to send from: more than the second-level cache holds, as gradients are.
    let payload = Bytes::from(vec![1; (8 << 20) / (length * burst) * (length * burst)]);
    let (mut batch, mut at, mut path) = (VecDeque::new(), 0, 0_u16);
    let start = now();
    while start.elapsed().as_secs_f64() < seconds {
        while batch.len() * burst < 128 {
            let end = at + length * burst;
            let payload = payload.slice(at..end);
            batch.push_back(Burst {
                to,
                origin: Origin::Path(path),
                tos: 0,
                payload,
                segment: length,
                departs_ns: 0,
            });
            at = if end + length * burst > 8 << 20 { 0 } else { end };
            path = (path + 1) % 16;
        }
        link.send(&mut batch)?;
        if !batch.is_empty() {
            link.wait(1_000_000, true)?;
        }
    }
    let (seconds, stats) = (start.elapsed().as_secs_f64(), link.stats());
    ensure!(stats.refused == 0, "{:?}", link.refusal());
    ensure!(link.segments() == segmentation, "the kernel does not segment");
    println!("{}", json!({"seconds": seconds, "datagrams": stats.sent, "bytes": stats.sent_bytes}));
    Ok(())
}

/// Two namespaces, removed with it.
struct Namespaces([String; 2]);

const PORT: u16 = 9217;
const ADDRESSES: [&str; 2] = ["10.84.0.1", "10.84.0.2"];

impl Namespaces {
    fn new() -> anyhow::Result<Self> {
        let made = Self([0, 1].map(|i| format!("twgoodput{}x{i}", std::process::id())));
        let [a, b] = &made.0;
        let mut lines = vec![
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add eth0 netns {a} type veth peer name eth0 netns {b}"),
        ];
        for (name, address) in made.0.iter().zip(ADDRESSES) {
            lines.push(format!("-n {name} addr add {address}/24 dev eth0"));
            lines.push(format!("-n {name} link set eth0 up"));
        }
        for line in lines {
            let status = Command::new("ip").args(line.split(' ')).status().context("running ip")?;
            ensure!(status.success(), "`ip {line}` failed: namespaces need root");
        }
        Ok(made)
    }

    /// A program on the core of an end.
    fn command(&self, end: usize, program: &str, words: &str) -> Command {
        let mut command = Command::new("ip");
        let core = end.to_string();
        command.args(["netns", "exec", &self.0[end], "taskset", "-c", &core, program]);
        command.args(words.split_whitespace()).stdout(Stdio::piped());
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// Gigabytes a second (sent, received) of iperf3.
fn iperf3(network: &Namespaces, length: usize, seconds: f64) -> anyhow::Result<(f64, f64)> {
    let mut server = network.command(1, "iperf3", "-s -1").spawn().context("running iperf3")?;
    let words = format!("-u -c {} -l {length} -b 0 -t {} -J", ADDRESSES[1], seconds.ceil());
    // What a socket may ask for on most systems; the link's are larger where it runs as root.
    let larger = format!("{words} -w 2M");
    let mut outcome = None;
    // Until the server listens.
    for attempt in 0..100 {
        let words = if attempt % 2 == 0 { &larger } else { &words };
        let output = network.command(0, "iperf3", words).stderr(Stdio::null()).output()?;
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let sum = |name: &str| report["end"][name]["bits_per_second"].as_f64();
        // Before 3.10 the totals of a UDP test are `sum`, less what was lost.
        if let (Some(sent), Some(received)) = (sum("sum_sent"), sum("sum_received")) {
            outcome = Some((sent / 8e9, received / 8e9));
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    if outcome.is_none() {
        server.kill()?;
    }
    server.wait()?;
    outcome.context("iperf3 gave no totals")
}

fn ours(network: &Namespaces, row: &Row, length: usize, seconds: f64) -> anyhow::Result<(f64, f64)> {
    let own = std::env::current_exe()?;
    let own = own.to_str().context("path of this program")?;
    let raw = if row.raw { "--raw" } else { "" };
    let mut receiver = network.command(1, own, &format!("receive {}:{PORT} {raw}", ADDRESSES[1])).spawn()?;
    wait_for_ready(&mut receiver)?;
    let segmentation = if row.segmentation { "--segmentation" } else { "" };
    let [from, to] = ADDRESSES;
    let words = format!("send {from}:{PORT} {to}:{PORT} {length} {} {segmentation} {seconds}", row.burst);
    let sent = network.command(0, own, &words).output()?;
    let received = receiver.wait_with_output()?;
    ensure!(sent.status.success() && received.status.success(), "an end failed");
    let rate = |report: &[u8]| -> anyhow::Result<f64> {
        let report: Value = serde_json::from_slice(report)?;
        let get = |name: &str| report[name].as_f64().context("report");
        Ok(get("bytes")? / get("seconds")? / 1e9)
    };
    Ok((rate(&sent.stdout)?, rate(&received.stdout)?))
}

fn wait_for_ready(receiver: &mut Child) -> anyhow::Result<()> {
    use std::io::Read as _;
    let mut line = [0; 6];
    receiver.stdout.as_mut().context("piped")?.read_exact(&mut line)?;
    if line != *b"ready\n" {
        bail!("the receiver said {:?}", String::from_utf8_lossy(&line));
    }
    Ok(())
}

struct Row {
    name: &'static str,
    burst: usize,
    segmentation: bool,
    raw: bool,
}

const ROWS: [Row; 5] = [
    Row { name: "without GSO", burst: 16, segmentation: false, raw: false },
    Row { name: "GSO, bursts of 16", burst: 16, segmentation: true, raw: false },
    Row { name: "GSO, bursts of 44", burst: 44, segmentation: true, raw: false },
    Row { name: "raw, without GSO", burst: 16, segmentation: false, raw: true },
    Row { name: "raw, GSO, bursts of 16", burst: 16, segmentation: true, raw: true },
];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn compare(args: &Args) -> anyhow::Result<()> {
    let network = Namespaces::new()?;
    if args.no_offloads {
        for end in [0, 1] {
            let words = "-K eth0 tx off rx off gso off gro off";
            let status = network.command(end, "ethtool", words).status().context("running ethtool")?;
            ensure!(status.success(), "ethtool {words} failed");
        }
    }
    let mut rounds = Vec::new();
    if !args.json {
        // iperf3's receiver loses much where its sender does not wait for it: both ratios.
        println!(
            "{:<8}{:<26}{:>12}{:>15}{:>18}{:>15}",
            "bytes", "", "sent GB/s", "received GB/s", "x iperf3 received", "x iperf3 sent"
        );
    }
    for &length in &args.length {
        let mut theirs = Vec::new();
        let mut rows: Vec<Vec<[f64; 4]>> = vec![Vec::new(); ROWS.len()];
        for _ in 0..args.rounds {
            let base = iperf3(&network, length, args.seconds)?;
            rounds.push(json!({"bytes": length, "row": "iperf3", "sent_gbps": base.0 * 8.0, "received_gbps": base.1 * 8.0}));
            theirs.push(base);
            for (row, of_row) in ROWS.iter().zip(&mut rows) {
                let (sent, received) = ours(&network, row, length, args.seconds)?;
                of_row.push([sent, received, received / base.1, received / base.0]);
                rounds.push(json!({
                    "bytes": length, "row": row.name, "sent_gbps": sent * 8.0, "received_gbps": received * 8.0,
                    "to_iperf3_received": received / base.1, "to_iperf3_sent": received / base.0,
                }));
            }
        }
        if args.json {
            continue;
        }
        let (sent, received): (Vec<f64>, Vec<f64>) = theirs.into_iter().unzip();
        println!("{length:<8}{:<26}{:>12.3}{:>15.3}", "iperf3 -u", median(sent), median(received));
        for (row, of_row) in ROWS.iter().zip(&rows) {
            let [sent, received, to_received, to_sent] =
                [0, 1, 2, 3].map(|column| median(of_row.iter().map(|round| round[column]).collect()));
            println!(
                "{length:<8}{:<26}{sent:>12.3}{received:>15.3}{to_received:>18.2}{to_sent:>15.2}",
                row.name
            );
        }
    }
    if args.json {
        println!("{}", json!({"rows": rounds}));
    }
    Ok(())
}
