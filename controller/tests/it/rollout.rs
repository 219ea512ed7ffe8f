// SPDX-License-Identifier: Apache-2.0
//! Roll-outs: how many switches at a time, in which order, where they stop, and how to get back.

use crate::run_support;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::model::Model;
use crate::run_support::{Embedded, chains, dead_address, single};
use tokio::net::{TcpListener, TcpStream};
use trimwire_controller::{Artifacts, Fabric, Options, Report, Rollout, plan, roll_out};
use trimwire_switch::PortConfig;

/// Without health checks: the model counts nothing.
fn at_a_time(max_unavailable: usize) -> Rollout {
    Rollout { max_unavailable, settle: Duration::ZERO, ..Rollout::default() }
}

async fn rolled_out(fabric: &Fabric, rollout: Rollout) -> Report {
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let plan = plan(fabric, &artifacts, &options).await.unwrap();
    roll_out(fabric, &artifacts, &options, &plan, rollout).await.unwrap()
}

/// By switch: `true` in place, `false` failed; not at all where it was not begun.
fn outcomes(report: &Report) -> Vec<(&str, bool)> {
    let begun = report.switches.iter().filter(|switch| !switch.not_begun);
    begun.map(|switch| (switch.switch.as_str(), switch.is_ok())).collect()
}

/// Forwards until it is told to keep silent; counts who came since.
struct Gate {
    address: SocketAddr,
    is_silent: Arc<AtomicBool>,
    came: Arc<AtomicUsize>,
}

impl Gate {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gate =
            Self { address: listener.local_addr().unwrap(), is_silent: Arc::default(), came: Arc::default() };
        let (is_silent, came) = (Arc::clone(&gate.is_silent), Arc::clone(&gate.came));
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                if is_silent.load(Ordering::SeqCst) {
                    came.fetch_add(1, Ordering::SeqCst);
                    kept.push(client);
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        gate
    }
}

/// Three switches stop answering between the plan and the roll-out. Each would keep its place for
/// the whole timeout, which is longer than slow switches keep theirs elsewhere.
#[tokio::test]
async fn no_more_switches_are_worked_on_at_a_time_than_asked_for_however_slow_they_are() {
    let mut gates = Vec::new();
    for _ in 0..3 {
        gates.push(Gate::to(Model::start().await.address).await);
    }
    let addresses: Vec<SocketAddr> = gates.iter().map(|gate| gate.address).collect();
    let fabric = Fabric::from_yaml(&chains(&addresses, "timeout: 2s, concurrency: 1"), "f.yaml").unwrap();
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let plan = plan(&fabric, &artifacts, &options).await.unwrap();
    gates.iter().for_each(|gate| gate.is_silent.store(true, Ordering::SeqCst));
    let report = roll_out(&fabric, &artifacts, &options, &plan, at_a_time(1)).await.unwrap();
    assert_eq!(outcomes(&report), [("s0", false)], "{report}");
    let came: Vec<usize> = gates.iter().map(|gate| gate.came.load(Ordering::SeqCst)).collect();
    assert_eq!(came[1..], [0, 0], "{report}");
    assert!(report.to_string().contains("not begun, because of that: s1, s2"), "{report}");
}

#[tokio::test]
async fn the_tier_furthest_from_hosts_is_first_and_nothing_is_begun_after_a_failure() {
    let mut models = Vec::new();
    let mut text = "version: 1\ncontroller: { timeout: 60s }\n".to_owned();
    text += "topology: { leaf_spine: { leaves: 3, spines: 2, hosts_per_leaf: 1, host_speed: 10Gbps } }\nswitches:\n";
    for name in ["leaf1", "leaf2", "leaf3", "spine1", "spine2"] {
        let model = Model::start().await;
        let _ = writeln!(text, "  {name}: {{ address: \"{}\" }}", model.address);
        models.push(model);
    }
    let fabric = Fabric::from_yaml(&text, "f.yaml").unwrap();
    models[0].state().refuse = Some("{dscp=35}".to_owned());
    let report = rolled_out(&fabric, at_a_time(1)).await;
    assert_eq!(outcomes(&report), [("leaf1", false), ("spine1", true), ("spine2", true)], "{report}");
    assert!(models[1..3].iter().all(|model| model.state().streams == 0 && model.state().pushes == 0));

    let keep_going = Rollout { keep_going: true, ..at_a_time(2) };
    let report = rolled_out(&fabric, keep_going).await;
    let expected = [("leaf1", false), ("leaf2", true), ("leaf3", true), ("spine1", true), ("spine2", true)];
    assert_eq!(outcomes(&report), expected, "{report}");
    // Spines were in place: not even connected to again.
    assert!(models[3..].iter().all(|model| model.state().streams == 1));

    models[0].state().refuse = None;
    let report = rolled_out(&fabric, at_a_time(1)).await;
    assert!(report.is_ok() && report.written() == 1, "{report}");
}

