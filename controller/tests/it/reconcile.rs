// SPDX-License-Identifier: Apache-2.0
//! `apply` and `plan` against a model switch that keeps P4Runtime's rules and misbehaves on demand.

use crate::programs;
use std::fmt::Write as _;
use std::time::Duration;

use crate::model::Model;
use trimwire_controller::report::PipelineState;
use trimwire_controller::{Artifacts, Fabric, Operation, Options, Report, apply, plan};
use trimwire_p4runtime::entity::{EntityKey, TableEntryBuilder};
use trimwire_p4runtime::v1::Entity;

/// A chain of switches, one host each.
fn yaml(addresses: &[String]) -> String {
    let mut text = "version: 1\ncontroller: { timeout: 2s, batch: 8 }\nswitches:\n".to_owned();
    for (number, address) in addresses.iter().enumerate() {
        let _ = writeln!(text, "  s{number}: {{ address: {address}, device_id: {} }}", number + 1);
    }
    text.push_str("hosts:\n");
    for number in 0..addresses.len() {
        let _ = writeln!(
            text,
            "  h{number}: {{ ip: 10.0.0.{}, mac: \"02:00:00:00:00:{number:02x}\" }}",
            number + 1
        );
    }
    text.push_str("links:\n");
    for number in 0..addresses.len() {
        let _ = writeln!(text, "  - {{ a: h{number}, b: \"s{number}:1\", speed: 10Gbps }}");
        if number > 0 {
            // Two parallel links, so that there are groups.
            for port in [2, 3] {
                let _ = writeln!(
                    text,
                    "  - {{ a: \"s{}:{}\", b: \"s{number}:{port}\", speed: 10Gbps }}",
                    number - 1,
                    port + 2
                );
            }
        }
    }
    text
}

async fn models(count: usize) -> (Vec<Model>, Fabric) {
    let mut models = Vec::new();
    for _ in 0..count {
        models.push(Model::start().await);
    }
    let addresses: Vec<String> = models.iter().map(|model| model.address.to_string()).collect();
    let fabric = Fabric::from_yaml(&yaml(&addresses), "fabric.yaml").unwrap();
    (models, fabric)
}

async fn applied(fabric: &Fabric) -> Report {
    apply(fabric, &Artifacts::embedded().unwrap(), &Options::default()).await.unwrap()
}

#[tokio::test]
async fn apply_brings_empty_switches_up_and_a_second_one_writes_nothing() {
    let (models, fabric) = models(3).await;
    let first = applied(&fabric).await;
    assert!(first.is_ok(), "{first}");
    assert!(
        first.switches.iter().all(|switch| switch.pipeline_pushed && switch.written.inserted > 50),
        "{first}"
    );
    for model in &models {
        let state = model.state();
        assert!(state.writes.iter().all(|updates| *updates <= 8), "{:?}", state.writes);
    }
    let writes = |models: &[Model]| models.iter().map(|model| model.state().writes.len()).collect::<Vec<_>>();
    let before = writes(&models);

    let second = applied(&fabric).await;
    assert!(second.is_ok(), "{second}");
    assert_eq!(second.written(), 0);
    assert!(second.switches.iter().all(|switch| !switch.pipeline_pushed));
    assert_eq!(writes(&models), before);
    assert!(models.iter().all(|model| model.state().pushes == 1));
}

#[tokio::test]
async fn plan_shows_what_apply_does_without_a_bid_and_is_empty_afterwards() {
    let (models, fabric) = models(2).await;
    let artifacts = Artifacts::embedded().unwrap();
    let before = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(before.switches.iter().all(|switch| switch.pipeline == PipelineState::Absent), "{before}");
    let planned: usize = before.switches.iter().map(|switch| switch.changes.len()).sum();
    for model in &models {
        let state = model.state();
        assert_eq!((state.streams, state.pushes, state.writes.len()), (0, 0, 0), "plan touches nothing");
    }
    let report = applied(&fabric).await;
    assert_eq!(report.written(), planned);
    let after = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(after.is_empty(), "{after}");
    assert!(after.to_string().ends_with("0 of 2 switches would change; nothing was changed"));
}

