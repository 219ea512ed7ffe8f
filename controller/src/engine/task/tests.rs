// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;

use super::*;
use crate::engine::status::Drift;
use crate::reconcile::Operation;
use crate::report::{ChangeReport, Counts, PipelineState, Refusal};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// A task and a virtual clock.
struct Bench {
    task: SwitchTask,
    now: u64,
}

impl Bench {
    fn new() -> Self {
        Self { task: SwitchTask::new("s1", 5, 5 * S, 0, 0), now: 0 }
    }

    fn event(&mut self, event: Event) -> Vec<Action> {
        self.task.handle_event(self.now, event);
        self.actions()
    }

    /// Lets time pass until the task wants to be called.
    fn wait(&mut self) -> Vec<Action> {
        let at = self.task.poll_timeout().expect("waits for something else than time");
        assert!(at >= self.now);
        self.now = at;
        self.task.handle_timeout(at);
        self.actions()
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.task.poll_action()).collect()
    }

    fn notices(&mut self) -> Vec<Notice> {
        std::iter::from_fn(|| self.task.poll_notice()).collect()
    }

    /// Connected, primary, in place.
    fn in_place() -> Self {
        let mut bench = Self::new();
        assert_eq!(bench.wait(), [Action::Connect(5)]);
        assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), [Action::Reconcile]);
        assert_eq!(bench.event(reconciled(good(40, 0, 0))), []);
        assert_eq!(bench.notices(), [Notice::Up(Standing::Primary), Notice::InPlace(40)]);
        bench
    }
}

fn good(inserted: usize, modified: usize, deleted: usize) -> SwitchReport {
    let mut report = SwitchReport::new("s1", "127.0.0.1:1");
    report.pipeline_before = PipelineState::Same;
    report.written = Counts { inserted, modified, deleted };
    report.in_place = Some(40);
    report.remaining = Some(Vec::new());
    report
}

fn reconciled(report: SwitchReport) -> Event {
    Event::Reconciled(Box::new(report), Loss::None)
}

fn backup(highest: u128, primary_exists: bool) -> Standing {
    Standing::Backup { highest: Some(highest), primary_exists }
}

#[test]
fn a_primary_looks_again_after_an_interval_and_says_nothing_while_all_is_well() {
    let mut bench = Bench::in_place();
    for _ in 0..20 {
        let before = bench.now;
        assert_eq!(bench.wait(), [Action::Reconcile]);
        let rested = bench.now - before;
        assert!((5 * S - 5 * S / 8..=5 * S).contains(&rested), "{rested}");
        bench.event(reconciled(good(0, 0, 0)));
    }
    assert_eq!(bench.notices(), []);
    assert_eq!((bench.task.tally().succeeded, bench.task.tally().drift.len()), (21, 0));
    assert_eq!((bench.task.failures(), bench.task.in_place()), (0, Some(true)));
}

#[test]
fn drift_is_told_by_kind_and_bringing_up_is_none() {
    let mut bench = Bench::in_place();
    bench.wait();
    bench.event(reconciled(good(1, 2, 3)));
    let kinds = BTreeMap::from([(Drift::Missing, 1), (Drift::Changed, 2), (Drift::Foreign, 3)]);
    assert_eq!(bench.notices(), [Notice::Repaired(kinds.clone(), Vec::new())]);
    assert_eq!(bench.task.tally().drift, kinds);
}

#[test]
fn a_restart_counts_as_one_and_its_missing_entries_do_not() {
    let mut bench = Bench::in_place();
    assert_eq!(bench.event(Event::Lost("gone".into())), [Action::Disconnect]);
    assert!(!bench.task.is_up());
    assert_eq!(bench.wait(), [Action::Connect(5)]);
    assert!(bench.now < S, "stream loss is answered at once: {}", bench.now);
    bench.event(Event::Arbitrated(Standing::Primary));
    let mut report = good(40, 0, 0);
    (report.pipeline_before, report.pipeline_pushed) = (PipelineState::Absent, true);
    bench.event(reconciled(report.clone()));
    assert_eq!(bench.task.tally().drift, BTreeMap::from([(Drift::Restarted, 1)]));
    report.pipeline_before = PipelineState::Different { cookie: 7 };
    bench.wait();
    bench.event(reconciled(report));
    assert_eq!(bench.task.tally().drift, BTreeMap::from([(Drift::Restarted, 1), (Drift::Pipeline, 1)]));
}