#[tokio::test]
async fn an_unreachable_switch_stops_a_roll_out_before_it_begins() {
    let model = Model::start().await;
    let addresses = [model.address, run_support::dead_address()];
    let fabric = Fabric::from_yaml(&chains(&addresses, "timeout: 2s"), "f.yaml").unwrap();
    let report = rolled_out(&fabric, at_a_time(2)).await;
    assert_eq!(outcomes(&report), [("s1", false)], "{report}");
    let state = model.state();
    assert_eq!((state.pushes, state.streams), (0, 0));
}

#[tokio::test]
async fn a_plan_after_one_changed_threshold_fits_on_a_screen_and_a_dead_switch_is_unreachable() {
    let mut addresses = Vec::new();
    let mut models = Vec::new();
    for _ in 0..16 {
        let model = Model::start().await;
        addresses.push(model.address);
        models.push(model);
    }
    let text = chains(&addresses, "timeout: 60s");
    let read = |text: &str| Fabric::from_yaml(text, "f.yaml").unwrap();
    assert!(rolled_out(&read(&text), at_a_time(16)).await.is_ok());
    let changed = read(&format!("{text}policy: {{ drop_at: 700us }}\n"));
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let found = plan(&changed, &artifacts, &options).await.unwrap();
    let words = found.to_string();
    assert!(words.lines().count() <= 20, "{words}");
    assert!(words.contains("drop_at 500000 -> 875000"), "{words}");
    assert!(words.ends_with("16 of 16 switches would change; nothing was changed"), "{words}");
    // Entry by entry it would not.
    assert!(found.switches[0].to_string().lines().count() > 20);

    addresses[3] = run_support::dead_address();
    let found = plan(&read(&chains(&addresses, "timeout: 60s")), &artifacts, &options).await.unwrap();
    let words = found.to_string();
    assert!(
        words.ends_with("0 of 16 switches would change; unreachable: s3; nothing was changed"),
        "{words}"
    );
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_trimwire-controller"))
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("TRIMWIRE_DEBUG")
            .env_remove("TRIMWIRE_STATE")
            .output()
            .unwrap()
    }

    fn ends_with(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        text
    }
}

#[test]
fn what_was_rolled_out_is_written_down_and_the_last_good_state_can_be_gone_back_to() {
    let mut switch = Embedded::start(1);
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let file = place.folder.path().join("fabric.yaml");
    let first = single(switch.address, "timeout: 60s");
    let second = first.replace("drop_at: 120us", "drop_at: 200us");
    assert_ne!(first, second);
    let plan = ["plan", "--detailed-exitcode", "fabric.yaml"];

    std::fs::write(&file, &first).unwrap();
    place.ends_with(4, &plan);
    place.ends_with(1, &["rollback", "fabric.yaml"]);
    place.ends_with(0, &["apply", "--settle", "100ms", "fabric.yaml"]);
    place.ends_with(0, &plan);

    std::fs::write(&file, &second).unwrap();
    let text = place.ends_with(4, &plan);
    assert!(text.contains("drop_at 150000 -> 250000"), "{text}");
    place.ends_with(0, &["apply", "--settle", "0", "fabric.yaml"]);
    let text = place.ends_with(0, &["rollback", "--settle", "0", "fabric.yaml"]);
    assert!(
        text.contains("going back to 1: ") && text.contains("itself says something else still"),
        "{text}"
    );
    place.ends_with(4, &plan);
    std::fs::write(&file, &first).unwrap();
    place.ends_with(0, &plan);

    // Another fabric's file of this name, with the same folder of records.
    let other = place.folder.path().join("lab");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("fabric.yaml"), single(dead_address(), "timeout: 60s")).unwrap();
    let text = place.ends_with(3, &["rollback", "--state", ".trimwire", "lab/fabric.yaml"]);
    assert!(text.contains("was of other switches") && text.contains("TRIMWIRE_STATE"), "{text}");

    let text = place.ends_with(0, &["history", "fabric.yaml"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 3 && lines.iter().all(|line| line.contains("succeeded; 1 in place")), "{text}");
    assert!(lines[2].contains("rollback to 1") && lines[0].contains('@'), "{text}");
    let left: Vec<_> =
        std::fs::read_dir(place.folder.path().join(".trimwire/fabric.yaml")).unwrap().collect();
    assert_eq!(left.len(), 3 + 2, "records and files, and nothing half written: {left:?}");

    // Somebody else's program is not replaced without being asked for, and nobody can be asked
    // here.
    let other = Path::new(env!("CARGO_MANIFEST_DIR")).join("../p4/build/bmv2");
    let json = std::fs::read_to_string(other.join("trimwire.json")).unwrap() + "\n";
    std::fs::write(place.folder.path().join("other.json"), json).unwrap();
    let p4info = other.join("trimwire.p4info.txtpb").display().to_string();
    let pipeline = format!("device_id: 1, pipeline: {{ p4info: \"{p4info}\", json: other.json }}");
    std::fs::write(&file, first.replacen("device_id: 1", &pipeline, 1)).unwrap();
    let mut apply = vec!["apply", "fabric.yaml", "--settle", "0"];
    let text = place.ends_with(1, &apply);
    assert!(text.contains("run another program: s1") && text.contains("--yes goes on"), "{text}");
    assert!(text.contains("takes over when its tables are written"), "{text}");
    apply.push("--yes");
    place.ends_with(0, &apply);

    switch.restart();
    place.ends_with(4, &plan);
    drop(switch);
}

