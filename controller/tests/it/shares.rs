// SPDX-License-Identifier: Apache-2.0
//! Groups share packets by the speed of their links, in the switch as in the file.

use std::collections::BTreeMap;

use crate::run_support::{Embedded, dead_address, frame};
use trimwire_controller::show::{What, show};
use trimwire_controller::{Artifacts, Fabric, Options, apply};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uplink_of_a_tenth_of_the_speed_gets_an_eleventh_of_the_flows() {
    let switch = Embedded::start(1);
    let dead = dead_address();
    let text = format!(
        "version: 1
controller: {{ timeout: 1s }}
switches:
  a: {{ address: {}, device_id: 1 }}
  b: {{ address: {dead}, device_id: 2 }}
  c: {{ address: {dead}, device_id: 3 }}
  d: {{ address: {dead}, device_id: 4 }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"a:1\", speed: 50Mbps }}
  - {{ a: h2, b: \"d:1\", speed: 50Mbps }}
  - {{ a: \"a:2\", b: \"b:1\", speed: 50Mbps }}
  - {{ a: \"a:3\", b: \"c:1\", speed: 5Mbps }}
  - {{ a: \"d:2\", b: \"b:2\", speed: 50Mbps }}
  - {{ a: \"d:3\", b: \"c:2\", speed: 5Mbps }}
",
        switch.address
    );
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    let options = Options { only: ["a".to_owned()].into(), ..Options::default() };
    let artifacts = Artifacts::embedded().unwrap();
    let report = apply(&fabric, &artifacts, &options).await.unwrap();
    assert!(report.is_ok(), "{report}");
    let mut now = 0;
    for flow in 0..2_200_u16 {
        let mut frame = frame();
        frame[34..36].copy_from_slice(&(20_000 + flow).to_be_bytes());
        now = switch.forward(now, &[frame]) + 1_000_000;
    }
    let shown = show(&fabric, &artifacts, &options, What::Counters).await.unwrap();
    let json = serde_json::to_value(&shown).unwrap();
    let mut sent: BTreeMap<u64, u64> = BTreeMap::new();
    for row in json["counters"].as_array().unwrap() {
        let packets = row["counters"]["transmitted"]["packets"].as_u64().unwrap_or(0);
        *sent.entry(row["port"].as_u64().unwrap_or(0)).or_default() += packets;
    }
    // 200 of 2,200 expected, with a standard deviation of 13.5; the flows are the same every time.
    assert_eq!(sent[&2] + sent[&3], 2_200, "{sent:?}");
    assert!((150..=250).contains(&sent[&3]), "{sent:?}");
}