/// Routes change while a switch is away, and again while it is brought in place, since others fail
/// and come back at the same time.
#[test]
fn a_restart_counts_when_routes_change_meanwhile_and_the_routes_that_differ_do_not() {
    for restarted in [true, false] {
        let mut bench = Bench::in_place();
        bench.event(Event::Lost("gone".into()));
        bench.event(Event::Detoured);
        bench.wait();
        bench.event(Event::Arbitrated(Standing::Primary));
        assert_eq!(bench.event(Event::Detoured), []);
        let mut report = good(7, 2, 1);
        if restarted {
            (report.pipeline_before, report.pipeline_pushed) = (PipelineState::Absent, true);
        }
        assert_eq!(bench.event(reconciled(report)), [Action::Reconcile]);
        assert_eq!(bench.task.in_place(), Some(false), "other routes are wanted by now");
        bench.event(reconciled(good(3, 0, 0)));
        let expected = restarted.then_some((Drift::Restarted, 1)).into_iter().collect();
        assert_eq!((bench.task.in_place(), &bench.task.tally().drift), (Some(true), &expected));
    }
}

#[test]
fn attempts_at_a_dead_switch_come_less_and_less_often_and_start_anew_after_a_success() {
    let mut bench = Bench::new();
    let mut waits = Vec::new();
    for _ in 0..12 {
        let before = bench.now;
        assert_eq!(bench.wait(), [Action::Connect(5)]);
        waits.push(bench.now - before);
        assert_eq!(bench.event(Event::Lost("refused".into())), [Action::Disconnect]);
    }
    assert_eq!(waits[0], 0);
    assert!(waits[1] <= 200 * MS && waits[11] >= 15 * S && waits[11] <= 30 * S, "{waits:?}");
    assert_eq!(bench.task.failures(), 12);
    bench.wait();
    bench.event(Event::Arbitrated(Standing::Primary));
    bench.event(reconciled(good(1, 0, 0)));
    assert_eq!(bench.task.failures(), 0);
}

#[test]
fn a_demoted_primary_drops_what_it_is_writing_before_anything_else() {
    let mut bench = Bench::in_place();
    bench.wait();
    assert_eq!(bench.event(Event::Arbitrated(backup(9, true))), [Action::Abandon, Action::Compare]);
    assert!(!bench.task.is_primary());
    // The end of what was dropped, had it come first, changes nothing.
    bench.event(reconciled(good(1, 1, 1)));
    assert_eq!(bench.task.tally().drift, BTreeMap::new());
}

#[test]
fn a_backup_looks_without_writing_and_bids_higher_once_nobody_is_primary() {
    let mut bench = Bench::in_place();
    bench.event(Event::Arbitrated(backup(9, true)));
    bench.event(Event::Compared(Ok(Comparison { differing: 3, program: true }), Loss::None));
    assert_eq!(bench.task.in_place(), Some(false));
    for _ in 0..3 {
        assert_eq!(bench.wait(), [Action::Compare]);
        bench.event(Event::Compared(Ok(Comparison { differing: 0, program: true }), Loss::None));
    }
    let before = bench.now;
    assert_eq!(bench.event(Event::Arbitrated(backup(9, false))), []);
    assert_eq!(bench.wait(), [Action::Disconnect, Action::Connect(10)]);
    assert!(bench.now - before <= 400 * MS);
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), [Action::Reconcile]);
    assert!(bench.task.is_primary());
}

#[test]
fn a_backup_that_is_told_to_be_primary_writes_at_once() {
    let mut bench = Bench::in_place();
    bench.event(Event::Arbitrated(backup(9, true)));
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), [Action::Abandon, Action::Reconcile]);
}

