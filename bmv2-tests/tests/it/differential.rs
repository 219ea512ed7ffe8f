// SPDX-License-Identifier: Apache-2.0
//! The same tables and the same packets through `trimwire-switch` and through BMv2, over real
//! interfaces: the same frames come out, byte for byte, and the same counters rise.
//!
//! Behind each packet, by the same port, go two sentinels, one to each egress port, in the lowest
//! queue: when both are back, whatever the packet was going to cause has happened, and nothing has
//! to be waited for in vain. (None is turned back: what comes from a port does not go there.)

use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;
use trimwire_bmv2_tests::packets::{mend_ipv4_checksum, udp};
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::vectors::{Policy, Vectors, policy};
use trimwire_bmv2_tests::{Kind, Programs, Random, Wired, exclusive};
use trimwire_p4runtime::entity::{delete, insert};
use trimwire_p4runtime::v1::digest_entry::Config;
use trimwire_p4runtime::v1::entity::Entity as Kinds;
use trimwire_p4runtime::v1::{DigestEntry, Entity, p4_data};

const PORTS: u16 = 3;
/// (egress port, third octet of the destination) of the sentinels; neither port has a policy for
/// queue 0.
const SENTINELS: [(u16, u8); 2] = [(1, 1), (2, 3)];
const MAGIC: &[u8] = b"trimwire sentinel";
const ARRAYS: [&str; 11] = [
    "Ingress.wrong_neighbour",
    "Ingress.turned_back",
    "Ingress.admitted",
    "Ingress.trimmed",
    "Ingress.trim_dropped",
    "Ingress.selective_dropped",
    "Ingress.tail_dropped",
    "Ingress.marked",
    "Ingress.unroutable",
    "Egress.transmitted",
    "Egress.trim_transmitted",
];

type Output = Vec<(u16, Vec<u8>)>;
type Totals = BTreeMap<String, (i64, i64)>;

/// A switch, and what was sent to it.
struct Side {
    wired: Wired,
    policies: Vec<Policy>,
    sent: u32,
}

impl Deref for Side {
    type Target = Wired;

    fn deref(&self) -> &Wired {
        &self.wired
    }
}

impl DerefMut for Side {
    fn deref_mut(&mut self) -> &mut Wired {
        &mut self.wired
    }
}

/// How long an answer at a packet's own port is waited for.
const LATE: Duration = Duration::from_secs(2);

/// The sentinels of a packet that comes in at a port.
fn sentinels(ingress_port: u16) -> impl Iterator<Item = (u16, u8)> {
    SENTINELS.into_iter().filter(move |(port, _)| *port != ingress_port)
}

fn sentinel(octet: u8, number: u32) -> Vec<u8> {
    udp(0, [10, 0, octet, 9], 4_000, &[MAGIC, &number.to_be_bytes()].concat())
}

fn is_sentinel(frame: &[u8], number: u32) -> bool {
    let mut end = MAGIC.to_vec();
    end.extend_from_slice(&number.to_be_bytes());
    frame.ends_with(&end)
}

impl Side {
    fn start(kind: &Kind, vectors: &Vectors) -> anyhow::Result<Self> {
        let wired = Wired::start(kind, vectors, PORTS, 0)?;
        let mut side = Self { wired, policies: Vec::new(), sent: 0 };
        side.warm_up()?;
        Ok(side)
    }

    /// BMv2 takes connections before it listens to its interfaces.
    fn warm_up(&mut self) -> anyhow::Result<()> {
        for attempt in 0_u32..50 {
            let number = 1 << 31 | attempt;
            for (_, octet) in SENTINELS {
                self.sockets[0].send(&sentinel(octet, number))?;
            }
            let mut came = [false; 2];
            let came = poll("warm-up", Duration::from_millis(200), || {
                for (sentinel, (port, _)) in SENTINELS.into_iter().enumerate() {
                    while let Some(frame) = self.sockets[usize::from(port)].receive()? {
                        came[sentinel] |= is_sentinel(&frame, number);
                    }
                }
                Ok(came.iter().all(|came| *came).then_some(()))
            });
            if came.is_ok() {
                // What earlier attempts may still cause is not to be taken for a packet's doing.
                return self.settle();
            }
        }
        anyhow::bail!("the switch forwards nothing: {:?}", self.switch.output())
    }

