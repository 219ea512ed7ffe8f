// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf transfer`: gradients one way, from one or several senders to one receiver, in iperf3's manner.
//!
//! ```text
//!  client                                server
//!  connect                 ───────────►            TCP, on the port whose UDP namesake takes the data
//!                          ◄───────────  hello
//!  offer: what is sent     ───────────►
//!                          ◄───────────  welcome: your rank (or: refused, and why)
//!  ready: my UDP port      ───────────►            … until as many as --senders are
//!                          ◄───────────  go
//!  DATA over UDP           ═══════════►
//!  over: so many messages  ───────────►            of a test for so long (--time)
//!                          ◄───────────  result: what arrived, how fast
//! ```

mod client;
mod flow;
mod greeting;
mod received;
mod server;

use crate::Failure;
use crate::args::{CodecArgs, DecodingName, LinkArgs, RateAlgorithm, RateArgs};
use crate::gradient::GradientArgs;
use crate::units::time_ns;
use clap::{Arg, Args};
use std::path::PathBuf;

/// What the client tells the server, so that nobody has to say it twice.
const CLIENTS_ALONE: [&str; 18] = [
    "bytes",
    "file",
    "messages",
    "time",
    "seed",
    "job",
    "loss",
    "reliable",
    "planes",
    "coordinates_per_packet",
    "row_log2",
    "layer_class",
    "bitrate",
    "trim_delay",
    "t_low",
    "t_high",
    "droppable",
    "rate_algorithm",
];

/// More messages than this are one line of a table.
const LINES: usize = 64;

fn roles(arg: Arg) -> Arg {
    if CLIENTS_ALONE.contains(&arg.get_id().as_str()) { arg.conflicts_with("server") } else { arg }
}

#[derive(Args)]
#[command(mut_args = roles)]
pub(crate) struct TransferArgs {
    /// Receive: serve one test, as the clients ask.
    #[arg(short = 's', long, required_unless_present = "client", conflicts_with = "client")]
    server: bool,
    /// Send to the server at this host. It listens on the TCP port given here or with --port.
    #[arg(short = 'c', long, value_name = "HOST[:PORT]")]
    client: Option<String>,
    /// Server: wait for this many clients, and start them together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1023), conflicts_with = "client")]
    senders: u16,
    /// Print progress this often; 0 prints none.
    #[arg(short = 'i', long, default_value = "1s", value_parser = interval_ns, value_name = "TIME")]
    interval: u64,
    /// Server: save the gradient as float32 (.npy). Several messages go to one file each,
    /// FILE.RANK.MESSAGE.npy.
    #[arg(long, value_name = "FILE.npy", conflicts_with = "client")]
    save: Option<PathBuf>,
    #[command(flatten)]
    gradient: GradientArgs,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    rate: RateArgs,
    /// Rate algorithm: fixed, dctcp (trims, marks and losses) or timely (delay).
    #[arg(long, value_enum, default_value = "fixed")]
    rate_algorithm: RateAlgorithm,
    #[command(flatten)]
    codec: CodecArgs,
    /// Server: how to reconstruct trimmed coordinates.
    #[arg(long, value_enum, default_value = "unbiased", conflicts_with = "client")]
    decoding: DecodingName,
}

fn interval_ns(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { time_ns(text) }
}

pub(crate) fn run(args: &TransferArgs) -> Result<bool, Failure> {
    match &args.client {
        Some(host) => client::run(args, host),
        None => server::run(args),
    }
}

/// When the next line of progress is due.
fn next_look(args: &TransferArgs, last_ns: u64) -> u64 {
    if args.interval == 0 { u64::MAX } else { last_ns.saturating_add(args.interval) }
}