#[tokio::test]
async fn foreign_entries_go_and_changed_ones_are_repaired_each_by_one_write() {
    let (models, fabric) = models(1).await;
    assert!(applied(&fabric).await.is_ok());
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let route = |ip: [u8; 4], member| -> Entity {
        let entry =
            TableEntryBuilder::new(index, "Ingress.ipv4_route").lpm("dst_addr", ip, 32).member(member);
        entry.build().unwrap().into()
    };
    let (foreign, broken, default) = (
        route([10, 9, 9, 9], 2),
        TableEntryBuilder::new(index, "Ingress.classify").exact("dscp", 3_u8).action("Ingress.set_plain"),
        TableEntryBuilder::default_entry(index, "Ingress.classify").action("Ingress.set_plain"),
    );
    let broken: Entity = broken.param("queue", 1_u8).build().unwrap().into();
    let default: Entity = default.param("queue", 4_u8).build().unwrap().into();
    for entity in [foreign, broken, default] {
        models[0].state().entities.insert(EntityKey::of(&entity).unwrap(), entity);
    }
    let plan = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    let words = plan.switches[0].to_string();
    for expected in [
        "- Ingress.ipv4_route{dst_addr=10.9.9.9/32} -> member 2  # foreign",
        "~ Ingress.classify{dscp=3} -> Ingress.set_trimmable(queue=5) (was Ingress.set_plain(queue=1))  # trimmable class 0",
        "(was Ingress.set_plain(queue=4))  # best effort",
        "3 changes",
    ] {
        assert!(words.contains(expected), "{expected}\n{words}");
    }
    let report = applied(&fabric).await;
    assert!(report.is_ok(), "{report}");
    let written = report.switches[0].written;
    assert_eq!((written.inserted, written.modified, written.deleted), (0, 2, 1));
}

#[tokio::test]
async fn a_refused_update_is_named_and_the_others_are_in_place() {
    let (models, fabric) = models(1).await;
    models[0].state().refuse = Some("{dscp=35}".to_owned());
    let report = applied(&fabric).await;
    assert!(!report.is_ok());
    let words = report.to_string();
    for expected in [
        "FAILED: pipeline pushed",
        "refused: + Ingress.classify{dscp=35} -> Ingress.set_trimmed(queue=6)  # trimmed: RESOURCE_EXHAUSTED: no room",
        "not in place: 1\n  running apply again continues from here",
        "0 of 1 switches in place",
    ] {
        assert!(words.contains(expected), "{expected}\n{words}");
    }
    models[0].state().refuse = None;
    let again = applied(&fabric).await;
    assert!(again.is_ok(), "{again}");
    assert_eq!(again.written(), 1);
}

#[tokio::test]
async fn a_switch_that_goes_away_mid_run_is_told_from_the_others_and_continued_later() {
    let (models, fabric) = models(3).await;
    models[1].state().die_after = Some(3);
    let report = applied(&fabric).await;
    let verdicts: Vec<bool> =
        report.switches.iter().map(trimwire_controller::report::SwitchReport::is_ok).collect();
    assert_eq!(verdicts, [true, false, true], "{report}");
    let error = report.switches[1].error.clone().unwrap();
    assert!(error.contains(&models[1].address.to_string()) && error.contains("power failure"), "{error}");
    let written = report.switches[1].written.total();
    let remaining = report.switches[1].remaining.as_ref().unwrap();
    assert!(written > 0 && !remaining.is_empty(), "{report}");
    assert!(remaining.iter().all(|change| change.operation != Operation::Delete));

    models[1].state().die_after = None;
    let again = applied(&fabric).await;
    assert!(again.is_ok(), "{again}");
    assert_eq!(again.written(), remaining.len());
}

#[tokio::test]
async fn a_dead_and_a_silent_switch_are_named_and_hold_up_nobody() {
    let (models, _) = models(1).await;
    // Bound but never accepting at gRPC level; and a port that nobody listens on.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let addresses =
        [dead.to_string(), models[0].address.to_string(), silent.local_addr().unwrap().to_string()];
    let text = yaml(&addresses).replace("timeout: 2s", "timeout: 500ms");
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    let report = tokio::time::timeout(Duration::from_secs(20), applied(&fabric)).await.unwrap();
    assert!(report.switches[1].is_ok(), "{report}");
    for (number, address) in [(0, &addresses[0]), (2, &addresses[2])] {
        let switch = &report.switches[number];
        assert!(switch.error.as_ref().unwrap().contains(address), "{switch}");
        assert!(switch.to_string().contains("what is in place is unknown"), "{switch}");
    }
}

#[tokio::test]
async fn a_lower_election_id_changes_nothing_and_a_higher_one_takes_over() {
    use trimwire_p4runtime::client::{Arbitration, Client, Role};
    let (models, fabric) = models(1).await;
    let mut other = Client::connect(&models[0].address.to_string()).await.unwrap();
    assert!(matches!(other.arbitrate(1, 7, Role::default()).await.unwrap(), Arbitration::Primary { .. }));
    let report = applied(&fabric).await;
    let error = report.switches[0].error.clone().unwrap();
    assert_eq!(
        error,
        format!(
            "switch {}: another controller is primary with election id 7; ours is 1. Nothing was changed. To take over: \
             --election-id 8",
            models[0].address
        )
    );
    assert_eq!(models[0].state().pushes, 0);
    let artifacts = Artifacts::embedded().unwrap();
    let report =
        apply(&fabric, &artifacts, &Options { election_id: Some(8), ..Options::default() }).await.unwrap();
    assert!(report.is_ok(), "{report}");
}

