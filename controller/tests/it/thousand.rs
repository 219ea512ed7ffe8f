// SPDX-License-Identifier: Apache-2.0
//! A thousand switches: how long the failure of one takes to be in every route. A measurement of
//! minutes, not a test: `cargo test -p trimwire-controller --test it thousand:: -- --ignored
//! --nocapture`.

use std::time::Duration;

use tokio::time::Instant;
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt};

use crate::counters::with_deflected;
use crate::model::Model;
use crate::replace::all_in_place;

/// P4Runtime servers of models: below the ports that the system gives to clients.
const FIRST_PORT: usize = 20_000;

fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
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
