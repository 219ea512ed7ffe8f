// SPDX-License-Identifier: Apache-2.0
//! The words of the command line, after `simple_switch_grpc`: general options, then target options
//! behind `--`; or a command.

use crate::admin::AdminArguments;
use crate::pages::{Completions, Man};
use crate::stf::StfArguments;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use trimwire_switch::config::quantity::{rate, size};
use trimwire_switch::driver::Attachment;
use trimwire_switch::trace::TraceFormat;

/// v1model's `standard_metadata.egress_spec` that means "drop" in p4c's output.
pub(crate) const DROP_PORT: u16 = 511;

/// Run p4c's BMv2 JSON as a software switch: byte queues, strict priority, line rates, P4Runtime.
#[derive(Debug, Parser)]
#[command(
    name = "trimwire-switch",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Target options stand behind '--':\n  \
        --grpc-server-addr ADDR  where to listen for P4Runtime [default: 127.0.0.1:9559]\n  \
        --grpc-server-ssl        serve P4Runtime over TLS; takes the four options below\n  \
        --grpc-server-cert FILE  PEM: the server's certificate, with its chain\n  \
        --grpc-server-key FILE   PEM: its private key\n  \
        --grpc-server-cacert FILE  PEM: who signs clients' certificates\n  \
        --grpc-server-with-client-auth  let only clients in that show such a certificate\n  \
        --cpu-port N             port of packet-in and packet-out, 1 to 510\n  \
        --drop-port N            511, as p4c compiles it\n  \
        --priority-queues N      queues of a port, 1 to 8, the highest served first [default: 8]\n\n\
        Exit codes: 0 stopped by SIGINT or SIGTERM, 1 failure, 2 usage, 3 the JSON file cannot be used."
)]
pub(crate) struct Arguments {
    /// Program to run from the start, p4c's BMv2 JSON.
    #[arg(value_name = "JSON", conflicts_with = "no_p4")]
    pub(crate) program: Option<PathBuf>,
    /// Start without a program and wait for one over P4Runtime.
    #[arg(long)]
    pub(crate) no_p4: bool,
    /// Device id of P4Runtime.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device_id: u64,
    /// Attach a port to a Linux interface; may be repeated.
    #[arg(short, long = "interface", value_name = "PORT@IFACE", value_parser = attachment)]
    pub(crate) interfaces: Vec<Attachment>,
    /// Line rate of every port, such as 10Gbps, or of one, such as 3=40Mbps; may be repeated.
    /// Without it frames leave at once.
    #[arg(long = "rate", value_name = "[PORT=]RATE", value_parser = line_rate)]
    pub(crate) rates: Vec<(Option<u16>, u64)>,
    /// Most bytes that one queue holds, such as 512KiB.
    #[arg(long, value_name = "BYTES", value_parser = size, help = "Most bytes that one queue holds, such as 512KiB [default: 4MiB]")]
    pub(crate) queue_limit: Option<u64>,
    /// Settings of ports, queues and the shared buffer, YAML. Options of the command line win.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the program and the settings, and end.
    #[arg(long)]
    pub(crate) check: bool,
    /// Serve Prometheus metrics, such as on 127.0.0.1:9110; a port alone means localhost.
    #[arg(long, value_name = "ADDR", value_parser = local_address)]
    pub(crate) metrics_addr: Option<SocketAddr>,
    /// Serve P4Runtime beyond this host without TLS. Everybody who reaches it can program the
    /// switch.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Limit what P4Runtime clients may cost: NAME=VALUE, such as connections=16 or roles=/backup;
    /// may be repeated.
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    pub(crate) limits: Vec<String>,
    /// Threads that move frames, each at its own ports.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: u16,
    /// Write the counters to this file when the switch stops.
    #[arg(long, value_name = "FILE")]
    pub(crate) stats_json: Option<PathBuf>,
    /// Log to stderr, the default.
    #[arg(long)]
    pub(crate) log_console: bool,
    /// Log to this file; with --log-console to stderr as well.
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Log messages of this level and above.
    #[arg(short = 'L', long, value_name = "LEVEL", default_value = "info",
        value_parser = ["trace", "debug", "info", "warn", "error", "off"])]
    pub(crate) log_level: String,
    /// Capture what comes in and goes out: `IFACE_in.pcap` and `IFACE_out.pcap` for each interface.
    /// DIR must exist [default: the current folder].
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = ".")]
    pub(crate) pcap: Option<PathBuf>,
    /// Trace every packet to stdout: parser states, tables, actions, queue, trim. SIGUSR1 turns the
    /// trace on and off.
    #[arg(long, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(crate) trace: Option<TraceFormat>,
    /// Print the version, as BMv2 does.
    #[arg(short = 'v', action = ArgAction::Version, hide = true)]
    pub(crate) bmv2_version: Option<bool>,
    /// Print the newest version of BMv2's JSON that is understood.
    #[arg(long, hide = true)]
    pub(crate) json_version: bool,
    /// Accepted and ignored: there is no Thrift server.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) thrift_port: Option<u16>,
    /// Accepted and ignored: there is no debugger; --trace tells what happens to packets.
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true, default_missing_value = "", hide = true)]
    pub(crate) debugger: Option<String>,
    /// Accepted and ignored: nothing is kept back from the log.
    #[arg(long, hide = true)]
    pub(crate) log_flush: bool,
    /// Accepted and ignored: the log is one file.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub(crate) log_file_max_size: Option<u64>,
    /// Accepted and ignored: the log is one file.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) log_file_max_files: Option<u64>,
    /// Refused: there is no nanomsg.
    #[arg(long, value_name = "SOCKET", hide = true)]
    pub(crate) packet_in: Option<String>,
    /// Refused: frames come from interfaces.
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) use_files: Option<u32>,
    /// Refused: state is written over P4Runtime.
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) restore_state: Option<PathBuf>,
    /// Accepted and ignored: --pcap keeps what packets hold.
    #[arg(long, value_name = "BYTES", hide = true)]
    pub(crate) dump_packet_data: Option<u64>,
    /// Accepted and ignored: there are no nanomsg notifications.
    #[arg(long, value_name = "SOCKET", hide = true)]
    pub(crate) notifications_addr: Option<String>,
    /// Accepted and ignored: there are as many ports as a program can name.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_port_count: Option<u32>,
    /// Accepted and ignored: there is no nanomsg log.
    #[arg(long, value_name = "SOCKET", hide = true)]
    pub(crate) nanolog: Option<String>,
    /// Target options, behind `--`.
    #[arg(last = true, hide = true, allow_hyphen_values = true)]
    pub(crate) target: Vec<String>,
    /// Run something other than a switch on interfaces.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What the program does besides.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Stf(StfArguments),
    Admin(AdminArguments),
    Completions(Completions),
    Man(Man),
}