#[test]
fn a_detailed_exit_code_tells_what_differs_from_what_cannot_be_looked_at() {
    let switch = Embedded::start(1);
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let file = place.folder.path().join("fabric.yaml");
    let plan = ["plan", "--detailed-exitcode", "fabric.yaml"];
    let write = |addresses: &[SocketAddr]| std::fs::write(&file, chains(addresses, "timeout: 2s")).unwrap();

    write(&[switch.address]);
    place.ends_with(4, &plan);
    place.ends_with(0, &["plan", "fabric.yaml"]);
    place.ends_with(0, &["apply", "--settle", "0", "fabric.yaml"]);
    place.ends_with(0, &plan);
    // Nobody knows whether a dead switch would change, and so it is neither 0 nor 4, whatever the
    // others do.
    write(&[dead_address()]);
    let text = place.ends_with(1, &plan);
    assert!(text.contains("s0") && text.contains("unreachable") && text.contains("0 of 1"), "{text}");
    place.ends_with(1, &["plan", "fabric.yaml"]);
    write(&[switch.address, dead_address()]);
    let text = place.ends_with(1, &plan);
    assert!(text.contains("1 of 2 switches would change; unreachable: s1"), "{text}");
}

#[test]
fn apply_beside_a_run_with_the_same_election_id_says_what_to_do() {
    let switch = Embedded::start(1);
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let text = single(switch.address, "timeout: 60s, metrics: off");
    std::fs::write(place.folder.path().join("fabric.yaml"), &text).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _stream = runtime.block_on(async {
        use trimwire_p4runtime::client::{Client, Role};
        let mut client = Client::connect(&switch.address.to_string()).await.unwrap();
        client.arbitrate(1, 1, Role::default()).await.unwrap();
        client
    });
    let text = place.ends_with(1, &["apply", "fabric.yaml"]);
    assert!(
        text.contains("election id 1 is in use by another controller") && text.contains("--election-id 2"),
        "{text}"
    );
    place.ends_with(0, &["apply", "--election-id", "2", "--settle", "0", "fabric.yaml"]);
}

#[test]
fn a_switch_that_does_not_listen_yet_is_waited_for_and_one_that_never_does_is_not() {
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let address = dead_address();
    std::fs::write(place.folder.path().join("fabric.yaml"), single(address, "timeout: 60s")).unwrap();
    for arguments in [["plan", "fabric.yaml"], ["apply", "fabric.yaml"]] {
        let text = place.ends_with(1, &arguments);
        assert!(
            text.contains(&address.to_string()) && text.contains("for 2s: is the switch running"),
            "{text}"
        );
    }
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| place.ends_with(0, &["apply", "--settle", "0", "fabric.yaml"]));
        // Long enough for a connection to have been refused, and short of what is waited for.
        std::thread::sleep(Duration::from_millis(400));
        let _switch = Embedded::start_at(address, 1);
        let text = applied.join().unwrap();
        assert!(text.contains("1 of 1 switches in place"), "{text}");
    });
}

#[test]
fn a_switch_that_was_told_another_line_rate_than_the_file_is_warned_about() {
    let switch = Embedded::start(1);
    let lines = |rate_bps| {
        for port in 1..=4 {
            let config = PortConfig { rate_bps, ..PortConfig::default() };
            switch.switch.lock().unwrap().configure_port(port, config);
        }
    };
    let place = Place { folder: tempfile::tempdir().unwrap() };
    std::fs::write(place.folder.path().join("fabric.yaml"), single(switch.address, "timeout: 60s")).unwrap();
    let warning = "warning: ports 1-4: the file says 10Gbps, and thresholds are meant for that; the switch was told 200Mbps";
    lines(200_000_000);
    for arguments in
        [&["plan", "fabric.yaml"][..], &["apply", "--settle", "0", "fabric.yaml"], &["apply", "fabric.yaml"]]
    {
        let text = place.ends_with(0, arguments);
        assert!(text.contains(warning), "{arguments:?}: {text}");
    }
    lines(0);
    let text = place.ends_with(0, &["plan", "fabric.yaml"]);
    assert!(text.contains("ports 1-4: the file says 10Gbps") && text.contains("told none"), "{text}");
    lines(10_000_000_000);
    let text = place.ends_with(0, &["plan", "fabric.yaml"]);
    assert!(!text.contains("warning"), "{text}");
}