#[tokio::test]
async fn another_program_is_replaced_and_the_plan_says_so() {
    let (models, fabric) = models(1).await;
    assert!(applied(&fabric).await.is_ok());
    let artifacts = Artifacts::embedded().unwrap();
    let mut json = artifacts.device_config().to_vec();
    json.push(b' ');
    let other = Artifacts::new(artifacts.p4info().to_text().as_bytes(), json).unwrap();
    let plan = plan(&fabric, &other, &Options::default()).await.unwrap();
    let expected = format!("push the pipeline (it runs: another, cookie {:#018x})", artifacts.cookie());
    assert!(plan.to_string().contains(&expected), "{plan}");
    let report = apply(&fabric, &other, &Options::default()).await.unwrap();
    assert!(report.is_ok() && report.switches[0].pipeline_pushed, "{report}");
    assert_eq!(models[0].state().pushes, 2);
}

#[tokio::test]
async fn a_thousand_places_are_not_needed_for_forty_switches() {
    let (_models, mut fabric) = models(40).await;
    fabric.controller.concurrency = 3;
    let report = applied(&fabric).await;
    assert!(report.is_ok(), "{report}");
    assert_eq!(report.switches.len(), 40);
}

/// Tofino's kinds of entities over the wire: meters, which are always there, and mirror sessions,
/// of which some are ours.
#[tokio::test]
async fn meters_and_mirror_sessions_are_written_once_and_repaired_and_others_are_left_alone() {
    use trimwire_p4runtime::entity;
    use trimwire_p4runtime::v1::{CloneSessionEntry, MeterConfig};

    let model = Model::start().await;
    model.state().rounds_meters = true;
    let folder = tempfile::tempdir().unwrap();
    let files = programs::pipeline("stratum-tofino", folder.path());
    let text = format!(
        "version: 1
switches: {{ s1: {{ address: \"{}\", device_id: 1, target: stratum-tofino, pipeline: {files} }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links: [{{ a: h1, b: \"s1:132\", speed: 100Gbps }}, {{ a: h2, b: \"s1:140\", speed: 100Gbps }}]
",
        model.address
    );
    let (fabric, artifacts) = programs::read(&text, folder.path());
    let options = Options::default();
    let first = apply(&fabric, &artifacts, &options).await.unwrap();
    assert!(first.is_ok(), "{first}");
    let config = model.state().config.clone().unwrap();
    assert!(config.p4_device_config.starts_with(b"\x0a\x08trimwire"), "Stratum's message");
    let second = apply(&fabric, &artifacts, &options).await.unwrap();
    assert!(second.is_ok() && second.written() == 0 && !second.switches[0].pipeline_pushed, "{second}");
    assert!(plan(&fabric, &artifacts, &options).await.unwrap().is_empty());

    let index = artifacts.of("s1").index();
    let session =
        |session_id| -> Entity { CloneSessionEntry { session_id, ..CloneSessionEntry::default() }.into() };
    let meter = |cell: i64, cir: i64| -> Entity {
        let mut meter = entity::meter(index, "Ingress.virtual_queue_low", Some(cell)).unwrap();
        meter.config = Some(MeterConfig { cir, pir: cir, ..MeterConfig::default() });
        meter.into()
    };
    // Ours by id but nobody's; somebody else's; a cell that no port uses; one of ours, changed.
    for entity in [session(7), session(1000), meter(9, 1000), meter(132 * 8 + 5, 1000)] {
        model.state().entities.insert(EntityKey::of(&entity).unwrap(), entity);
    }
    let words = plan(&fabric, &artifacts, &options).await.unwrap().switches[0].to_string();
    for expected in [
        "3 changes",
        "~ Ingress.virtual_queue_low[1061] cir 12250000000 ",
        "- Ingress.virtual_queue_low[9] cir 1000 ",
        "- clone session 7 ",
    ] {
        assert!(words.contains(expected), "{expected}\n{words}");
    }
    let repaired = apply(&fabric, &artifacts, &options).await.unwrap();
    assert!(repaired.is_ok(), "{repaired}");
    assert_eq!(repaired.switches[0].written.total(), 3);
    assert!(model.state().entities.contains_key(&EntityKey::of(&session(1000)).unwrap()));
}