    /// Takes what arrives until nothing has for a while.
    fn settle(&self) -> anyhow::Result<()> {
        let mut quiet = 0;
        while quiet < 5 {
            std::thread::sleep(Duration::from_millis(20));
            quiet += 1;
            for socket in &self.sockets {
                while socket.receive()?.is_some() {
                    quiet = 0;
                }
            }
        }
        Ok(())
    }

    fn set_policies(&mut self, wanted: &[Policy]) -> anyhow::Result<()> {
        if self.policies == wanted {
            return Ok(());
        }
        let mut updates = Vec::new();
        for old in &self.policies {
            updates.push(delete(policy(&self.index, old)?));
        }
        for new in wanted {
            updates.push(insert(policy(&self.index, new)?));
        }
        self.write(updates)?;
        self.policies = wanted.to_vec();
        Ok(())
    }

    /// What a packet makes come out, in the order of ports.
    fn play(&mut self, policies: &[Policy], ingress_port: u16, frame: &[u8]) -> anyhow::Result<Output> {
        self.set_policies(policies)?;
        let number = self.sent;
        self.sent += 1;
        self.sockets[usize::from(ingress_port)].send(frame)?;
        for (_, octet) in sentinels(ingress_port) {
            self.sockets[usize::from(ingress_port)].send(&sentinel(octet, number))?;
        }
        let mut output = Vec::new();
        let mut back = SENTINELS.map(|(port, _)| port == ingress_port);
        let sockets = &self.wired.sockets;
        let came = poll("sentinels", Duration::from_secs(10), || {
            for (sentinel, (port, _)) in SENTINELS.into_iter().enumerate() {
                while !back[sentinel]
                    && let Some(frame) = sockets[usize::from(port)].receive()?
                {
                    if is_sentinel(&frame, number) {
                        back[sentinel] = true;
                    } else {
                        output.push((port, frame));
                    }
                }
            }
            Ok(back.iter().all(|back| *back).then_some(()))
        });
        if came.is_err() {
            let running = self.switch.is_running();
            came.with_context(|| format!("packet {number}; the switch runs: {running}"))?;
        }
        self.take(ingress_port, &mut output)?;
        Ok(output)
    }

    /// Adds what has come out at ports that no sentinel comes out of, a packet's own among them: an
    /// answer to it may be later than the sentinels at others.
    fn take(&self, ingress_port: u16, output: &mut Output) -> anyhow::Result<()> {
        for port in [0, ingress_port] {
            while let Some(frame) = self.sockets[usize::from(port)].receive()? {
                output.push((port, frame));
            }
        }
        output.sort();
        Ok(())
    }

    /// All counters that are not zero.
    fn counters(&self) -> anyhow::Result<Totals> {
        let mut totals = Totals::new();
        for array in ARRAYS {
            for (index, data) in self.wired.counters(array, None)? {
                if data.packet_count != 0 || data.byte_count != 0 {
                    totals.insert(format!("{array}[{index}]"), (data.packet_count, data.byte_count));
                }
            }
        }
        Ok(totals)
    }
}

fn difference(after: &Totals, before: &Totals) -> Totals {
    let risen = after.iter().map(|(name, &(packets, bytes))| {
        let (p, b) = before.get(name).copied().unwrap_or_default();
        (name.clone(), (packets - p, bytes - b))
    });
    risen.filter(|(_, risen)| *risen != (0, 0)).collect()
}

