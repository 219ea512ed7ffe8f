// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET, Decoding, expected_nmse};

/// Bytes of a packet of so many planes over those of its f32s.
fn share(planes: u8) -> f64 {
    Codec::Rht.packet_len(planes, DEFAULT_COORDINATES_PER_PACKET, false) as f64
        / (4 * DEFAULT_COORDINATES_PER_PACKET) as f64
}

/// A rank's step of 1,000 packets.
fn counts(trimmed: u64, arrived: u64, busy_ns: u64) -> Counts {
    Counts { bytes: 1_000_000, bytes_arrived: arrived, packets: 1_000, trimmed, busy_ns, ..Counts::default() }
}

#[test]
fn a_step_is_all_ranks_and_its_delay_that_of_who_waited_for_nobody() {
    let ranks = [
        counts(0, 1_000_000, 30),
        counts(500, 600_000, 10),
        Counts { missing: 20, repaired: 40, ..counts(100, 800_000, 70) },
    ];
    let step = Counts::step(&ranks, 1_000);
    assert_eq!((step.at_ns, step.bytes, step.delay_ns), (1_010, 1_000_000, 10));
    assert!(
        (step.trimmed - 0.2).abs() < 1e-12
            && (step.arrived - 0.8).abs() < 1e-12
            && (step.lost - 0.02).abs() < 1e-12
    );
    // Tails that are sent again arrive, too, and nobody gets more than everything.
    assert_eq!(Counts::step(&[counts(0, 2_000_000, 10)], 0).arrived, 1.0);
    for rank in ranks {
        assert_eq!(Counts::from_numbers(rank.to_numbers()), rank);
    }
}

#[test]
fn planes_are_the_most_that_the_ratio_has_room_for_and_at_least_one() {
    for most in 1..=10 {
        for planes in 1..=10 {
            let law = Adaptive::new(&format!("fixed:first={}", share(planes)), most).unwrap();
            assert_eq!(law.planes(), planes.min(most));
        }
        for ratio in [1e-6, 0.01, 0.05] {
            assert_eq!(Adaptive::new(&format!("fixed:first={ratio}"), most).unwrap().planes(), 1);
        }
    }
}

#[test]
fn limits_that_leave_no_planes_are_errors_that_name_the_limit() {
    let error = |law, planes| Adaptive::new(law, planes).unwrap_err().to_string();
    assert_eq!(
        error("da2:k_max=0.04", 9),
        "da2: k_max=0.04; valid are numbers from 0.0425 on, which is one plane: collectives send no less"
    );
    assert!(
        (share(1) - 0.0424).abs() < 1e-4
            && (share(10) - 0.761).abs() < 1e-3
            && (share(9) - 0.511).abs() < 1e-3
    );
    assert_eq!(
        error("netsense:k_min=0.6", 9),
        "netsense: k_min=0.6; valid are numbers up to what the most planes take: 0.761 with 10, 0.511 with 9"
    );
}

/// A port that has a share of the line: what of a step arrives, if its sender paces bytes at `pace`
/// of the line. Heads are not trimmed any further but lost.
fn port(law: &Adaptive, available: f64) -> Counts {
    let head = share(1) / share(law.planes());
    let excess = (1.0 - available / law.pace()).max(0.0);
    let trimmed = if head < 1.0 { (excess / (1.0 - head)).min(1.0) } else { 0.0 };
    let repaired = if head < 1.0 { 0.0 } else { 1e6 * excess } as u64;
    let sent = 1e9 * share(law.planes());
    let arrived = sent * (1.0 - trimmed * (1.0 - head));
    Counts {
        bytes: sent as u64,
        bytes_arrived: arrived as u64,
        packets: 1_000_000,
        trimmed: (1e6 * trimmed) as u64,
        repaired,
        busy_ns: (sent / law.pace() / 1e3) as u64,
        ..Counts::default()
    }
}

