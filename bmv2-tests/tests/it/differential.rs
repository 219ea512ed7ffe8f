// SPDX-License-Identifier: Apache-2.0
//! The same tables and the same packets through `trimwire-switch` and through BMv2, over real interfaces: the same frames come
//! out, byte for byte, and the same counters rise.
//!
//! Behind each packet, by the same port, go two sentinels, one to each egress port, in the lowest queue: when both are back, whatever
//! the packet was going to cause has happened, and nothing has to be waited for in vain.

use anyhow::{Context, ensure};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::runtime::Runtime;
use trimwire_bmv2_tests::frames::FrameSocket;
use trimwire_bmv2_tests::namespace::connect;
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::switch::{ADDRESS, DEVICE_ID};
use trimwire_bmv2_tests::vectors::{Policy, Vectors, policy};
use trimwire_bmv2_tests::{Kind, Namespace, Programs, RunningSwitch, exclusive};
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{counter, delete, insert};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::digest_entry::Config;
use trimwire_p4runtime::v1::entity::Entity as Kinds;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{DigestEntry, Entity, p4_data};

const PORTS: [u16; 3] = [0, 1, 2];
/// (egress port, third octet of the destination) of the sentinels; neither port has a policy for queue 0.
const SENTINELS: [(u16, u8); 2] = [(1, 1), (2, 3)];
const MAGIC: &[u8] = b"trimwire sentinel";
const ARRAYS: [&str; 9] = [
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

/// A switch, the far ends of its ports, and its controller.
struct Side {
    // Dropped in order: the connection and the switch before their namespaces.
    client: Client,
    runtime: Runtime,
    switch: RunningSwitch,
    sockets: Vec<FrameSocket>,
    index: Index,
    policies: Vec<Policy>,
    sent: u32,
    _spaces: [Namespace; 2],
}

fn sentinel(octet: u8, number: u32) -> Vec<u8> {
    let mut payload = MAGIC.to_vec();
    payload.extend_from_slice(&number.to_be_bytes());
    let udp = (8 + payload.len()) as u16;
    let mut ip = vec![0x45, 0];
    ip.extend_from_slice(&(20 + udp).to_be_bytes());
    ip.extend_from_slice(&[0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, octet, 9]);
    let sum = ip.chunks(2).fold(0_u32, |sum, pair| sum + (u32::from(pair[0]) << 8) + u32::from(pair[1]));
    let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![2, 0xaa, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend_from_slice(&ip);
    frame.extend_from_slice(&[0x0f, 0xa0, 0x0f, 0xa0]);
    frame.extend_from_slice(&udp.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(&payload);
    frame
}

fn is_sentinel(frame: &[u8], number: u32) -> bool {
    let mut end = MAGIC.to_vec();
    end.extend_from_slice(&number.to_be_bytes());
    frame.ends_with(&end)
}

impl Side {
    fn start(kind: &Kind, vectors: &Vectors) -> anyhow::Result<Self> {
        let (space, far) = (Namespace::new("s")?, Namespace::new("w")?);
        for port in PORTS {
            let ends = (format!("p{port}"), format!("w{port}"));
            let macs = (format!("02:aa:00:00:00:{port:02x}"), format!("02:bb:00:00:00:{port:02x}"));
            connect((&space, &ends.0, &macs.0), (&far, &ends.1, &macs.1))?;
        }
        let sockets = PORTS.iter().map(|port| FrameSocket::open(&far, &format!("w{port}")));
        let sockets = sockets.collect::<anyhow::Result<Vec<_>>>()?;
        let switch = RunningSwitch::start(kind, &space, &PORTS, 0)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        // The connection stays in the namespace in which it was opened.
        let mut client = space.enter(|| Ok(runtime.block_on(Client::connect(ADDRESS))?))?;
        let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/");
        let p4info = P4Info::from_text(&std::fs::read_to_string(format!("{build}trimwire.p4info.txtpb"))?)?;
        let json = std::fs::read(format!("{build}trimwire.json"))?;
        let index = Index::new(&p4info)?;
        let updates = vectors.updates(&index)?;
        runtime.block_on(async {
            client.arbitrate(DEVICE_ID, 1, Role::default()).await?;
            client.set_pipeline(p4info, json, Some(1), Action::VerifyAndCommit).await?;
            client.write(updates, Atomicity::ContinueOnError).await?;
            anyhow::Ok(())
        })?;
        let spaces = [space, far];
        let mut side =
            Self { client, runtime, switch, sockets, index, policies: Vec::new(), sent: 0, _spaces: spaces };
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
        self.runtime.block_on(self.client.write(updates, Atomicity::ContinueOnError))?;
        self.policies = wanted.to_vec();
        Ok(())
    }

    /// What a packet makes come out, in the order of ports.
    fn play(&mut self, policies: &[Policy], ingress_port: u16, frame: &[u8]) -> anyhow::Result<Output> {
        self.set_policies(policies)?;
        let number = self.sent;
        self.sent += 1;
        self.sockets[usize::from(ingress_port)].send(frame)?;
        for (_, octet) in SENTINELS {
            self.sockets[usize::from(ingress_port)].send(&sentinel(octet, number))?;
        }
        let mut output = Vec::new();
        let mut back = [false; 2];
        let sockets = &self.sockets;
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
        while let Some(frame) = self.sockets[0].receive()? {
            output.push((0, frame));
        }
        output.sort();
        Ok(output)
    }

    /// All counters that are not zero.
    fn counters(&self) -> anyhow::Result<Totals> {
        let mut totals = Totals::new();
        for array in ARRAYS {
            let entity = counter(&self.index, array, None)?;
            let entities = self.runtime.block_on(self.client.read(vec![entity.into()]))?;
            for entity in entities {
                let Some(Kinds::CounterEntry(entry)) = entity.entity else { continue };
                let (index, data) = (entry.index.unwrap_or_default().index, entry.data.unwrap_or_default());
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
        let output =
            side.play(&case.policies, case.ingress_port, &case.frame()?).context(case.name.clone())?;
        if output != case.expected()? {
            wrong.push(format!(
                "{}\n  got      {output:02x?}\n  expected {:02x?}",
                case.name,
                case.expected()?
            ));
        }
        for (name, &count) in &case.counters {
            add(name, count);
        }
        for (port, octet) in SENTINELS {
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

/// What a switch tells its controller while one queue starts to cut, goes on cutting, and stops: fields of `cutting_t`.
fn events(kind: &Kind) -> anyhow::Result<Vec<Vec<u64>>> {
    let vectors = Vectors::load()?;
    let mut side = Side::start(kind, &vectors)?;
    let digest = side.index.digest("cutting_t")?.preamble.clone().unwrap_or_default().id;
    let config = Some(Config { max_timeout_ns: 0, max_list_size: 1, ack_timeout_ns: 0 });
    let entry = Entity { entity: Some(Kinds::DigestEntry(DigestEntry { digest_id: digest, config })) };
    side.runtime.block_on(side.client.write(vec![insert(entry)], Atomicity::ContinueOnError))?;
    let mut streams = side.client.take_streams().context("the streams are ours")?;
    // Queues are empty: thresholds of 0 are always reached, and only a threshold above 0 is far enough above them to stop.
    let named = |name: &str| {
        let case = vectors.cases.iter().find(|case| case.name == format!("IPv4, ECN 2: {name}"));
        case.with_context(|| format!("no case {name}"))
    };
    let (cuts, rests) = (
        named("at shallow_at it is cut to shallow_size")?,
        named("trimmable below shallow_at is admitted and not marked")?,
    );
    let mut events = Vec::new();
    for case in [rests, cuts, cuts, rests, rests, cuts] {
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
fn both_switches_tell_when_a_queue_starts_and_stops_cutting() {
    let _turn = exclusive();
    let test = "events of a cutting queue";
    let Some(programs) = Programs::or_skip(test) else { return };
    let expected = [(1, 1), (0, 2), (1, 3)].map(|(cutting, turns)| vec![1, 5, cutting, 0, turns]);
    assert_eq!(events(&Kind::ours(&programs)).unwrap(), expected, "trimwire-switch");
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    assert_eq!(events(&Kind::Bmv2(bmv2)).unwrap(), expected, "simple_switch_grpc");
    eprintln!("a queue's start and stop of cutting: the same from both switches");
}

/// SplitMix64.
struct Random(u64);

/// At an MTU of 1500.
const LONGEST_FRAME: usize = 1_514;

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % limit.max(1) as u64) as usize
    }

    /// A frame with a few bytes changed, cut or lengthened: mostly in its headers, because there decisions are made.
    fn mutate(&mut self, frame: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let (at, bit) = (self.below(frame.len().min(90)), self.below(8));
            frame[at] ^= 1 << bit;
        }
        match self.below(4) {
            0 => frame.truncate(14 + self.below(frame.len() - 13)),
            // Not beyond what the interfaces carry.
            1 => frame.resize((frame.len() + self.below(1_100)).min(LONGEST_FRAME.max(frame.len())), 0x5a),
            _ => {}
        }
        // An unlucky change of the IPv4 checksum is the usual one; half of the frames get past that check.
        if self.below(2) == 0 && frame.len() >= 34 && frame[12..14] == [8, 0] {
            let end = 14 + usize::from(frame[14] & 15) * 4;
            if (34..=frame.len()).contains(&end) {
                frame[24..26].fill(0);
                let sum = frame[14..end]
                    .chunks(2)
                    .fold(0_u32, |sum, pair| sum + (u32::from(pair[0]) << 8) + u32::from(pair[1]));
                let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
                frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            }
        }
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
        let case = &vectors.cases[random.below(vectors.cases.len())];
        let mut frame = case.frame().unwrap();
        random.mutate(&mut frame);
        let got = ours.play(under, case.ingress_port, &frame).context("ours").unwrap();
        let reference = theirs.play(under, case.ingress_port, &frame).context("BMv2").unwrap();
        left += reference.len();
        if got != reference {
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
