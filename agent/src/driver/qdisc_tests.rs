// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

/// What Linux 6.1 answers for a veth pair of two queues (and, last, for a dummy interface), as
/// hexadecimal messages, by what `tc qdisc replace` had made of it.
const RECORDED: &str = include_str!("qdisc_answers.txt");

fn answer(name: &str) -> Vec<u8> {
    let lines = RECORDED.lines().skip_while(|line| line.strip_prefix("# ") != Some(name)).skip(1);
    let text: String = lines.take_while(|line| !line.starts_with('#')).collect();
    let bytes = (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"));
    let bytes: Vec<u8> = bytes.collect();
    assert!(bytes.len() > 100, "{name} is recorded");
    bytes
}

fn listed(bytes: &[u8]) -> Vec<Qdisc> {
    let messages = messages(bytes).expect("an answer");
    assert_eq!(messages.last(), Some(&Message::Done { whole: true }));
    let qdisc = |message| match message {
        Message::Listed(qdisc) => Some(qdisc),
        _ => None,
    };
    messages.into_iter().filter_map(qdisc).collect()
}

fn found(name: &str) -> Departures {
    let all = listed(&answer(name));
    departures(&all, all.first().expect("one at least").interface)
}

#[test]
fn fq_at_every_end_holds_packets_and_nothing_else_does() {
    for held in ["fq", "mq-fq", "htb-fq", "mq-default"] {
        assert_eq!(found(held), Departures::Held, "{held}");
    }
    for (name, word) in [
        ("noqueue", "noqueue"),
        ("pfifo_fast", "pfifo_fast"),
        ("fq_codel", "fq_codel"),
        ("mq-mixed", "pfifo_fast, which sends packets as they come below mq"),
        ("htb-pfifo", "pfifo, which sends packets as they come below htb"),
        ("htb-partly", "pfifo, which sends packets as they come below htb"),
        ("htb-direct", "pass its classes by"),
        ("etf", "ARP and TCP"),
    ] {
        let Departures::Ignored(why) = found(name) else { panic!("{name} holds") };
        assert!(why.contains(word), "{name}: {why}");
    }
}

#[test]
fn a_list_is_read_as_tc_shows_it() {
    let all = listed(&answer("mq-mixed"));
    let shown: Vec<_> = all.iter().map(|qdisc| (qdisc.kind.as_str(), qdisc.handle, qdisc.parent)).collect();
    assert_eq!(
        shown,
        [("mq", 0x1_0000, 0xffff_ffff), ("fq", 0x8002_0000, 0x1_0001), ("pfifo_fast", 0x8004_0000, 0x1_0002)]
    );
    assert_eq!(all[1].horizon_ns, Some(10_000_000_000), "tc: horizon 10s");
    assert_eq!(listed(&answer("htb-fq"))[0].default_class, Some(0x10), "tc: default 0x10");
    assert_eq!(listed(&answer("htb-direct"))[0].default_class, Some(0));
}

#[test]
fn other_interfaces_do_not_count() {
    let mut all = listed(&answer("fq"));
    let own = all[0].interface;
    assert!(matches!(departures(&all, own + 1), Departures::Ignored(why) if why.contains("is it up")));
    all.extend(listed(&answer("etf")).into_iter().map(|qdisc| Qdisc { interface: own + 1, ..qdisc }));
    assert_eq!(departures(&all, own), Departures::Held);
}

#[test]
fn an_fq_that_drops_or_does_not_know_departures_is_not_used() {
    let mut all = listed(&answer("fq"));
    let own = all[0].interface;
    for (horizon_ns, held) in [(None, false), (Some(250_000), false), (Some(10_000_000), true)] {
        all[0].horizon_ns = horizon_ns;
        assert_eq!(departures(&all, own) == Departures::Held, held, "{horizon_ns:?}");
    }
}

#[test]
fn trees_that_contain_themselves_end() {
    let node = |handle, parent| Qdisc {
        interface: 1,
        handle,
        parent,
        kind: "mq".to_owned(),
        horizon_ns: None,
        default_class: None,
    };
    for all in [
        vec![node(0, ROOT), node(0, 1)],
        vec![node(0x1_0000, ROOT), node(0x1_0000, 0x1_0001), node(0x1_0000, 0x1_0002)],
        vec![node(u32::MAX, ROOT); 3],
    ] {
        assert!(matches!(departures(&all, 1), Departures::Ignored(_)), "{all:?}");
    }
}

#[test]
fn answers_that_end_early_are_refused_and_refusals_are_told() {
    let whole = answer("fq");
    let first = u32_at(&whole, 0).expect("a length") as usize;
    assert!(matches!(messages(&whole[..first]).expect("one message")[..], [Message::Listed(_)]));
    for length in (1..first).chain(first + 1..whole.len()) {
        let error = messages(&whole[..length]).expect_err("it ends early");
        assert!(error.to_string().contains(&length.to_string()), "{error}");
    }
    let mut refusal = vec![0; 20];
    refusal[0] = 20;
    refusal[4] = libc::NLMSG_ERROR as u8;
    refusal[16..].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
    assert_eq!(messages(&refusal), Ok(vec![Message::Refused(libc::EPERM)]));
    let mut changed = whole;
    let last = changed.len() - 20;
    changed[last + 6] |= libc::NLM_F_DUMP_INTR as u8;
    assert_eq!(messages(&changed).expect("whole").last(), Some(&Message::Done { whole: false }));
}

#[test]
fn this_kernel_answers() {
    match qdiscs() {
        Ok(all) => assert!(all.iter().all(|qdisc| qdisc.interface > 0 && !qdisc.kind.is_empty()), "{all:?}"),
        Err(error) => super::super::udp_tests::skip(&format!("no list of queueing disciplines: {error}")),
    }
}

proptest! {
    #[test]
    fn damaged_answers_are_refused_or_read_and_never_panic(
        which in 0_usize..12,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        length in any::<prop::sample::Index>(),
    ) {
        let names: Vec<&str> = RECORDED.lines().filter_map(|line| line.strip_prefix("# ")).collect();
        let mut bytes = answer(names[which % names.len()]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        let Ok(found) = messages(&bytes) else { return Ok(()) };
        let all: Vec<Qdisc> = found.into_iter().filter_map(|message| match message {
            Message::Listed(qdisc) => Some(qdisc),
            _ => None,
        }).collect();
        for qdisc in &all {
            prop_assert!(qdisc.kind.len() < 16 && qdisc.kind.bytes().all(|byte| byte.is_ascii_graphic()));
            let _ = departures(&all, qdisc.interface);
        }
    }
}
