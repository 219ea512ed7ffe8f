// SPDX-License-Identifier: Apache-2.0
//! The plain trimming switch against the P4 engine: the same packets at the same times, and every
//! frame that leaves is the same, when and how long.

use crate::fabric_program::{RATE, cap, program};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use trimwire_fabric::cluster::ClusterConfig;
use trimwire_fabric::frame;
use trimwire_lab::sim::discipline::{Counts, Discipline as _, Ladder, Rungs};
use trimwire_lab::sim::packet::{Ecn, Kind, Packet, Trimming};
use trimwire_switch::{PortConfig, Switch, SwitchConfig};

/// What left the one port: when, its number, its length, whether it was trimmed, whether it was
/// marked.
type Left = Vec<(u64, u32, usize, bool, bool)>;

/// DSCPs of `fabric_program`, with their queues.
const TRIMMABLE: (u8, u8) = (3, 5);
const DROPPABLE: (u8, u8) = (19, 5);
const TRIMMED: (u8, u8) = (35, 6);
const CONTROL: (u8, u8) = (39, 7);

/// An arrival: when, number, length of the frame, DSCP and queue, ECN.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    at_ns: u64,
    number: u32,
    length: usize,
    class: (u8, u8),
    ecn: u8,
}

fn arrivals(seed: u64, load: f64) -> Vec<Arrival> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut at_ns, mut made) = (0, Vec::new());
    for number in 0..6_000 {
        // Bursts: the gap is short or long. Distinct times, as the order of equal ones is the
        // driver's.
        let mean = 1_125.0 / load * if (number / 300) % 2 == 0 { 0.25 } else { 1.75 };
        at_ns += 1 + (random.random::<f64>() * 2.0 * mean) as u64;
        let class = [TRIMMABLE, TRIMMABLE, TRIMMABLE, DROPPABLE, TRIMMED, CONTROL][random.random_range(0..6)];
        let length = match class {
            TRIMMED => 118,
            CONTROL => 64,
            _ => [1_406, 1_406, 958, 510, 300, 118][random.random_range(0..6)],
        };
        let ecn = if class == CONTROL { 2 } else { [0, 2][random.random_range(0..2)] };
        made.push(Arrival { at_ns, number, length, class, ecn });
    }
    made
}

/// Room for heads: µs of the trim queue, and the cap on what is trimmed.
#[derive(Debug, Clone, Copy)]
struct Room {
    trim_drop_us: u64,
    cap: Option<(u32, u32)>,
}

const ROOM: Room = Room { trim_drop_us: 60, cap: None };

fn engine(arrivals: &[Arrival], room: Room) -> Left {
    let config = ClusterConfig {
        workers: 2,
        link_bps: RATE,
        delay_ns: 0,
        cross_groups: 0,
        cross_per_group: 0,
        cross: None,
        seed: 0,
        sample_ns: 1_000_000,
    };
    let line = PortConfig { rate_bps: RATE, queue_limit_bytes: 16 << 20 };
    let mut switch = Switch::new(SwitchConfig { default_port: line, ..SwitchConfig::default() });
    switch.load_pipeline(include_bytes!("../../../p4/build/bmv2/trimwire.json")).expect("our own");
    let pipeline = switch.pipeline().expect("loaded");
    program(pipeline, &config, true, room.trim_drop_us.into());
    if let Some(limit) = room.cap {
        cap(pipeline, 2, limit);
    }
    let (from, to) = (ClusterConfig::rank_address(0), ClusterConfig::rank_address(1));
    let mut left = Left::new();
    let mut drain = |switch: &mut Switch| {
        while let Some(transmit) = switch.poll_transmit() {
            assert_eq!(transmit.port, 2);
            let datagram = frame::read(&transmit.frame).expect("ours");
            let number = u32::from_be_bytes(datagram.payload[..4].try_into().expect("four bytes"));
            let (dscp, ecn) = (datagram.tos >> 2, datagram.tos & 3);
            left.push((transmit.end_ns, number, transmit.frame.len(), dscp == TRIMMED.0, ecn == 3));
        }
    };
    for arrival in arrivals {
        while let Some(at_ns) = switch.poll_timeout().filter(|&at_ns| at_ns < arrival.at_ns) {
            switch.handle_timeout(at_ns);
            drain(&mut switch);
        }
        let mut payload = vec![0; arrival.length - frame::HEADERS];
        payload[..4].copy_from_slice(&arrival.number.to_be_bytes());
        let tos = arrival.class.0 << 2 | arrival.ecn;
        let frame = frame::write(from, to, tos, 1, 2, &payload).expect("fits");
        switch.handle_frame(arrival.at_ns, 1, &frame);
        drain(&mut switch);
    }
    while let Some(at_ns) = switch.poll_timeout() {
        switch.handle_timeout(at_ns);
        drain(&mut switch);
    }
    left
}

