// SPDX-License-Identifier: Apache-2.0
//! Gradients over real interfaces through a congested switch: what is trimmed arrives at ordinary
//! UDP sockets, decodes with the error that the formula predicts, and every packet is accounted
//! for.

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trimwire_bmv2_tests::frames::FrameSocket;
use trimwire_bmv2_tests::namespace::connect;
use trimwire_bmv2_tests::network::Counters;
use trimwire_bmv2_tests::process::Running;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::{Kind, Namespace, Network, Programs, exclusive};

/// Port of h2, the receiver.
const PORT: u16 = 2;
const CONTROL_QUEUE: u8 = 7;
const TRIM_QUEUE: u8 = 6;
const CLASS0_QUEUE: u8 = 5;
const LIMIT: Duration = Duration::from_secs(40);
const JUNK_EVERY: Duration = Duration::from_millis(10);

/// Eight planes and one of packets of 448 coordinates, as ten planes have.
const TRIM: &str = "{ shallow_size: 510B, deep_size: 118B, mark_at: 10KB, shallow_at: 15KB, deep_at: 40KB, \
                    drop_at: 70KB, trim_limit: 400KB, queues: { control: { mark_at: 40KB, drop_at: 40KB } } }";
const DROP_TAIL: &str = "{ trim: off, mark_at: 40KB, drop_at: 40KB }";

/// Ports of all hosts.
const PORTS: std::ops::RangeInclusive<u16> = 1..=3;

/// What ranks report of a sum that the first of them gets, and what its transcript says of the
/// messages.
struct Outcome {
    reports: Vec<Value>,
    messages: Vec<Value>,
}

/// h2 gets the sum of its own gradient and those of the senders (hosts), which all send at once.
fn reduce(network: &Network, programs: &Programs, senders: &[usize], words: &str, bitrate: &str) -> Outcome {
    let record = std::env::temp_dir().join(format!("trimwire-congestion-{}", std::process::id()));
    let world = senders.len() + 1;
    let ranks: Vec<_> = (0..)
        .zip([&[2][..], senders].concat())
        .map(|(rank, host)| {
            // Ranks that meet over TCP all listen before the first one sends.
            let words = format!(
                "perf reduce --rank {rank} --world {world} --master-addr 10.0.0.2 --bind 10.0.0.{host} --algorithm direct \
                 -n 1 -w 0 {words} --set rate-algorithm=fixed --bitrate {bitrate} --timeout 20s --record {}",
                record.display()
            );
            network.agent(host, &words).expect("rank starts")
        })
        .collect();
    let reports = ranks.into_iter().map(|rank| rank.json(LIMIT).expect("rank reports")).collect();
    let messages = messages(programs, &record, 0);
    (0..world).for_each(|rank| drop(std::fs::remove_file(format!("{}.{rank}", record.display()))));
    Outcome { reports, messages }
}

/// Messages of the first measured operation, as a rank's transcript has them.
fn messages(programs: &Programs, record: &Path, rank: u16) -> Vec<Value> {
    let mut command = Command::new(&programs.agent);
    command.args(["transcript", "show", "--step", "1", "--json"]).arg(format!("{}.{rank}", record.display()));
    let shown = Running::start(&mut command).and_then(|running| running.json(LIMIT)).expect("a transcript");
    shown.pointer("/story/messages").and_then(Value::as_array).cloned().unwrap_or_default()
}

fn number(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {report}"))
}

impl Outcome {
    /// Of all ranks.
    fn total(&self, what: &str) -> u64 {
        self.reports.iter().map(|report| number(report, &format!("/totals/{what}")) as u64).sum()
    }

    fn packets(&self, what: &str) -> u64 {
        self.messages.iter().map(|message| number(message, &format!("/{what}")) as u64).sum()
    }

    fn nmse(&self) -> f64 {
        number(&self.reports[0], "/rows/0/nmse")
    }

    /// Errors of independent gradients of equal energy add up, as their energies do.
    fn expected(&self) -> f64 {
        let errors = self.messages.iter().map(|message| number(message, "/nmse_expected"));
        errors.sum::<f64>() / self.reports.len() as f64
    }

