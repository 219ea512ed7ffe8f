// SPDX-License-Identifier: Apache-2.0
//! A new program, while packets come.

use std::time::Duration;

use trimwire_controller::{Artifacts, Fabric, Options, Rollout, apply, plan, roll_out};

use crate::counters::with_deflected;
use crate::run_support::{Embedded, delaying_proxy, frame, single};

/// The tables of the new program are written before it runs. Written afterwards, packets met a program without routes for as long as that
/// took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_replaced_without_losing_a_packet() {
    let switch = Embedded::start(1);
    let slow = delaying_proxy(switch.address, Duration::from_millis(10)).await;
    let fabric = Fabric::from_yaml(&single(slow, "batch: 20, timeout: 20s"), "fabric.yaml").unwrap();
    let before = apply(&fabric, &with_deflected(), &Options::default()).await.unwrap();
    assert!(before.is_ok(), "{before}");
    let (fabric, artifacts) = (fabric.clone(), Artifacts::embedded().unwrap());
    let planned = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(planned.switches[0].to_string().contains("cookie"), "{planned}");
    let rollout = Rollout { settle: Duration::ZERO, ..Rollout::default() };
    let options = Options::default();
    let mut replacing = Box::pin(roll_out(&fabric, &artifacts, &options, &planned, rollout));
    let (mut now, mut sent) = (0, 0);
    let report = loop {
        tokio::select! {
            report = &mut replacing => break report.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                now = switch.forward(now, &[frame()]) + 1_000_000;
                sent += 1;
            }
        }
    };
    assert!(report.is_ok() && report.switches[0].pipeline_pushed, "{report}");
    let stats = switch.switch.lock().unwrap().stats();
    assert!(sent > 50, "it took a while: {sent}");
    assert_eq!((stats.received, stats.transmitted), (sent, sent));
}