#[test]
fn trim_feedback_settles_where_little_is_cut_though_shorter_packets_would_leave_the_faster() {
    for available in [0.1, 0.3, 0.6, 0.9] {
        let mut law = Adaptive::new("trim-feedback:first=0.511", 9).unwrap();
        let mut trims = Vec::new();
        let first = port(&law, available);
        for _ in 0..60 {
            let counts = port(&law, available);
            trims.push(counts.trimmed as f64 / counts.packets as f64);
            law.step(&[counts]).unwrap();
        }
        let settled = trims[20..].iter().sum::<f64>() / 40.0;
        assert!(trims[0] > 0.1, "{available}: it begins beyond what fits");
        assert!(settled < 0.1, "{available}: {settled} of the packets are trimmed in the end");
        assert!(law.pace() > 0.5 * available, "{available}: {} of the line is used", law.pace());
        // What is left out makes room: a step takes about as long as at first.
        let ratio = port(&law, available).busy_ns as f64 / first.busy_ns as f64;
        assert!((0.4..=2.0).contains(&ratio), "{available}: {ratio}");
    }
}

#[test]
fn trim_feedback_takes_the_whole_line_again_when_it_is_free() {
    let mut law = Adaptive::new("trim-feedback:first=0.511", 9).unwrap();
    for _ in 0..20 {
        law.step(&[port(&law, 0.1)]).unwrap();
    }
    assert!(law.pace() < 0.2);
    for _ in 0..40 {
        law.step(&[port(&law, 1.0)]).unwrap();
    }
    assert_eq!((law.pace(), law.planes()), (1.0, 9));
}

/// What a link takes, all of it: a constant and a slope.
fn link(law: &Adaptive, constant: f64, rate: f64, compute_ns: u64) -> Counts {
    let bytes = 1e6 * share(law.planes());
    Counts {
        bytes: bytes as u64,
        bytes_arrived: bytes as u64,
        packets: 1_000,
        busy_ns: (constant + bytes / rate) as u64,
        idle_ns: compute_ns,
        ..Counts::default()
    }
}

/// What a step costs with every number of planes, by the codec's closed form.
fn costs(constant: f64, rate: f64, compute_ns: u64) -> Vec<f64> {
    let cost = |planes: u8| {
        let error = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(planes, 1.0)]);
        (compute_ns as f64 + constant + 1e6 * share(planes) / rate) * (1.0 + 1.25 * error)
    };
    (1..=9).map(cost).collect()
}

#[test]
fn progress_finds_the_planes_with_which_a_job_gets_furthest_on_any_link_and_after_it_changes() {
    let mut law = Adaptive::new("progress", 9).unwrap();
    let mut chosen = Vec::new();
    for (constant, rate) in
        [(1e4, 10.0), (1e4, 0.02), (5e6, 1.0), (1e5, 0.3), (1e4, 0.005), (1e6, 0.1), (1e4, 10.0)]
    {
        let mut sent = Vec::new();
        for _ in 0..60 {
            sent.push(law.planes());
            law.step(&[link(&law, constant, rate, 5_000_000)]).unwrap();
        }
        let costs = costs(constant, rate, 5_000_000);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        // A step in a dozen tries another number.
        let late = &sent[30..];
        let got = late.iter().map(|planes| costs[usize::from(*planes) - 1]).sum::<f64>() / late.len() as f64;
        assert!(got <= 1.05 * least, "{constant} ns and {rate} B/ns: {late:?}, {got} for {least}");
        chosen.push(sent[59]);
    }
    chosen.sort_unstable();
    chosen.dedup();
    assert!(chosen.len() > 2, "different links want different planes: {chosen:?}");
}

/// Twenty steps from the first one on: a step that sends too much on a slow link takes many times
/// what one that sends too little costs.
#[test]
fn progress_pays_little_for_finding_out_what_there_is() {
    for (constant, rate) in
        [(1e4, 10.0), (1e4, 0.02), (5e6, 1.0), (1e5, 0.3), (1e4, 0.005), (1e4, 0.0003), (1e6, 0.1)]
    {
        let mut law = Adaptive::new("progress", 9).unwrap();
        let costs = costs(constant, rate, 5_000_000);
        let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let mut sent = Vec::new();
        for _ in 0..20 {
            sent.push(law.planes());
            law.step(&[link(&law, constant, rate, 5_000_000)]).unwrap();
        }
        let got = sent.iter().map(|planes| costs[usize::from(*planes) - 1]).sum::<f64>() / 20.0;
        assert!(got <= 1.2 * least, "{constant} ns and {rate} B/ns: {sent:?}, {got} for {least}");
    }
}

