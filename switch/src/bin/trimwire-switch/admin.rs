// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch admin`: a client of the admin service.

use anyhow::{Context as _, Result, anyhow};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use trimwire_p4runtime::server::tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use trimwire_switch::admin::v1::admin_client::AdminClient;
use trimwire_switch::admin::v1::{
    GetRequest, QueueConfig, QueueStats, ResetArbitrationRequest, SetBufferRequest, SetPortRequest,
    SetQueueRequest, StatsRequest,
};
use trimwire_switch::config::quantity::{rate, size};
use trimwire_switch::config::{QueueFlag, queue_flag};
use trimwire_switch::traffic::{Alpha, Service, Share};

/// Show and set ports, queues and buffer of a running switch.
#[derive(Debug, Args)]
pub(crate) struct AdminArguments {
    /// Address where the switch serves P4Runtime.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559", global = true)]
    server: String,
    /// Speak TLS, and trust certificates of this authority, in PEM.
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Show this certificate to a switch that asks for one, in PEM.
    #[arg(long, value_name = "FILE", global = true, requires = "tls_ca", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, in PEM.
    #[arg(long, value_name = "FILE", global = true, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Print JSON instead of a table.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show ports, lines, queues and buffer.
    Show {
        /// Show only these ports.
        ports: Vec<u32>,
    },
    /// Show counters of queues.
    Stats {
        /// Show only these ports.
        ports: Vec<u32>,
    },
    /// Configure a port: PORT with up, down, rate=RATE (or rate=none), limit=BYTES of queues without
    /// a limit of their own. Other settings stay.
    Port {
        /// Port and settings, such as 3,rate=40Mbps or 3,down.
        #[arg(value_parser = port_setting)]
        port: SetPortRequest,
    },
    /// Configure a queue: [PORT/]QUEUE with cap=SHARE, weight=N, limit=BYTES, alpha=RATIO. Other
    /// settings return to their defaults.
    Queue {
        /// Queue and settings, such as 6,cap=50% or 3/0,weight=4.
        #[arg(value_parser = queue_flag)]
        queue: QueueFlag,
    },
    /// Forget election ids of controllers that are gone: the highest of those that are connected is
    /// primary.
    ResetArbitration {
        /// Of this role alone. The empty name is the default role's [default: of all].
        role: Option<String>,
    },
    /// Set the size of the shared buffer.
    Buffer {
        /// Size, such as 16MiB, or `none`.
        #[arg(value_parser = size_or_none)]
        size: u64,
    },
}

fn port_setting(text: &str) -> Result<SetPortRequest, String> {
    let mut words = text.split(',');
    let number = words.next().unwrap_or_default();
    let port = number.parse().map_err(|_| format!("'{number}' is no port number"))?;
    let mut request = SetPortRequest { port, up: None, rate_bps: None, queue_limit_bytes: None };
    for word in words {
        let is_new = match word.split_once('=') {
            None if matches!(word, "up" | "down") => request.up.replace(word == "up").is_none(),
            Some(("rate", value)) => request.rate_bps.replace(rate_or_none(value)?).is_none(),
            Some(("limit", value)) => request.queue_limit_bytes.replace(size(value)?).is_none(),
            _ => return Err(format!("'{word}' is none of up, down, rate=RATE, limit=BYTES")),
        };
        if !is_new {
            return Err(format!("'{word}': it is set twice"));
        }
    }
    Ok(request)
}

fn rate_or_none(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { rate(text) }
}

fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { size(text) }
}

/// Does what a command line asks for and gives what goes to stdout.
pub(crate) fn run(arguments: AdminArguments) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(ask(arguments))
}

