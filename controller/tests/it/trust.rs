// SPDX-License-Identifier: Apache-2.0
//! Whose code points count: a spare port is nobody's.

use trimwire_controller::show::{Rows, What, show};
use trimwire_controller::{Artifacts, Fabric, Options, apply};

use crate::run_support::{Embedded, frame_with, single};

/// Queues of port 2 that have admitted packets.
async fn admitted(fabric: &Fabric) -> Vec<(Option<u8>, i64)> {
    let artifacts = Artifacts::embedded().unwrap();
    let shown = show(fabric, &artifacts, &Options::default(), What::Counters).await.unwrap();
    let Rows::Counters(rows) = shown.rows else { panic!() };
    let count = |counters: &std::collections::BTreeMap<_, trimwire_controller::counters::Count>| {
        counters.get("admitted").map_or(0, |count| count.packets)
    };
    rows.iter().map(|row| (row.queue, count(&row.counters))).filter(|(_, packets)| *packets > 0).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_the_file_does_not_name_is_served_last_whatever_its_packets_claim() {
    const CONTROL: u8 = 39;
    let switch = Embedded::start(1);
    let fabric = Fabric::from_yaml(&single(switch.address, "interval: 1s"), "fabric.yaml").unwrap();
    let report = apply(&fabric, &Artifacts::embedded().unwrap(), &Options::default()).await.unwrap();
    assert!(report.is_ok(), "{report}");
    switch.switch.lock().unwrap().handle_frame(0, 77, &frame_with(CONTROL));
    assert_eq!(admitted(&fabric).await, [(Some(0), 1)]);
    // A host that the file names may.
    switch.forward(1_000_000, &[frame_with(CONTROL)]);
    assert_eq!(admitted(&fabric).await, [(Some(0), 1), (Some(7), 1)]);
}
