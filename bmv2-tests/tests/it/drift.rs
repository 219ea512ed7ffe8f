// SPDX-License-Identifier: Apache-2.0
//! The register that says how much is queued does not drift: not under load that comes and goes, and not where the traffic
//! manager drops what the program let in. The program's two pipelines run in two threads on BMv2, so this is about them more than
//! about our switch, which takes the same test.
//!
//! `TRIMWIRE_DRIFT_PACKETS` says how many packets (20,000).

use anyhow::{Context, ensure};
use std::time::Duration;
use tokio::runtime::Runtime;
use trimwire_bmv2_tests::frames::FrameSocket;
use trimwire_bmv2_tests::namespace::connect;
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::registers::Registers;
use trimwire_bmv2_tests::switch::{ADDRESS, DEVICE_ID};
use trimwire_bmv2_tests::vectors::{Policy, Vectors, policy};
use trimwire_bmv2_tests::{Kind, Namespace, Programs, RunningSwitch, exclusive};
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{counter, insert};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::entity::Entity as Kinds;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

const PORTS: [u16; 2] = [0, 1];
const OUT: u32 = 1;
const RATE: u64 = 100_000_000;
/// (DSCP, its queue): best effort with a limit; trimmable; trimmable in a queue without a policy, so that nothing but the
/// traffic manager limits it.
const PLAIN: (u8, u32) = (0, 0);
const TRIMMABLE: (u8, u32) = (3, 5);
const UNLIMITED: (u8, u32) = (11, 3);
const TRIM_QUEUE: u32 = 6;
/// Frames are of 700 to 1,500 bytes: BMv2 drops in silence at 64 packets, and the limits are reached before.
const SHORTEST: u64 = 700;
const LONGEST: u64 = 1_500;
const PLAIN_DROP_AT: u64 = 40_000;

/// A fabric's worth of chance in one word (Knuth's MMIX constants).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn frame(dscp: u8, length: u64) -> Vec<u8> {
    let ip_length = length as u16 - 14;
    let mut ip = vec![0x45, dscp << 2 | 2];
    ip.extend_from_slice(&ip_length.to_be_bytes());
    ip.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 9]);
    let sum = ip.chunks(2).fold(0_u32, |sum, pair| sum + (u32::from(pair[0]) << 8) + u32::from(pair[1]));
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2, 0xaa, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&[0x0f, 0xa0, 0x24, 0x01]);
    frame.extend_from_slice(&(ip_length - 20).to_be_bytes());
    frame.resize(length as usize, 0);
    frame
}

fn limits(queue: u32, shallow_at: u32, drop_at: u32) -> Vec<Policy> {
    let both = [0, 1].map(|importance| {
        [
            ("egress_port", OUT),
            ("queue", queue),
            ("importance", importance),
            ("mark_at", u32::MAX),
            ("shallow_at", shallow_at),
            ("deep_at", shallow_at.saturating_mul(2)),
            ("drop_at", drop_at),
            ("shallow_size", 256),
            ("deep_size", 104),
            ("trimmed_dscp", 35),
            ("trim_queue", TRIM_QUEUE),
            ("trim_drop_at", 6_000),
        ]
    });
    both.map(|values| values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()).to_vec()
}

struct Side {
    client: Client,
    runtime: Runtime,
    index: Index,
    registers: Registers,
    sockets: [FrameSocket; 2],
    // Dropped last: what is connected to them goes first.
    _switch: RunningSwitch,
    _spaces: [Namespace; 2],
}

