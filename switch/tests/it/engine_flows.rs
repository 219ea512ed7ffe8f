// SPDX-License-Identifier: Apache-2.0
//! The flow cache and machine code change nothing but the time that packets take: every program
//! does with them what it does interpreted.

use crate::bmv2_support::{Case, apply};
use crate::engine_programs::all;
use crate::engine_support::{call, direct, entry, exact, lpm};
use crate::fuzz_support::{Dice, Left, damaged, forward, runs, to_hex};
use trimwire_switch::engine::entity::{ActionSpec, Group, GroupMember, TableRow};
use trimwire_switch::engine::{Digest, Pipeline};

/// All that a program keeps.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    counters: Vec<String>,
    registers: Vec<String>,
    meters: Vec<String>,
    rows: Vec<TableRow>,
    defaults: Vec<String>,
}

pub(crate) fn state(pipeline: &mut Pipeline) -> State {
    use trimwire_switch::engine::entity::Owner;
    let control = pipeline.control();
    let cells = |name: &str, size: usize| {
        let name = name.to_owned();
        (0..size as u64).map(move |index| (name.clone(), index))
    };
    let counters: Vec<_> = control.counters().flat_map(|(name, size)| cells(name, size)).collect();
    let registers: Vec<_> = control.registers().flat_map(|(name, size, _)| cells(name, size)).collect();
    let meters: Vec<_> = control.meters().flat_map(|(name, size)| cells(name, size)).collect();
    let tables: Vec<String> = control.tables().map(|table| table.name.clone()).collect();
    let direct = |table: &String| format!("{table} {:?}", control.direct(table, Owner::Default));
    State {
        counters: counters
            .iter()
            .map(|(name, at)| format!("{name} {at} {:?}", control.counter(name, *at)))
            .collect(),
        registers: registers
            .iter()
            .map(|(name, at)| format!("{name} {at} {:?}", control.register(name, *at)))
            .collect(),
        meters: meters
            .iter()
            .map(|(name, at)| format!("{name} {at} {:?}", control.meter_colors(name, *at)))
            .collect(),
        rows: tables.iter().flat_map(|table| control.table_entries(table).unwrap()).collect(),
        defaults: tables.iter().map(direct).collect(),
    }
}

/// The program with a flow cache for so many flows and without one, as machine code (where it is
/// built in) and interpreted.
pub(crate) fn ways(load: impl Fn() -> Pipeline, flows: usize) -> [Pipeline; 4] {
    [(flows, false), (0, false), (flows, true), (0, true)].map(|(flows, interpreted)| {
        let mut way = load();
        way.limit_flows(flows);
        way.interpret(interpreted);
        let kind = way.runs_as();
        let compiled = cfg!(feature = "native") && !interpreted;
        assert_eq!(kind == "it runs as machine code", compiled, "{kind}");
        way
    })
}

/// The last way is the one that others are held against: instruction by instruction, for each
/// packet.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(results: [T; 4], what: &str) {
    let [cached, plain, cached_interpreted, interpreted] = results;
    assert_eq!(cached_interpreted, interpreted, "the flow cache: {what}");
    assert_eq!(plain, interpreted, "machine code: {what}");
    assert_eq!(cached, interpreted, "both: {what}");
}

/// What became of a frame.
pub(crate) fn results(way: &mut Pipeline, now_ns: u64, port: u16, frame: &[u8]) -> (Left, Vec<Digest>) {
    (forward(way, now_ns, port, frame), way.take_digests())
}

fn alike(ways: &mut [Pipeline; 4], now_ns: u64, port: u16, frame: &[u8], name: &str) {
    let results = ways.each_mut().map(|way| results(way, now_ns, port, frame));
    same(results, &format!("{name}: {} on port {port}", to_hex(frame)));
}

