// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::counters::{Count, Counter, QueueCounters, Waiting};

const MINUTE: u64 = 60_000_000_000;
const EVERY: u64 = 5 * MINUTE;

fn fabric(thresholds: &str) -> Fabric {
    let text = format!(
        "version: 1
thresholds: {{ {thresholds} }}
switches: {{ s1: {{ address: 127.0.0.1:1, device_id: 1 }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"s1:1\", speed: 10Gbps }}
  - {{ a: h2, b: \"s1:2\", speed: 10Gbps }}
"
    );
    Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// What port 1 of s1 has counted, of four classes: offered packets of 1,406 bytes each, refused, and dropped after trimming.
#[derive(Clone, Default)]
struct Counted {
    now: u64,
    offered: [u64; 4],
    refused: [u64; 4],
    trim_dropped: u64,
    trim_peak: u64,
}

impl Counted {
    /// Five minutes more, at a load of the line with these shares; of a million packets so many are refused and dropped after trimming.
    fn pass(&mut self, load: f64, shares: [f64; 4], refused: u64, dropped: u64) {
        self.now += EVERY;
        let packets = load * 300.0 * 1.25e9 / 1406.0;
        for (class, share) in shares.into_iter().enumerate() {
            let more = (packets * share) as u64;
            self.offered[class] += more;
            self.refused[class] += more * refused / 1_000_000;
        }
        self.trim_dropped += packets as u64 * dropped / 1_000_000;
    }

    fn read(&self) -> Counters {
        let count = |packets: u64| Count { packets: packets as i64, bytes: packets as i64 * 1406 };
        let queue = |class: usize| {
            let dropped = if class == 0 { self.trim_dropped } else { 0 };
            let counters = BTreeMap::from([
                (Counter::Admitted, count(self.offered[class] - self.refused[class])),
                (Counter::Trimmed, count(self.refused[class].saturating_sub(dropped))),
                (Counter::TrimDropped, count(dropped)),
            ]);
            ((1, 5 - class as u8), QueueCounters { counts: counters, waiting: None })
        };
        let mut queues: BTreeMap<_, _> = (0..4).map(queue).collect();
        let waiting = Waiting { now: 0, peak: Some(self.trim_peak) };
        queues.insert((1, 6), QueueCounters { waiting: Some(waiting), ..QueueCounters::default() });
        Counters { queues, ..Counters::default() }
    }

    fn tell(&self, follow: &mut Follow) {
        follow.handle_counters(self.now, "s1", &self.read());
        follow.handle_timeout(self.now, true);
    }
}

const EVEN: [f64; 4] = [0.25; 4];
/// Back layers' load: thresholds for equal shares are wrong for it.
const BACK: [f64; 4] = [0.02, 0.03, 0.15, 0.8];

fn begun(thresholds: &str) -> (Follow, Counted) {
    let mut follow = Follow::new(&fabric(thresholds), 0);
    let counted = Counted::default();
    follow.handle_counters(0, "s1", &counted.read());
    (follow, counted)
}

fn notices(follow: &mut Follow) -> Vec<String> {
    std::iter::from_fn(|| follow.poll_notice()).collect()
}

/// Windows until something is applied.
fn until_applied(follow: &mut Follow, counted: &mut Counted) -> usize {
    for window in 1..20 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(follow);
        if follow.told()[0].applied > 0 {
            return window;
        }
    }
    panic!("nothing is applied: {}", follow.told()[0]);
}

#[test]
fn loads_are_what_bytes_met_and_what_a_restart_took_with_it_counts_nothing() {
    let (mut follow, mut counted) = begun("follow: measure");
    // Four minutes of nothing and one of a full line: bytes met a full line.
    counted.now += 4 * MINUTE;
    follow.handle_counters(counted.now, "s1", &counted.read());
    counted.now -= 4 * MINUTE;
    counted.pass(0.2, [0.4, 0.3, 0.2, 0.1], 10_000, 1_000);
    counted.tell(&mut follow);
    let measured = follow.told()[0].measured.clone().unwrap();
    assert!((measured.load - 1.0).abs() < 1e-3, "{measured:?}");
    assert!((measured.shares[0] - 0.4).abs() < 1e-3 && (measured.mean_packet - 1406.0).abs() < 1e-6);
    assert!((measured.refused - 0.01).abs() < 1e-4 && (measured.trim_dropped - 0.001).abs() < 1e-4);
    assert_eq!(measured.port, "s1:1");
    let told = follow.told()[0].to_string();
    assert!(
        told.starts_with("thresholds of 10Gbps to hosts: load 1.00 at s1:1 as if in bursts of "),
        "{told}"
    );

    let mut restarted = Counted { now: counted.now, ..Counted::default() };
    restarted.pass(0.5, EVEN, 0, 0);
    restarted.tell(&mut follow);
    assert!(follow.told()[0].is_idle, "what was counted since when is not known");
    restarted.pass(0.5, EVEN, 0, 0);
    restarted.tell(&mut follow);
    let measured = follow.told()[0].measured.clone().unwrap();
    assert!((measured.load - 0.5).abs() < 1e-3 && measured.burst.is_none(), "{measured:?}");
}

#[test]
fn bursts_are_found_again_from_what_the_model_refuses_in_them() {
    let fabric = fabric("follow: measure");
    let policy = &fabric.policies["s1"][&1];
    let terms = Terms { queues: fabric.queues.clone(), packet: fabric.data_packet() };
    for (load, burst) in [(0.6, 8), (0.9, 2), (0.9, 7), (1.3, 3)] {
        let mut measured = Measured {
            port: String::new(),
            seconds: 300.0,
            load,
            shares: EVEN.to_vec(),
            mean_packet: 1406.0,
            packets: 1_000_000_000,
            refused: 0.0,
            trim_dropped: 0.0,
            burst: None,
            trim_peak: None,
        };
        measured.refused = Advisor::new(&terms, &measured).refused(policy, burst);
        assert!(measured.refused > 0.0);
        assert_eq!(Advisor::new(&terms, &measured).burst(policy), burst, "at {load}");
    }
}

#[test]
fn what_two_windows_ask_for_is_applied_and_no_threshold_leaves_the_band() {
    let (mut follow, mut counted) = begun("follow: apply, band: 25%");
    assert_eq!(until_applied(&mut follow, &mut counted), 2, "one window may be chance");
    assert!(follow.poll_change() && !follow.poll_change());
    let (file, now) = (fabric(""), follow.policies());
    let (file, now) = (&file.policies["s1"][&1], &now["s1"][&1]);
    let plan = QueuePlan::default();
    assert_ne!(file, now);
    for ((name, file), (_, now)) in thresholds(file, &plan).into_iter().zip(thresholds(now, &plan)) {
        assert!(now <= file / 4 * 5 + 4 && now >= file / 5 * 4 - 4, "{name}: {file} becomes {now}");
    }
    let notices = notices(&mut follow);
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].contains("applied: weighted loss") && notices[0].contains("class3 important"),
        "{notices:?}"
    );
}

#[test]
fn a_steady_load_changes_thresholds_at_most_twice_in_five_hours_and_not_to_and_fro() {
    let (mut follow, mut counted) = begun("follow: apply, band: 100%");
    until_applied(&mut follow, &mut counted);
    for _ in 0..60 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
    }
    let told = &follow.told()[0];
    assert!(told.applied <= 2 && told.taken_back == 0, "{told:?}");
}

#[test]
fn what_drops_more_trimmed_packets_is_taken_back_and_the_pause_after_it_doubles() {
    let (mut follow, mut counted) = begun("follow: apply");
    let mut pauses = Vec::new();
    for round in 1..=4 {
        let before = follow.policies();
        let mut windows = 0;
        while follow.told()[0].applied < round {
            counted.pass(0.95, BACK, 50_000, 1_000);
            counted.tell(&mut follow);
            windows += 1;
            assert!(windows < 50, "{}", follow.told()[0]);
        }
        assert_ne!(follow.policies(), before);
        counted.pass(0.95, BACK, 50_000, 3_000);
        counted.tell(&mut follow);
        assert_eq!(follow.policies(), before, "the policy before it");
        assert!(follow.told()[0].reason.starts_with("taken back: 0.29"), "{}", follow.told()[0]);
        pauses.push(windows);
    }
    // Two windows that agree, after pauses of 1, 2 and 4.
    assert_eq!(pauses, [2, 3, 4, 6]);
    assert_eq!(follow.told()[0].taken_back, 4);
}

#[test]
fn what_was_kept_is_given_up_for_the_files_when_more_trimmed_packets_are_dropped_later() {
    let (mut follow, mut counted) = begun("follow: apply");
    let file = follow.policies();
    until_applied(&mut follow, &mut counted);
    for _ in 0..5 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
    }
    assert!(follow.told()[0].taken_back == 0 && follow.policies() != file, "{}", follow.told()[0]);
    counted.pass(0.95, BACK, 50_000, 3_000);
    counted.tell(&mut follow);
    assert!(follow.told()[0].taken_back == 1 && follow.policies() == file, "{}", follow.told()[0]);
}

#[test]
fn a_trial_that_nobody_sends_anything_in_is_not_over() {
    let (mut follow, mut counted) = begun("follow: apply");
    until_applied(&mut follow, &mut counted);
    for _ in 0..3 {
        counted.now += EVERY;
        counted.tell(&mut follow);
    }
    counted.pass(0.95, BACK, 50_000, 3_000);
    counted.tell(&mut follow);
    assert_eq!(follow.told()[0].taken_back, 1);
}

#[test]
fn what_is_proposed_is_told_once_and_pasted_into_the_file_it_is_what_was_proposed() {
    let (mut follow, mut counted) = begun("follow: propose");
    for _ in 0..10 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
    }
    let told = follow.told()[0].clone();
    assert_eq!((told.proposed, told.applied), (1, 0), "{told:?}");
    assert!(!follow.poll_change(), "a person decides");
    let proposal = told.proposal.unwrap();
    let plain = fabric("follow: propose");
    let pasted = format!(
        "version: 1\n{proposal}switches: {{ s1: {{ address: 127.0.0.1:1, device_id: 1 }} }}\n\
         hosts: {{ h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }} }}\n\
         links: [ {{ a: h1, b: \"s1:1\", speed: 10Gbps }} ]\n"
    );
    let pasted =
        Fabric::from_yaml(&pasted, "pasted.yaml").unwrap_or_else(|error| panic!("{error}\n{pasted}"));
    let plan = QueuePlan::default();
    let found = thresholds(&pasted.policies["s1"][&1], &plan);
    let before = thresholds(&plain.policies["s1"][&1], &plan);
    assert!(found.iter().zip(&before).any(|((_, found), (_, before))| found != before));
    let terms = Terms { queues: plan.clone(), packet: plain.data_packet() };
    let measured = told.measured.unwrap();
    let best = Advisor::new(&terms, &measured).best(&plain.policies["s1"][&1], measured.burst.unwrap());
    for ((name, found), (_, best)) in found.into_iter().zip(thresholds(&best.policy, &plan)) {
        assert!(found.abs_diff(best) <= 2, "{name}: {found} is not {best}, to the nanosecond");
    }
}

