//! Packets per second of the engine on one core: ingress and egress of the trimming program, 1,000 routes in ECMP
//! groups of four, 64 queue policies, no traffic manager.
//!
//! `cargo run --release -p trimwire-switch --example engine_pps [JSON [PACKETS]]`

use std::time::Instant;

use anyhow::{Context, Result};
use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, Group, GroupMember, MatchValue, TableEntry, value,
};
use trimwire_switch::engine::{EgressOutcome, Pipeline, QueueMetadata};

fn entry(matches: Vec<MatchValue>, action: ActionSpec) -> TableEntry {
    TableEntry { matches, priority: 0, action, metadata: Vec::new() }
}

fn call(action: &str, params: &[u128]) -> ActionCall {
    ActionCall { action: action.into(), params: params.iter().map(|&param| value(param)).collect() }
}

fn configure(pipeline: &mut Pipeline) -> Result<()> {
    let control = pipeline.control();
    for port in 0..64 {
        let forward = call("Ingress.forward", &[port + 1, 0x0200_0000_0000 + port]);
        control.member_insert("Ingress.ecmp", port as u32 + 1, &forward)?;
    }
    for group in 0..64 {
        let members = (0..4).map(|member| GroupMember { id: (group + member) % 64 + 1, weight: 1 }).collect();
        control.group_insert("Ingress.ecmp", &Group { id: group + 1, max_size: 0, members })?;
    }
    for route in 0..1000u32 {
        let address = 0x0a00_0000 + (route << 8);
        let prefix = MatchValue::Lpm { value: value(address.into()), prefix_len: 24 };
        control
            .table_insert("Ingress.ipv4_route", &entry(vec![prefix], ActionSpec::Group(route % 64 + 1)))?;
    }
    let classify = call("Ingress.set_trimmable", &[5]);
    let dscp = vec![MatchValue::Exact(value(3))];
    control.table_insert("Ingress.classify", &entry(dscp, ActionSpec::Direct(classify)))?;
    for port in 1..=32u128 {
        for importance in 0..2 {
            let key = [port, 5, importance].map(|key| MatchValue::Exact(value(key))).to_vec();
            let thresholds = [30_000, 40_000, 60_000, 200_000, 412, 236, 35, 6, 100_000];
            let action = ActionSpec::Direct(call("Ingress.queue_policy.set_thresholds", &thresholds));
            control.table_insert("Ingress.queue_policy.policy", &entry(key, action))?;
        }
    }
    Ok(())
}

fn frame(length: usize, flow: u16) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    let ip = [0x45, 3 << 2 | 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 9, 9];
    frame[14..30].copy_from_slice(&ip);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    frame[30..34].copy_from_slice(&[10, (flow % 4) as u8, flow as u8, 1]);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame[34..36].copy_from_slice(&(10_000 + flow).to_be_bytes());
    frame[36..38].copy_from_slice(&9217u16.to_be_bytes());
    frame[38..40].copy_from_slice(&((length - 34) as u16).to_be_bytes());
    frame
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "p4/build/bmv2/trimwire.json".into());
    let packets: u32 = std::env::args().nth(2).map_or(Ok(1_000_000), |count| count.parse())?;
    let json = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
    for length in [102, 1470] {
        let mut pipeline = Pipeline::load(&json)?;
        configure(&mut pipeline)?;
        let frames: Vec<Vec<u8>> = (0..256).map(|flow| frame(length, flow)).collect();
        let (mut queue, mut sent, mut bytes) = (Vec::new(), 0u32, 0u64);
        let start = Instant::now();
        for number in 0..packets {
            let now_ns = u64::from(number) * 100;
            pipeline.ingress(now_ns, 1, &frames[number as usize % frames.len()], &mut queue);
            while let Some(packet) = queue.pop() {
                let outcome = pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue);
                if let EgressOutcome::Transmit { frame, .. } = outcome {
                    sent += 1;
                    bytes += frame.len() as u64;
                    pipeline.recycle(frame);
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{length} bytes: {:.0} packets/s, {sent} of {packets} sent, {:.1} bytes each",
            f64::from(packets) / seconds,
            bytes as f64 / f64::from(sent.max(1))
        );
    }
    Ok(())
}
