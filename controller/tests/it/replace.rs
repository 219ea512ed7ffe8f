// SPDX-License-Identifier: Apache-2.0
//! A new program, while packets come.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trimwire_controller::run::{Cause, Controller, Replacing, RunOptions, Status};
use trimwire_controller::watch::Watch;
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, Rollout, apply, plan, roll_out};
use trimwire_p4runtime::v1::Entity;
use trimwire_p4runtime::v1::entity::Entity as Kind;

use crate::counters::with_deflected;
use crate::model::Model;
use crate::run_support::{Embedded, delaying_proxy, eventually, frame, get, single};

/// The tables of the new program are written before it runs. Written afterwards, packets met a
/// program without routes for as long as that took.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_replaced_without_losing_a_packet() {
    let switch = Embedded::start(1);
    let slow = delaying_proxy(switch.address, Duration::from_millis(10)).await;
    let fabric = Fabric::from_yaml(&single(slow, "batch: 20, timeout: 20s"), "fabric.yaml").unwrap();
    let before = apply(&fabric, &with_deflected(), &Options::default()).await.unwrap();
    assert!(before.is_ok(), "{before}");
    let (fabric, artifacts) = (fabric.clone(), Artifacts::embedded().unwrap());
    let planned = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(planned.switches[0].to_string().contains("cookie"), "{planned}");
    let rollout = Rollout { settle: Duration::ZERO, ..Rollout::default() };
    let options = Options::default();
    let mut replacing = Box::pin(roll_out(&fabric, &artifacts, &options, &planned, rollout));
    let (mut now, mut sent) = (0, 0);
    let report = loop {
        tokio::select! {
            report = &mut replacing => break report.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                now = switch.forward(now, &[frame()]) + 1_000_000;
                sent += 1;
            }
        }
    };
    assert!(report.is_ok() && report.switches[0].pipeline_pushed, "{report}");
    let stats = switch.switch.lock().unwrap().stats();
    assert!(sent > 50, "it took a while: {sent}");
    assert_eq!((stats.received, stats.transmitted), (sent, sent));
}

/// Which port of which switch is at the other end of `(switch, port)`; switches in the order of
/// their names.
fn other_end((switch, port): (usize, u16)) -> Option<(usize, u16)> {
    let links = [((0, 1), (2, 1)), ((0, 2), (3, 1)), ((1, 1), (2, 2)), ((1, 2), (3, 2))];
    links.into_iter().find_map(|(a, b)| match (switch, port) {
        end if end == a => Some(b),
        end if end == b => Some(a),
        _ => None,
    })
}

/// A frame from h1 to h2 of the leaf–spine, of one of many flows.
fn flow(number: u16) -> Vec<u8> {
    let mut frame = frame();
    frame[26..34].copy_from_slice(&[10, 0, 1, 1, 10, 0, 2, 1]);
    frame[24..26].fill(0);
    let sum: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame[34..36].copy_from_slice(&(20_000 + number).to_be_bytes());
    frame
}

/// Takes a frame from h1 through the network; whether it came to h2.
fn comes_through(switches: &[Embedded; 4], now: u64, frame: Vec<u8>) -> bool {
    let mut next = Some((0, 3, frame));
    let mut now = now;
    while let Some((at, port, frame)) = next.take() {
        let mut switch = switches[at].switch.lock().unwrap();
        switch.handle_frame(now, port, &frame);
        let left = switch.poll_transmit().or_else(|| {
            now = switch.poll_timeout()?;
            switch.handle_timeout(now);
            switch.poll_transmit()
        });
        match left {
            Some(left) if (at, left.port) == (1, 3) => return true,
            Some(left) => {
                next = other_end((at, left.port)).map(|(at, port)| (at, port, left.frame));
            }
            None => {}
        }
    }
    false
}

