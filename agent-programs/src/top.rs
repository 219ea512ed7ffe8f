// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent top`: what running ranks do, by peer and path, from the metrics that they serve.

use crate::report::table;
use crate::units::rate_text;
use crate::{Failure, bad_input, failed, print};
use anyhow::anyhow;
use clap::Args;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;
use trimwire_agent::driver::Clock;

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Addresses where ranks serve metrics (--metrics).
    #[arg(required = true, value_delimiter = ',', value_name = "IP:PORT,…")]
    ranks: Vec<SocketAddr>,
    /// Refresh this often.
    #[arg(short = 'i', long, default_value = "1s", value_parser = crate::units::time_ns, value_name = "TIME")]
    interval: u64,
    /// Print a line for each path as well.
    #[arg(long)]
    paths: bool,
}

/// Peer and, of a path, own address and source port.
type Place = (u16, Option<(String, u16)>);

/// Metrics of a rank, by place and name.
#[derive(Debug, Default, Clone, PartialEq)]
struct Look {
    rank: String,
    values: BTreeMap<Place, BTreeMap<String, f64>>,
}

/// What a label of a series is.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let rest = labels.split(',').find_map(|label| label.trim().strip_prefix(name)?.strip_prefix("=\""))?;
    rest.strip_suffix('"')
}

impl Look {
    /// Reads OpenMetrics text of ours; lines of others are passed over.
    fn parse(text: &str) -> Self {
        let mut look = Self::default();
        for line in text.lines() {
            let Some(series) = line.strip_prefix("trimwire_agent_") else { continue };
            let Some((name, rest)) = series.split_once('{') else { continue };
            let Some((labels, value)) = rest.split_once('}') else { continue };
            if name == "rank_info" {
                label(labels, "rank").unwrap_or_default().clone_into(&mut look.rank);
            }
            let peer = label(labels, "peer").and_then(|peer| peer.parse().ok());
            let (Some(peer), Ok(value)) = (peer, value.trim().parse()) else { continue };
            // One port may be of several interfaces.
            let port = label(labels, "source_port").and_then(|port| port.parse::<u16>().ok());
            let path = port.map(|port| (label(labels, "source").unwrap_or_default().to_owned(), port));
            let name = name.strip_prefix("peer_").or(name.strip_prefix("path_")).unwrap_or(name);
            look.values.entry((peer, path)).or_default().insert(name.to_owned(), value);
        }
        look
    }

    /// A line of the table for each place that anything went to or came from.
    fn rows(&self, before: &Self, seconds: f64, paths: bool) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        for (place @ (peer, path), values) in &self.values {
            if path.is_some() && !paths {
                continue;
            }
            let value = |name: &str| values.get(name).copied();
            let since = |name: &str| {
                let before = before.values.get(place).and_then(|values| values.get(name)).copied();
                // A rank that has started anew counts from 0.
                let now = value(name)?;
                Some(before.filter(|&before| before <= now).map_or(now, |before| now - before))
            };
            let bits = |name| since(name).map_or_else(String::new, |bytes| rate_text(bytes * 8.0 / seconds));
            let share = |part: Option<f64>, whole: Option<f64>| match (part, whole) {
                (Some(part), Some(whole)) if whole > 0.0 => format!("{:.2}", part / whole * 100.0),
                (Some(_), Some(_)) => "-".to_owned(),
                _ => String::new(),
            };
            let micros = |name| value(name).map_or_else(String::new, |s| format!("{:.0}", s * 1e6));
            rows.push(vec![
                self.rank.clone(),
                peer.to_string(),
                path.as_ref().map_or_else(|| "all".to_owned(), |(source, port)| format!("{source}:{port}")),
                bits("sent_payload_bytes_total"),
                bits("received_payload_bytes_total"),
                share(since("trimmed_packets_total"), since("arrived_packets_total")),
                share(since("received_trimmed_packets_total"), since("received_packets_total")),
                share(since("lost_packets_total"), since("sent_packets_total")),
                share(since("missing_packets_total"), since("delivered_packets_total")),
                since("repair_packets_total").map_or_else(String::new, |count| format!("{count:.0}")),
                micros("rtt_seconds"),
                value("rate_bits_per_second").map_or_else(String::new, rate_text),
            ]);
        }
        rows
    }
}

