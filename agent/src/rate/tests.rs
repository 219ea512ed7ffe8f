// SPDX-License-Identifier: Apache-2.0
//! What each algorithm does with reports; docs/explanation/rates.md and `tests/rate_laws.rs` show
//! what comes of it on a link.
use super::*;
use proptest::prelude::*;

const LINE: u64 = 10_000_000_000;
const RTT: u64 = 20_000;
/// Round trip of whole packets beside which others are trimmed.
const QUEUED: u64 = RTT + 20_000;

fn path() -> PathModel {
    PathModel::new(LINE)
}

/// An algorithm and a clock: each report covers 24 packets, a round trip of line rate.
struct Sender {
    algorithm: Box<dyn RateAlgorithm>,
    now_ns: u64,
}

impl Sender {
    fn new(config: RateConfig) -> Self {
        Self { algorithm: config.build(&path()), now_ns: 1_000_000 }
    }

    fn timely() -> Self {
        Self::new(RateConfig::Timely(TimelyConfig::default()))
    }

    fn report(&mut self, rtt_ns: Option<u64>, trimmed: u32, marked: u32, lost: u32) -> u64 {
        self.now_ns += 1_000_000;
        let now_ns = self.now_ns;
        self.algorithm.on_feedback(&Feedback {
            now_ns,
            rtt_ns,
            arrived: 24,
            trimmed,
            marked,
            lost,
            ..Feedback::default()
        });
        self.algorithm.rate_bps()
    }

    fn calm(&mut self) -> u64 {
        self.report(Some(RTT), 0, 0, 0)
    }
}

fn algorithms() -> [RateConfig; 2] {
    [RateConfig::Timely(TimelyConfig::default()), RateConfig::Dctcp(DctcpConfig::default())]
}

#[test]
fn laws_start_at_line_rate_or_as_told_and_stay_there_while_nothing_is_congested() {
    for config in algorithms() {
        let mut sender = Sender::new(config);
        assert_eq!(sender.algorithm.rate_bps(), LINE);
        assert_eq!((0..50).map(|_| sender.calm()).min(), Some(LINE), "{config:?}");
    }
    let limits = Limits { start_bps: Some(LINE / 4), ..Limits::default() };
    let algorithm = RateConfig::Dctcp(DctcpConfig { limits, ..DctcpConfig::default() }).build(&path());
    assert_eq!(algorithm.rate_bps(), LINE / 4);
}

/// RFC 7661 §4.3: what was not used was not found to be free.
#[test]
fn a_sender_with_little_to_send_gains_no_rate_by_the_time_in_which_it_sends_nothing() {
    let limits = Limits { start_bps: Some(LINE / 10), ..Limits::default() };
    let dctcp = RateConfig::Dctcp(DctcpConfig { limits, ..DctcpConfig::default() });
    let timely = RateConfig::Timely(TimelyConfig { limits, ..TimelyConfig::default() });
    for config in [dctcp, timely] {
        let rtt_ns = 10 * RTT;
        // 24 frames of 104 bytes take 20 µs at a tenth of the line: a tenth of one round trip in
        // fifty.
        let after = |bytes: u64| {
            let mut sender = Sender::new(config);
            for _ in 0..20 {
                sender.now_ns += 50 * rtt_ns;
                let feedback = Feedback {
                    now_ns: sender.now_ns,
                    rtt_ns: Some(rtt_ns),
                    arrived: 24,
                    bytes,
                    ..Feedback::default()
                };
                sender.algorithm.on_feedback(&feedback);
            }
            sender.algorithm.rate_bps() - LINE / 10
        };
        let (idle, busy) = (after(24 * 104), after(24 * 104_000));
        assert!(idle > 0 && busy > 8 * idle, "{config:?}: {idle} and {busy} bit/s more");
    }
}

#[test]
fn fixed_hears_nothing() {
    let mut sender = Sender::new(RateConfig::Fixed(Some(5)));
    assert_eq!(sender.report(Some(u64::MAX), 24, 24, 24), 5);
    assert_eq!(RateConfig::Fixed(None).build(&path()).rate_bps(), LINE);
    assert_eq!(RateConfig::Fixed(Some(0)).build(&path()).rate_bps(), 1);
}