/// The spines forward nothing from their new program until its tables are written, as BMv2 and
/// Stratum do.
fn blanking_spines(addresses: [std::net::SocketAddr; 4]) -> Fabric {
    let text = crate::failure::leaf_spine_text(addresses, "batch: 1, timeout: 20s");
    let text = text.replace("device_id: 3 }", "device_id: 3, target: bmv2 }");
    let text = text.replace("device_id: 4 }", "device_id: 4, target: bmv2 }");
    assert_eq!(text.matches("bmv2").count(), 2);
    Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_programs_of_a_leaf_spine_are_replaced_without_losing_a_packet_though_spines_go_blank() {
    let switches = crate::failure::start();
    let mut addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    for address in &mut addresses[2..] {
        *address = delaying_proxy(*address, Duration::from_millis(5)).await;
    }
    let fabric = blanking_spines(addresses);
    let options = Options::default();
    let before = apply(&fabric, &with_deflected(), &options).await.unwrap();
    assert!(before.is_ok(), "{before}");
    let artifacts = Artifacts::embedded().unwrap();
    let planned = plan(&fabric, &artifacts, &options).await.unwrap();
    let rollout = Rollout { settle: Duration::from_millis(40), ..Rollout::default() };
    let mut replacing = Box::pin(roll_out(&fabric, &artifacts, &options, &planned, rollout));
    let (mut now, mut sent, mut came) = (0, 0_u16, 0_u16);
    let report = loop {
        tokio::select! {
            report = &mut replacing => break report.unwrap(),
            () = tokio::time::sleep(Duration::from_millis(1)) => {
                now += 1_000_000;
                came += u16::from(comes_through(&switches, now, flow(sent)));
                sent += 1;
            }
        }
    };
    assert!(report.is_ok() && report.switches.iter().all(|switch| switch.pipeline_pushed), "{report}");
    assert!(sent > 100, "it took a while: {sent}");
    assert_eq!(came, sent);
    // And afterwards nothing is left of it.
    let after = plan(&fabric, &artifacts, &options).await.unwrap();
    assert!(after.switches.iter().all(|switch| !switch.changes()), "{after}");
    let shares: Vec<u64> =
        [2, 3].map(|at: usize| switches[at].switch.lock().unwrap().stats().received).to_vec();
    assert!(shares.iter().all(|share| *share > 0), "both spines are used: {shares:?}");
}

/// What fails while no route leads over it goes on leading none, and the next roll-out takes it
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spine_that_refuses_its_new_program_stays_out_of_routes_until_it_takes_it() {
    let mut models = Vec::new();
    for _ in 0..4 {
        models.push(Model::start().await);
    }
    let addresses = [0, 1, 2, 3].map(|at: usize| models[at].address);
    let fabric = blanking_spines(addresses);
    let options = Options::default();
    let artifacts = Artifacts::embedded().unwrap();
    assert!(apply(&fabric, &with_deflected(), &options).await.unwrap().is_ok());
    let groups = |at: usize| {
        let state = models[at].state();
        let is_group = |entity: &&Entity| matches!(entity.entity, Some(Kind::ActionProfileGroup(_)));
        state.entities.values().filter(is_group).count()
    };
    assert_eq!((groups(0), groups(1)), (1, 1), "both leaves have two ways");
    models[2].state().refuse = Some("{dscp=35}".to_owned());
    let rollout = Rollout { settle: Duration::ZERO, ..Rollout::default() };
    let planned = plan(&fabric, &artifacts, &options).await.unwrap();
    let report = roll_out(&fabric, &artifacts, &options, &planned, rollout).await.unwrap();
    let words = report.to_string();
    assert!(words.contains("routes leave it out until the next roll-out"), "{words}");
    assert!(words.contains("not begun, because of that: leaf1, leaf2, spine2"), "{words}");
    assert_eq!((groups(0), groups(1)), (0, 0));
    models[2].state().refuse = None;
    let planned = plan(&fabric, &artifacts, &options).await.unwrap();
    let report = roll_out(&fabric, &artifacts, &options, &planned, rollout).await.unwrap();
    assert!(report.is_ok(), "{report}");
    assert_eq!((groups(0), groups(1)), (1, 1));
}

/// Only a spine is meant: what other switches hold is led around it and back, and nothing else of
/// them is changed.
#[tokio::test]
async fn a_switch_that_is_not_meant_is_only_led_around_another_if_its_routes_are_the_files() {
    let mut models = Vec::new();
    for _ in 0..4 {
        models.push(Model::start().await);
    }
    let addresses = [0, 1, 2, 3].map(|at: usize| models[at].address);
    let fabric = blanking_spines(addresses);
    let artifacts = Artifacts::embedded().unwrap();
    assert!(apply(&fabric, &with_deflected(), &Options::default()).await.unwrap().is_ok());
    let only_spine = |fabric: Fabric| {
        let artifacts = artifacts.clone();
        async move {
            let options = Options { only: ["spine1".to_owned()].into(), ..Options::default() };
            let planned = plan(&fabric, &artifacts, &options).await.unwrap();
            let rollout = Rollout { settle: Duration::ZERO, ..Rollout::default() };
            roll_out(&fabric, &artifacts, &options, &planned, rollout).await.unwrap()
        }
    };
    let text = crate::failure::leaf_spine_text(addresses, "timeout: 20s").replace("10.0.2.1", "10.0.7.1");
    let text = text.replace("device_id: 3 }", "device_id: 3, target: bmv2 }");
    let report = only_spine(Fabric::from_yaml(&text, "other.yaml").unwrap()).await;
    let words = report.to_string();
    assert!(
        // Whichever leaf answers first.
        ["leaf1", "leaf2"].iter().any(|leaf| words.contains(&format!(
            "no routes around spine1: {leaf}: it is not among the switches that are meant"
        ))),
        "{words}"
    );
    assert_eq!(models[2].state().pushes, 1, "its program is the old one");
    let report = only_spine(fabric).await;
    assert!(report.is_ok() && report.switches.len() == 1, "{report}");
    assert_eq!([0, 1, 2, 3].map(|at: usize| models[at].state().pushes), [1, 1, 2, 1]);
}

/// A roll-out dies while it fills a spine: routes are left to lead around it, and nothing else
/// tells of it. The next one fills it before it leads routes around the other spine, and so over
/// this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_roll_out_that_was_cut_off_left_without_tables_gets_them_before_routes_lead_over_it() {
    let (models, fabric) = of_before().await;
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let rollout = Rollout { settle: Duration::ZERO, ..Rollout::default() };
    let count = |model: &Model| model.state().entities.len();
    let whole = count(&models[2]);
    let writes = models[2].state().writes.len();
    models[2].state().die_after = Some(writes);
    let planned = plan(&fabric, &artifacts, &options).await.unwrap();
    let report = roll_out(&fabric, &artifacts, &options, &planned, rollout).await.unwrap();
    assert!(!report.is_ok(), "{report}");
    assert_eq!((groups(&models[0]), groups(&models[1]), count(&models[2])), (0, 0, 0), "{report}");
    models[2].state().die_after = None;
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let (pushes, spine1) = (Arc::clone(&seen), models[2].clone());
    models[3].state().on_push =
        Some(Arc::new(move || pushes.lock().unwrap().push(spine1.state().entities.len())));
    let planned = plan(&fabric, &artifacts, &options).await.unwrap();
    let report = roll_out(&fabric, &artifacts, &options, &planned, rollout).await.unwrap();
    assert!(report.is_ok(), "{report}");
    assert_eq!(*seen.lock().unwrap(), [whole]);
    assert_eq!((groups(&models[0]), groups(&models[1])), (1, 1));
}

