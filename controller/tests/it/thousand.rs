// SPDX-License-Identifier: Apache-2.0
//! Many switches: how long the failure of one takes to be in every route of a thousand, and what a
//! `run` costs by the ports of its switches. Measurements of minutes, not tests: `cargo test -p
//! trimwire-controller --test it thousand:: -- --ignored --nocapture`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use trimwire_controller::model::End;
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt};
use trimwire_switch::SharedSwitch;

use crate::counters::with_deflected;
use crate::failure::Child;
use crate::model::Model;
use crate::replace::all_in_place;
use crate::run_support::{Embedded, get};
use crate::wires;

/// P4Runtime servers of models: below the ports that the system gives to clients.
const FIRST_PORT: usize = 20_000;

fn processor_seconds() -> f64 {
    seconds_of("self")
}

fn seconds_of(process: &str) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime, in ticks of 10 ms (proc(5)).
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// A fat tree of models, and its fabric; `settings` are the controller's.
async fn fat_tree(k: usize, first_port: usize, settings: &str) -> (Vec<Model>, Fabric) {
    let text = format!(
        "version: 1
controller: {{ interval: 60s, audit: 600s, timeout: 60s, hold_down: 60s, concurrency: 64{settings} }}
topology: {{ fat_tree: {{ k: {k}, hosts_per_edge: 2, host_speed: 25Gbps, addresses: {{ grpc: \"127.0.0.1:{first_port}\" }} }} }}
"
    );
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let mut models = Vec::new();
    for number in 0..fabric.switches.len() {
        let model = Model::start_at(&format!("127.0.0.1:{}", first_port + number)).await;
        model.state().is_trusting = true;
        models.push(model);
    }
    (models, fabric)
}

async fn started(fabric: &Fabric) -> Controller {
    let options = RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() };
    Controller::start(fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap()
}

async fn settled(controller: &Controller) {
    while all_in_place(&controller.status()).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// All switches of a fat tree are given another program, one at a time and eight at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn new_programs_for_a_fat_tree_take_less_time_when_eight_switches_have_their_turn_together() {
    let k: usize = std::env::var("TRIMWIRE_K").map_or(8, |text| text.parse().unwrap());
    let mut taken = Vec::new();
    for most in [1, 8] {
        let (models, fabric) =
            fat_tree(k, FIRST_PORT + 1000 * taken.len(), &format!(", max_unavailable: {most}")).await;
        let mut controller = started(&fabric).await;
        settled(&controller).await;
        let began = Instant::now();
        controller.reload(&fabric, &with_deflected()).unwrap();
        controller.insist();
        while models.iter().any(|model| model.state().pushes < 2) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        settled(&controller).await;
        taken.push(began.elapsed());
        println!("{} switches, {most} at a time: {:?}", models.len(), began.elapsed());
        controller.stop().await;
        models.iter().for_each(Model::kill);
    }
    assert!(taken[1] < taken[0], "{taken:?}");
}

/// An aggregation switch of a fat tree: all edge switches of all pods have to leave it out, and so
/// have the other pods' of its number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn the_failure_of_an_aggregation_switch_is_in_every_route() {
    let k: usize = std::env::var("TRIMWIRE_K").map_or(28, |text| text.parse().unwrap());
    let (models, fabric) = fat_tree(k, FIRST_PORT, "").await;
    let count = fabric.switches.len();
    let (busy, began) = (processor_seconds(), Instant::now());
    let controller = started(&fabric).await;
    let in_place = || {
        let status = controller.status();
        status.switches.values().filter(|status| status.in_place == Some(true)).count()
    };
    while in_place() < count {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{count} switches in place after {:?}, {:.2} s of processor time, theirs included",
        began.elapsed(),
        processor_seconds() - busy
    );
    let address = fabric.switches["agg1-1"].address.clone();
    let dead = models.iter().find(|model| model.address.to_string() == address).unwrap();
    let writes = || models.iter().map(|model| model.state().writes.len()).collect::<Vec<_>>();
    let before = writes();
    let (busy, killed) = (processor_seconds(), Instant::now());
    dead.kill();
    // The last Write is the end: nothing comes for a while.
    let (mut last, mut first_at, mut last_at) = (before.clone(), None, Duration::ZERO);
    while last_at.is_zero() || killed.elapsed() < last_at + Duration::from_secs(2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = writes();
        if now != last {
            last_at = killed.elapsed();
            first_at.get_or_insert(last_at);
            last = now;
        }
        assert!(killed.elapsed() < Duration::from_secs(120), "nobody noticed");
    }
    let changed = before.iter().zip(&last).filter(|(before, last)| before != last).count();
    println!(
        "routes of {changed} switches changed from {:?} to {last_at:?} after it was killed; {:.2} s of processor time, theirs included",
        first_at.unwrap(),
        processor_seconds() - busy
    );
    assert!(changed > k * k / 2 - 1, "every edge switch");
    assert_eq!(controller.status().faults.len(), 1);
    controller.stop().await;
}

/// By switch and port, where the cable leads.
type Cables = Vec<BTreeMap<u16, (usize, u16)>>;

/// Takes frames from switch to switch until it is over.
fn carry(switches: &[SharedSwitch], cables: &Cables, is_over: &AtomicBool) {
    let mut now = 0;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
        now += 5_000_000;
        let mut arriving = Vec::new();
        for (number, switch) in switches.iter().enumerate() {
            let mut switch = switch.lock().unwrap();
            switch.handle_timeout(now);
            while let Some(sent) = switch.poll_transmit() {
                arriving.extend(cables[number].get(&sent.port).map(|to| (*to, sent.frame)));
            }
        }
        for ((number, port), frame) in arriving {
            switches[number].lock().unwrap().handle_frame(now, port, &frame);
        }
    }
}

/// A `run` of a leaf-spine whose cables all work: its share of a core, all in place, and the size of
/// `/metrics`. Leaves have as many ports as `spines` and `hosts`, spines as there are leaves.
/// `TRIMWIRE_BIN_DIR` may name a folder with another controller, such as a release build.
async fn cost(leaves: usize, spines: usize, hosts: usize, first_port: usize) {
    let text = format!(
        "version: 1
topology: {{ leaf_spine: {{ leaves: {leaves}, spines: {spines}, hosts_per_leaf: {hosts}, host_speed: 10Gbps, fabric_speed: 10Gbps, addresses: {{ grpc: \"127.0.0.1:{first_port}\" }} }} }}
"
    );
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let numbers: BTreeMap<&String, usize> = fabric.switches.keys().zip(0..).collect();
    let mut cables: Cables = vec![BTreeMap::new(); numbers.len()];
    let mut ways = 0_usize;
    let mut doors: BTreeMap<usize, (u16, [u8; 4])> = BTreeMap::new();
    for link in &fabric.links {
        for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
            match (near, far) {
                (End::Port(near, port), End::Port(far, far_port)) => {
                    cables[numbers[near]].insert(*port, (numbers[far], *far_port));
                    ways += 1;
                }
                (End::Port(leaf, port), End::Host(host)) => {
                    doors.entry(numbers[leaf]).or_insert((*port, fabric.hosts[host].ip.octets()));
                }
                _ => {}
            }
        }
    }
    let embedded: Vec<Embedded> = fabric
        .switches
        .values()
        .map(|switch| Embedded::start_at(switch.address.parse().unwrap(), switch.device_id))
        .collect();
    let switches: Vec<SharedSwitch> = embedded.iter().map(|one| Arc::clone(&one.switch)).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let carrier = {
        let (switches, is_over) = (switches.clone(), Arc::clone(&is_over));
        std::thread::spawn(move || carry(&switches, &cables, &is_over))
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fabric.yaml");
    std::fs::write(&file, text).unwrap();
    let program = std::env::var_os("TRIMWIRE_BIN_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_trimwire-controller")),
        |folder| PathBuf::from(folder).join("trimwire-controller"),
    );
    let metrics = std::net::SocketAddr::from(([127, 0, 0, 1], 19_550));
    let child = std::process::Command::new(program)
        .args(["run", "--metrics", &metrics.to_string()])
        .arg(&file)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let process = child.id().to_string();
    let _child = Child(child);
    let began = Instant::now();
    let tried = format!("trimwire_controller_links{{state=\"tried\"}} {}\n", ways / 2);
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let is_listening = std::net::TcpStream::connect(metrics).is_ok();
        if is_listening && get(metrics, "/metrics").await.contains(&tried) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "not in place");
    }
    println!("{} switches, {ways} ways: in place and tried after {:?}", switches.len(), began.elapsed());
    let busy = async || {
        let before = (seconds_of(&process), Instant::now());
        tokio::time::sleep(Duration::from_secs(20)).await;
        (seconds_of(&process) - before.0) * 100.0 / before.1.elapsed().as_secs_f64()
    };
    let (share, idle) = (busy().await, get(metrics, "/metrics").await.len());
    println!("  {share:.2} % of a core; /metrics {idle} bytes");
    // A packet of each of 200 flows from each leaf to the next.
    for ((leaf, (port, from)), (_, (_, to))) in doors.iter().zip(doors.iter().cycle().skip(1)) {
        for flow in 0..200 {
            switches[*leaf].lock().unwrap().handle_frame(0, *port, &wires::frame(*from, *to, flow));
        }
    }
    let (share, used) = (busy().await, get(metrics, "/metrics").await.len());
    println!("  with packets at every port: {share:.2} % of a core; /metrics {used} bytes");
    is_over.store(true, Ordering::Relaxed);
    carrier.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn what_a_run_costs_with_switches_of_16_17_and_up_to_56_ports() {
    for (number, (leaves, spines, hosts)) in (0..).zip([(16, 15, 1), (17, 16, 1), (56, 16, 4)]) {
        cost(leaves, spines, hosts, FIRST_PORT + 100 * number).await;
    }
}
