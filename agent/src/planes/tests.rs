// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

fn steps(delays_ms: &[f64]) -> Vec<Step> {
    let mut at = 0;
    delays_ms
        .iter()
        .map(|ms| {
            let delay = (ms * 1e6) as u64;
            at += delay;
            Step::whole(at, 1_000_000, delay)
        })
        .collect()
}

fn unlimited(law: Laws, first: f64) -> Controller {
    Controller::new(law, Limits { k_min: 1e-6, k_max: 1.0 }, first)
}

fn ratios(controller: &mut Controller, steps: &[Step]) -> Vec<f64> {
    steps.iter().map(|step| controller.step(step).unwrap()).collect()
}

fn near(got: &[f64], wanted: &[f64]) {
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(wanted) {
        assert!((got - wanted).abs() < 1e-9, "{got} for {wanted}");
    }
}

/// Algorithm 1 by hand. 1 MB each; the RTT doubles and more at the third step, which ends start-up,
/// and is over the BDP.
#[test]
fn netsense_is_the_papers_algorithm() {
    let mut law = unlimited(Laws::Netsense(NetSense::default()), NetSense::FIRST);
    let ratio = ratios(&mut law, &steps(&[10.0, 10.0, 25.0, 10.0]));
    // Start-up: 0.01 + 0.05 twice. Then BtlBw = 1 MB / 10 ms, RTprop = 10 ms, BDP = 1 MB: 1 MB is
    // more than 0.9 of it.
    near(&ratio, &[0.06, 0.11, 0.055, 0.0275]);
    // 0.5 MB is less: + 0.01.
    let small = Step::whole(10_000_000_000, 500_000, 10_000_000);
    near(&[law.step(&small).unwrap()], &[0.0375]);
    // The floor.
    let mut law = unlimited(Laws::Netsense(NetSense::default()), 0.006);
    let ratio = ratios(&mut law, &steps(&[10.0, 30.0, 10.0, 10.0, 10.0, 10.0, 10.0]));
    assert_eq!(ratio.last(), Some(&0.005));
}

#[test]
fn a_lost_packet_ends_netsenses_start_up() {
    let mut law = unlimited(Laws::Netsense(NetSense::default()), NetSense::FIRST);
    let step = Step { lost: 0.001, ..Step::whole(1, 1000, 1000) };
    law.step(&step).unwrap();
    let Laws::Netsense(inner) = law.law() else { panic!() };
    assert!(!inner.is_starting());
    assert_eq!(law.ratio(), 0.005);
}