    /// Formulas count whole planes, and switches trim to what holds planes of 448 coordinates. Of
    /// each row's ten packets eight have 416 coordinates and keep 32 of the next plane, two have
    /// 384 and keep 64: 384 of 4,096 may be better than the formula says.
    ///
    /// At eight planes the error sits in a few outer cells, so that a hundred trimmed packets leave
    /// some 10 % to chance. A packet's depth mistaken by one plane would be a factor of 3.
    fn assert_error_as_predicted(&self) {
        let (nmse, expected) = (self.nmse(), self.expected());
        assert!(expected > 0.0, "nothing was trimmed: {:?}", self.messages);
        let tolerance = 0.08 + 1.5 / (self.packets("trimmed") as f64).max(1.0).sqrt();
        let better = 384.0 / 4_096.0;
        let off = nmse / expected - 1.0;
        assert!(off < tolerance && off > -better - tolerance, "nmse {nmse:e}, formula {expected:e}");
    }
}

/// Of all hosts' ports.
fn sum(counters: &Counters, names: &[&str]) -> u64 {
    PORTS.map(|port| counters.sum(port, names)).sum()
}

/// Every packet that ranks sent is in exactly one of the ladder's counters, and every one that left
/// arrived. A switch that drops between ingress and egress without a word (BMv2, at 64 packets a
/// queue) is held to the rest.
fn assert_conservation(outcome: &Outcome, counters: &Counters, silent_drops: bool) {
    let offered =
        sum(counters, &["admitted", "trimmed", "trim_dropped", "selective_dropped", "tail_dropped"]);
    assert_eq!(offered, outcome.total("datagrams_sent"), "offered: {counters:?}");
    let (transmitted, taken) = (sum(counters, &["transmitted"]), sum(counters, &["admitted", "trimmed"]));
    let (trimmed_left, trimmed) = (sum(counters, &["trim_transmitted"]), sum(counters, &["trimmed"]));
    if silent_drops {
        assert!(transmitted <= taken && trimmed_left <= trimmed, "left the queues: {counters:?}");
    } else {
        assert_eq!((transmitted, trimmed_left), (taken, trimmed), "left the queues: {counters:?}");
    }
    assert_eq!(transmitted, outcome.total("datagrams_received"), "arrived: {counters:?}");
    // The whole switch's row.
    assert_eq!(counters.sum(511, &["unroutable"]), 0, "{counters:?}");
}

/// Control packets overtake data in their own queue, and none is lost. `silent_drops`: as above,
/// which a busy machine's BMv2 does to control packets as well.
fn assert_control_got_through(outcome: &Outcome, counters: &Counters, silent_drops: bool) {
    let all = |what| PORTS.map(|port| counters.packets(port, CONTROL_QUEUE, what)).sum::<u64>();
    let (admitted, left) = (all("admitted"), all("transmitted"));
    assert_eq!(admitted, outcome.total("control_sent"), "reached the ladder: {counters:?}");
    if silent_drops {
        assert!(left <= admitted, "left the queues: {counters:?}");
    } else {
        assert_eq!(left, admitted, "left the queues: {counters:?}");
    }
    // A rank judges packets of a peer that it does not know yet as foreign.
    let (taken, foreign) = (outcome.total("control_received"), outcome.total("foreign"));
    assert!(
        (taken..=taken + foreign).contains(&left),
        "{taken} of {left} taken, {foreign} foreign: {counters:?}"
    );
    assert!(left > 0);
}

fn trimming(test: &str, kind: &Kind, programs: &Programs, rate_bps: u64, senders: &[usize], bitrate: &str) {
    let network = Network::start(programs, kind, 3, rate_bps).expect("network");
    network.apply(TRIM).expect("controller applies");
    let outcome = reduce(&network, programs, senders, "-b 4M -e 4M --seed 7", bitrate);
    let counters = network.settled_counters().expect("counters");
    let (packets, arrived_trimmed) = (outcome.packets("packets"), outcome.packets("trimmed"));
    eprintln!(
        "{test}: {packets} packets, {arrived_trimmed} trimmed, {} missing; nmse {:.3e}, formula {:.3e}",
        outcome.packets("missing"),
        outcome.nmse(),
        outcome.expected(),
    );
    let trimmed = counters.packets(PORT, CLASS0_QUEUE, "trimmed");
    assert!(trimmed * 50 > packets, "the switch trimmed {trimmed} of {packets}: {counters:?}");
    assert!(arrived_trimmed * 50 > packets && arrived_trimmed <= packets);
    assert!(outcome.packets("missing") * 100 <= packets, "the default loss bound is 1 %");
    let left = counters.packets(PORT, TRIM_QUEUE, "transmitted");
    let trimmed_left = counters.packets(PORT, CLASS0_QUEUE, "trim_transmitted");
    assert_eq!(trimmed_left, left, "trimmed packets leave by the trim queue");
    let reached = number(&outcome.reports[0], "/totals/trimmed_received") as u64;
    assert_eq!(reached, left, "trimmed packets reach the socket");
    assert_eq!(outcome.total("malformed"), 0);
    let silent_drops = matches!(kind, Kind::Bmv2(_));
    assert_conservation(&outcome, &counters, silent_drops);
    assert_control_got_through(&outcome, &counters, silent_drops);
    outcome.assert_error_as_predicted();
}

