// SPDX-License-Identifier: Apache-2.0
//! What a scraper finds.

use super::{PortStats, serve};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use trimwire_switch::stf::{self, Script};
use trimwire_switch::{Switch, SwitchConfig};

fn http(addr: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_carry_the_counters_of_every_queue() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(include_bytes!("../../../../../p4/build/bmv2/trimwire.json")).unwrap();
    let script = Script::parse(include_str!("../../../../testdata/cut.stf")).unwrap();
    stf::run(&script, &mut switch).unwrap();
    let received = switch.stats().received;
    let switch = Arc::new(Mutex::new(switch));
    let ports = BTreeMap::from([(7, PortStats { sent: 9, ..Default::default() })]);
    let server =
        serve(Arc::clone(&switch), Arc::new(move || ports.clone()), "127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = server.address();
    let answer = http(addr, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK") && head.contains("openmetrics-text; version=1.0.0"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n"));
    compare_reference(body);
    let lines: BTreeMap<&str, f64> = body
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    let value = |name: &str| lines.get(name).copied().unwrap_or_else(|| panic!("no {name} in\n{body}"));
    let switch = switch.lock().unwrap();
    assert_eq!(value("trimwire_switch_received_packets_total"), received as f64);
    assert_eq!(value("trimwire_switch_interface_sent_packets_total{port=\"7\"}"), 9.0);
    let stats = switch.all_queue_stats();
    assert!(!stats.is_empty());
    for ((port, queue), stats) in stats {
        let labels = format!("{{port=\"{port}\",queue=\"{queue}\"}}");
        assert_eq!(
            value(&format!("trimwire_switch_queue_dequeued_bytes_total{labels}")),
            stats.dequeued_bytes as f64
        );
        assert_eq!(value(&format!("trimwire_switch_queue_peak_bytes{labels}")), stats.watermark_bytes as f64);
    }
    drop(switch);
    assert!(http(addr, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(http(addr, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert_eq!(http(addr, &"x".repeat(9_000)), "", "an endless request is not read to its end");
}

/// The lines that describe metrics, and the labels of one series of each: what `make reference` prints.
fn described(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut kept = String::new();
    while let Some(line) = lines.next() {
        let series = lines.peek().filter(|next| line.starts_with('#') && !next.starts_with('#'));
        if line.starts_with("# ") && line != "# EOF" {
            kept.push_str(line);
            kept.push('\n');
        }
        if let Some((series, _)) = series.and_then(|series| series.rsplit_once(' ')) {
            // Which of several series comes first is not the same each time.
            let labels: Vec<&str> = series.split('"').step_by(2).collect();
            kept.push_str(&labels.join("\"\""));
            kept.push('\n');
        }
    }
    kept
}

/// The reference describes every metric.
fn compare_reference(text: &str) {
    let found = described(text);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/metrics.txt");
    if std::env::var_os("TRIMWIRE_UPDATE_GOLDENS").is_some() {
        std::fs::write(path, &found).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(found, committed, "review with TRIMWIRE_UPDATE_GOLDENS=1, then run make reference");
}
