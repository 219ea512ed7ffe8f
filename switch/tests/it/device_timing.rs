// SPDX-License-Identifier: Apache-2.0
//! The switch as a sans-IO machine: time runs forwards whatever the caller's delay, and floods are
//! bounded.

use crate::engine_support::{call, direct, entry, exact, lpm};
use trimwire_switch::engine::entity::ActionSpec;
use trimwire_switch::{PortConfig, Switch, SwitchConfig};

/// 1,000 bytes take 8 µs.
const RATE: u64 = 1_000_000_000;

fn switch() -> Switch {
    let port = PortConfig { rate_bps: RATE, ..PortConfig::default() };
    let mut switch = Switch::new(SwitchConfig { default_port: port, ..SwitchConfig::default() });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    switch.load_pipeline(&std::fs::read(path).unwrap()).unwrap();
    let control = switch.pipeline().unwrap().control();
    control.member_insert("Ingress.ecmp", 1, &call("Ingress.forward", &[2, 0x02_00_00_00_00_99])).unwrap();
    control.table_insert("Ingress.ipv4_route", &entry(vec![lpm(0, 0)], 0, ActionSpec::Member(1))).unwrap();
    for (dscp, queue) in [(10, 2), (20, 7)] {
        let plain = direct("Ingress.set_plain", &[queue]);
        control.table_insert("Ingress.classify", &entry(vec![exact(dscp)], 0, plain)).unwrap();
    }
    switch
}

fn frame(dscp: u8, length: usize) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(1, 2);
    let mut frame = Vec::new();
    builder.write(&mut frame, &vec![0; length - 42]).unwrap();
    frame[15] = dscp << 2;
    let mut header: [u8; 20] = frame[14..34].try_into().unwrap();
    header[10..12].fill(0);
    let sum: u32 = header.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame
}

#[test]
fn a_frame_never_leaves_before_it_has_arrived_however_late_the_caller_is() {
    let mut switch = switch();
    for _ in 0..3 {
        switch.handle_frame(0, 1, &frame(10, 1_000));
    }
    // The line was free at 8 and 16 µs; nobody called. Then a frame of the highest queue comes.
    switch.handle_frame(20_000, 1, &frame(20, 500));
    switch.handle_timeout(100_000);
    let sent: Vec<(usize, u64, u64)> = std::iter::from_fn(|| switch.poll_transmit())
        .map(|t| (t.frame.len(), t.start_ns, t.end_ns))
        .collect();
    assert_eq!(
        sent,
        [(1_000, 0, 8_000), (1_000, 8_000, 16_000), (1_000, 16_000, 24_000), (500, 24_000, 28_000)]
    );
}

#[test]
fn packet_outs_that_nobody_takes_are_bounded_and_counted() {
    let mut switch = Switch::new(SwitchConfig { cpu_port: Some(510), ..SwitchConfig::default() });
    for _ in 0..100_000 {
        switch.packet_out(vec![0; 64]);
    }
    switch.handle_timeout(0);
    let stats = switch.stats();
    assert!(stats.received <= 1_024, "{stats:?}");
    assert_eq!(stats.received + stats.packet_out_lost, 100_000);
}

#[test]
fn packet_outs_without_a_cpu_port_are_counted() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.packet_out(vec![0; 64]);
    switch.handle_timeout(0);
    assert_eq!(switch.stats().packet_out_lost, 1);
}