/// Plays the known packets and compares frames and counters with the known answers.
fn known_answers(kind: &Kind) -> anyhow::Result<()> {
    let vectors = Vectors::load()?;
    let mut side = Side::start(kind, &vectors)?;
    let before = side.counters()?;
    let mut expected = Totals::new();
    let mut wrong = Vec::new();
    let mut add = |name: &str, (packets, bytes): (i64, i64)| {
        let total = expected.entry(name.to_owned()).or_default();
        *total = (total.0 + packets, total.1 + bytes);
    };
    for case in &vectors.cases {
        let mut output =
            side.play(&case.policies, case.ingress_port, &case.frame()?).context(case.name.clone())?;
        let expected_output: Output = case.expected()?.into_iter().collect();
        let come = poll("answers", LATE, || {
            side.take(case.ingress_port, &mut output)?;
            Ok((output.len() >= expected_output.len()).then_some(()))
        });
        if come.is_err() || output != expected_output {
            wrong.push(format!(
                "{}\n  got      {output:02x?}\n  expected {:02x?}",
                case.name, expected_output
            ));
        }
        for (name, &count) in &case.counters {
            add(name, count);
        }
        for (port, octet) in sentinels(case.ingress_port) {
            let bytes = sentinel(octet, 0).len() as i64;
            for array in ["Ingress.admitted", "Egress.transmitted"] {
                add(&format!("{array}[{}]", port * 8), (1, bytes));
            }
        }
    }
    let count = vectors.cases.len();
    ensure!(
        wrong.is_empty(),
        "{} of {count} packets differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(8)].join("\n")
    );
    let risen = difference(&side.counters()?, &before);
    ensure!(risen == expected, "counters:\n got      {risen:?}\n expected {expected:?}");
    eprintln!("{}: {count} packets with known answers agree, frames and counters", kind.target());
    Ok(())
}

#[test]
fn trimwire_switch_gives_the_known_answers_over_real_interfaces() {
    let _turn = exclusive();
    let Some(programs) = Programs::or_skip("known answers through trimwire-switch") else { return };
    known_answers(&Kind::ours(&programs)).unwrap();
}

#[test]
fn bmv2_gives_the_known_answers_over_real_interfaces() {
    let _turn = exclusive();
    let test = "known answers through simple_switch_grpc";
    if Programs::or_skip(test).is_none() {
        return;
    }
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    known_answers(&Kind::Bmv2(bmv2)).unwrap();
}

/// What a switch tells its controller while one queue starts to trim, goes on, and stops:
/// fields of `trimming_t`.
fn events(kind: &Kind) -> anyhow::Result<Vec<Vec<u64>>> {
    let vectors = Vectors::load()?;
    let mut side = Side::start(kind, &vectors)?;
    let digest = side.index.digest("trimming_t")?.preamble.clone().unwrap_or_default().id;
    let config = Some(Config { max_timeout_ns: 0, max_list_size: 1, ack_timeout_ns: 0 });
    let entry = Entity { entity: Some(Kinds::DigestEntry(DigestEntry { digest_id: digest, config })) };
    side.write(vec![insert(entry)])?;
    let mut streams = side.client.take_streams().context("the streams are ours")?;
    // Queues are empty: thresholds of 0 are always reached, and only a threshold above 0 is far
    // enough above them to stop.
    let named = |name: &str| {
        let case = vectors.cases.iter().find(|case| case.name == format!("IPv4, ECN 2: {name}"));
        case.with_context(|| format!("no case {name}"))
    };
    let (trims, rests) = (
        named("at shallow_at it is trimmed to shallow_size")?,
        named("trimmable below shallow_at is admitted and not marked")?,
    );
    let mut events = Vec::new();
    for case in [rests, trims, trims, rests, rests, trims] {
        side.play(&case.policies, case.ingress_port, &case.frame()?)?;
    }
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    while events.len() < 3 {
        let list = side.runtime.block_on(async {
            let list = tokio::time::timeout(Duration::from_secs(10), streams.digests.recv()).await;
            list.with_context(|| format!("after {events:?}"))?.context("the stream has ended")
        })?;
        side.runtime.block_on(side.client.acknowledge_digest(list.digest_id, list.list_id))?;
        for data in list.data {
            let Some(p4_data::Data::Struct(fields)) = data.data else { continue };
            let values = fields.members.iter().map(|member| match &member.data {
                Some(p4_data::Data::Bitstring(bytes)) => number(bytes),
                _ => u64::MAX,
            });
            events.push(values.collect());
        }
    }
    Ok(events)
}