impl Side {
    fn start(kind: &Kind) -> anyhow::Result<Self> {
        let (space, far) = (Namespace::new("s")?, Namespace::new("w")?);
        for port in PORTS {
            let ends = (format!("p{port}"), format!("w{port}"));
            let macs = (format!("02:aa:00:00:00:{port:02x}"), format!("02:bb:00:00:00:{port:02x}"));
            connect((&space, &ends.0, &macs.0), (&far, &ends.1, &macs.1))?;
        }
        let sockets = [FrameSocket::open(&far, "w0")?, FrameSocket::open(&far, "w1")?];
        let switch = RunningSwitch::start(kind, &space, &PORTS, RATE)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut client = space.enter(|| Ok(runtime.block_on(Client::connect(ADDRESS))?))?;
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/");
        let p4info = P4Info::from_text(&std::fs::read_to_string(format!("{build}trimwire.p4info.txtpb"))?)?;
        let json = std::fs::read(format!("{build}trimwire.json"))?;
        let index = Index::new(&p4info)?;
        let mut updates = Vectors::load()?.updates(&index)?;
        let policies = [limits(PLAIN.1, u32::MAX, PLAIN_DROP_AT as u32), limits(TRIMMABLE.1, 12_000, 40_000)];
        for values in policies.iter().flatten() {
            updates.push(insert(policy(&index, values)?));
        }
        runtime.block_on(async {
            client.arbitrate(DEVICE_ID, 1, Role::default()).await?;
            client.set_pipeline(p4info, json, Some(1), Action::VerifyAndCommit).await?;
            client.write(updates, Atomicity::ContinueOnError).await?;
            anyhow::Ok(())
        })?;
        let registers = space.enter(|| Registers::connect(kind))?;
        Ok(Self { client, runtime, index, registers, sockets, _switch: switch, _spaces: [space, far] })
    }

    fn occupancy(&mut self, queue: u32) -> anyhow::Result<u64> {
        let Self { runtime, client, index, registers, .. } = self;
        registers.read((runtime, client, index), "Ingress.occupancy", OUT * 8 + queue)
    }

    /// Packets and bytes.
    fn count(&self, array: &str, queue: u32) -> anyhow::Result<(i64, i64)> {
        let entry = counter(&self.index, array, Some(i64::from(OUT * 8 + queue)))?;
        let entities = self.runtime.block_on(self.client.read(vec![entry.into()]))?;
        let data = entities.into_iter().find_map(|entity| match entity.entity {
            Some(Kinds::CounterEntry(entry)) => entry.data,
            _ => None,
        });
        let data = data.with_context(|| format!("no counter {array}"))?;
        Ok((data.packet_count, data.byte_count))
    }

    fn discard(&self) -> anyhow::Result<()> {
        for socket in &self.sockets {
            while socket.receive()?.is_some() {}
        }
        Ok(())
    }

    /// BMv2 takes connections before it listens to its interfaces.
    fn warm_up(&self) -> anyhow::Result<()> {
        poll("the first packet through the switch", Duration::from_secs(15), || {
            self.sockets[0].send(&frame(PLAIN.0, SHORTEST))?;
            Ok(self.sockets[1].receive()?.map(|_| ()))
        })
    }

    /// Packets that were admitted to the queue without a limit, and never left: once nothing moves any more.
    fn lost(&mut self, sent: u64) -> anyhow::Result<i64> {
        let mut before = None;
        poll("counters at rest", Duration::from_secs(20), || {
            self.drained(sent)?;
            let (admitted, _) = self.count("Ingress.admitted", UNLIMITED.1)?;
            let (transmitted, _) = self.count("Egress.transmitted", UNLIMITED.1)?;
            let now = Some((admitted, transmitted));
            let is_at_rest = std::mem::replace(&mut before, now) == now;
            std::thread::sleep(Duration::from_millis(100));
            Ok(is_at_rest.then_some(admitted - transmitted))
        })
    }

    /// Bursts of what only the traffic manager limits, until it has dropped some of it: how many that takes depends on the machine, and
    /// on the 300 packets that BMv2's sender and the interface hold behind the queue. Gives how many packets were sent.
    fn overflow(&mut self) -> anyhow::Result<u64> {
        let mut sent = 0;
        poll("a packet that BMv2 drops in silence", Duration::from_secs(60), || {
            for _ in 0..1_000 {
                self.sockets[0].send(&frame(UNLIMITED.0, LONGEST))?;
            }
            sent += 1_000;
            Ok((self.lost(sent)? > 0).then_some(()))
        })?;
        Ok(sent)
    }

