// SPDX-License-Identifier: Apache-2.0
//! What the classes of layers find on a switch that was told nothing but who is there.

use crate::run_support::{Embedded, frame_with};
use trimwire_controller::show::{Rows, What, show_blocking};
use trimwire_controller::{Artifacts, Fabric, Options, apply_blocking};

/// Packets trimmed of so many that come at once, on an idle port of 10 Gbit/s.
fn trims(fabric: &Fabric, switch: &Embedded, now: &mut u64, dscp: u8, packets: usize) -> i64 {
    let trimmed = || {
        let shown =
            show_blocking(fabric, &Artifacts::embedded().unwrap(), &Options::default(), What::Counters);
        let Rows::Counters(rows) = shown.unwrap().rows else { panic!() };
        rows.iter().filter_map(|row| row.counters.get("trimmed")).map(|count| count.packets).sum::<i64>()
    };
    let before = trimmed();
    *now = switch.forward(*now + 1_000_000, &vec![frame_with(dscp); packets]);
    trimmed() - before
}

/// MLT §4.2.2: front layers are served first, and give way first.
#[test]
fn a_burst_that_is_trimmed_in_the_front_layers_class_passes_whole_in_the_back_layers() {
    let switch = tokio::runtime::Runtime::new().unwrap();
    let _entered = switch.enter();
    let switch = Embedded::start(1);
    let text = format!(
        "version: 1
switches: {{ s1: {{ address: {}, device_id: 1 }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"s1:1\", speed: 10Gbps }}
  - {{ a: h2, b: \"s1:2\", speed: 10Gbps }}
",
        switch.address
    );
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    let report = apply_blocking(&fabric, &Artifacts::embedded().unwrap(), &Options::default()).unwrap();
    assert!(report.is_ok(), "{report}");
    let mut now = 0;
    // 40, 60, 80 and 100 us of line rate are 36, 54, 72 and 89 packets of 1,406 bytes; one more is
    // on the line.
    let mut trims = |dscp, packets| trims(&fabric, &switch, &mut now, dscp, packets);
    let classes = [3, 7, 11, 15];
    assert_eq!(classes.map(|dscp| trims(dscp, 60)), [23, 5, 0, 0]);
    assert_eq!(classes.map(|dscp| trims(dscp, 100)), [63, 45, 27, 10]);
}
