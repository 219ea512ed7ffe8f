// SPDX-License-Identifier: Apache-2.0
//! Whose packets a queue cuts, from the program's samples over digests to `/trimmed`, the log's lines and `watch`.

use crate::run_support;
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use crate::run_support::{Embedded, dead_address, frame, get, single};
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt};

/// More than the time between two samples of a switch.
const BURST_NS: u64 = 5_000_000;

/// The example's frame from another host; to h2, from which `frame` is to it.
fn from(host: u8) -> Vec<u8> {
    let mut frame = frame();
    frame[29] = host;
    frame[24..26].fill(0);
    let sum: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame
}

async fn started(switch: &Embedded) -> (Controller, SocketAddr, String) {
    let text = single(switch.address, "interval: 100ms");
    let fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = RunOptions { metrics: Some(MetricsAt::Address(address)), ..RunOptions::default() };
    let controller = Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    run_support::eventually("in place", || {
        let status = controller.status();
        if status.switches["s1"].in_place == Some(true) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let address = controller.metrics_address().unwrap();
    (controller, address, text)
}

/// Bursts of a hundred, of which all but 19 are cut (`implementations.rs`); a packet in four is h3's, the others are h1's. The first
/// of a burst finds an empty queue, which stops cutting; after the last burst it cuts as far as anybody knows.
fn congest(switch: &Embedded, bursts: u64) -> u64 {
    let burst: Vec<Vec<u8>> = (0..100).map(|number| from(if number % 4 == 0 { 3 } else { 1 })).collect();
    let mut now = 0;
    for number in 1..=bursts {
        now = switch.forward(number * BURST_NS, &burst);
    }
    now
}

/// What `/trimmed` tells once the switch has had time to tell of so many packets.
async fn cuts(address: SocketAddr, switch: &Embedded, now: &mut u64, enough: u64) -> serde_json::Value {
    let mut last = serde_json::Value::Null;
    let polling = async {
        loop {
            *now += 20_000_000;
            switch.pass_time(*now);
            let answer = get(address, "/trimmed").await;
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{answer}");
            last = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
            if last["queues"][0]["packets"].as_u64() >= Some(enough) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), polling).await.is_ok();
    assert!(in_time, "{last}");
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_cuts_tells_whose_packets_how_many_and_when() {
    let switch = Embedded::start(1);
    let (controller, address, text) = started(&switch).await;
    let mut now = congest(&switch, 200);
    let told = cuts(address, &switch, &mut now, 15_800).await;
    let queue = &told["queues"][0];
    assert_eq!(
        (&queue["switch"], &queue["port"], &queue["queue"]),
        (&"s1".into(), &2.into(), &5.into()),
        "{told}"
    );
    // Of 81 in each burst the first sample knows only itself, and the last says nothing of what came after it.
    let (packets, samples) = (queue["packets"].as_u64().unwrap(), queue["samples"].as_u64().unwrap());
    assert!((15_800..=16_200).contains(&packets) && (190..=200).contains(&samples), "{told}");
    let talkers = queue["talkers"].as_array().unwrap();
    assert_eq!(talkers.len(), 2, "{told}");
    for (talker, (source, share)) in talkers.iter().zip([("10.0.0.1", 0.75), ("10.0.0.3", 0.25)]) {
        assert_eq!(
            (&talker["source"], &talker["destination"]),
            (&source.into(), &"10.0.0.2".into()),
            "{told}"
        );
        // Five standard deviations of 200 samples.
        let found = talker["packets"].as_f64().unwrap() / packets as f64;
        assert!((found - share).abs() < 0.16, "{told}");
        assert_eq!(talker["packets"], talker["packets_at_most"], "there was room for both: {told}");
        assert!(
            talker["seconds_ago"].as_f64().unwrap() < 20.0 && talker["bytes"].as_u64() > Some(0),
            "{told}"
        );
    }
    assert!(get(address, "/metrics").await.contains("trimwire_trim_samples_total{switch=\"s1\"} "));

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fabric.yaml"), &text).unwrap();
    let watch = |arguments: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_trimwire-controller"))
            .args(["watch", "--interval", "300ms", "--count", "1", "fabric.yaml"])
            .args(arguments)
            .current_dir(folder.path())
            .env_remove("TRIMWIRE_METRICS")
            .output()
            .unwrap()
    };
    let at = address.to_string();
    let words = |arguments: &[&str]| String::from_utf8(watch(arguments).stdout).unwrap();
    let table = words(&["--metrics", &at]);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("s1:2"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert!(lines[0].starts_with(&["s1:2", "5", "class0", "h1", "h2"]), "{table}");
    assert!(lines[1].starts_with(&["s1:2", "5", "class0", "h3", "h2"]), "{table}");
    let json: serde_json::Value = serde_json::from_str(&words(&["--metrics", &at, "--json"])).unwrap();
    assert_eq!(
        (&json["talkers"][0]["from"], &json["talkers"][0]["source"]),
        (&"h1".into(), &"10.0.0.1".into())
    );
    assert!(json.get("talkers_error").is_none(), "{json}");
    let json: serde_json::Value = serde_json::from_str(&words(&["--metrics", "off", "--json"])).unwrap();
    assert_eq!((&json["talkers"], json.get("talkers_error")), (&serde_json::json!([]), None));
    let dead = dead_address().to_string();
    let json: serde_json::Value = serde_json::from_str(&words(&["--metrics", &dead, "--json"])).unwrap();
    assert!(json["talkers_error"].as_str().unwrap().contains(&dead), "{json}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_switch_and_one_that_left_the_file_are_not_told_of_with_what_they_had() {
    let mut switch = Embedded::start(1);
    let (mut controller, address, text) = started(&switch).await;
    let mut now = congest(&switch, 20);
    cuts(address, &switch, &mut now, 18 * 81).await;
    let cutting = |controller: &Controller| controller.status().switches["s1"].cutting[&(2, 5)];
    run_support::eventually("all turns are told", || {
        now += 20_000_000;
        switch.pass_time(now);
        let told = cutting(&controller);
        if (told.starts, told.stops) == (20, 19) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;
    assert!(cutting(&controller).is_cutting);
    switch.restart();
    run_support::eventually("the restart is seen", || {
        let tally = controller.status().switches["s1"].tally.clone();
        if tally.drift.is_empty() { Err(format!("{tally:?}")) } else { Ok(()) }
    })
    .await;
    run_support::eventually("in place again", || {
        let status = controller.status().switches["s1"].clone();
        if status.up && status.in_place == Some(true) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    assert!(!cutting(&controller).is_cutting, "a switch that has just started trims nothing");
    let mut now = congest(&switch, 30);
    let told = cuts(address, &switch, &mut now, 28 * 81).await;
    assert!(told["queues"][0]["packets"].as_u64().unwrap() <= 30 * 81, "{told}");

    run_support::eventually("turns of both lives", || {
        now += 20_000_000;
        switch.pass_time(now);
        let told = cutting(&controller);
        if (told.starts, told.stops) == (50, 48) { Ok(()) } else { Err(format!("{told:?}")) }
    })
    .await;

    let renamed = text.replace("s1", "s7");
    controller.reload(&Fabric::from_yaml(&renamed, "f").unwrap(), &Artifacts::embedded().unwrap()).unwrap();
    let told = get(address, "/trimmed").await;
    assert!(!told.contains("\"s1\""), "{told}");
    controller.stop().await;
}