fn packet(arrival: &Arrival) -> Packet {
    let mut packet = Packet::data(0, arrival.number, arrival.length as u32);
    packet.class = arrival.class.1;
    packet.kind = if arrival.class == CONTROL { Kind::Ack } else { Kind::Data };
    packet.ecn = if arrival.ecn == 0 { Ecn::NotEct } else { Ecn::Ect };
    packet.trimming = match arrival.class {
        TRIMMABLE => Trimming::Trimmable,
        TRIMMED => Trimming::Trimmed,
        _ => Trimming::Plain,
    };
    packet
}

fn plain(arrivals: &[Arrival], room: Room) -> (Left, Counts) {
    let us = |time: u64| time * RATE / 8_000_000;
    // The numbers of `fabric_program`.
    let rungs = Rungs {
        mark_at: [us(120); 2],
        shallow_at: [us(20); 2],
        deep_at: [us(60); 2],
        drop_at: [us(120); 2],
        shallow_size: 510,
        deep_size: 118,
        trim_queue: 6,
        trim_drop_at: us(room.trim_drop_us),
        cap: room.cap,
    };
    let (mut port, mut counts, mut left) = (Ladder::new(rungs), Counts::default(), Left::new());
    // A line like the traffic manager's: a frame begins when the one before has ended, and
    // fractions of a nanosecond are carried.
    let (mut free_ns, mut remainder) = (0_u64, 0_u64);
    let mut serve = |port: &mut Ladder, until_ns: u64, now_ns: u64| {
        while free_ns.max(now_ns) < until_ns
            && let Some(packet) = port.dequeue()
        {
            let begin_ns = free_ns.max(now_ns);
            let work =
                u64::from(packet.length) * 8_000_000_000 + if begin_ns > free_ns { 0 } else { remainder };
            free_ns = begin_ns + work / RATE;
            remainder = work % RATE;
            left.push((
                free_ns,
                packet.number,
                packet.length as usize,
                packet.is_trimmed(),
                packet.ecn == Ecn::Ce,
            ));
        }
    };
    for arrival in arrivals {
        // What the line takes before this one comes.
        serve(&mut port, arrival.at_ns, 0);
        port.enqueue(arrival.at_ns, packet(arrival), &mut counts);
        serve(&mut port, arrival.at_ns + 1, arrival.at_ns);
    }
    serve(&mut port, u64::MAX, 0);
    (left, counts)
}

#[test]
fn the_plain_trimming_switch_is_the_p4_engines_packet_for_packet() {
    let short = Room { trim_drop_us: 1, ..ROOM };
    // An eighth of the line, and three heads at once.
    let capped = Room { cap: Some((160_000, 1_600)), ..ROOM };
    for (seed, load, room) in [
        (1, 0.8, ROOM),
        (2, 1.5, ROOM),
        (3, 3.0, ROOM),
        (4, 6.0, ROOM),
        (5, 3.0, short),
        (6, 6.0, short),
        (7, 1.5, capped),
        (8, 6.0, capped),
    ] {
        let arrivals = arrivals(seed, load);
        let ((plain, counts), engine) = (plain(&arrivals, room), engine(&arrivals, room));
        for (at, (ours, theirs)) in plain.iter().zip(&engine).enumerate() {
            let near = ours.0.abs_diff(theirs.0) <= 1;
            assert!(
                near && (ours.1, ours.2, ours.3, ours.4) == (theirs.1, theirs.2, theirs.3, theirs.4),
                "load {load}, {room:?}, departure {at}: plain {ours:?}, engine {theirs:?}"
            );
        }
        assert_eq!(plain.len(), engine.len(), "load {load}");
        if load > 1.0 {
            assert!(counts.trimmed > 100 && counts.dropped > 0, "load {load} trims and drops: {counts:?}");
        }
    }
}
