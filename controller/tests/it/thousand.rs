//! A thousand switches: how long the failure of one takes to be in every route. A measurement, not a test: `cargo test --release -p
//! trimwire-controller --test it thousand:: -- --ignored --nocapture`.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt};

use crate::model::Model;

const SPINES: usize = 16;

fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // utime and stime, in ticks of 10 ms (proc(5)).
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement of minutes"]
async fn the_failure_of_a_spine_is_in_every_leaf_s_routes() {
    let leaves = std::env::var("TRIMWIRE_LEAVES").map_or(1_008, |text| text.parse().unwrap());
    let mut models = Vec::new();
    let mut text = "version: 1\ncontroller: { interval: 60s, audit: 600s, timeout: 60s, hold_down: 1s, concurrency: 64 }\nswitches:\n"
        .to_owned();
    let names: Vec<String> = (1..=leaves)
        .map(|leaf| format!("leaf{leaf}"))
        .chain((1..=SPINES).map(|spine| format!("spine{spine}")))
        .collect();
    for (number, name) in names.iter().enumerate() {
        let model = Model::start().await;
        let _ = writeln!(text, "  {name}: {{ address: {}, device_id: {} }}", model.address, number + 1);
        models.push(model);
    }
    text.push_str("hosts:\n");
    for leaf in 1..=leaves {
        let (high, low) = (leaf / 256, leaf % 256);
        let _ = writeln!(text, "  h{leaf}: {{ ip: 10.{high}.{low}.1, mac: \"02:00:00:00:{high:02x}:{low:02x}\" }}");
    }
    text.push_str("links:\n");
    for leaf in 1..=leaves {
        let _ = writeln!(text, "  - {{ a: h{leaf}, b: \"leaf{leaf}:100\", speed: 10Gbps }}");
        // More than 292 ports with their policies fit no switch's table: spines are linked to that many leaves at most.
        for spine in (1..=SPINES).filter(|spine| (leaf + spine) % 4 == 0) {
            let _ =
                writeln!(text, "  - {{ a: \"leaf{leaf}:{spine}\", b: \"spine{spine}:{}\", speed: 10Gbps }}", 1 + leaf / 4);
        }
    }
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() };
    let began = Instant::now();
    let controller = Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    let all_in_place = |but: usize| {
        let status = controller.status();
        status.switches.values().filter(|status| status.in_place == Some(true)).count() >= names.len() - but
    };
    while !all_in_place(0) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{} switches in place after {:?}", names.len(), began.elapsed());
    let writes = |models: &[Model]| models.iter().map(|model| model.state().writes.len()).collect::<Vec<_>>();
    let before = writes(&models);
    let dead = leaves + 3;
    let concerned: Vec<usize> = (0..leaves).filter(|leaf| (leaf + 1 + 4) % 4 == 0).collect();
    let (busy, killed) = (processor_seconds(), Instant::now());
    models[dead].kill();
    // A leaf has turned when it was written for the last time: until nothing is written for a while.
    let (mut last, mut known, mut at) = (before.clone(), 0, killed.elapsed());
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = writes(&models);
        if now != last {
            (last, at) = (now, killed.elapsed());
            known = concerned.iter().filter(|leaf| last[**leaf] > before[**leaf]).count();
        } else if known == concerned.len() && killed.elapsed() > at + Duration::from_secs(1) {
            break;
        }
        assert!(killed.elapsed() < Duration::from_secs(120), "{known} of {}", concerned.len());
    }
    println!(
        "in every route of {} leaves after {at:?}; {:.2} s of processor time, the switches' included",
        concerned.len(),
        processor_seconds() - busy
    );
    controller.stop().await;
}