/// Leaves and spines in the order of their names, all with a program of before.
async fn of_before() -> (Vec<Model>, Fabric) {
    let mut models = Vec::new();
    for _ in 0..4 {
        models.push(Model::start().await);
    }
    let addresses = [0, 1, 2, 3].map(|at: usize| models[at].address);
    // Nothing happens because time passes.
    let text = crate::failure::leaf_spine_text(addresses, "timeout: 60s, interval: 60s");
    let text = text.replace("device_id: 3 }", "device_id: 3, target: bmv2 }");
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    assert!(apply(&fabric, &with_deflected(), &Options::default()).await.unwrap().is_ok());
    (models, fabric)
}

async fn running(fabric: &Fabric, artifacts: &Artifacts) -> Controller {
    let options = RunOptions {
        election_id: Some(2),
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
    };
    Controller::start(fabric, artifacts, &options).await.unwrap()
}

/// Groups of a switch: one where both spines lead on, and none where one does.
pub(crate) fn groups(model: &Model) -> usize {
    let state = model.state();
    state
        .entities
        .values()
        .filter(|entity| matches!(entity.entity, Some(Kind::ActionProfileGroup(_))))
        .count()
}

pub(crate) fn all_in_place(status: &Status) -> Result<(), String> {
    let in_place = status.switches.values().all(|switch| switch.in_place == Some(true));
    let is_over = status.replacing == Replacing::default() && status.faults.is_empty();
    if in_place && is_over { Ok(()) } else { Err(format!("{:?} {:?}", status.replacing, status.faults)) }
}