#[test]
fn incast_through_trimwire_switch_is_cut_and_decodes_with_the_predicted_error() {
    let _turn = exclusive();
    let test = "incast through trimwire-switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    trimming(test, &Kind::ours(&programs), &programs, 100_000_000, &[1, 3], "80M");
}

#[test]
fn one_sender_above_line_rate_through_trimwire_switch_is_trimmed() {
    let _turn = exclusive();
    let test = "one sender above line rate through trimwire-switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    trimming(test, &Kind::ours(&programs), &programs, 50_000_000, &[1], "90M");
}

#[test]
fn one_sender_above_line_rate_through_bmv2_is_trimmed() {
    let _turn = exclusive();
    let test = "one sender above line rate through simple_switch_grpc";
    let Some(programs) = Programs::or_skip(test) else { return };
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    // BMv2 sends in bursts of half a socket buffer, about 46 frames; what arrives meanwhile and
    // does not fit its queues of 64 packets is dropped without a word, and repaired.
    trimming(test, &Kind::Bmv2(bmv2), &programs, 40_000_000, &[1], "70M");
}

#[test]
fn without_trimming_the_same_incast_is_dropped_and_repaired() {
    let _turn = exclusive();
    let test = "drop and repair through trimwire-switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    let network = Network::start(&programs, &Kind::ours(&programs), 3, 100_000_000).expect("network");
    network.apply(DROP_TAIL).expect("controller applies");
    let outcome = reduce(&network, &programs, &[1, 3], "-b 2M -e 2M --seed 7 --reliable", "80M");
    let counters = network.settled_counters().expect("counters");
    let dropped = counters.sum(PORT, &["tail_dropped"]);
    eprintln!("{test}: {dropped} dropped, {} repairs", outcome.total("repairs_sent"));
    assert!(dropped > 0, "{counters:?}");
    assert_eq!(counters.sum(PORT, &["trimmed", "trim_dropped"]), 0);
    assert_eq!((outcome.packets("trimmed"), outcome.packets("missing")), (0, 0));
    assert!(outcome.total("repairs_sent") >= dropped);
    assert_conservation(&outcome, &counters, false);
    assert!(outcome.nmse() < 1e-9, "{}", outcome.nmse());
}

/// What went through a careless switch.
#[derive(Debug, Default)]
struct Relayed {
    trimmed: u64,
    /// UDP datagrams of agents: DATA without a checksum and with one, control packets with a right
    /// one and with another.
    data: [u64; 2],
    control: [u64; 2],
}

impl Relayed {
    fn count(&mut self, frame: &[u8]) {
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return };
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Udp(udp))) = (packet.net, packet.transport)
        else {
            return;
        };
        if udp.payload().first().is_some_and(|first| first & 15 == 1) {
            self.data[usize::from(udp.checksum() != 0)] += 1;
            return;
        }
        let right = udp.to_header().calc_checksum_ipv4(&ip.header().to_header(), udp.payload());
        self.control[usize::from(udp.checksum() == 0 || right != Ok(udp.checksum()))] += 1;
    }
}

/// DSCPs of data that may be trimmed. Control packets that ask how long packets may be are long,
/// too.
const TRIMMABLE: [u8; 4] = [3, 7, 11, 15];

/// A port is congested while long trimmable frames come closer together than this. A message that
/// is sent alone, such as what ranks agree on, passes whole.
const CLOSE: Duration = Duration::from_millis(5);