#[test]
fn a_bid_that_somebody_else_made_first_is_taken_back() {
    let mut bench = Bench::in_place();
    bench.event(Event::Arbitrated(backup(9, false)));
    bench.wait();
    bench.event(Event::Lost("election id 10 is already used".into()));
    assert_eq!(bench.wait(), [Action::Connect(5)]);
}

#[test]
fn two_backups_do_not_bid_at_the_same_moment() {
    let wait = |election_id| {
        let mut task = SwitchTask::new("s1", election_id, 5 * S, 0, 0);
        task.handle_timeout(0);
        task.handle_event(0, Event::Arbitrated(backup(99, false)));
        task.poll_timeout()
    };
    let waits: std::collections::BTreeSet<_> = (1..=8).map(wait).collect();
    assert_eq!(waits.len(), 8);
}

#[test]
fn the_highest_election_id_of_all_is_not_outbid() {
    let mut bench = Bench::new();
    bench.wait();
    bench.event(Event::Arbitrated(backup(u128::MAX, false)));
    bench.event(Event::Compared(Ok(Comparison { differing: 0, program: true }), Loss::None));
    for _ in 0..5 {
        let actions = bench.wait();
        assert!(actions.iter().all(|action| *action == Action::Compare), "{actions:?}");
        bench.event(Event::Compared(Ok(Comparison { differing: 0, program: true }), Loss::None));
    }
}

#[test]
fn refused_updates_are_tried_again_with_back_off_on_the_same_connection() {
    let mut bench = Bench::in_place();
    let change = ChangeReport {
        operation: Operation::Insert,
        entity: "Ingress.ipv4_route{}".into(),
        before: String::new(),
        purpose: "h1".into(),
        table: "Ingress.ipv4_route".into(),
        parameters: Vec::new(),
    };
    let mut waits = Vec::new();
    for _ in 0..4 {
        let before = bench.now;
        assert_eq!(bench.wait(), [Action::Reconcile]);
        waits.push(bench.now - before);
        let mut report = good(0, 0, 0);
        report.refused = vec![Refusal { change: change.clone(), error: "RESOURCE_EXHAUSTED".into() }];
        report.remaining = Some(vec![change.clone()]);
        assert_eq!(bench.event(reconciled(report)), []);
        assert!(bench.task.is_up());
    }
    assert!(waits[1] < waits[2] && waits[2] < waits[3], "{waits:?}");
    assert_eq!((bench.task.tally().refused, bench.task.tally().failed), (4, 4));
    let notices = bench.notices();
    assert!(
        matches!(&notices[0], Notice::Failed(reason, _) if reason.contains("RESOURCE_EXHAUSTED")),
        "{notices:?}"
    );
}

#[test]
fn another_fabric_is_written_at_once_or_right_after_what_is_being_written() {
    let mut bench = Bench::in_place();
    assert_eq!(bench.event(Event::FabricChanged), [Action::Reconcile]);
    assert_eq!(bench.event(Event::FabricChanged), []);
    assert_eq!(bench.event(reconciled(good(2, 0, 0))), [Action::Reconcile]);
    assert_eq!(bench.event(reconciled(good(3, 0, 1))), []);
    assert_eq!(bench.notices(), [Notice::InPlace(4)]);
    assert_eq!(bench.task.tally().drift, BTreeMap::new(), "what was asked for is no drift");
}

#[test]
fn a_lost_connection_during_a_pass_leads_to_a_new_one() {
    let mut bench = Bench::in_place();
    bench.wait();
    let mut report = good(0, 0, 0);
    report.error = Some("no answer".into());
    let actions = bench.event(Event::Reconciled(Box::new(report), Loss::Connection));
    assert!(actions.contains(&Action::Disconnect), "{actions:?}");
    assert_eq!(bench.wait(), [Action::Connect(5)]);
}

#[test]
fn the_end_drops_everything_and_nothing_comes_after_it() {
    let mut bench = Bench::in_place();
    bench.wait();
    assert_eq!(bench.event(Event::Stop), [Action::Abandon, Action::Disconnect]);
    assert!(bench.task.is_stopped());
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), []);
    assert_eq!(bench.event(Event::Lost("gone".into())), []);
    assert_eq!(bench.task.poll_timeout(), None);
}

