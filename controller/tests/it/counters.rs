// SPDX-License-Identifier: Apache-2.0
//! What a target counts that the others do not: packets that a traffic manager had no room for, and
//! egress trimmed (docs/how-to/tofino.md).

use std::net::SocketAddr;

use crate::run_support::{Embedded, eventually, frame, get, single};
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::show::{What, show};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, apply};
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{CounterData, Index};

/// The v1model program with the Tofinos' counter beside its own. Nothing in it counts there.
pub(crate) fn with_deflected() -> Artifacts {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/bmv2");
    let json = std::fs::read(folder.join("trimwire.json")).unwrap();
    let mut program: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let arrays = program["counter_arrays"].as_array_mut().unwrap();
    let mut deflected = arrays[0].clone();
    deflected["name"] = "Egress.deflected".into();
    deflected["id"] = arrays.len().into();
    arrays.push(deflected);
    let mut p4info = std::fs::read_to_string(folder.join("trimwire.p4info.txtpb")).unwrap();
    p4info.push_str(
        "counters { preamble { id: 301989898 name: \"Egress.deflected\" alias: \"deflected\" } spec { unit: BOTH } size: 4096 }\n",
    );
    Artifacts::new(p4info.as_bytes(), serde_json::to_vec(&program).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packets_that_egress_had_to_trim_are_exported_and_are_among_sonics_trim_pkts() {
    let switch = Embedded::start(1);
    let fabric = Fabric::from_yaml(&single(switch.address, "interval: 100ms"), "fabric.yaml").unwrap();
    let artifacts = with_deflected();
    let report = apply(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(report.is_ok(), "{report}");
    // All but 19 are trimmed in ingress (implementations.rs), and seven more are as if they had
    // been in egress.
    switch.forward(0, &vec![frame(); 100]);
    let mut client = Client::connect(&switch.address.to_string()).await.unwrap();
    client.arbitrate(1, 7, Role::default()).await.unwrap();
    let mut cell = entity::counter(artifacts.index(), "Egress.deflected", Some(2 * 8 + 5)).unwrap();
    assert_eq!(cell.index, Some(Index { index: 21 }));
    cell.data = Some(CounterData { packet_count: 7, byte_count: 700 });
    client.write(vec![entity::modify(cell)], Atomicity::ContinueOnError).await.unwrap();
    drop(client);

    let shown = show(&fabric, &artifacts, &Options::default(), What::Counters).await.unwrap();
    let json = serde_json::to_value(&shown).unwrap();
    let rows = json["counters"].as_array().unwrap();
    let row = rows.iter().find(|row| row["port"] == 2 && row["queue"] == 5).unwrap();
    assert_eq!(row["counters"]["deflected"]["packets"], 7, "{row}");
    let text = shown.to_string();
    let line = text.lines().find(|line| line.starts_with("s1:2") && line.contains(" 5 class0")).unwrap();
    assert!(line.split_whitespace().any(|cell| cell == "88"), "TRIM_PKTS is 81 + 7: {text}");

    let options = RunOptions {
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
        election_id: Some(8),
    };
    let controller = Controller::start(&fabric, &artifacts, &options).await.unwrap();
    let address = controller.metrics_address().unwrap();
    let label = "{switch=\"s1\",port=\"2\",queue=\"5\"}";
    let mut text = String::new();
    eventually("in place", || {
        let status = &controller.status().switches["s1"];
        if status.in_place == Some(true) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    for _ in 0..200 {
        text = get(address, "/metrics").await;
        if text.contains(&format!("trimwire_deflected_packets_total{label} ")) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for line in [
        format!("trimwire_deflected_packets_total{label} 7"),
        format!("trimwire_deflected_bytes_total{label} 700"),
        format!("trimwire_trim_packets_total{label} 88"),
        format!("trimwire_admitted_packets_total{label} 19"),
    ] {
        assert!(text.lines().any(|found| found == line), "no '{line}' in\n{text}");
    }
    controller.stop().await;
}