/// Passes frames on between two sockets. Trims what is trimmable and longer than `trim_to` on its
/// way from the first while the port is congested, as switches do that mend neither lengths nor
/// checksums nor DSCP.
#[expect(clippy::disallowed_methods, reason = "these tests run on the real clock")]
fn careless_switch(ends: &[FrameSocket; 2], trim_to: usize, stop: &AtomicBool) -> anyhow::Result<Relayed> {
    let (mut relayed, mut last) = (Relayed::default(), None::<std::time::Instant>);
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        while let Some(mut frame) = ends[0].receive()? {
            idle = false;
            relayed.count(&frame);
            let trimmable = frame.get(15).is_some_and(|tos| TRIMMABLE.contains(&(tos >> 2)));
            if trimmable && frame.len() > trim_to {
                let now = std::time::Instant::now();
                if last.replace(now).is_some_and(|last| now.duration_since(last) < CLOSE) {
                    relayed.trimmed += 1;
                    frame.truncate(trim_to);
                }
            }
            ends[1].send(&frame)?;
        }
        while let Some(frame) = ends[1].receive()? {
            idle = false;
            relayed.count(&frame);
            ends[0].send(&frame)?;
        }
        if idle {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    Ok(relayed)
}

#[test]
fn raw_reception_decodes_what_a_switch_trimmed_without_mending_lengths() {
    let _turn = exclusive();
    let test = "raw reception behind a careless switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    let spaces = ["h1", "s1", "h2"].map(|role| Namespace::new(role).expect("namespace"));
    let [h1, s1, h2] = &spaces;
    connect((h1, "eth0", "02:00:00:00:00:01"), (s1, "p1", "02:aa:00:00:00:01")).expect("veth");
    connect((h2, "eth0", "02:00:00:00:00:02"), (s1, "p2", "02:aa:00:00:00:02")).expect("veth");
    for (host, own, other) in [(h1, 1, 2), (h2, 2, 1)] {
        host.ip(&format!("addr add 10.0.0.{own}/24 dev eth0")).expect("address");
        host.ip(&format!("neigh add 10.0.0.{other} lladdr 02:00:00:00:00:0{other} dev eth0 nud permanent"))
            .expect("neighbour");
    }
    let ends = ["p1", "p2"].map(|interface| FrameSocket::open(s1, interface).expect("socket"));
    let stop = AtomicBool::new(false);
    let record = std::env::temp_dir().join(format!("trimwire-careless-{}", std::process::id()));
    let agent = |host: &Namespace, words: &str| {
        // Ranks are given, not met over TCP. The switch leaves checksums alone, too.
        let all = "perf broadcast --world 2 --peers 10.0.0.1,10.0.0.2 -b 512K -e 512K -n 1 -w 0 --set checksums=zero";
        let mut command = host.command(&programs.agent);
        command.args(all.split(' ')).args(words.split_whitespace()).args(["--timeout", "15s", "--json"]);
        Running::start(&mut command).expect("agent")
    };
    std::thread::scope(|scope| {
        // Four planes of 448 coordinates.
        let switch = scope.spawn(|| careless_switch(&ends, 286, &stop));
        let receiver = agent(h2, &format!("--rank 1 --set receive=raw --record {}", record.display()));
        let sender = agent(h1, "--rank 0 --set rate-algorithm=fixed --bitrate 50M");
        let (sent, received) = (sender.json(LIMIT), receiver.json(LIMIT));
        stop.store(true, Ordering::Relaxed);
        let relayed = switch.join().expect("no panic").expect("relays");
        let trimmed = relayed.trimmed;
        let (sent, received) = (sent.expect("sender reports"), received.expect("receiver reports"));
        let messages = messages(&programs, &record, 1);
        let _ = std::fs::remove_file(format!("{}.1", record.display()));
        let [message] = &messages[..] else { panic!("one gradient: {messages:?}") };
        let packets = number(message, "/packets");
        assert!(trimmed as f64 >= packets * 0.95, "{trimmed} of {packets} trimmed");
        // A relay that the scheduler holds up loses a few; without raw reception everything would
        // be sent again and again.
        let repairs = number(&sent, "/totals/repairs_sent");
        assert!(repairs * 4.0 < packets, "a trimmed packet is a delivered one: {sent}\n{received}");
        assert!(number(message, "/trimmed") >= packets * 0.95, "{message}");
        let nmse = number(&received, "/rows/0/nmse");
        // Four planes of 448 are 224 bytes. Of each row's ten packets eight, of 416 coordinates,
        // have 128 of the fifth plane in them, two, of 384, have 256. Its error is 0.2623 times the
        // fourth's.
        let fifth = f64::from(8 * 128 + 2 * 256) / 4_096.0;
        let expected = number(message, "/nmse_expected") * (1.0 - fifth * (1.0 - 0.2623));
        assert!((nmse / expected - 1.0).abs() < 0.08, "nmse {nmse:e}, formula {expected:e}");
        // docs/reference/wire-format.md: a switch that mends no checksum finds none in DATA;
        // control packets have right ones.
        assert!(relayed.data[0] > 0 && relayed.control[0] > 0, "{relayed:?}");
        assert_eq!((relayed.data[1], relayed.control[1]), (0, 0), "{relayed:?}");
        eprintln!("{test}: {trimmed} trimmed; nmse {nmse:.3e}, formula {expected:.3e}");
    });
}

#[test]
fn hostile_datagrams_are_counted_and_ignored() {
    let _turn = exclusive();
    let test = "hostile datagrams";
    let Some(programs) = Programs::or_skip(test) else { return };
    let network = Network::start(&programs, &Kind::ours(&programs), 3, 100_000_000).expect("network");
    network.apply(TRIM).expect("controller applies");
    let host = network.host(3).expect("a third host");
    let socket = host.enter(|| Ok(std::net::UdpSocket::bind("10.0.0.3:0")?)).expect("socket");
    let over = AtomicBool::new(false);
    // Before, during and after the message: an agent is ready when it is, so junk is sent for as
    // long as it can arrive.
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 1_u32;
            for _ in 0..LIMIT.as_millis() / JUNK_EVERY.as_millis() {
                for _ in 0..20 {
                    let datagram: Vec<u8> = (0..=state % 90)
                        .map(|_| {
                            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            (state >> 24) as u8
                        })
                        .collect();
                    // Refused while nobody listens.
                    let _ = socket.send_to(&datagram, "10.0.0.2:9217");
                }
                if over.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(JUNK_EVERY);
            }
        });
        let words = "perf broadcast --world 2 --peers 10.0.0.1,10.0.0.2 -b 1M -e 1M -n 1 -w 0 --set rate-algorithm=fixed --bitrate 40M --timeout 15s";
        let [sender, receiver] = [1, 2]
            .map(|host| network.agent(host, &format!("{words} --rank {}", host - 1)).expect("rank starts"));
        sender.json(LIMIT).expect("sender reports");
        let received = receiver.json(LIMIT).expect("receiver reports");
        over.store(true, Ordering::Relaxed);
        received
    });
    assert!(number(&received, "/rows/0/missing_share") <= 0.01, "{received}");
    assert!(number(&received, "/totals/malformed") > 0.0, "{received}");
}