#[test]
fn between_two_audits_a_switch_that_is_in_place_has_only_its_counters_read() {
    let mut bench = Bench { task: SwitchTask::new("s1", 5, 5 * S, 60 * S, 0), now: 0 };
    assert_eq!(bench.wait(), [Action::Connect(5)]);
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), [Action::Reconcile]);
    assert_eq!(bench.event(reconciled(good(40, 0, 0))), []);
    let mut read = 0;
    let audited = loop {
        match bench.wait().as_slice() {
            [Action::ReadCounters] => read += 1,
            [Action::Reconcile] => break bench.now,
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.event(Event::CountersRead(Ok(true), Loss::None)), []);
    };
    assert!((9..=14).contains(&read) && (52 * S..=65 * S).contains(&audited), "{read} {audited}");
    assert_eq!(bench.event(reconciled(good(0, 0, 0))), []);

    // Restarted between two audits: no waiting for the next.
    assert_eq!(bench.wait(), [Action::ReadCounters]);
    assert_eq!(bench.event(Event::CountersRead(Ok(false), Loss::None)), [Action::Reconcile]);
    assert_eq!(bench.event(reconciled(good(0, 0, 0))), []);
    // So with another file, while its counters are read.
    assert_eq!(bench.wait(), [Action::ReadCounters]);
    assert_eq!(bench.event(Event::FabricChanged), []);
    assert_eq!(bench.event(Event::CountersRead(Ok(true), Loss::None)), [Action::Reconcile]);
    assert_eq!(bench.event(reconciled(good(0, 1, 0))), []);
    // Somebody else was primary: what he wrote is looked for at once.
    let backup = Standing::Backup { highest: Some(9), primary_exists: true };
    assert_eq!(bench.event(Event::Arbitrated(backup)), [Action::Compare]);
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), [Action::Abandon, Action::Reconcile]);
}

#[test]
fn while_another_controller_leads_the_fabric_nothing_is_written_and_nobody_bids() {
    let mut bench = Bench::in_place();
    assert_eq!(bench.event(Event::Leads(false)), []);
    assert_eq!(bench.wait(), [Action::Compare], "it is the switch's primary, and compares");
    bench.event(Event::Compared(Ok(Comparison { differing: 3, program: true }), Loss::None));
    assert_eq!(bench.event(Event::FabricChanged), []);
    assert_eq!(bench.wait(), [Action::Compare]);
    assert_eq!(bench.event(Event::Leads(true)), [Action::Abandon, Action::Reconcile]);
    assert_eq!(bench.event(Event::Leads(false)), [Action::Abandon], "in the middle of a pass");
    // The switch comes back, and takes us for its primary.
    bench.event(Event::Lost("gone".into()));
    assert_eq!(bench.wait(), [Action::Connect(5)]);
    assert_eq!(bench.event(Event::Arbitrated(Standing::Primary)), []);
    assert_eq!(bench.wait(), [Action::Compare]);
    assert_eq!(bench.event(Event::Arbitrated(backup(7, false))), [Action::Abandon, Action::Compare]);
    bench.event(Event::Compared(Ok(Comparison { differing: 0, program: true }), Loss::None));
    assert_eq!(bench.wait(), [Action::Compare], "nobody is primary, and it is not for us to be");
    let before = bench.now;
    assert_eq!(bench.event(Event::Leads(true)), []);
    assert_eq!(bench.wait(), [Action::Abandon, Action::Disconnect, Action::Connect(8)]);
    assert!(bench.now - before <= GRACE_NS.1);
}

#[test]
fn another_primary_has_another_file_when_its_switch_differs_for_as_long_as_an_audit() {
    let mut task = SwitchTask::new("s1", 5, S, 60 * S, 0);
    let compared = |differing| Event::Compared(Ok(Comparison { differing, program: true }), Loss::None);
    let theirs = |agrees| View::Theirs { id: Some(9), agrees };
    assert_eq!(task.view(0), View::Unreached);
    task.handle_timeout(0);
    task.handle_event(0, Event::Arbitrated(backup(9, true)));
    assert_eq!(task.view(0), theirs(None));
    task.handle_event(S, compared(3));
    assert_eq!((task.view(S), task.view(60 * S)), (theirs(None), theirs(None)), "it may be at work");
    assert_eq!(task.view(61 * S), theirs(Some(false)));
    task.handle_timeout(62 * S);
    task.handle_event(62 * S, compared(0));
    assert_eq!(task.view(200 * S), theirs(Some(true)));
    task.handle_event(200 * S, Event::Arbitrated(backup(9, false)));
    assert_eq!(task.view(200 * S), View::Vacant);
}

