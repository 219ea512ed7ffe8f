// SPDX-License-Identifier: Apache-2.0
//! A packet allocates nothing once buffers have been recycled, whatever the flow cache knows of it,
//! as machine code and interpreted. And what programs took goes with them.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, value};
use trimwire_switch::engine::{EgressOutcome, Pipeline, QueueMetadata};

/// The system's allocator, counting what the calling thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// One test at a time: programs' machine code is the process's.
static TURN: Mutex<()> = Mutex::new(());

fn counted() {
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is handed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Layout) -> *mut u8 {
        counted();
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(memory) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, memory: Layout, size: usize) -> *mut u8 {
        counted();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, memory, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, memory: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Our program with a route; every packet is trimmable, and met by these thresholds.
fn pipeline(thresholds: &[u128]) -> Pipeline {
    let mut pipeline = Pipeline::load(trimwire_p4::BMV2_JSON).unwrap();
    let call = |action: &str, params: &[u128]| ActionCall {
        action: action.into(),
        params: params.iter().map(|&param| value(param)).collect(),
    };
    let policy = || ActionSpec::Direct(call("Ingress.queue_policy.set_thresholds", thresholds));
    let exact = |number| MatchValue::Exact(value(number));
    let control = pipeline.control();
    control.member_insert("Ingress.ecmp", 1, &call("Ingress.forward", &[2, 0x0200_0000_0099])).unwrap();
    for (table, matches, action) in [
        (
            "Ingress.ipv4_route",
            vec![MatchValue::Lpm { value: value(0x0a00_0000), prefix_len: 8 }],
            ActionSpec::Member(1),
        ),
        ("Ingress.classify", vec![exact(3)], ActionSpec::Direct(call("Ingress.set_trimmable", &[5]))),
        ("Ingress.queue_policy.policy", vec![exact(2), exact(5), exact(0)], policy()),
        ("Ingress.queue_policy.policy", vec![exact(2), exact(5), exact(1)], policy()),
    ] {
        control
            .table_insert(table, &TableEntry { matches, priority: 0, action, metadata: Vec::new() })
            .unwrap();
    }
    pipeline
}

/// IPv4 and UDP, trimmable, of one of 64 flows.
fn frame(flow: u8) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let builder = builder.ipv4([10, 9, 9, flow], [10, 1, 2, 3], 64).udp(10_000, 9_217);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[7; 1_000]).unwrap();
    // DSCP 3, and the checksum that it changes.
    frame[15] = 3 << 2;
    let sum = u16::from_be_bytes([frame[24], frame[25]]);
    frame[24..26].copy_from_slice(&sum.wrapping_sub(3 << 2).to_be_bytes());
    frame
}

#[test]
fn a_packet_allocates_nothing_once_buffers_are_recycled() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let frames: Vec<Vec<u8>> = (0..64).map(frame).collect();
    let far = 1 << 30;
    for (trims, thresholds) in [(false, [far, far, far, far]), (true, [0, 0, 0, far])] {
        let thresholds = [&thresholds[..], &[412, 96, 35, 6, far]].concat();
        for (flows, interpreted) in [(16_384, false), (0, false), (16_384, true), (0, true)] {
            let mut pipeline = pipeline(&thresholds);
            pipeline.limit_flows(flows);
            pipeline.interpret(interpreted);
            let (mut queue, mut now_ns, mut lengths) = (Vec::new(), 0, 0);
            let mut pass = || {
                let before = ALLOCATIONS.get();
                for frame in &frames {
                    now_ns += 1_000;
                    pipeline.ingress(now_ns, 1, frame, &mut queue);
                    let packet = queue.pop().expect("the packet is forwarded");
                    let meta = QueueMetadata { enq_timestamp_ns: now_ns, ..QueueMetadata::default() };
                    match pipeline.egress(now_ns, packet, meta, &mut queue) {
                        EgressOutcome::Transmit { port: 2, frame, length } => {
                            lengths = length;
                            pipeline.recycle(frame);
                        }
                        other => panic!("{other:?}"),
                    }
                }
                ALLOCATIONS.get() - before
            };
            assert!(pass() > 0, "the counter counts");
            let what = format!("trimmed: {trims}, {flows} flows known, interpreted: {interpreted}");
            assert_eq!(pass(), 0, "{what}");
            assert_eq!(lengths < frames[0].len(), trims, "{what}: {lengths} bytes");
        }
    }
}

/// Bytes of memory that may be run and is no file's.
#[cfg(all(target_os = "linux", feature = "native"))]
fn machine_code() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let bytes = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[range, permissions, _, _, "0"] = &fields[..] else { return 0 };
        let ends = range.split_once('-').map(|(from, to)| [from, to].map(|end| u64::from_str_radix(end, 16)));
        match ends {
            Some([Ok(from), Ok(to)]) if permissions.contains('x') => to - from,
            _ => 0,
        }
    };
    maps.lines().map(bytes).sum()
}

#[cfg(all(target_os = "linux", feature = "native"))]
#[test]
fn a_program_s_machine_code_goes_with_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let before = machine_code();
    let pipelines: Vec<Pipeline> = (0..8).map(|_| pipeline(&[0; 9])).collect();
    let copy = pipelines[0].clone();
    let (with, kind) = (machine_code(), copy.runs_as());
    assert!(with > before, "{kind}");
    drop(pipelines);
    let one = machine_code();
    assert!(before < one && one < with, "a copy has its program still: {before}, {one}, {with} bytes");
    drop(copy);
    assert_eq!(machine_code(), before);
}