    /// Queues run empty, and the register says so.
    fn drained(&mut self, sent: u64) -> anyhow::Result<()> {
        let mut left = [0; 8];
        let empty = poll("an occupancy of nothing", Duration::from_secs(20), || {
            self.discard()?;
            for (queue, left) in (0..).zip(&mut left) {
                *left = self.occupancy(queue)?;
            }
            Ok((left == [0; 8]).then_some(()))
        });
        empty.with_context(|| format!("after {sent} packets, by queue: {left:?} bytes"))
    }
}

fn no_drift(kind: &Kind) -> anyhow::Result<()> {
    let packets: u64 = std::env::var("TRIMWIRE_DRIFT_PACKETS").map_or(Ok(20_000), |text| text.parse())?;
    let mut side = Side::start(kind)?;
    side.warm_up()?;
    let mut chance = Chance(7);
    let (mut sent, mut most) = (0, 0);
    while sent < packets {
        // What the line takes, three times that, and now and then a burst.
        let pause_us = match sent * 12 / packets % 3 {
            0 => 8_000,
            1 => 2_500,
            _ => 30_000,
        };
        let burst = 1 + chance.below(180);
        for _ in 0..burst {
            let (dscp, _) = [PLAIN, TRIMMABLE, UNLIMITED][chance.below(3) as usize];
            let length = SHORTEST + chance.below(LONGEST - SHORTEST);
            side.sockets[0].send(&frame(dscp, length))?;
        }
        let before = sent;
        sent += burst;
        // Asked in this order, what is in the queue is not less than the difference.
        if before / 1_000 != sent / 1_000 {
            let (_, admitted) = side.count("Ingress.admitted", PLAIN.1)?;
            let (_, transmitted) = side.count("Egress.transmitted", PLAIN.1)?;
            most = most.max(admitted - transmitted);
        }
        side.discard()?;
        std::thread::sleep(Duration::from_micros(chance.below(pause_us)));
        if before * 10 / packets != sent * 10 / packets {
            side.drained(sent)?;
        }
    }
    side.drained(sent)?;
    let room = (PLAIN_DROP_AT + LONGEST) as i64;
    ensure!(
        most <= room,
        "a queue with room for {room} bytes held {most}: it was thought shorter than it was"
    );
    // Without losses behind the program's back the test would say nothing of them.
    if matches!(kind, Kind::Bmv2(_)) && side.lost(sent)? == 0 {
        sent += side.overflow()?;
    }
    let lost = side.lost(sent)?;
    let (trimmed, _) = side.count("Ingress.trimmed", TRIMMABLE.1)?;
    ensure!(trimmed > 0, "nothing was trimmed");
    ensure!(matches!(kind, Kind::Trimwire(_)) || lost > 0, "BMv2 dropped nothing in silence");
    eprintln!(
        "{}: {sent} packets, no drift; {trimmed} cut, {lost} lost in the traffic manager, at most {most} bytes in a queue for \
         {PLAIN_DROP_AT}",
        kind.target()
    );
    Ok(())
}

#[test]
fn occupancy_does_not_drift_in_our_switch() {
    let _turn = exclusive();
    let Some(programs) = Programs::or_skip("drift in trimwire-switch") else { return };
    no_drift(&Kind::ours(&programs)).unwrap();
}

#[test]
fn occupancy_does_not_drift_in_bmv2() {
    let _turn = exclusive();
    let test = "drift in simple_switch_grpc";
    if Programs::or_skip(test).is_none() {
        return;
    }
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    no_drift(&Kind::Bmv2(bmv2)).unwrap();
}