#[test]
fn a_switch_with_another_program_keeps_it_until_its_turn_and_has_its_routes_meanwhile() {
    let waits = |outcome| Event::Waits(outcome, Loss::None);
    let mut bench = Bench::in_place();
    bench.event(Event::FabricChanged);
    assert_eq!(bench.task.runs(), Runs::Unknown);
    assert_eq!(bench.event(waits(Ok(()))), []);
    assert_eq!(
        (bench.task.runs(), bench.task.in_place(), bench.task.failures()),
        (Runs::Another, Some(false), 0)
    );
    assert_eq!(bench.notices(), [Notice::Waits]);
    // Other routes; and a comparison now and then, of which nothing is told.
    assert_eq!(bench.event(Event::Detoured), [Action::Reconcile]);
    assert_eq!(bench.event(waits(Err("no room".into()))), []);
    assert_eq!((bench.task.runs(), bench.task.failure()), (Runs::Another, Some("no room")));
    assert_eq!(bench.wait(), [Action::Reconcile]);
    assert_eq!(bench.event(waits(Ok(()))), []);
    assert!(matches!(bench.notices().as_slice(), [Notice::Failed(..)]));
    assert_eq!(bench.task.failure(), None);

    assert_eq!(bench.event(Event::MayReplace), [Action::Reconcile]);
    let mut report = good(40, 0, 0);
    (report.pipeline_before, report.pipeline_pushed) = (PipelineState::Different { cookie: 7 }, true);
    assert_eq!(bench.event(reconciled(report)), []);
    assert_eq!((bench.task.runs(), bench.task.in_place()), (Runs::Wanted, Some(true)));
    assert_eq!(bench.notices(), [Notice::InPlace(40)]);
    assert_eq!(bench.task.tally().drift, BTreeMap::new(), "another file's program is no drift");
}

#[test]
fn a_pass_is_done_again_for_detours_that_it_did_not_know_and_for_no_others() {
    for knew in [true, false] {
        let mut bench = Bench::in_place();
        assert_eq!(bench.wait(), [Action::Reconcile]);
        assert_eq!(bench.event(Event::Detoured), []);
        if knew {
            bench.event(Event::KnewDetours);
        }
        let again: &[Action] = if knew { &[] } else { &[Action::Reconcile] };
        assert_eq!(bench.event(reconciled(good(0, 0, 0))), again);
        assert_eq!(bench.task.in_place(), Some(knew));
    }
}

#[test]
fn a_turn_that_comes_in_the_middle_of_a_pass_is_taken_right_after_it() {
    let mut bench = Bench::in_place();
    bench.event(Event::FabricChanged);
    assert_eq!(bench.event(Event::MayReplace), []);
    assert_eq!(bench.event(Event::Waits(Ok(()), Loss::None)), [Action::Reconcile]);
    assert_eq!(bench.event(Event::Leads(false)), [Action::Abandon]);
    assert_eq!(bench.event(Event::MayReplace), [], "and not by who does not lead");
}

#[test]
fn a_program_that_somebody_else_pushed_is_drift_once_it_is_replaced() {
    let mut bench = Bench::in_place();
    bench.wait();
    assert_eq!(bench.event(Event::Waits(Ok(()), Loss::None)), []);
    assert_eq!(bench.event(Event::MayReplace), [Action::Reconcile]);
    let mut report = good(40, 0, 0);
    (report.pipeline_before, report.pipeline_pushed) = (PipelineState::Different { cookie: 7 }, true);
    bench.event(reconciled(report));
    assert_eq!(bench.task.tally().drift, BTreeMap::from([(Drift::Pipeline, 1)]));
}