#[test]
fn a_report_in_which_all_is_trimmed_counts_as_queueing_though_it_has_no_round_trip() {
    for config in algorithms() {
        let mut sender = Sender::new(config);
        sender.calm();
        let after = sender.report(None, 24, 0, 0);
        assert!(after <= LINE / 2, "{config:?}: {after}");
        let mut other = Sender::new(config);
        other.calm();
        let partly = other.report(None, 6, 0, 0);
        assert!(after < partly && partly < LINE, "{config:?}: a quarter trimmed gives {partly}");
    }
}

#[test]
fn losses_count_at_least_as_much_as_trims() {
    for config in algorithms() {
        let (mut trimmed, mut lost) = (Sender::new(config), Sender::new(config));
        trimmed.calm();
        lost.calm();
        let (trimmed, lost) = (trimmed.report(Some(RTT), 12, 0, 0), lost.report(Some(RTT), 0, 0, 12));
        assert!(lost < LINE, "{config:?}");
        assert!(
            lost as f64 <= trimmed as f64 * 1.15,
            "{config:?}: {lost} after losses, {trimmed} after trims"
        );
    }
}

#[test]
fn timely_falls_as_the_paper_prints_it_above_t_high() {
    let explicit =
        TimelyConfig { t_low_ns: Some(12_500), t_high_ns: Some(125_000), ..TimelyConfig::default() };
    let mut sender = Sender::new(RateConfig::Timely(explicit));
    // rate · (1 − 0.8 · (1 − 125/250)) = 0.6 · rate.
    assert_eq!(sender.report(Some(250_000), 0, 0, 0), 6_000_000_000);
}

/// Mittal et al., Algorithm 1, by hand: between the thresholds the direction of the delay counts,
/// not where it is.
#[test]
fn timely_s_gradient_raises_the_rate_while_the_delay_falls_and_lowers_it_by_the_gradient_while_it_rises() {
    let limits = Limits { start_bps: Some(LINE / 4), ..Limits::default() };
    let config = TimelyConfig {
        t_low_ns: Some(20_000),
        t_high_ns: Some(200_000),
        between: Between::Gradient,
        limits,
        ..TimelyConfig::default()
    };
    let mut sender = Sender::new(RateConfig::Timely(config));
    let report = |sender: &mut Sender, rtt_us: u64| sender.report(Some(rtt_us * 1_000), 0, 0, 0) as f64;
    let first = report(&mut sender, 100);
    assert!(first > LINE as f64 / 4.0, "it stays where it was");
    let falling = report(&mut sender, 90);
    assert!(falling > first);
    // (1/8 · −8,750 + 7/8 · 20,000) / 90,000, of which β = 0.8 is taken off, for one and a half
    // rounds of 16 packets.
    let rising = report(&mut sender, 110);
    let gradient = (0.125 * -8_750.0 + 0.875 * 20_000.0) / 90_000.0;
    let share = 0.8 * gradient;
    let left = 1.0 / (1.0 + 1.5 * share / (1.0 - share));
    assert!((rising / falling - left).abs() < 1e-3, "{}", rising / falling);
}

#[test]
fn timely_takes_its_thresholds_from_the_path() {
    let mut algorithm = Timely::new(TimelyConfig::default(), &PathModel { host_jitter_ns: 7_000, ..path() });
    assert_eq!(algorithm.thresholds_ns(), None);
    algorithm.on_feedback(&Feedback { now_ns: 1, rtt_ns: Some(RTT), arrived: 1, ..Feedback::default() });
    assert_eq!(
        algorithm.thresholds_ns(),
        Some((20_000.0 + 10_000.0 + 7_000.0, 20_000.0 + 20_000.0 + 7_000.0))
    );
}