#[test]
fn an_all_reduce_of_three_ranks_sums_through_the_switch() {
    let _turn = exclusive();
    let test = "all-reduce through trimwire-switch";
    let Some(programs) = Programs::or_skip(test) else { return };
    let network = Network::start(&programs, &Kind::ours(&programs), 3, 200_000_000).expect("network");
    network.apply(TRIM).expect("controller applies");
    let ranks: Vec<_> = (0..3)
        .map(|rank| {
            let words = format!(
                "perf all-reduce --rank {rank} --world 3 --peers 10.0.0.1,10.0.0.2,10.0.0.3 -b 64K -e 1M -n 3 --bitrate 150M"
            );
            network.agent(rank + 1, &words).expect("rank starts")
        })
        .collect();
    for rank in ranks {
        let report = rank.json(LIMIT).expect("rank reports");
        let rows = report.pointer("/rows").and_then(Value::as_array).expect("rows");
        assert_eq!(rows.len(), 3);
        for row in rows {
            // Whatever was trimmed, a sum of which at most 1 % is missing is nearer than that of
            // signs alone.
            assert!(number(row, "/nmse") < 0.3, "{row}");
            assert!(number(row, "/missing_share") <= 0.01, "{row}");
        }
        eprintln!("{test}: {}", rows[2]);
    }
}
