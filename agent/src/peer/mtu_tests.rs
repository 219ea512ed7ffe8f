// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const WAIT_NS: u64 = 4_000_000;

/// Runs a machine against a path that carries `path`, of whose questions and answers `lost` are
/// lost. Gives the time and the questions that it took, and the longest wait for data.
fn run(mtu: &mut PathMtu, path: u16, mut now_ns: u64, mut lost: impl FnMut() -> bool) -> (u64, usize) {
    let (begun_ns, mut questions, round_trip_ns) = (now_ns, 0, 100_000);
    for _ in 0..200 {
        let (due, sequence) = (mtu.take_due(), mtu.sequence());
        questions += due.len();
        let answers: Vec<u16> = due.into_iter().filter(|&size| size <= path && !lost()).collect();
        if !answers.is_empty() {
            now_ns += round_trip_ns;
        }
        for size in answers {
            mtu.on_answer(now_ns, sequence, size, WAIT_NS);
        }
        if mtu.due.is_empty() {
            let Some(timer_ns) = mtu.timer_ns() else { return (now_ns - begun_ns, questions) };
            now_ns = now_ns.max(timer_ns);
            mtu.on_timeout(now_ns, |times| WAIT_NS << times);
        }
    }
    panic!("{mtu:?} does not come to an end");
}

#[test]
fn a_path_that_carries_what_interfaces_do_costs_one_question_and_a_round_trip() {
    for size in [576, 1_280, 1_450, 1_500, 4_000, 9_000, 9_216] {
        let mut mtu = PathMtu::new(Some(size));
        assert!(!mtu.is_settled() && mtu.size() == Some(LEAST));
        mtu.begin(0, WAIT_NS);
        assert_eq!(run(&mut mtu, size, 0, || false), (100_000, 1));
        assert_eq!((mtu.size(), mtu.is_settled()), (Some(size), true));
    }
}

#[test]
fn every_path_is_found_to_within_a_block_and_data_waits_for_one_time_out() {
    for path in [576, 577, 900, 1_279, 1_280, 1_376, 1_450, 1_499, 1_500, 2_002, 4_000, 8_999, 9_000, 9_215] {
        let mut mtu = PathMtu::new(Some(9_216));
        mtu.begin(0, WAIT_NS);
        let (due, sequence) = (mtu.take_due(), mtu.sequence());
        assert_eq!(due, [9_216]);
        mtu.on_timeout(WAIT_NS, |_| WAIT_NS);
        for size in mtu.take_due().into_iter().filter(|&size| size <= path) {
            mtu.on_answer(WAIT_NS + 1, sequence, size, WAIT_NS);
        }
        assert!(mtu.is_settled(), "data flows");
        let (took_ns, questions) = run(&mut mtu, path, WAIT_NS + 1, || false);
        let size = mtu.size().expect("asked");
        assert!(size <= path && path - size <= GRAIN, "{size} of {path}");
        assert!(questions <= 40 && took_ns < 400_000_000, "{path}: {questions} questions in {took_ns} ns");
    }
}

#[test]
fn a_path_that_shrinks_is_found_again_and_answers_of_before_say_nothing() {
    let mut mtu = PathMtu::new(Some(9_000));
    mtu.begin(0, WAIT_NS);
    let before = mtu.sequence();
    run(&mut mtu, 9_000, 0, || false);
    mtu.suspect(0, WAIT_NS);
    run(&mut mtu, 9_000, 0, || false);
    mtu.suspect(CALM_NS / 2, WAIT_NS);
    assert_eq!(mtu.take_due(), Vec::<u16>::new(), "it was found to be well a moment ago");
    mtu.suspect(CALM_NS * 2, WAIT_NS);
    mtu.on_answer(CALM_NS * 2, before, 9_000, WAIT_NS);
    let (took_ns, _) = run(&mut mtu, 1_400, CALM_NS * 2, || false);
    assert_eq!(mtu.size(), Some(1_400));
    assert!(took_ns < 200_000_000, "{took_ns}");
    // And grows again, which is noticed in ten minutes, without a time of shorter packets.
    mtu.begin(CALM_NS * 4, WAIT_NS);
    assert_eq!(mtu.take_due(), Vec::<u16>::new());
    mtu.begin(RAISE_NS * 2, WAIT_NS);
    assert_eq!((mtu.take_due(), mtu.size()), (vec![9_000], Some(1_400)));
    mtu.on_answer(RAISE_NS * 2, mtu.sequence(), 9_000, WAIT_NS);
    assert_eq!((mtu.size(), mtu.timer_ns()), (Some(9_000), None));
}

