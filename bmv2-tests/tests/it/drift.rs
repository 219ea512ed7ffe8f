// SPDX-License-Identifier: Apache-2.0
//! The register that says how much is queued does not drift: not under load that comes and goes,
//! and not where the traffic manager drops what the program let in. The program's two pipelines run
//! in two threads on BMv2, so this is about them more than about our switch, which takes the same
//! test.
//!
//! `TRIMWIRE_DRIFT_PACKETS` says how many packets (20,000).

use anyhow::{Context, ensure};
use std::time::Duration;
use trimwire_bmv2_tests::packets::udp;
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::vectors::{Policy, Vectors, policy};
use trimwire_bmv2_tests::{Kind, Programs, Random, Wired, exclusive};
use trimwire_p4runtime::entity::insert;

const PORTS: u16 = 2;
const OUT: u32 = 1;
const RATE: u64 = 100_000_000;
/// (DSCP, its queue): best effort with a limit; trimmable; trimmable in a queue without a policy,
/// so that nothing but the traffic manager limits it.
const PLAIN: (u8, u32) = (0, 0);
const TRIMMABLE: (u8, u32) = (3, 5);
const UNLIMITED: (u8, u32) = (11, 3);
const TRIM_QUEUE: u32 = 6;
/// Frames are of 700 to 1,500 bytes: BMv2 drops in silence at 64 packets, and the limits are
/// reached before.
const SHORTEST: u64 = 700;
const LONGEST: u64 = 1_500;
const PLAIN_DROP_AT: u64 = 40_000;

/// UDP to port 1, with ECN 2.
fn frame(dscp: u8, length: u64) -> Vec<u8> {
    udp(dscp << 2 | 2, [10, 0, 1, 9], 9_217, &vec![0; length as usize - 42])
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

struct Side(Wired);

impl Side {
    fn start(kind: &Kind) -> anyhow::Result<Self> {
        let wired = Wired::start(kind, &Vectors::load()?, PORTS, RATE)?;
        let policies = [limits(PLAIN.1, u32::MAX, PLAIN_DROP_AT as u32), limits(TRIMMABLE.1, 12_000, 40_000)];
        let entries = policies.iter().flatten().map(|values| Ok(insert(policy(&wired.index, values)?)));
        wired.write(entries.collect::<anyhow::Result<_>>()?)?;
        Ok(Self(wired))
    }

    fn occupancy(&mut self, queue: u32) -> anyhow::Result<u64> {
        self.0.register("Ingress.occupancy", OUT * 8 + queue)
    }

    /// Packets and bytes.
    fn count(&self, array: &str, queue: u32) -> anyhow::Result<(i64, i64)> {
        let cells = self.0.counters(array, Some(i64::from(OUT * 8 + queue)))?;
        let (_, data) = cells.first().with_context(|| format!("no counter {array}"))?;
        Ok((data.packet_count, data.byte_count))
    }

    fn discard(&self) -> anyhow::Result<()> {
        for socket in &self.0.sockets {
            while socket.receive()?.is_some() {}
        }
        Ok(())
    }

    /// BMv2 takes connections before it listens to its interfaces.
    fn warm_up(&self) -> anyhow::Result<()> {
        poll("the first packet through the switch", Duration::from_secs(15), || {
            self.0.sockets[0].send(&frame(PLAIN.0, SHORTEST))?;
            Ok(self.0.sockets[1].receive()?.map(|_| ()))
        })
    }

    /// Packets that were admitted to the queue without a limit, and never left: once nothing moves
    /// any more.
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

    /// Bursts of what only the traffic manager limits, until it has dropped some of it: how many
    /// that takes depends on the machine, and on the 300 packets that BMv2's sender and the
    /// interface hold behind the queue. Gives how many packets were sent.
    fn overflow(&mut self) -> anyhow::Result<u64> {
        let mut sent = 0;
        poll("a packet that BMv2 drops in silence", Duration::from_secs(60), || {
            for _ in 0..1_000 {
                self.0.sockets[0].send(&frame(UNLIMITED.0, LONGEST))?;
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
    let mut chance = Random(7);
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
            side.0.sockets[0].send(&frame(dscp, length))?;
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
        "{}: {sent} packets, no drift; {trimmed} trimmed, {lost} lost in the traffic manager, at most {most} bytes in a queue for \
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