#[test]
fn both_switches_tell_when_a_queue_starts_and_stops_trimming() {
    let _turn = exclusive();
    let test = "events of a trimming queue";
    let Some(programs) = Programs::or_skip(test) else { return };
    let expected = [(1, 1), (0, 2), (1, 3)].map(|(trimming, turns)| vec![1, 5, trimming, 0, turns]);
    assert_eq!(events(&Kind::ours(&programs)).unwrap(), expected, "trimwire-switch");
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    assert_eq!(events(&Kind::Bmv2(bmv2)).unwrap(), expected, "simple_switch_grpc");
    eprintln!("a queue's start and stop of trimming: the same from both switches");
}

/// At an MTU of 1500.
const LONGEST_FRAME: usize = 1_514;

/// Changes a few bytes of a frame, trims or lengthens it: mostly in its headers, because there
/// decisions are made.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    let mut below = |limit: usize| random.below(limit as u64) as usize;
    for _ in 0..below(4) {
        let (at, bit) = (below(frame.len().min(90)), below(8));
        frame[at] ^= 1 << bit;
    }
    match below(4) {
        0 => frame.truncate(14 + below(frame.len() - 13)),
        // Not beyond what the interfaces carry.
        1 => frame.resize((frame.len() + below(1_100)).min(LONGEST_FRAME.max(frame.len())), 0x5a),
        _ => {}
    }
    // An unlucky change of the IPv4 checksum is the usual one; half of the frames get past that
    // check.
    if below(2) == 0 && frame.get(12..14) == Some(&[8, 0][..]) {
        mend_ipv4_checksum(&mut frame[14..]);
    }
}

#[test]
fn both_switches_do_the_same_to_packets_that_are_damaged_at_random() {
    const PACKETS: usize = 1_500;
    let _turn = exclusive();
    let test = "damaged packets through trimwire-switch and simple_switch_grpc";
    let Some(programs) = Programs::or_skip(test) else { return };
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    let vectors = Vectors::load().unwrap();
    let mut ours = Side::start(&Kind::ours(&programs), &vectors).unwrap();
    let mut theirs = Side::start(&Kind::Bmv2(bmv2), &vectors).unwrap();
    let before = (ours.counters().unwrap(), theirs.counters().unwrap());
    let seed = std::env::var("TRIMWIRE_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2026);
    let mut random = Random(seed);
    let (mut wrong, mut left) = (Vec::new(), 0);
    for number in 0..PACKETS {
        // Packets under one policy after the other: writes take longer than packets.
        let under = &vectors.cases[number / 8 * 37 % vectors.cases.len()].policies;
        let case = &vectors.cases[random.below(vectors.cases.len() as u64) as usize];
        let mut frame = case.frame().unwrap();
        mutate(&mut random, &mut frame);
        let mut got = ours.play(under, case.ingress_port, &frame).context("ours").unwrap();
        let mut reference = theirs.play(under, case.ingress_port, &frame).context("BMv2").unwrap();
        let come = poll("the same answers", LATE, || {
            ours.take(case.ingress_port, &mut got)?;
            theirs.take(case.ingress_port, &mut reference)?;
            Ok((got.len() == reference.len()).then_some(()))
        });
        left += reference.len();
        if come.is_err() || got != reference {
            wrong.push(format!(
                "packet {number} ({}), {frame:02x?}\n  ours {got:02x?}\n  BMv2 {reference:02x?}\n  under {under:?}",
                case.name
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {PACKETS} differ:\n{}",
        wrong.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
    let risen = difference(&ours.counters().unwrap(), &before.0);
    let reference = difference(&theirs.counters().unwrap(), &before.1);
    assert_eq!(risen, reference, "counters");
    eprintln!("{PACKETS} damaged packets: the same {left} frames and the same counters from both switches");
}