/// Options behind `--`.
#[derive(Debug, Parser)]
#[command(name = "trimwire-switch [OPTIONS] --", no_binary_name = true, disable_help_flag = true)]
pub(crate) struct TargetArguments {
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) grpc_server_addr: Option<SocketAddr>,
    #[arg(long)]
    pub(crate) grpc_server_ssl: bool,
    #[arg(long, value_name = "FILE")]
    pub(crate) grpc_server_cacert: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub(crate) grpc_server_cert: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub(crate) grpc_server_key: Option<PathBuf>,
    #[arg(long)]
    pub(crate) grpc_server_with_client_auth: bool,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..i64::from(DROP_PORT)))]
    pub(crate) cpu_port: Option<u16>,
    #[arg(long, value_name = "N", default_value_t = DROP_PORT)]
    pub(crate) drop_port: u16,
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) priority_queues: Option<u8>,
    #[arg(long, hide = true)]
    pub(crate) disable_swap: bool,
    /// Refused: externs are those of v1model.
    #[arg(long, value_name = "FILES", hide = true)]
    pub(crate) load_modules: Option<String>,
    /// Refused: frames come from interfaces.
    #[arg(long, value_name = "ADDR", hide = true)]
    pub(crate) dp_grpc_server_addr: Option<String>,
    /// Accepted and ignored, as are the two below: multicast takes what memory it needs.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_mc_groups: Option<u64>,
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_l1_entries: Option<u64>,
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) max_l2_entries: Option<u64>,
}

/// An option that stands on the wrong side of `--`, as its name says, and why that is wrong.
pub(crate) fn misplaced(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = word.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let name = name.split('=').next()?;
    let has = |command: &clap::Command| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    if has(&TargetArguments::command()) {
        return Some(format!("--{name} is a target option and stands behind '--', as in: -- --{name} …"));
    }
    has(&Arguments::command()).then(|| format!("--{name} is no target option and stands before '--'"))
}

fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port) if port < DROP_PORT => Ok(port),
        Ok(DROP_PORT) => Err(format!("port {DROP_PORT} means 'drop'; ports are 0 to {}", DROP_PORT - 1)),
        _ => Err(format!("'{text}' is no port number; ports are 0 to {}", DROP_PORT - 1)),
    }
}

fn attachment(text: &str) -> Result<Attachment, String> {
    let expected = "expected PORT@IFACE, such as 1@veth1";
    let (number, interface) = text.split_once('@').ok_or(expected)?;
    if interface.is_empty() {
        return Err(expected.to_owned());
    }
    Ok(Attachment { port: port(number)?, interface: interface.to_owned() })
}

fn line_rate(text: &str) -> Result<(Option<u16>, u64), String> {
    match text.split_once('=') {
        Some((number, line)) => Ok((Some(port(number)?), rate(line)?)),
        None => Ok((None, rate(text)?)),
    }
}

fn local_address(text: &str) -> Result<SocketAddr, String> {
    match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => address(text),
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let found = text.to_socket_addrs().map_err(|error| format!("{error}; expected HOST:PORT"))?;
    let found: Vec<_> = found.collect();
    // A name such as localhost may have both; simple_switch_grpc's clients mostly come over IPv4.
    found
        .iter()
        .find(|addr| addr.is_ipv4())
        .or(found.first())
        .copied()
        .ok_or_else(|| "no such host".to_owned())
}