#[test]
fn timely_lets_one_percent_vanish_while_the_delay_is_low_but_not_while_it_is_high() {
    let run = |rtt_ns: u64| {
        let mut sender = Sender::timely();
        sender.calm();
        for _ in 0..40 {
            sender.now_ns += 1_000_000;
            let now_ns = sender.now_ns;
            sender.algorithm.on_feedback(&Feedback {
                now_ns,
                rtt_ns: Some(rtt_ns),
                arrived: 99,
                lost: 1,
                ..Feedback::default()
            });
        }
        sender.algorithm.rate_bps()
    };
    assert_eq!(run(RTT), LINE);
    assert!(run(RTT + 35_000) < LINE / 2);
}

#[test]
fn timely_forgets_a_least_round_trip_of_a_route_that_is_gone() {
    let mut sender = Sender::timely();
    sender.calm();
    let longer = 10 * RTT;
    for _ in 0..6_000 {
        sender.report(Some(longer), 0, 0, 0);
    }
    let starved = sender.algorithm.rate_bps();
    assert!(starved < LINE / 100, "a longer route looks like a queue at first: {starved}");
    for _ in 0..12_000 {
        sender.report(Some(longer), 0, 0, 0);
    }
    assert!(sender.algorithm.rate_bps() > LINE / 2, "{}", sender.algorithm.rate_bps());
}

#[test]
fn dctcp_takes_half_of_its_estimate_off_a_round_of_marks_and_halves_on_losses() {
    let mut sender = Sender::new(RateConfig::Dctcp(DctcpConfig::default()));
    for _ in 0..200 {
        sender.calm();
    }
    // α has decayed to nothing: one round of marks raises it to 1.5/16.
    let alpha = 1.5 / 16.0;
    let expected = LINE as f64 / (1.0 + 1.5 * (alpha / 2.0) / (1.0 - alpha / 2.0));
    let marked = sender.report(Some(RTT), 0, 24, 0);
    assert!((marked as f64 / expected - 1.0).abs() < 0.01, "{marked} against {expected}");
    let lost = sender.report(Some(RTT), 0, 0, 4);
    assert!(lost as f64 <= marked as f64 * 0.5, "{lost}");
}

#[test]
fn a_trimmed_on_the_way_back_from_a_burst_does_not_end_it() {
    let mut sender = Sender::new(RateConfig::Dctcp(DctcpConfig::default()));
    for _ in 0..200 {
        sender.calm();
    }
    // Neighbours who answer to nothing: all is trimmed for ten rounds. What they leave in the queue
    // costs a packet now and then.
    let low = (0..10).map(|_| sender.report(None, 24, 0, 0)).last();
    assert!(low.is_some_and(|low| low < LINE / 20), "{low:?}");
    sender.now_ns += 6 * RTT;
    let mut round = |trimmed| {
        sender.now_ns += RTT;
        let now_ns = sender.now_ns;
        sender.algorithm.on_feedback(&Feedback {
            now_ns,
            rtt_ns: Some(if trimmed > 0 { QUEUED } else { RTT }),
            arrived: ROUND_PACKETS,
            trimmed,
            ..Feedback::default()
        });
        sender.algorithm.rate_bps()
    };
    let back = [0, 1, 0, 1, 0, 0, 0, 0].map(&mut round);
    assert!(back[7] > LINE / 2, "{back:?}");
    // Who stays hears of it again and again, and is left its room.
    let contested = [0, 1].map(|trimmed| (0..20).map(|_| round(trimmed)).last());
    assert!(contested[0] < Some(LINE * 3 / 4), "{contested:?}");
}

#[test]
fn the_number_of_reports_does_not_change_what_a_law_does() {
    // A twelfth is trimmed in every fourth round of two round trips: mild enough that no algorithm
    // waits for its reductions to show.
    for config in algorithms() {
        let after = |per_round: u32| {
            let mut sender = Sender::new(config);
            for round in 0..400_u64 {
                let begin_ns = sender.now_ns + round * 2 * RTT;
                for part in 0..per_round {
                    let congested = round % 4 == 0;
                    sender.algorithm.on_feedback(&Feedback {
                        now_ns: begin_ns + u64::from(part + 1) * 2 * RTT / u64::from(per_round),
                        rtt_ns: Some(RTT),
                        arrived: 48 / per_round,
                        trimmed: if congested { 4 / per_round } else { 0 },
                        ..Feedback::default()
                    });
                }
            }
            sender.algorithm.rate_bps() as f64
        };
        let (one, two, four) = (after(1), after(2), after(4));
        assert!(
            (0.67..1.5).contains(&(two / one)) && (0.67..1.5).contains(&(four / one)),
            "{config:?}: {one} {two} {four}"
        );
    }
}