proptest! {
    /// Line by line as the paper prints it, with lists that are searched anew each time.
    #[test]
    fn netsense_agrees_with_the_printed_algorithm(
        given in prop::collection::vec((1_u64..2_000_000, 1_u64..50_000_000, prop::bool::weighted(0.05)), 1..80),
    ) {
        let mut law = unlimited(Laws::Netsense(NetSense::default()), NetSense::FIRST);
        let (mut ratio, mut starting, mut at) = (0.01_f64, true, 0);
        let (mut ebb, mut rtt) = (Vec::new(), Vec::new());
        for (bytes, delay, lost) in given {
            at += delay;
            let lost = if lost { 0.01 } else { 0.0 };
            let step = Step { lost, ..Step::whole(at, bytes, delay) };
            ebb.push(bytes as f64 / delay as f64);
            rtt.push(delay as f64);
            let last = ebb.len().saturating_sub(10);
            let bottleneck = ebb[last..].iter().copied().fold(0.0, f64::max);
            let propagation = rtt[last..].iter().copied().fold(f64::MAX, f64::min);
            if starting && (lost > 0.0 || delay as f64 > 2.0 * propagation) {
                starting = false;
            }
            ratio = if starting {
                (ratio + 0.05).min(1.0)
            } else if bytes as f64 > 0.9 * (bottleneck * propagation) {
                (ratio * 0.5).max(0.005)
            } else {
                (ratio + 0.01).min(1.0)
            };
            prop_assert_eq!(law.step(&step), Ok(ratio));
        }
    }

    /// The definitions of §IV, written out: w + 1 delays and the w differences between them.
    #[test]
    fn the_delay_monitor_says_the_papers_series(
        delays in prop::collection::vec(1_u64..1_000_000_000, 1..40), window in 1_u32..12,
    ) {
        let mut monitor = DelayMonitor::new(window);
        for (j, delay) in delays.iter().enumerate() {
            let got = monitor.push(*delay);
            let last = &delays[j.saturating_sub(window as usize)..=j];
            let mean = last.iter().map(|d| *d as f64).sum::<f64>() / last.len() as f64;
            let differences: Vec<f64> = last.windows(2).map(|pair| pair[1] as f64 - pair[0] as f64).collect();
            let trend = if differences.is_empty() { 0.0 } else { differences.iter().sum::<f64>() / differences.len() as f64 };
            prop_assert_eq!(got.delay, *delay as f64);
            prop_assert_eq!(got.least, *delays[..=j].iter().min().unwrap() as f64);
            prop_assert!((got.mean - mean).abs() < 1e-3 && (got.trend - trend).abs() < 1e-3);
        }
    }

    #[test]
    fn nothing_that_is_measured_leads_out_of_the_limits_or_panics(
        which in 0..LAWS.len(), k_min in 0.001..0.2_f64, wide in 0.0..0.8_f64,
        given in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<f64>(), 0.0..1.5_f64, 0.0..1.1_f64), 0..60),
    ) {
        let text = format!("{}:k_min={k_min},k_max={}", LAWS[which], k_min + wide);
        let mut law = parse(&text).unwrap();
        let mut at = 0_u64;
        for (later, bytes, delay_ns, lost, trimmed, arrived) in given {
            at = at.wrapping_add(later >> 8);
            let before = law.clone();
            let step = Step { at_ns: at, bytes: bytes >> (later % 64), delay_ns: delay_ns >> (later % 61), compute_ns: later >> (bytes % 64), trimmed, arrived, lost };
            let result = law.step(&step);
            let ratio = law.ratio();
            prop_assert!((k_min..=k_min + wide).contains(&ratio), "{text}: {ratio}");
            match result {
                Ok(said) => prop_assert_eq!(said, ratio),
                Err(StepError::NoRatio { .. }) => prop_assert_eq!(ratio, before.ratio()),
                Err(_) => prop_assert_eq!(&law, &before),
            }
        }
    }

    #[test]
    fn a_law_goes_on_from_a_checkpoint_as_if_nothing_had_been(
        which in 0_usize..8, delays in prop::collection::vec(1.0..50.0_f64, 2..40), at in 0_usize..39, trimmed in 0.0..0.3_f64,
    ) {
        let mut law = parse(LAWS[which]).unwrap();
        let mut all = steps(&delays);
        for step in &mut all {
            step.trimmed = trimmed;
            step.arrived = 1.0 - trimmed / 2.0;
        }
        let (first, rest) = all.split_at(at.min(all.len()));
        ratios(&mut law, first);
        let text = serde_json::to_string(&law).unwrap();
        let mut again: Controller = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(ratios(&mut law, rest), ratios(&mut again, rest));
    }
}

#[test]
fn what_cannot_have_been_measured_is_refused_by_name_and_the_ratio_stays() {
    let mut law = parse("da2").unwrap();
    let good = Step::whole(1_000, 100, 10);
    law.step(&good).unwrap();
    let before = law.clone();
    for (step, wanted) in [
        (
            Step { at_ns: 999, ..good },
            "the step ended at 999 ns, before the one before it (1000 ns): time ran backwards",
        ),
        (Step { delay_ns: 0, ..good }, "delay_ns is 0: no communication takes no time"),
        (Step { bytes: 0, ..good }, "bytes is 0 in 10 ns: a bandwidth of 0 says nothing of the network"),
        (Step { trimmed: f64::NAN, ..good }, "trimmed is NaN; valid are shares from 0 to 1"),
        (Step { arrived: 1.5, ..good }, "arrived is 1.5; valid are shares from 0 to 1"),
        (Step { lost: -0.1, ..good }, "lost is -0.1; valid are shares from 0 to 1"),
    ] {
        assert_eq!(law.step(&step).unwrap_err().to_string(), wanted);
        assert_eq!(law, before);
    }
}

