// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const WAIT_NS: u64 = 1_000_000;

fn chosen(paths: &mut Paths, now_ns: u64) -> u16 {
    let path = paths.choose(now_ns, None);
    paths.on_sent(path, 1, 1);
    path
}

fn used(paths: &mut Paths, now_ns: u64, bursts: usize) -> Vec<u16> {
    let mut used: Vec<u16> = (0..bursts).map(|_| chosen(paths, now_ns)).collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// Asks as often as is due until then; `carries`: whether a question is answered. Gives whether a
/// path was found to be too short.
fn ask(paths: &mut Paths, until_ns: u64, carries: impl Fn(Question) -> bool) -> bool {
    let mut short = false;
    while let Some(now_ns) = paths.timeout_ns().filter(|&at_ns| at_ns <= until_ns) {
        let (due, too_long) = paths.ask(now_ns, |times| WAIT_NS << times);
        short |= too_long;
        due.into_iter().filter(|&question| carries(question)).for_each(|q| paths.on_answer(q.sequence));
    }
    short
}

#[test]
fn one_loss_is_enough_to_leave_a_path_that_does_not_answer_and_an_answer_to_come_back() {
    let mut paths = Paths::new(4, 1, 1);
    paths.on_lost(1_000, 2, 500);
    assert_eq!(used(&mut paths, 1_000, 100), [0, 1, 3]);
    assert!(!ask(&mut paths, 9_000_000, |_| false));
    assert_eq!(paths.all[2].health, Health::Out);
    assert!(!ask(&mut paths, 3_000_000_000, |_| false));
    assert_eq!(used(&mut paths, 3_000_000_000, 100), [0, 1, 3]);
    assert!(!ask(&mut paths, 5_000_000_000, |_| true));
    assert_eq!(used(&mut paths, 5_000_000_000, 100), [0, 1, 2, 3]);
    assert_eq!(paths.timeout_ns(), None);
}

#[test]
fn a_loss_that_a_later_arrival_follows_is_no_reason_to_leave_a_path() {
    let mut paths = Paths::new(4, 1, 1);
    paths.on_arrived(2, 600, false);
    paths.on_lost(1_000, 2, 500);
    paths.on_lost(1_000, 2, 600);
    assert_eq!((used(&mut paths, 1_000, 100).len(), paths.timeout_ns()), (4, None));
    paths.on_lost(2_000, 2, 700);
    assert_eq!(used(&mut paths, 2_000, 100).len(), 3);
    paths.on_arrived(2, 650, false);
    assert_eq!(used(&mut paths, 2_000, 100).len(), 3, "that left before the lost one did");
    paths.on_arrived(2, 800, false);
    assert_eq!(used(&mut paths, 2_000, 100).len(), 4);
}

#[test]
fn what_is_sent_again_takes_another_path_and_where_none_works_all_are_tried() {
    let mut paths = Paths::new(3, 16, 1);
    for before in (0..3).cycle().take(30) {
        assert_ne!(paths.choose(0, Some(before)), before);
    }
    (0..2).for_each(|path| paths.on_lost(10, path, 5));
    assert_eq!(paths.choose(0, Some(2)), 2, "the only one");
    paths.on_lost(10, 2, 5);
    assert_eq!(used(&mut paths, 0, 8).len(), 1, "sixteen packets stay on a path");
    let mut seen: Vec<u16> = (0..300).map(|_| paths.choose(0, Some(paths.current.0))).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_path_is_too_short_only_where_short_packets_live() {
    for (short_lives, too_long) in [(true, true), (false, false)] {
        let mut paths = Paths::new(2, 1, 1);
        paths.on_lost(10, 1, 5);
        assert_eq!(ask(&mut paths, 100_000_000, |q| !q.long && short_lives), too_long);
        assert_eq!(used(&mut paths, 0, 100), [0]);
    }
    let mut paths = Paths::new(2, 1, 1);
    paths.on_lost(10, 1, 5);
    assert!(!ask(&mut paths, 100_000_000, |_| true), "a loss by chance");
}

#[test]
fn an_answer_to_an_older_question_says_nothing() {
    let mut paths = Paths::new(2, 1, 1);
    paths.on_lost(10, 1, 5);
    let (due, _) = paths.ask(10, |_| WAIT_NS);
    paths.on_arrived(1, 20, false);
    paths.on_lost(30, 1, 25);
    due.iter().for_each(|question| paths.on_answer(question.sequence));
    assert_eq!(used(&mut paths, 30, 100), [0]);
}

proptest! {
    #[test]
    fn any_reports_and_answers_leave_a_path_to_choose_and_a_right_count(
        number in 0_u16..20, reports in prop::collection::vec((0_u8..4, any::<u32>(), 0_u64..1 << 36), 0..200),
    ) {
        let mut paths = Paths::new(number, 2, 7);
        for (kind, value, now_ns) in reports {
            let path = value as u16 % number.max(1);
            match kind {
                0 => paths.on_lost(now_ns, path, now_ns / 2),
                1 => paths.on_arrived(path, now_ns / 2, value & 1 == 0),
                2 => paths.on_answer(value),
                _ => paths.ask(now_ns, |_| WAIT_NS).0.iter().for_each(|q| if value & 2 == 0 { paths.on_answer(q.sequence) }),
            }
            prop_assert!(paths.choose(now_ns, Some(path)) < number.max(1));
            let alive = paths.all.iter().filter(|path| path.health == Health::Alive).count();
            prop_assert_eq!(paths.alive, alive);
            prop_assert_eq!(paths.timeout_ns().is_none(), alive == paths.all.len());
        }
    }
}