#[test]
fn a_reduction_is_not_repeated_before_it_can_show() {
    for config in algorithms() {
        let mut sender = Sender::new(config);
        sender.calm();
        let once = sender.report(Some(RTT), 24, 0, 0);
        let now_ns = sender.now_ns + RTT / 2;
        sender.algorithm.on_feedback(&Feedback { now_ns, arrived: 24, trimmed: 24, ..Feedback::default() });
        assert_eq!(sender.algorithm.rate_bps(), once, "{config:?}");
    }
}

/// The default algorithm, with a clock and a word about others.
struct Told {
    sender: Sender,
    feedback: Feedback,
}

impl Told {
    fn new(senders: u16, repaired: bool) -> Self {
        let senders = NonZeroU16::new(senders);
        let feedback = Feedback { rtt_ns: Some(RTT), arrived: 24, senders, repaired, ..Feedback::default() };
        Self { sender: Sender::new(RateConfig::Dctcp(DctcpConfig::default())), feedback }
    }

    /// A round of 24 packets of which so many were trimmed; the share of the line that the rate is
    /// then.
    fn round(&mut self, trimmed: u32) -> f64 {
        self.sender.now_ns += 4 * RTT;
        let rtt_ns = Some(if trimmed > 0 || self.feedback.lost > 0 { QUEUED } else { RTT });
        self.sender.algorithm.on_feedback(&Feedback {
            now_ns: self.sender.now_ns,
            rtt_ns,
            trimmed,
            ..self.feedback
        });
        self.share()
    }

    fn share(&self) -> f64 {
        self.sender.algorithm.rate_bps() as f64 / LINE as f64
    }

    /// Congestion until the rate is below this share of the line.
    fn slow_down_to(&mut self, share: f64) {
        let trimmed = if self.feedback.lost > 0 { 0 } else { 24 };
        while self.round(trimmed) > share {}
    }
}

#[test]
fn a_sender_that_is_told_how_many_there_are_comes_back_to_its_part_and_others_do_not() {
    let (mut told, mut untold) = (Told::new(4, true), Told::new(0, true));
    told.slow_down_to(0.05);
    untold.slow_down_to(0.05);
    let rounds = |algorithm: &mut Told| (0..10).map(|_| algorithm.round(0)).last().expect("ten");
    let share = rounds(&mut told);
    assert!((0.24..0.28).contains(&share), "{share} of the line, a quarter of which is its part");
    assert!(rounds(&mut untold) < 0.1, "{} of the line", untold.share());
}

#[test]
fn what_a_sender_that_is_done_had_is_the_others_at_once_up_to_their_parts() {
    let mut told = Told::new(8, true);
    told.slow_down_to(0.1);
    let before = told.share();
    told.feedback.senders = NonZeroU16::new(7);
    // Not a round: one packet, just after.
    let now_ns = told.sender.now_ns + 1;
    told.sender.algorithm.on_feedback(&Feedback { now_ns, arrived: 1, ..told.feedback });
    assert!((told.share() / before * 7.0 / 8.0 - 1.0).abs() < 1e-6, "{before}, then {}", told.share());
    told.feedback.senders = NonZeroU16::new(1);
    told.sender.algorithm.on_feedback(&Feedback { now_ns: now_ns + 1, arrived: 1, ..told.feedback });
    assert!((told.share() / before / 8.0 - 1.0).abs() < 1e-6 && told.share() < 1.0, "{}", told.share());
}