/// Frames come again and again, whole and damaged, while the rest of the entries are written.
fn check(dice: &mut Dice, case: &Case, flows: usize) {
    let json = std::fs::read(&case.json).unwrap();
    let mut ways = ways(|| Pipeline::load(&json).unwrap(), flows);
    let (early, late) = case.writes.split_at(case.writes.len() / 2);
    for way in &mut ways {
        early.iter().for_each(|write| apply(way, write).unwrap());
    }
    let (mut late, mut now_ns) = (late.iter(), 0);
    let mut flows: Vec<(u16, Vec<u8>)> = Vec::new();
    for _ in runs(2_000) {
        now_ns += 1_000_000;
        if flows.len() < 12 || dice.below(8) == 0 {
            let (port, frame) = dice.one(&case.frames).clone();
            let frame = if dice.below(2) == 0 { damaged(dice, &frame) } else { frame };
            match flows.len() {
                12 => flows[dice.below(12)] = (port, frame),
                _ => flows.push((port, frame)),
            }
        }
        let (port, frame) = dice.one(&flows).clone();
        alike(&mut ways, now_ns, port, &frame, case.name);
        if dice.below(16) == 0
            && let Some(write) = late.next()
        {
            ways.iter_mut().for_each(|way| apply(way, write).unwrap());
        }
    }
    same(ways.each_mut().map(state), case.name);
}

#[test]
fn every_program_does_cached_and_as_machine_code_what_it_does_interpreted() {
    let mut dice = Dice::new(40);
    for case in all() {
        for flows in [4, 16_384] {
            check(&mut dice, &case, flows);
        }
    }
}

/// Or the tests here would test nothing. One of these programs counts hits of the tables that are
/// remembered.
#[test]
fn programs_whose_tables_come_first_have_something_to_remember() {
    let shape = |case: &Case| Pipeline::load(&std::fs::read(&case.json).unwrap()).unwrap().flow_cache();
    let shapes: Vec<_> = all().iter().map(|case| (case.name, shape(case))).collect();
    let remembered = shapes.iter().filter(|(_, shape)| shape.contains("is remembered for each flow"));
    let names: Vec<_> = remembered.map(|(name, _)| *name).collect();
    assert_eq!(names, ["tables", "selectors"], "{shapes:#?}");
}

const TRIMWIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");

#[test]
fn our_program_asks_a_flow_s_tables_once_and_reads_registers_for_each_packet() {
    let shape = Pipeline::load(&std::fs::read(TRIMWIRE).unwrap()).unwrap().flow_cache();
    let (tables, ends) = shape.split_once(", up to: ").unwrap();
    for table in ["trust", "load_balance", "ipv4_route", "classify", "trim_acl_ipv4", "queue_policy.policy"] {
        assert!(tables.contains(&format!("Ingress.{table}")), "{table}: {shape}");
    }
    assert!(ends.contains("register Ingress.arrived"), "{shape}");
}

/// Our program with a route to a group of two ports.
fn trimwire() -> Pipeline {
    let mut pipeline = Pipeline::load(&std::fs::read(TRIMWIRE).unwrap()).unwrap();
    let control = pipeline.control();
    for port in 1..=3_u32 {
        let forward = call("Ingress.forward", &[port.into(), u128::from(port)]);
        control.member_insert("Ingress.ecmp", port, &forward).unwrap();
    }
    control.group_insert("Ingress.ecmp", &group(&[1])).unwrap();
    let route = entry(vec![lpm(0x0a00_0000, 8)], 0, ActionSpec::Group(1));
    control.table_insert("Ingress.ipv4_route", &route).unwrap();
    pipeline
}

fn group(members: &[u32]) -> Group {
    let members = members.iter().map(|&id| GroupMember { id, weight: 1 }).collect();
    Group { id: 1, members, max_size: 0 }
}

/// To 10.1.2.3.
fn frame() -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut frame = Vec::new();
    builder.ipv4([10, 9, 9, 9], [10, 1, 2, 3], 64).udp(10_000, 9217).write(&mut frame, &[7; 60]).unwrap();
    frame
}

/// Ports that the flow's next two packets leave by.
fn ports(pipeline: &mut Pipeline) -> Vec<u16> {
    (0..2).flat_map(|_| forward(pipeline, 0, 1, &frame())).map(|(port, _)| port).collect()
}