#[test]
fn progress_paces_where_packets_are_trimmed() {
    for available in [0.1, 0.4, 0.8] {
        let mut law = Adaptive::new("progress", 9).unwrap();
        let mut trims = Vec::new();
        for _ in 0..80 {
            let counts = Counts { idle_ns: 100_000, ..port(&law, available) };
            trims.push(counts.trimmed as f64 / counts.packets as f64);
            law.step(&[counts]).unwrap();
        }
        let settled = trims[30..].iter().sum::<f64>() / 50.0;
        assert!(settled < 0.12, "{available}: {settled} of the packets are trimmed in the end");
        let pace = law.pace();
        assert!(pace > 0.4 * available && pace < 1.5 * available, "{available}: {pace}");
    }
}

#[test]
fn losses_slow_trim_feedback_down_where_nothing_cuts() {
    let mut law = Adaptive::new("trim-feedback:first=0.511", 9).unwrap();
    let lost = Counts { repaired: 300, ..counts(0, 1_000_000, 1_000) };
    law.step(&[lost]).unwrap();
    assert!((law.pace() - 0.7).abs() < 1e-9 && law.planes() < 9, "{} {}", law.pace(), law.planes());
}

#[test]
fn a_state_goes_on_and_another_laws_is_refused() {
    let mut law = Adaptive::new("da5:k_min=0.05", 9).unwrap();
    for i in 0..70 {
        law.step(&[counts(0, 1_000_000, 1_000 + i * i % 700)]).unwrap();
    }
    let state = serde_json::to_string(&law.state()).unwrap();
    let mut restored = Adaptive::new("da5:k_min=0.05", 9).unwrap();
    let restore = |law: &mut Adaptive, state: &str| {
        law.restore(&mut serde_json::Deserializer::from_str(state)).map_err(|error| error.to_string())
    };
    restore(&mut restored, &state).unwrap();
    for i in 0..70 {
        let step = [counts(0, 1_000_000, 900 + i * i % 1_300)];
        assert_eq!(law.step(&step), restored.step(&step));
        assert_eq!(law, restored);
    }
    for (other, planes) in [("da5", 9), ("da5:k_min=0.05", 8), ("da2:k_min=0.05", 9)] {
        let mut other = Adaptive::new(other, planes).unwrap();
        let before = other.clone();
        let error = restore(&mut other, &state).unwrap_err();
        assert!(error.contains("the state is of 'da5:k_min=0.05' with up to 9 planes"), "{error}");
        assert_eq!(other, before);
    }
    for (text, wrong) in [("\"ratio\":", "\"ratio\":7.5,\"was\":"), ("\"k_max\":", "\"k_max\":1,\"was\":")] {
        let error = restore(&mut restored, &state.replacen(text, wrong, 1)).unwrap_err();
        assert!(
            error.contains("valid are") || error.contains("unknown field") || error.contains("ratio"),
            "{error}"
        );
    }
    assert!(restore(&mut restored, "{}").is_err());
}

proptest! {
    #[test]
    fn whatever_ranks_tell_planes_and_pace_are_possible_ones(
        which in 0..LAWS.len(), most in 1_u8..=10,
        told in prop::collection::vec(prop::collection::vec(prop::array::uniform8(any::<u64>().prop_perturb(|n, mut rng| n >> (rng.next_u32() % 64))), 0..4), 0..40),
    ) {
        let mut law = Adaptive::new(LAWS[which], most).unwrap();
        for ranks in told {
            let ranks: Vec<Counts> = ranks.into_iter().map(Counts::from_numbers).collect();
            let before = law.clone();
            if law.step(&ranks).is_err() {
                prop_assert_eq!((law.planes(), law.ratio(), law.pace()), (before.planes(), before.ratio(), before.pace()));
            }
            prop_assert!((1..=most).contains(&law.planes()));
            prop_assert!(law.pace() > 0.0 && law.pace() <= 1.0);
            let limits = law.limits();
            prop_assert!((limits.k_min..=limits.k_max).contains(&law.ratio()));
        }
    }
}