#[test]
fn who_is_trimmed_above_its_part_gives_that_back_at_once_where_trims_are_repaired() {
    for (repaired, least, most) in [(true, 0.124, 0.125), (false, 0.4, 1.0)] {
        let mut told = Told::new(8, repaired);
        assert_eq!(told.round(0), 1.0, "without congestion nobody slows down");
        let share = told.round(2);
        assert!((least..=most).contains(&share), "repaired: {repaired}: {share} of the line");
    }
}

#[test]
fn who_is_congested_below_its_part_believes_less_of_it_and_more_again_in_time() {
    // As of a port inside of the fabric, behind which everybody is alone.
    let mut told = Told::new(1, true);
    told.slow_down_to(0.2);
    let mut share_after = |rounds: usize| {
        for _ in 0..8 {
            told.round(24);
        }
        told.slow_down_to(0.2);
        (0..rounds).map(|_| told.round(0)).last().expect("some")
    };
    assert!(share_after(2) < 0.4, "two rounds, and half of the distance in each would be 0.8 of the line");
    assert!(share_after(40) > 0.9, "and nobody else came");
}

/// The default algorithm with a planned part of the line, and its share of the line after each of
/// these rounds: packets trimmed, and lost, of 24.
fn planned(part: u64, repaired: bool, rounds: &[(u32, u32)]) -> Vec<f64> {
    let path = PathModel { planned_bps: Some(LINE / part), ..path() };
    let mut algorithm = RateConfig::Dctcp(DctcpConfig::default()).build(&path);
    let mut share = |(nth, &(trimmed, lost)): (usize, &(u32, u32))| {
        let now_ns = (1 + nth as u64) * 40 * RTT;
        let rtt_ns = Some(if trimmed > 0 { QUEUED } else { RTT });
        algorithm.on_feedback(&Feedback {
            now_ns,
            rtt_ns,
            arrived: 24,
            trimmed,
            lost,
            repaired,
            ..Feedback::default()
        });
        algorithm.rate_bps() as f64 / LINE as f64
    };
    rounds.iter().enumerate().map(&mut share).collect()
}

#[test]
fn accepted_trims_take_nobody_below_what_is_planned_for_it_and_losses_do() {
    let all_trimmed = [(0, 0), (24, 0), (24, 0), (24, 0), (24, 0), (24, 0), (24, 0)];
    let last = |part, repaired, rounds: &[(u32, u32)]| planned(part, repaired, rounds).pop().expect("rounds");
    for (part, share) in [(1, 1.0), (3, 1.0 / 3.0)] {
        assert!((last(part, false, &all_trimmed) / share - 1.0).abs() < 1e-6, "{part}");
    }
    assert!(last(1, true, &all_trimmed) < 0.1, "what is trimmed is sent again");
    let with_losses = all_trimmed.map(|(trimmed, _)| (trimmed, 12));
    assert!(last(1, false, &with_losses) < 0.1);
    // Back to four fifths of it, and whole rounds are not needed for that.
    let then_trimmed = [&with_losses[..], &[(8, 0); 6]].concat();
    assert!((0.75..0.9).contains(&last(1, false, &then_trimmed)), "{}", last(1, false, &then_trimmed));
}

#[test]
fn after_a_burst_that_drops_the_rate_is_soon_the_told_part_or_half_of_what_it_was() {
    for (senders, least, most) in [(1, 0.85, 1.0), (4, 0.23, 0.3), (0, 0.45, 0.6)] {
        let mut told = Told::new(senders, true);
        told.round(0);
        told.feedback.lost = 24;
        told.slow_down_to(0.05);
        told.feedback.lost = 0;
        told.sender.now_ns += 40 * RTT;
        let share = (0..6).map(|_| told.round(0)).last().expect("six");
        assert!((least..most).contains(&share), "{senders} senders: {share} of the line");
    }
}

/// A link in rounds of one round trip: packets at the algorithm's rate, what became of each, and
/// the mean rate as a share of the line after the first fifth of the rounds.
struct Link {
    algorithm: Box<dyn RateAlgorithm>,
    draws: u64,
    now_ns: u64,
}

impl Link {
    fn new(config: RateConfig) -> Self {
        Self { algorithm: config.build(&path()), draws: 1, now_ns: 1_000_000 }
    }