#[test]
fn who_does_not_lead_measures_and_a_quiet_port_teaches_nothing() {
    let (mut follow, mut counted) = begun("follow: apply");
    for _ in 0..5 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        follow.handle_counters(counted.now, "s1", &counted.read());
        follow.handle_timeout(counted.now, false);
    }
    let told = follow.told()[0].clone();
    assert_eq!((told.reason.as_str(), told.applied), ("another controller leads", 0));
    assert!(told.measured.is_some());
    for _ in 0..5 {
        counted.pass(0.95, BACK, 0, 0);
        counted.tell(&mut follow);
    }
    assert_eq!(follow.told()[0].reason, "too few packets were refused to learn from");
}

#[test]
fn bursts_that_the_model_does_not_know_bring_the_files_thresholds_back() {
    let (mut follow, mut counted) = begun("follow: apply");
    until_applied(&mut follow, &mut counted);
    let file = fabric("follow: apply").policies;
    let is_files = |follow: &Follow| *follow.policies()["s1"][&1] == *file["s1"][&1];
    // The trim queue has room for 125,000 bytes.
    for (trim_peak, is_back) in [(62_000, false), (62_500, true)] {
        counted.trim_peak = trim_peak;
        notices(&mut follow);
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
        assert_eq!(is_files(&follow), is_back, "{}", follow.told()[0]);
    }
    let told = notices(&mut follow);
    assert!(matches!(told.as_slice(), [one] if one.contains("larger than a queue")), "{told:?}");
    for _ in 0..3 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
        assert!(is_files(&follow) && notices(&mut follow).is_empty(), "{}", follow.told()[0]);
    }
    counted.trim_peak = 0;
    let before = follow.told()[0].applied;
    for _ in 0..3 {
        counted.pass(0.95, BACK, 50_000, 1_000);
        counted.tell(&mut follow);
    }
    assert_eq!(follow.told()[0].applied, before + 1, "{}", follow.told()[0]);
}