#[test]
fn a_path_that_is_asked_for_more_in_vain_keeps_what_it_has() {
    let mut mtu = PathMtu::new(Some(9_000));
    mtu.begin(0, WAIT_NS);
    run(&mut mtu, 1_450, 0, || false);
    mtu.begin(RAISE_NS * 2, WAIT_NS);
    let (_, questions) = run(&mut mtu, 1_450, RAISE_NS * 2, || false);
    assert!(questions > 1 && mtu.size() == Some(1_450));
    assert!(!mtu.is_too_small());
}

#[test]
fn suspicion_of_a_path_that_is_well_costs_one_question() {
    let mut mtu = PathMtu::new(Some(1_500));
    mtu.begin(0, WAIT_NS);
    run(&mut mtu, 1_500, 0, || false);
    mtu.suspect(CALM_NS * 2, WAIT_NS);
    assert_eq!(run(&mut mtu, 1_500, CALM_NS * 2, || false), (100_000, 1));
    assert_eq!(mtu.size(), Some(1_500));
}

#[test]
fn where_nothing_is_answered_the_least_is_taken_and_said_to_be_too_much() {
    let mut mtu = PathMtu::new(Some(1_500));
    mtu.begin(0, WAIT_NS);
    let (took_ns, _) = run(&mut mtu, 500, 0, || false);
    assert_eq!((mtu.size(), mtu.is_too_small(), mtu.is_settled()), (Some(LEAST), true, true));
    assert!(took_ns < 100_000_000, "{took_ns}");
    // The first answer came late.
    mtu.on_answer(took_ns, mtu.sequence(), 1_500, WAIT_NS);
    assert_eq!((mtu.size(), mtu.is_too_small()), (Some(1_500), false));
}

#[test]
fn a_path_that_was_away_is_asked_for_all_of_it_when_it_is_back() {
    for ask in [
        |mtu: &mut PathMtu, at_ns| mtu.begin(at_ns, WAIT_NS),
        |mtu: &mut PathMtu, at_ns| mtu.suspect(at_ns, WAIT_NS),
    ] {
        let mut mtu = PathMtu::new(Some(9_000));
        mtu.begin(0, WAIT_NS);
        run(&mut mtu, 9_000, 0, || false);
        mtu.suspect(CALM_NS, WAIT_NS);
        assert!(!mtu.is_too_small(), "nobody knows yet");
        run(&mut mtu, 0, CALM_NS, || false);
        assert!(mtu.is_too_small() && mtu.size() == Some(LEAST));
        ask(&mut mtu, 2 * RETRY_NS);
        run(&mut mtu, 9_000, 2 * RETRY_NS, || false);
        assert_eq!((mtu.size(), mtu.is_too_small()), (Some(9_000), false));
    }
}

#[test]
fn the_smaller_interface_of_two_is_taken_at_once() {
    let mut mtu = PathMtu::new(Some(9_000));
    mtu.begin(0, WAIT_NS);
    assert_eq!(mtu.take_due(), [9_000]);
    mtu.told(1, 1_450, WAIT_NS);
    assert_eq!(run(&mut mtu, 1_450, 1, || false), (100_000, 1));
    assert_eq!(mtu.size(), Some(1_450));
    // This rank's own interface shrinks: known without a question, since the system refuses what is
    // longer.
    mtu.refused(2, 1_280, WAIT_NS);
    assert_eq!((mtu.size(), mtu.take_due()), (Some(1_280), vec![]));
    mtu.refused(3, 9_000, WAIT_NS);
    assert_eq!(mtu.own(), Some(1_280), "growing is not noticed");
}

#[test]
fn without_an_interface_s_mtu_nothing_is_asked_and_everything_fits() {
    let mut mtu = PathMtu::new(None);
    mtu.begin(0, WAIT_NS);
    mtu.told(0, 600, WAIT_NS);
    mtu.suspect(CALM_NS * 2, WAIT_NS);
    assert_eq!((mtu.size(), mtu.is_settled(), mtu.is_too_small()), (None, true, false));
    assert_eq!((mtu.take_due(), mtu.timer_ns()), (vec![], None));
}

proptest! {
    #[test]
    fn whatever_is_lost_it_ends_with_a_size_that_gets_through(
        own in LEAST..=9_216, path in LEAST..=9_216, share in 0_u64..60, seed: u64,
    ) {
        let mut state = seed;
        let mut lost = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % 100 < share
        };
        let mut mtu = PathMtu::new(Some(own));
        mtu.begin(0, WAIT_NS);
        let (took_ns, questions) = run(&mut mtu, path, 0, &mut lost);
        let size = mtu.size().expect("asked");
        prop_assert!(mtu.is_settled() && (LEAST..=own.min(path)).contains(&size));
        prop_assert!(questions < 64 && took_ns < 1_000_000_000, "{} questions in {} ns", questions, took_ns);
        if share == 0 {
            prop_assert!(own.min(path) - size <= GRAIN);
        }
    }
}