    /// Whether the next of a fixed sequence of draws is below a share.
    fn draw(&mut self, share: f64) -> bool {
        self.draws =
            self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.draws >> 33) as f64) < share * f64::from(1_u32 << 31)
    }

    /// `lost` and `trimmed`: shares of packets at a share of the line. Returns the mean share of
    /// the line, and of lost packets.
    fn run(&mut self, rounds: u32, rtt_ns: u64, lost: impl Fn(f64) -> f64, trimmed: f64) -> (f64, f64) {
        let (mut sum, mut packets, mut all_lost) = (0.0, 0_u32, 0_u32);
        for round in 0..rounds {
            let share = self.algorithm.rate_bps() as f64 / LINE as f64;
            let count = ((share * 24.0).round() as u32).max(1);
            let gone = (0..count).filter(|_| self.draw(lost(share))).count() as u32;
            let short = (gone..count).filter(|_| self.draw(trimmed)).count() as u32;
            self.now_ns += RTT;
            self.algorithm.on_feedback(&Feedback {
                now_ns: self.now_ns,
                rtt_ns: (gone < count).then_some(rtt_ns),
                arrived: count - gone,
                trimmed: short,
                lost: gone,
                repaired: true,
                ..Feedback::default()
            });
            if round >= rounds / 5 {
                (sum, packets, all_lost) = (sum + share, packets + count, all_lost + gone);
            }
        }
        (sum / f64::from(rounds - rounds / 5), f64::from(all_lost) / f64::from(packets))
    }
}

const RANDOM: [f64; 6] = [0.001, 0.01, 0.02, 0.05, 0.1, 0.19];

#[test]
fn random_losses_without_a_queue_leave_nine_tenths_of_the_line() {
    for config in algorithms() {
        for share in RANDOM {
            let (rate, _) = Link::new(config).run(5_000, RTT, |_| share, 0.0);
            assert!(rate >= 0.9, "{config:?}, {share} lost: {rate} of the line");
        }
    }
}

/// A queue that drops is all that a plain switch tells.
#[test]
fn the_same_losses_behind_a_queue_take_half_of_the_line_and_more() {
    for config in algorithms() {
        for share in [0.05, 0.1, 0.19] {
            let mut link = Link::new(config);
            // The least round trip is known.
            link.run(10, RTT, |_| 0.0, 0.0);
            let (rate, _) = link.run(500, QUEUED, |_| share, 0.0);
            assert!(rate < 0.5, "{config:?}, {share} lost: {rate} of the line");
        }
    }
}

#[test]
fn a_limit_without_a_queue_is_kept_though_links_lose_at_random_as_well() {
    for config in algorithms() {
        for random in [0.0, 0.05] {
            for limit in [0.3, 0.6, 0.9] {
                let lost = |share: f64| 1.0 - (1.0 - random) * (limit / share).min(1.0);
                let (rate, all_lost) = Link::new(config).run(10_000, RTT, lost, 0.0);
                println!("{config:?}, {random} random: {:.2} of the limit, {all_lost:.3} lost", rate / limit);
                assert!(rate > 0.4 * limit, "{config:?}, {random} random: {rate} of {limit}");
                assert!(all_lost < random + 0.1, "{config:?}, {random} random, {limit}: {all_lost} lost");
            }
        }
    }
}

/// Where a path trims, what congestion takes off a rate is what trims take off it.
#[test]
fn on_a_path_that_trims_random_losses_cost_less_than_a_tenth_of_the_rate() {
    for config in algorithms() {
        let run = |lost: f64| Link::new(config).run(5_000, RTT, |_| lost, 0.02).0;
        let alone = run(0.0);
        for share in [0.02, 0.1, 0.19] {
            let with = run(share);
            assert!(with > 0.9 * alone, "{config:?}, {share} lost: {with} of the line, and {alone} without");
        }
    }
}