#[test]
fn a_flow_s_next_packet_meets_whatever_was_written() {
    let mut pipeline = trimwire();
    assert_eq!(ports(&mut pipeline), [1, 1]);
    let control = pipeline.control();
    control.member_modify("Ingress.ecmp", 1, &call("Ingress.forward", &[7, 1])).unwrap();
    assert_eq!(ports(&mut pipeline), [7, 7]);
    pipeline.control().group_modify("Ingress.ecmp", &group(&[2, 3])).unwrap();
    let chosen = ports(&mut pipeline)[0];
    pipeline.control().watch_group("Ingress.ecmp", 1, &[(u32::from(chosen), 9)]).unwrap();
    assert_eq!(ports(&mut pipeline), [chosen; 2]);
    pipeline.control().set_port_up(9, false);
    assert_eq!(ports(&mut pipeline), [5 - chosen; 2]);
    pipeline.control().set_port_up(9, true);
    assert_eq!(ports(&mut pipeline), [chosen; 2]);
    let longer = entry(vec![lpm(0x0a01_0000, 16)], 0, ActionSpec::Member(2));
    pipeline.control().table_insert("Ingress.ipv4_route", &longer).unwrap();
    assert_eq!(ports(&mut pipeline), [2, 2]);
    let elsewhere = entry(vec![lpm(0x0a01_0000, 16)], 0, ActionSpec::Member(3));
    pipeline.control().table_modify("Ingress.ipv4_route", &elsewhere).unwrap();
    assert_eq!(ports(&mut pipeline), [3, 3]);
    pipeline.control().begin_batch();
    pipeline.control().table_delete("Ingress.ipv4_route", &elsewhere.matches, 0).unwrap();
    pipeline.control().undo_batch();
    assert_eq!(ports(&mut pipeline), [3, 3]);
    pipeline.control().table_delete("Ingress.ipv4_route", &elsewhere.matches, 0).unwrap();
    assert_eq!(ports(&mut pipeline), [chosen; 2]);
    // What is not trimmable and has no queue of its own: queue 0, until the default says otherwise.
    let queue = |pipeline: &mut Pipeline| {
        let mut out = Vec::new();
        pipeline.ingress(0, 1, &frame(), &mut out);
        out[0].queue
    };
    assert_eq!([queue(&mut pipeline), queue(&mut pipeline)], [0, 0]);
    pipeline
        .control()
        .set_default_action("Ingress.classify", Some(&direct("Ingress.set_plain", &[4])))
        .unwrap();
    assert_eq!([queue(&mut pipeline), queue(&mut pipeline)], [4, 4]);
    let class = entry(vec![exact(0)], 0, direct("Ingress.set_plain", &[2]));
    pipeline.control().table_insert("Ingress.classify", &class).unwrap();
    assert_eq!([queue(&mut pipeline), queue(&mut pipeline)], [2, 2]);
}

#[test]
fn a_copy_of_a_pipeline_remembers_for_itself() {
    let mut pipeline = trimwire();
    assert_eq!(ports(&mut pipeline), [1, 1]);
    let mut copy = pipeline.clone();
    copy.control().group_modify("Ingress.ecmp", &group(&[2])).unwrap();
    assert_eq!((ports(&mut copy), ports(&mut pipeline)), (vec![2, 2], vec![1, 1]));
}

/// More flows than there is room for, and of more kinds.
#[test]
fn flows_that_find_no_room_go_where_they_would_go() {
    let mut dice = Dice::new(41);
    let mut ways = ways(trimwire, 16);
    for now_ns in runs(20_000) {
        let mut frame = frame();
        frame[34..36].copy_from_slice(&(dice.below(400) as u16).to_be_bytes());
        frame[12] = *dice.one(&[8, 8, 8, 8, 0x81, 0x86]);
        frame[23] = *dice.one(&[17, 17, 6, 132, 1]);
        alike(&mut ways, now_ns, dice.below(4) as u16, &frame, "trimwire");
    }
    same(ways.each_mut().map(state), "trimwire");
}
