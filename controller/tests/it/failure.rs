// SPDX-License-Identifier: Apache-2.0
//! Switches and links that fail, and come back: what routes do, how soon, and what is told of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use trimwire_controller::run::{Cause, Controller, RunOptions, SwitchStatus};
use trimwire_controller::show::{Rows, What, show};
use trimwire_controller::watch::Watch;
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options};

use crate::run_support::{Embedded, dead_address, eventually, get};

/// 2 × 2, with one host a leaf. Ports: 1 and 2 to the other tier, 3 to the host.
pub(crate) fn leaf_spine(addresses: [SocketAddr; 4], controller: &str) -> Fabric {
    let text = leaf_spine_text(addresses, controller);
    Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn leaf_spine_text(addresses: [SocketAddr; 4], controller: &str) -> String {
    let mut text = format!("version: 1\ncontroller: {{ {controller} }}\nswitches:\n");
    for (number, (name, address)) in
        (1..).zip(["leaf1", "leaf2", "spine1", "spine2"].into_iter().zip(addresses))
    {
        let _ = writeln!(text, "  {name}: {{ address: {address}, device_id: {number} }}");
    }
    text.push_str(
        "hosts:
  h1: { ip: 10.0.1.1, mac: \"02:00:00:00:01:01\" }
  h2: { ip: 10.0.2.1, mac: \"02:00:00:00:02:01\" }
links:
  - { a: h1, b: \"leaf1:3\", speed: 10Gbps }
  - { a: h2, b: \"leaf2:3\", speed: 10Gbps }
  - { a: \"leaf1:1\", b: \"spine1:1\", speed: 10Gbps }
  - { a: \"leaf1:2\", b: \"spine2:1\", speed: 10Gbps }
  - { a: \"leaf2:1\", b: \"spine1:2\", speed: 10Gbps }
  - { a: \"leaf2:2\", b: \"spine2:2\", speed: 10Gbps }
",
    );
    text
}

/// Killed when the test ends, however it ends.
pub(crate) struct Child(pub(crate) std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn start() -> [Embedded; 4] {
    [1, 2, 3, 4].map(|id| {
        let embedded = Embedded::start(id);
        // Ports that no packet has used yet are not there otherwise.
        for port in 1..=3 {
            embedded.switch.lock().unwrap().set_port_up(port, true);
        }
        embedded
    })
}

fn is_well(status: &SwitchStatus) -> bool {
    status.up && status.primary && status.in_place == Some(true)
}

/// By switch: the ports to the other leaf's host.
async fn ports(fabric: &Fabric, but: &[&str]) -> BTreeMap<String, Vec<u16>> {
    let only = fabric.switches.keys().filter(|name| !but.contains(&name.as_str())).cloned().collect();
    let options = Options { only, ..Options::default() };
    let shown = show(fabric, &Artifacts::embedded().unwrap(), &options, What::Routes).await.unwrap();
    let Rows::Routes(rows) = shown.rows else { panic!() };
    let wanted = |switch: &str| if switch == "leaf2" { "10.0.1." } else { "10.0.2." };
    let rows = rows.into_iter().filter(|row| row.prefix.starts_with(wanted(&row.switch)));
    rows.map(|row| (row.switch, row.next_hops.iter().map(|hop| hop.port).collect())).collect()
}

pub(crate) async fn until_ports(fabric: &Fabric, but: &[&str], leaf1: &[u16], leaf2: &[u16]) {
    let mut found = BTreeMap::new();
    for _ in 0..500 {
        found = ports(fabric, but).await;
        // A switch without a program has no routes.
        let is_so = |leaf: &str, ports: &[u16]| found.get(leaf).is_some_and(|found| found == ports);
        if is_so("leaf1", leaf1) && is_so("leaf2", leaf2) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{found:?}, and not {leaf1:?} and {leaf2:?}");
}

pub(crate) async fn started(fabric: &Fabric) -> Controller {
    let options = RunOptions {
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
        ..RunOptions::default()
    };
    Controller::start(fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap()
}

pub(crate) async fn all_well(controller: &Controller, but: &[&str]) {
    eventually("in place", || {
        let status = controller.status();
        let others: Vec<_> = status
            .switches
            .iter()
            .filter(|(name, status)| !but.contains(&name.as_str()) && !is_well(status))
            .map(|(name, status)| (name, status.up, status.in_place))
            .collect();
        if others.is_empty() { Ok(()) } else { Err(format!("{others:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_spine_is_out_of_routes_at_once_and_back_after_its_hold_down() {
    let mut switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 60s, hold_down: 300ms");
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    let before = controller.status().switches["leaf1"].tally.clone();

    // Long before anybody would look at a switch.
    switches[3].stop();
    until_ports(&fabric, &["spine2"], &[1], &[1]).await;
    let status = controller.status();
    assert_eq!(status.switches["spine2"].in_place, None, "nobody knows what a dead switch holds");
    let fault = &status.faults[0];
    assert_eq!((fault.switch.as_str(), fault.port, fault.cause), ("spine2", None, Cause::Dead));
    let text = get(controller.metrics_address().unwrap(), "/metrics").await;
    let line = "trimwire_controller_out_of_routes{switch=\"spine2\",port=\"\",cause=\"dead\"} 1";
    assert!(text.contains(line), "{text}");
    let run = controller.metrics_address();
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let mut watching = Watch::new(&fabric, &artifacts, &options, Duration::from_millis(300), run);
    let interval = watching.next().await;
    let expected = "spine2 out of routes, dead: ";
    assert!(interval.table(false).contains(expected), "{}", interval.table(false));
    let told = get(controller.metrics_address().unwrap(), "/faults").await;
    assert!(told.contains("\"switch\":\"spine2\"") && told.contains("\"cause\":\"dead\""), "{told}");

    switches[3].come_back();
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    all_well(&controller, &[]).await;
    assert!(controller.status().faults.is_empty());
    let after = controller.status().switches["leaf1"].tally.clone();
    assert_eq!(after.drift, before.drift, "what a failure changed is no drift");
    controller.stop().await;
}

/// The far leaf learns of it, too: the spine has no other way there, and would drop what it is
/// sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_link_is_out_of_routes_at_both_of_its_ends_and_beyond() {
    let switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 5s, hold_down: 300ms");
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    // Between leaf2 and spine1, and told by leaf2 alone.
    switches[1].switch.lock().unwrap().set_link_up(1, false);
    until_ports(&fabric, &[], &[2], &[2]).await;
    let faults = controller.status().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].switch.as_str(), faults[0].port, faults[0].cause), ("leaf2", Some(1), Cause::Link));
    switches[1].switch.lock().unwrap().set_link_up(1, true);
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    // A host's link has no way round: it stays in the routes, whatever its port says.
    switches[1].switch.lock().unwrap().set_link_up(3, false);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(controller.status().faults.is_empty());
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drained_spine_is_left_out_until_it_is_taken_back_and_a_drained_leaf_keeps_its_hosts() {
    let switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 5s");
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    let reason = |name: &str| BTreeMap::from([(name.to_owned(), "a new program".to_owned())]);
    controller.drain(reason("spine1"));
    until_ports(&fabric, &[], &[2], &[2]).await;
    let expected = "spine1 out of routes, drained: a new program";
    assert_eq!(controller.status().faults[0].to_string(), expected);
    controller.drain(reason("leaf2"));
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    controller.drain(BTreeMap::new());
    assert!(controller.status().faults.is_empty());
    controller.stop().await;
}

/// What a person took out works, and what is dead does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_all_others_are_dead_a_drained_spine_is_used() {
    let mut switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 5s");
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    controller.drain(BTreeMap::from([("spine1".to_owned(), "optics".to_owned())]));
    until_ports(&fabric, &[], &[2], &[2]).await;
    switches[3].stop();
    until_ports(&fabric, &["spine2"], &[1], &[1]).await;
    controller.stop().await;
}

/// Another controller with our election id, a second `run` by mistake: its switches are not ours to
/// write to, but they are alive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_whose_primary_has_our_election_id_is_not_dead() {
    let switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 5s");
    let first = started(&fabric).await;
    all_well(&first, &[]).await;
    let second = started(&fabric).await;
    eventually("all were tried", || {
        let status = second.status();
        let tried = status.switches.values().filter(|status| status.failures > 0).count();
        if tried == 4 { Ok(()) } else { Err(format!("{tried} of 4")) }
    })
    .await;
    assert!(second.status().faults.is_empty(), "{:?}", second.status().faults);
    second.stop().await;
    assert!(first.status().faults.is_empty(), "{:?}", first.status().faults);
    first.stop().await;
}

/// A controller that is started anew must not route over what its predecessor had taken out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_starts_beside_a_dead_spine_never_routes_over_it() {
    let switches = start();
    let [a, b, c, _] = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    // Nobody looks at a switch again while a busy machine takes its time.
    let fabric = leaf_spine([a, b, c, dead_address()], "interval: 60s");
    let controller = started(&fabric).await;
    all_well(&controller, &["spine2"]).await;
    let found = ports(&fabric, &["spine2"]).await;
    assert_eq!((&found["leaf1"], &found["leaf2"]), (&vec![1], &vec![1]));
    assert_eq!(controller.status().switches["leaf1"].tally.succeeded, 1, "in one pass");
    controller.stop().await;
}

/// `drain` notes it where `run` looks every second, and says when the neighbours route so; without
/// a `run` it says that nobody does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_waits_until_neighbours_route_round_a_switch_and_undrain_takes_it_back() {
    let switches = start();
    let addresses = [0, 1, 2, 3].map(|at: usize| switches[at].address);
    let fabric = leaf_spine(addresses, "interval: 5s");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fabric.yaml");
    std::fs::write(&file, leaf_spine_text(addresses, "interval: 5s")).unwrap();
    let command = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trimwire-controller"));
        command.args(words).arg(&file);
        command
    };
    let output = |words: &[&str], switch: &str| {
        let output = command(words).arg(switch).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let null = std::process::Stdio::null;
    let run = command(&["run", "--metrics", "off"]).stdout(null()).stderr(null()).spawn().unwrap();
    let run = Child(run);
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    // A file that was changed since, and not for its routes, is not waited for: `run` has not read
    // it.
    let changed = leaf_spine_text(addresses, "interval: 5s") + "policy: { shallow_at: 30us }\n";
    std::fs::write(&file, changed).unwrap();
    let (code, out, err) = output(&["drain", "--reason", "optics"], "spine1");
    assert_eq!(code, Some(0), "{out}{err}");
    assert!(out.contains("spine1 is out of routes of 2 neighbours; no packet leaves it"), "{out}");
    until_ports(&fabric, &[], &[2], &[2]).await;
    // Nothing would be left, and routes would take back what a person works on.
    let (code, _, err) = output(&["drain"], "spine2");
    assert_eq!(code, Some(1));
    let expected = "hosts of leaf1 and leaf2 have no way to each other without spine2 while spine1 is drained. Nothing was noted";
    assert!(err.contains(expected), "{err}");
    until_ports(&fabric, &[], &[2], &[2]).await;
    let (code, out, err) = output(&["undrain"], "spine1");
    assert_eq!((code, out.as_str()), (Some(0), "spine1 is in routes again of 2 neighbours\n"), "{err}");
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    drop(run);

    let (code, _, err) = output(&["drain", "--wait", "10ms"], "spine2");
    assert_eq!(code, Some(1));
    assert!(err.contains("2 of 2 neighbours do not route so yet") && err.contains("apply does"), "{err}");
    let (code, _, err) = output(&["drain"], "spine3");
    assert_eq!(code, Some(2));
    assert!(err.contains("has no switch spine3; valid: leaf1, leaf2, spine1, spine2"), "{err}");
    // And apply does.
    let (code, out, err) = output(&["apply", "--settle", "0"], "--keep-going");
    assert_eq!(code, Some(0), "{out}{err}");
    until_ports(&fabric, &[], &[1], &[1]).await;
}