/// Reports as an enemy would write them.
fn hostile() -> impl Strategy<Value = Feedback> {
    let count = || prop_oneof![Just(0_u32), Just(u32::MAX), 0_u32..40, any::<u32>()];
    let time = || prop_oneof![Just(0_u64), Just(u64::MAX), 0_u64..10_000_000, any::<u64>()];
    let senders = prop_oneof![Just(0_u16), Just(1), Just(u16::MAX), any::<u16>()];
    (
        time(),
        prop::option::of(time()),
        count(),
        count(),
        count(),
        count(),
        any::<u64>(),
        senders,
        any::<bool>(),
    )
        .prop_map(|(now_ns, rtt_ns, arrived, trimmed, marked, lost, bytes, senders, repaired)| {
            Feedback {
                now_ns,
                rtt_ns,
                arrived,
                trimmed,
                marked,
                lost,
                bytes,
                senders: NonZeroU16::new(senders),
                repaired,
            }
        })
}

/// Parameters that are no numbers, or out of range.
fn hostile_laws() -> impl Strategy<Value = RateConfig> {
    let number = || prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), 0.0..1.0, any::<f64>()];
    let bps = || prop::option::of(prop_oneof![Just(0_u64), Just(u64::MAX), 1..LINE]);
    let limits = (bps(), bps(), bps()).prop_map(|(start_bps, increase_bps, min_rate_bps)| Limits {
        start_bps,
        increase_bps,
        min_rate_bps,
    });
    (limits, number(), number(), number(), bps(), bps(), 0..2).prop_map(
        |(limits, beta, gentle_beta, loss_tolerance, t_low_ns, t_high_ns, algorithm)| match algorithm {
            0 => RateConfig::Timely(TimelyConfig {
                t_low_ns,
                t_high_ns,
                beta,
                between: Between::Position(gentle_beta),
                loss_tolerance,
                limits,
            }),
            _ => RateConfig::Dctcp(DctcpConfig { gain: beta, limits }),
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_reported_the_rate_stays_within_its_limits(
        config in prop_oneof![hostile_laws(), prop::sample::select(algorithms().to_vec())],
        line_rate_bps in prop_oneof![Just(0_u64), Just(u64::MAX), 1_000_u64..1_000_000_000_000],
        trim_delay_ns in prop_oneof![Just(0_u64), Just(u64::MAX), 0_u64..1_000_000],
        host_jitter_ns in prop_oneof![Just(0_u64), Just(u64::MAX), 0_u64..1_000_000],
        planned_bps in prop::option::of(prop_oneof![Just(0_u64), Just(u64::MAX), 0_u64..1_000_000_000_000]),
        reports in prop::collection::vec(hostile(), 0..60),
    ) {
        let mut algorithm = config.build(&PathModel { line_rate_bps, trim_delay_ns, host_jitter_ns, planned_bps });
        let line = line_rate_bps.max(1);
        let limits = match config {
            RateConfig::Timely(TimelyConfig { limits, .. })
            | RateConfig::Dctcp(DctcpConfig { limits, .. }) => limits,
            RateConfig::Fixed(_) => Limits::default(),
        };
        let least = limits.min_rate_bps.unwrap_or(line / 1_000).clamp(1, line);
        for report in reports {
            algorithm.on_feedback(&report);
            let rate = algorithm.rate_bps();
            prop_assert!((least..=line).contains(&rate) || line > 1 << 53, "{rate} is not in {least}..={line}");
            prop_assert!(rate > 0);
        }
    }

    #[test]
    fn whatever_was_reported_a_law_recovers_on_a_calm_path(
        config in prop::sample::select(algorithms().to_vec()),
        reports in prop::collection::vec(hostile(), 0..40),
    ) {
        let mut algorithm = config.build(&path());
        for report in &reports {
            algorithm.on_feedback(&Feedback { now_ns: report.now_ns.min(1 << 50), ..*report });
        }
        // A time beyond all that were claimed; the least round trip that was claimed may take ten
        // seconds to be forgotten.
        let mut now_ns = 1 << 51;
        for _ in 0..40_000 {
            now_ns += 1_000_000;
            algorithm.on_feedback(&Feedback { now_ns, rtt_ns: Some(RTT), arrived: 24, ..Feedback::default() });
        }
        prop_assert_eq!(algorithm.rate_bps(), LINE);
    }
}