#[test]
fn a_file_with_the_same_thresholds_goes_on_and_another_begins_anew() {
    let (mut follow, mut counted) = begun("follow: apply");
    until_applied(&mut follow, &mut counted);
    assert!(follow.is_of(&fabric("follow: apply")), "the same file, read again");
    assert!(!follow.is_of(&fabric("follow: apply, band: 30%")));
    let mut other = fabric("follow: apply");
    other.policies.remove("s1");
    assert!(!follow.is_of(&other));
}

#[test]
fn a_page_of_a_run_gives_the_port_that_refuses_most_and_nonsense_an_error() {
    let (mut follow, mut counted) = begun("follow: measure");
    counted.pass(0.8, EVEN, 10_000, 0);
    counted.tell(&mut follow);
    let page = serde_json::to_string(&follow.told()).unwrap();
    let found = measured(&page, None).unwrap();
    assert!((found.load - 0.8).abs() < 1e-3 && found.burst.is_some());
    assert_eq!(measured(&page, Some("10Gbps to hosts")), Ok(found));
    let error = measured(&page, Some("s1:9")).unwrap_err();
    assert_eq!(error, "it tells nothing of 's1:9'; valid: 10Gbps to hosts");
    assert!(measured("[]", None).unwrap_err().contains("measured nothing yet"));
    assert!(measured("{", None).unwrap_err().contains("no /thresholds of a `run`"));
    let wrong = page.replace("\"load\":0.", "\"load\":-0.");
    assert!(measured(&wrong, None).unwrap_err().contains("are none"), "{wrong}");
}