const HEADINGS: [&str; 12] = [
    "rank",
    "peer",
    "path",
    "sent",
    "received",
    "trimmed there %",
    "trimmed here %",
    "lost %",
    "missing %",
    "repaired",
    "rtt us",
    "rate",
];

pub(crate) fn run(args: &TopArgs) -> Result<bool, Failure> {
    if args.interval == 0 {
        return Err(bad_input(anyhow!("--interval 0: two looks at once show nothing")));
    }
    let live = std::io::stdout().is_terminal();
    let clock = Clock::start();
    let look = || {
        args.ranks.iter().map(|&address| {
            (address, trimwire_metrics_http::get(address, "/metrics").map(|text| Look::parse(&text)))
        })
    };
    let (mut before, mut before_ns): (BTreeMap<_, _>, u64) = (look().collect(), clock.now_ns());
    if let Some((address, Err(error))) = before.iter().find(|_| before.values().all(Result::is_err)) {
        return Err(failed(anyhow!(
            "no metrics at http://{address}/metrics: {error} (does a rank run with --metrics {address}, or TRIMWIRE_METRICS?)"
        )));
    }
    loop {
        std::thread::sleep(Duration::from_nanos(args.interval));
        let (now, now_ns): (BTreeMap<_, _>, u64) = (look().collect(), clock.now_ns());
        let seconds = (now_ns - before_ns) as f64 / 1e9;
        let (mut rows, mut gone) = (Vec::new(), Vec::new());
        for (address, look) in &now {
            match (look, before.get(address)) {
                (Ok(look), Some(Ok(before))) => rows.extend(look.rows(before, seconds, args.paths)),
                (Ok(_), _) => {}
                (Err(error), _) => gone.push(format!("{address}: {error}")),
            }
        }
        let table = [vec![table(&HEADINGS, &rows)], gone].concat().join("\n");
        if !live {
            print(&table)?;
            return Ok(now.values().all(Result::is_ok));
        }
        // Home, then each line and what is below it cleared: nothing flickers.
        let lines = table.replace('\n', "\x1b[K\n");
        if write!(std::io::stdout(), "\x1b[H{lines}\x1b[K\n\x1b[J")
            .and_then(|()| std::io::stdout().flush())
            .is_err()
        {
            return Ok(true);
        }
        (before, before_ns) = (now, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE trimwire_agent_rank info\n\
        trimwire_agent_rank_info{rank=\"2\",world=\"4\"} 1\n\
        trimwire_agent_peer_sent_payload_bytes_total{peer=\"1\"} 1000000\n\
        trimwire_agent_peer_arrived_packets_total{peer=\"1\"} 200\n\
        trimwire_agent_peer_trimmed_packets_total{peer=\"1\"} 50\n\
        trimwire_agent_path_trimmed_packets_total{peer=\"1\",source=\"10.0.0.7\",source_port=\"40000\"} 7\n\
        trimwire_agent_peer_rtt_seconds{peer=\"1\"} 0.00008\n\
        trimwire_agent_overflowed_packets_total 3\n\
        other_total{peer=\"1\"} 1\n\
        trimwire_agent_peer_torn{peer=\"1\n# EOF\n";

    #[test]
    fn a_table_tells_what_happened_between_two_looks() {
        let before = Look::parse(TEXT);
        let now = Look::parse(
            &TEXT.replace("1000000", "3500000").replace("} 200", "} 300").replace("} 50", "} 75"),
        );
        let rows = now.rows(&before, 2.0, false);
        assert_eq!(rows.len(), 1, "paths only where they are asked for");
        let row: Vec<&str> = rows[0].iter().map(String::as_str).collect();
        assert_eq!(row[..4], ["2", "1", "all", "10.00 Mbit/s"]);
        assert_eq!((row[5], row[10]), ("25.00", "80"));
        let paths = now.rows(&before, 2.0, true);
        assert_eq!((paths.len(), paths[1][2].as_str()), (2, "10.0.0.7:40000"));
    }

    #[test]
    fn a_rank_that_has_started_anew_counts_from_nothing() {
        let rows = Look::parse(TEXT).rows(&Look::parse(&TEXT.replace("1000000", "9000000")), 1.0, false);
        assert_eq!(rows[0][3], "8.00 Mbit/s");
    }
}