/// The way to the switch.
fn endpoint(arguments: &AdminArguments) -> Result<Endpoint> {
    let AdminArguments { server, tls_ca, tls_cert, tls_key, .. } = arguments;
    let read =
        |path: &PathBuf| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let Some(ca) = tls_ca else { return Ok(Endpoint::from_shared(format!("http://{server}"))?) };
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let (Some(certificate), Some(key)) = (tls_cert, tls_key) {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Endpoint::from_shared(format!("https://{server}"))?
        .tls_config(tls)
        .context("--tls-ca, --tls-cert and --tls-key are no certificates and key in PEM")
}

async fn ask(arguments: AdminArguments) -> Result<String> {
    let channel = endpoint(&arguments)?.connect().await;
    let AdminArguments { server, json, command, tls_ca, .. } = arguments;
    let tls = if tls_ca.is_some() { ", or it takes no such certificate" } else { "" };
    let channel = channel
        .with_context(|| format!("no switch answers at {server}{tls}; --server HOST:PORT names another"))?;
    let mut client = AdminClient::new(channel);
    // What is not HTTP/2 ends the connection, and has no status of a server.
    let hint = if tls_ca.is_none() { "; if it speaks TLS: --tls-ca FILE" } else { "" };
    let refused = |status: tonic::Status| match std::error::Error::source(&status) {
        Some(_) => anyhow!("the connection to {server} broke: {}{hint}", status.message()),
        None => anyhow!("the switch says: {}", status.message()),
    };
    match command {
        Command::Show { ports } => {
            let answer = client.get(GetRequest { ports }).await.map_err(refused)?.into_inner();
            Ok(if json { pretty(&show_json(&answer)) } else { show_table(&answer) })
        }
        Command::Stats { ports } => {
            let answer = client.stats(StatsRequest { ports }).await.map_err(refused)?.into_inner();
            Ok(if json { pretty(&stats_json(&answer)) } else { stats_table(&answer.queues) })
        }
        Command::Port { port } => {
            client.set_port(port).await.map_err(refused)?;
            Ok(done(json))
        }
        Command::Queue { queue: QueueFlag { port, queue, config } } => {
            let (alpha_numerator, alpha_denominator) = config.alpha.map_or((0, 0), Alpha::ratio);
            let config = QueueConfig {
                limit_bytes: config.limit_bytes,
                weight: match config.service {
                    Service::Strict => 0,
                    Service::Weighted(weight) => weight.get().into(),
                },
                cap_permille: config.cap.map_or(0, |cap| cap.permille().into()),
                alpha_numerator,
                alpha_denominator,
            };
            let port = port.map(u32::from);
            let request = SetQueueRequest { port, queue: queue.into(), config: Some(config) };
            client.set_queue(request).await.map_err(refused)?;
            Ok(done(json))
        }
        Command::ResetArbitration { role } => {
            let answer = client.reset_arbitration(ResetArbitrationRequest { role }).await.map_err(refused)?;
            let roles = answer.into_inner().roles;
            Ok(if json { pretty(&json!({ "ok": true, "roles": roles })) } else { String::new() })
        }
        Command::Buffer { size } => {
            let bytes = (size > 0).then_some(size);
            client.set_buffer(SetBufferRequest { bytes }).await.map_err(refused)?;
            Ok(done(json))
        }
    }
}

fn done(json: bool) -> String {
    if json { pretty(&json!({ "ok": true })) } else { String::new() }
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn alpha(config: &QueueConfig) -> Option<String> {
    Alpha::new(config.alpha_numerator, config.alpha_denominator).map(|alpha| alpha.to_string())
}

fn show_json(answer: &trimwire_switch::admin::v1::GetResponse) -> serde_json::Value {
    let ports: Vec<_> = answer
        .ports
        .iter()
        .map(|port| {
            let queues: Vec<_> = port
                .queues
                .iter()
                .map(|queue| {
                    let config = queue.config.unwrap_or_default();
                    json!({
                        "queue": queue.queue,
                        "limit_bytes": config.limit_bytes.unwrap_or(port.queue_limit_bytes),
                        "service": if config.weight == 0 { "strict" } else { "weighted" },
                        "weight": (config.weight > 0).then_some(config.weight),
                        "cap_permille": (config.cap_permille > 0).then_some(config.cap_permille),
                        "alpha": alpha(&config),
                    })
                })
                .collect();
            json!({
                "port": port.port, "up": port.up, "rate_bps": port.rate_bps,
                "queue_limit_bytes": port.queue_limit_bytes, "queues": queues,
            })
        })
        .collect();
    json!({
        "ports": ports, "buffered_bytes": answer.buffered_bytes, "buffer_bytes": answer.buffer_bytes,
        "priority_queues": answer.priority_queues, "qdepth_unit": answer.qdepth_unit,
    })
}

fn show_table(answer: &trimwire_switch::admin::v1::GetResponse) -> String {
    let buffer = answer.buffer_bytes.map_or("no bound".to_owned(), |bytes| format!("{bytes} bytes"));
    let mut rows = vec![
        ["PORT", "STATE", "BIT/S", "QUEUE", "SERVICE", "CAP", "LIMIT", "ALPHA"].map(str::to_owned).to_vec(),
    ];
    for port in &answer.ports {
        for queue in port.queues.iter().rev() {
            let config = queue.config.unwrap_or_default();
            let dash = || "-".to_owned();
            rows.push(vec![
                port.port.to_string(),
                if port.up { "up" } else { "down" }.to_owned(),
                if port.rate_bps == 0 { dash() } else { port.rate_bps.to_string() },
                queue.queue.to_string(),
                if config.weight == 0 { "strict".to_owned() } else { format!("weight {}", config.weight) },
                Share::from_permille(config.cap_permille).map_or_else(dash, |cap| cap.to_string()),
                config.limit_bytes.unwrap_or(port.queue_limit_bytes).to_string(),
                alpha(&config).unwrap_or_else(dash),
            ]);
        }
    }
    format!(
        "buffer: {} bytes waiting, {buffer}; qdepth in {}\n{}",
        answer.buffered_bytes,
        answer.qdepth_unit,
        table(&rows)
    )
}

fn stats_json(answer: &trimwire_switch::admin::v1::StatsResponse) -> serde_json::Value {
    let count = |count: &Option<trimwire_switch::admin::v1::Count>| {
        let count = count.unwrap_or_default();
        json!({ "packets": count.packets, "bytes": count.bytes })
    };
    let queues: Vec<_> = answer
        .queues
        .iter()
        .map(|queue| {
            let drops: serde_json::Map<_, _> =
                queue.drops.iter().map(|drop| (drop.cause.clone(), count(&drop.count))).collect();
            json!({
                "port": queue.port, "queue": queue.queue, "enqueued": count(&queue.enqueued),
                "dequeued": count(&queue.dequeued), "dropped": count(&queue.dropped), "drops": drops,
                "waiting": count(&queue.waiting), "peak": count(&queue.peak),
            })
        })
        .collect();
    json!({
        "queues": queues, "received": answer.received, "transmitted": answer.transmitted,
        "without_pipeline": answer.without_pipeline, "port_down": answer.port_down,
        "queue_dropped": answer.queue_dropped, "egress_dropped": answer.egress_dropped,
    })
}

fn stats_table(queues: &[QueueStats]) -> String {
    let head =
        ["PORT", "QUEUE", "IN", "BYTES", "OUT", "BYTES", "WAITING", "PEAK", "DROPPED", "BYTES", "CAUSES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for queue in queues {
        let causes: Vec<_> = queue
            .drops
            .iter()
            .map(|drop| format!("{} {}", drop.cause, drop.count.unwrap_or_default().packets))
            .collect();
        let mut row = vec![queue.port.to_string(), queue.queue.to_string()];
        for count in [queue.enqueued, queue.dequeued] {
            let count = count.unwrap_or_default();
            row.extend([count.packets.to_string(), count.bytes.to_string()]);
        }
        row.push(queue.waiting.unwrap_or_default().bytes.to_string());
        row.push(queue.peak.unwrap_or_default().bytes.to_string());
        let dropped = queue.dropped.unwrap_or_default();
        row.extend([dropped.packets.to_string(), dropped.bytes.to_string(), causes.join(", ")]);
        rows.push(row);
    }
    table(&rows)
}

/// Columns as wide as their widest cell.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
