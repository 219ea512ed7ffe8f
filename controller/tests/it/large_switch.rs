// SPDX-License-Identifier: Apache-2.0
//! Switches with more ports than a Read has room for cells, and clients that keep connections
//! without saying anything.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, Rollout, plan, roll_out};

use crate::run_support::{Embedded, eventually, get};

fn read(text: &str) -> Fabric {
    Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// A switch with a host at each of its ports.
fn star(address: SocketAddr, ports: usize) -> String {
    let mut text = format!(
        "version: 1\ncontroller: {{ interval: 200ms }}\nswitches: {{ s1: {{ address: {address}, device_id: 1 }} }}\nhosts:\n"
    );
    for port in 1..=ports {
        let (high, low) = (port / 250, port % 250 + 1);
        let _ = writeln!(
            text,
            "  h{port}: {{ ip: 10.0.{high}.{low}, mac: \"02:00:00:00:{high:02x}:{low:02x}\" }}"
        );
    }
    text.push_str("links:\n");
    for port in 1..=ports {
        let _ = writeln!(text, "  - {{ a: h{port}, b: \"s1:{port}\", speed: 10Gbps }}");
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_of_17_64_and_256_ports_pass_their_health_check_and_are_counted() {
    let artifacts = Artifacts::embedded().unwrap();
    for ports in [17, 64, 256] {
        let switch = Embedded::start(1);
        let fabric = read(&star(switch.address, ports));
        let planned = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
        let rollout = Rollout { settle: Duration::from_millis(30), ..Rollout::default() };
        let report = roll_out(&fabric, &artifacts, &Options::default(), &planned, rollout).await.unwrap();
        assert!(report.is_ok(), "{ports}: {report}");
        let options = RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() };
        let controller = Controller::start(&fabric, &artifacts, &options).await.unwrap();
        eventually("counted", || {
            let counters = controller.status().switches["s1"].counters.clone();
            let whole = counters.queues.values().filter(|queue| queue.counts.iter().count() == 8).count();
            let occupied = counters
                .queues
                .values()
                .filter(|queue| queue.waiting.is_some_and(|waiting| waiting.now == 0))
                .count();
            if (whole, occupied) == (ports * 7, ports * 7) {
                Ok(())
            } else {
                Err(format!("{whole} {occupied}"))
            }
        })
        .await;
        controller.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_delay_nobody() {
    let switch = Embedded::start(1);
    let fabric = read(&star(switch.address, 2));
    let options = RunOptions {
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
        ..RunOptions::default()
    };
    let controller = Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    let address = controller.metrics_address().unwrap();
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    // Less than the five seconds after which the first of them are left.
    let answer = tokio::time::timeout(Duration::from_secs(4), get(address, "/metrics")).await;
    let answer = answer.expect("they are not waited for");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("# EOF\n"), "{answer}");
    let refused = get(address, "/nowhere").await;
    assert!(refused.starts_with("HTTP/1.1 404 Not Found\r\n"), "{refused}");
    controller.stop().await;
}