#[test]
fn every_mistake_in_how_thresholds_follow_has_its_line() {
    let text = "version: 1
policy: { trim: off }
thresholds:
  follow: aply
  band: 2
  every: 1s
  evry: 5
";
    let error = Fabric::from_yaml(text, "f.yaml").unwrap_err().to_string();
    for line in [
        "f.yaml:4: thresholds.follow: 'aply' is not valid here; did you mean 'apply'? (valid: measure, propose, apply)",
        "f.yaml:5: thresholds.band: '2' is no band; write a share from 1% to 100%, as in 25%",
        "f.yaml:6: thresholds.every: '1s' is not from 10s to 86400s; write every: 300s",
        "f.yaml:7: thresholds.evry: unknown key; did you mean 'every'? (valid: follow, band, every)",
    ] {
        assert!(error.contains(line), "{error}");
    }
    let text = text.replace("aply", "apply");
    let error = Fabric::from_yaml(&text, "f.yaml").unwrap_err().to_string();
    let line = "f.yaml:4: thresholds.follow: thresholds follow only where packets are trimmed, and policy.trim is off";
    assert!(error.contains(line), "{error}");
}

#[test]
fn a_switch_that_counts_nonsense_is_no_reason_to_stop() {
    let most = i64::MAX;
    for (packets, bytes) in [(most, most), (most, 1), (1_000, most), (most, -1), (-1, most)] {
        let (mut follow, _) = begun("follow: apply, band: 100%");
        for round in 1..=4 {
            let count = |share: i64| Count { packets: packets / 4 * share, bytes: bytes / 4 * share };
            let counters: BTreeMap<Counter, Count> =
                [Counter::Admitted, Counter::Trimmed, Counter::TrimDropped]
                    .map(|counter| (counter, count(round)))
                    .into();
            let queue = |queue: u8| ((1, queue), QueueCounters { counts: counters.clone(), waiting: None });
            let read = Counters { queues: [5, 4, 3, 2].map(queue).into(), ..Counters::default() };
            let now = EVERY * round.unsigned_abs();
            follow.handle_counters(now, "s1", &read);
            follow.handle_timeout(now, true);
        }
        let _ = measured(&serde_json::to_string(&follow.told()).unwrap(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever switches count: thresholds stay in order and within the band, and nothing panics.
    #[test]
    fn any_counters_leave_thresholds_in_order_and_within_the_band(
        rounds in proptest::collection::vec(
            (any::<[u32; 4]>(), any::<[u16; 4]>(), any::<u16>(), 1_u64..2 * EVERY, any::<bool>()),
            1..8,
        ),
    ) {
        let (mut follow, mut counted) = begun("follow: apply, band: 100%");
        for (offered, refused, dropped, time, restarts) in rounds {
            counted.now += time;
            if restarts {
                counted = Counted { now: counted.now, ..Counted::default() };
            }
            for class in 0..4 {
                counted.refused[class] += u64::from(refused[class]);
                counted.offered[class] += u64::from(offered[class]) + u64::from(refused[class]);
            }
            counted.trim_dropped += u64::from(dropped);
            counted.tell(&mut follow);
            let now = follow.policies();
            let file = fabric("");
            let (now, file) = (&now["s1"][&1], &file.policies["s1"][&1]);
            for ((_, now), (_, file)) in thresholds(now, &QueuePlan::default()).into_iter()
                .zip(thresholds(file, &QueuePlan::default()))
            {
                prop_assert!(now / 2 <= file && file / 2 <= now + 1, "{file} becomes {now}");
            }
            for values in now.queues.values().flatten() {
                let QueuePolicy { mark_at, shallow_at, deep_at, drop_at, .. } = *values;
                prop_assert!(mark_at <= shallow_at && shallow_at <= deep_at && deep_at <= drop_at);
            }
        }
    }
}