/// Table I's parameters on delays whose mean, least and differences are easy: 10, 10, 20 and 10 ms.
#[test]
fn dc2s_laws_are_algorithm_1_with_table_i() {
    let delays = steps(&[10.0, 10.0, 20.0, 10.0]);
    let mut da1 = unlimited(Laws::Da1(Da1::default()), 0.9);
    // Third: a = 40/3, (20 − 40/3) / (20 − 10) = 2/3. d = m leaves it.
    near(&ratios(&mut da1, &delays), &[0.9, 0.9, 0.9 - 2.0 / 3.0, 0.9 - 2.0 / 3.0]);
    let mut da2 = unlimited(Laws::Da2(Da2::default()), 0.1);
    // Fourth: a = 12.5, d below 0.95 of it.
    near(&ratios(&mut da2, &delays), &[0.1, 0.1, 0.08, 0.085]);
    let mut da3 = unlimited(Laws::Da3(Da3::default()), 0.1);
    near(&ratios(&mut da3, &delays), &[0.1, 0.1, 0.095, 0.1]);
    let mut da4 = unlimited(Laws::Da4(Da4::default()), 0.1);
    // r = 0, 0, 5 ms, 0; r / m = 1/2: 1 − 0.8 / 2.
    near(&ratios(&mut da4, &delays), &[0.1, 0.1, 0.06, 0.06]);
    let mut da4 = unlimited(Laws::Da4(Da4::default()), 0.1);
    near(&ratios(&mut da4, &steps(&[20.0, 10.0])), &[0.1, 0.105]);
    let mut da5 = unlimited(Laws::Da5(Da5::default()), 0.1);
    // Third: d = 20 above α a = 50/3: 1 − 0.8 (20 − 50/3) / (20 − 12.5). Others below α m = 12.5.
    let third = 0.11 * (1.0 - 0.8 * (20.0 - 50.0 / 3.0) / 7.5);
    near(&ratios(&mut da5, &delays), &[0.105, 0.11, third, third + 0.005]);
    // Between the thresholds DA4's gradient decides: m = 10, a = 14, d = 16, r = 2.
    let mut da5 = unlimited(Laws::Da5(Da5::default()), 0.1);
    let ratio = ratios(&mut da5, &steps(&[10.0, 15.0, 15.0, 16.0]));
    near(&ratio[3..], &[ratio[2] * (1.0 - 0.8 * 0.2)]);
}

/// Chiu and Jain: additive decrease keeps what ranks differ by, multiplicative decrease takes it
/// away. All ranks of a step see the same delay.
#[test]
fn ranks_that_began_apart_meet_under_da2_and_never_under_da3() {
    let apart = |law: &str| {
        let mut ranks =
            [0.05, 0.25].map(|first| parse(&format!("{law}:first={first},k_min=0.0001,k_max=1")).unwrap());
        let (mut at, mut phase) = (0, 0_u32);
        for _ in 0..400 {
            phase = (phase + 1) % 7;
            let sent: f64 = ranks.iter().map(Controller::ratio).sum();
            let delay = (sent * 1e9 * if phase < 3 { 1.3 } else { 0.9 }) as u64 + 1;
            at += delay;
            for rank in &mut ranks {
                rank.step(&Step::whole(at, 1000, delay)).unwrap();
            }
        }
        (ranks[1].ratio() - ranks[0].ratio()).abs()
    };
    let (da2, da3) = (apart("da2"), apart("da3"));
    assert!(da2 < 0.02, "{da2}");
    assert!((da3 - 0.2).abs() < 1e-6, "{da3}");
}

#[test]
fn a_step_of_which_everything_was_lost_takes_half_of_trim_feedbacks_pace_and_no_more() {
    let mut controller = parse("trim-feedback").unwrap();
    let lost = Step { lost: 1.0, ..Step::whole(1, 1_000_000, 1_000_000) };
    controller.step(&lost).unwrap();
    assert_eq!(controller.pace(), 0.5);
    // What was trimmed says how much there is room for: a port that has a tenth gets it at once.
    let mut controller = parse("trim-feedback").unwrap();
    let trimmed = Step { trimmed: 0.95, arrived: 0.12, ..Step::whole(1, 1_000_000, 1_000_000) };
    controller.step(&trimmed).unwrap();
    assert!((controller.pace() - 0.12).abs() < 1e-9);
}

#[test]
fn laws_are_read_by_name_and_mistakes_name_the_culprit() {
    let law = parse("da5:k_min=0.01, alpha=1.5,window=20").unwrap();
    assert_eq!(law.limits(), Limits { k_min: 0.01, k_max: 0.3 });
    let Laws::Da5(inner) = law.law() else { panic!() };
    assert_eq!((inner.alpha, inner.beta), (1.5, 0.8));
    for (text, wanted) in [
        ("da6", "unknown algorithm 'da6'; did you mean"),
        (
            "da5:gamma=1",
            "da5 has no parameter 'gamma' (valid: k_min, k_max, first, increase, beta, alpha, window)",
        ),
        ("da2:decrese=0.5", "da2 has no parameter 'decrese'; did you mean 'decrease'?"),
        ("netsense:alpha=nan", "netsense: alpha=nan; valid are numbers above 0, up to 1"),
        ("netsense:k_min=0.5,k_max=0.1", "netsense: k_min=0.5; valid are numbers up to k_max"),
        ("trim-feedback:budget_ms=-1", "trim-feedback: budget_ms=-1; valid are milliseconds above 0"),
        ("da1:window", "da1: window=; valid are whole numbers from 1 to 100000"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{error}");
    }
}