/// What both leaves hold is looked at in the moment in which a switch is given its program.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_replaces_one_program_at_a_time_and_no_route_leads_over_a_spine_meanwhile() {
    let (models, fabric) = of_before().await;
    let pushes = Arc::<Mutex<Vec<(usize, usize, usize)>>>::default();
    for (at, model) in models.iter().enumerate() {
        let (pushes, leaf1, leaf2) = (Arc::clone(&pushes), models[0].clone(), models[1].clone());
        model.state().on_push =
            Some(Arc::new(move || pushes.lock().unwrap().push((at, groups(&leaf1), groups(&leaf2)))));
    }
    let expected = [(2, 0, 0), (3, 0, 0), (0, 1, 1), (1, 1, 1)];
    // At its start, and when it is given another file.
    let mut controller = running(&fabric, &Artifacts::embedded().unwrap()).await;
    eventually("all have their program", || all_in_place(&controller.status())).await;
    assert_eq!(std::mem::take(&mut *pushes.lock().unwrap()), expected);
    controller.reload(&fabric, &with_deflected()).unwrap();
    controller.insist();
    eventually("all have another", || {
        all_in_place(&controller.status())?;
        let count = pushes.lock().unwrap().len();
        if count == 4 { Ok(()) } else { Err(format!("{count} of 4")) }
    })
    .await;
    assert_eq!(*pushes.lock().unwrap(), expected);
    assert_eq!((groups(&models[0]), groups(&models[1])), (1, 1));
    let status = controller.status();
    assert!(status.switches.values().all(|switch| switch.tally.drift.is_empty()), "{status:?}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_stops_at_a_spine_that_refuses_its_new_program_tells_of_it_and_goes_on_when_it_takes_it() {
    let (models, fabric) = of_before().await;
    models[2].state().refuse = Some("{dscp=35}".to_owned());
    let controller = running(&fabric, &Artifacts::embedded().unwrap()).await;
    let stopped = || controller.status().replacing.stopped;
    eventually("it stops", || stopped().map(drop).ok_or_else(|| "it goes on".to_owned())).await;
    let status = controller.status();
    let words = status.replacing.to_string();
    assert!(words.contains("spine1's turn, 3 more wait") && words.contains("RESOURCE_EXHAUSTED"), "{words}");
    let fault = &status.faults[0];
    assert_eq!((fault.switch.as_str(), fault.cause, status.faults.len()), ("spine1", Cause::Replaced, 1));
    assert_eq!((groups(&models[0]), groups(&models[1])), (0, 0), "routes leave it out");
    assert_eq!([0, 1, 3].map(|at: usize| models[at].state().pushes), [1, 1, 1], "the others keep theirs");
    let address = controller.metrics_address();
    let text = get(address.unwrap(), "/metrics").await;
    for line in ["trimwire_controller_programs_stopped 1", "trimwire_controller_programs_waiting 4"] {
        assert!(text.lines().any(|found| found == line), "no '{line}' in {text}");
    }
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let mut watching = Watch::new(&fabric, &artifacts, &options, Duration::from_secs(5), address);
    let table = watching.next().await.table(false);
    assert!(table.contains("spine1 out of routes, replaced: ") && table.contains(&words[..40]), "{table}");

    models[2].state().refuse = None;
    eventually("it takes it, and the others have their turn", || all_in_place(&controller.status())).await;
    assert_eq!([0, 1, 3].map(|at: usize| models[at].state().pushes), [2, 2, 2]);
    assert_eq!((groups(&models[0]), groups(&models[1])), (1, 1));
    controller.stop().await;
}

/// A `run` is killed while it fills a spine. Nothing tells the next one of it but the spine's
/// tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_started_after_one_was_killed_leads_no_route_over_the_switch_that_was_left_half_filled()
{
    let (models, fabric) = of_before().await;
    let artifacts = Artifacts::embedded().unwrap();
    let whole = models[2].state().entities.len();
    let writes = models[2].state().writes.len();
    models[2].state().die_after = Some(writes + 1);
    let killed = running(&fabric, &artifacts).await;
    eventually("it is cut off", || {
        let count = models[2].state().writes.len();
        if count == writes + 1 && models[2].state().pushes == 2 { Ok(()) } else { Err(format!("{count}")) }
    })
    .await;
    drop(killed);
    let left = models[2].state().entities.len();
    assert!(0 < left && left < whole && (groups(&models[0]), groups(&models[1])) == (0, 0), "{left}");

    let seen = Arc::<Mutex<Vec<(usize, usize)>>>::default();
    let (writes, leaf1, leaf2) = (Arc::clone(&seen), models[0].clone(), models[1].clone());
    models[2].state().on_write = Some(Arc::new(move || {
        // Long enough for others to write what they should not.
        std::thread::sleep(Duration::from_millis(300));
        writes.lock().unwrap().push((groups(&leaf1), groups(&leaf2)));
    }));
    models[2].state().die_after = None;
    let options = RunOptions {
        election_id: Some(3),
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
    };
    let controller = Controller::start(&fabric, &artifacts, &options).await.unwrap();
    eventually("it is told", || {
        let faults = controller.status().faults;
        let is_told =
            faults.iter().any(|fault| (fault.switch.as_str(), fault.cause) == ("spine1", Cause::Empty));
        if is_told { Ok(()) } else { Err(format!("{faults:?}")) }
    })
    .await;
    eventually("all have their program", || all_in_place(&controller.status())).await;
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    assert!(!seen.is_empty() && seen.iter().all(|seen| *seen == (0, 0)), "{seen:?}");
    assert_eq!((groups(&models[0]), groups(&models[1])), (1, 1), "and over it again at once");
    controller.stop().await;
}
