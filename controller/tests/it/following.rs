// SPDX-License-Identifier: Apache-2.0
//! Thresholds that follow the load of a running switch.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::watch::Watch;
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, plan};

use crate::run_support::{Embedded, eventually, frame, get};

/// Twenty packets fit below every threshold: of a hundred that come at once most are trimmed.
fn fabric(address: SocketAddr) -> Fabric {
    let text = format!(
        "version: 1
controller: {{ interval: 50ms }}
thresholds: {{ follow: apply, band: 100% }}
policy: {{ shallow_at: 28120B, deep_at: 56240B, drop_at: 500KB, trim_limit: 281200B }}
switches: {{ s1: {{ address: {address}, device_id: 1 }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"s1:1\", speed: 100Mbps }}
  - {{ a: h2, b: \"s1:2\", speed: 100Mbps }}
"
    );
    let mut fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    // A file has 10 s at least.
    fabric.follow.every_ns = 300_000_000;
    fabric
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_trims_bursts_is_given_more_room_and_everybody_is_told() {
    let switch = Embedded::start(1);
    let fabric = fabric(switch.address);
    let options = RunOptions {
        metrics: Some(MetricsAt::Address(SocketAddr::from(([127, 0, 0, 1], 0)))),
        ..RunOptions::default()
    };
    let artifacts = Artifacts::embedded().unwrap();
    let mut controller = Controller::start(&fabric, &artifacts, &options).await.unwrap();
    eventually("in place", || {
        let status = &controller.status().switches["s1"];
        if status.in_place == Some(true) { Ok(()) } else { Err(format!("{status:?}")) }
    })
    .await;
    let mut now = 0;
    for _ in 0..1_000 {
        now = switch.forward(now, &vec![frame(); 100]) + 1_000_000;
        tokio::select! {
            () = controller.follows() => controller.follow().unwrap(),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
        if controller.status().following[0].applied > 0 {
            break;
        }
    }
    let told = controller.status().following[0].clone();
    assert_eq!((told.ports.as_str(), told.applied), ("100Mbps to hosts", 1), "{told}");
    let measured = told.measured.as_ref().unwrap();
    assert_eq!(measured.port, "s1:2");
    // The switch holds it, and to the file it is a difference of thresholds alone.
    let mut found = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    for _ in 0..200 {
        if found.switches[0].changes() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        found = plan(&fabric, &artifacts, &Options::default()).await.unwrap();
    }
    let changes = &found.switches[0].changes;
    let tables: Vec<&str> = changes.iter().map(|change| change.table.as_str()).collect();
    assert!(tables.contains(&"Ingress.queue_policy.policy"), "{found}");
    assert!(
        tables.iter().all(|table| ["Ingress.queue_policy.policy", "Ingress.trim_cap.cap"].contains(table))
    );
    assert!(controller.status().switches["s1"].tally.drift.is_empty(), "nothing has drifted");
    // The same file, read again, changes nothing.
    controller.reload(&fabric, &artifacts).unwrap();
    assert_eq!(controller.status().following[0].applied, 1);

    let address = controller.metrics_address().unwrap();
    let text = get(address, "/metrics").await;
    let line =
        "trimwire_controller_threshold_changes_total{ports=\"100Mbps to hosts\",outcome=\"applied\"} 1";
    assert!(text.contains(line), "{text}");
    let mut watching =
        Watch::new(&fabric, &artifacts, &Options::default(), Duration::from_millis(300), Some(address));
    let table = watching.next().await.table(false);
    assert!(table.contains("thresholds of 100Mbps to hosts: "), "{table}");
    let page = get(address, "/thresholds").await;
    let (_, page) = page.split_once("\r\n\r\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("thresholds.json");
    std::fs::write(&copy, page).unwrap();
    let model = folder.path().join("layers.yaml");
    std::fs::write(
        &model,
        "version: 1\nline_rate: 1Gbps\nbuffer: 2MB\nclasses: 1\nlayers: [ { parameters: 9 } ]\n",
    )
    .unwrap();
    let thresholds = |run: &str, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-controller"));
        command.arg("thresholds").arg("--model").arg(&model).args(["--from-run", run]).args(more);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    // Load and burst are not in the file.
    for run in [copy.display().to_string(), address.to_string(), format!("http://{address}/thresholds")] {
        let (code, out, err) = thresholds(&run, &[]);
        assert_eq!(code, Some(0), "{err}");
        assert!(err.contains("measured: load ") && err.contains("at s1:2"), "{err}");
        assert!(out.contains("Trimming"), "{out}");
    }
    let (code, _, err) = thresholds(&address.to_string(), &["--ports", "s9:1"]);
    assert_eq!(code, Some(3));
    assert!(err.contains("it tells nothing of 's9:1'; valid: 100Mbps to hosts"), "{err}");
    let (code, _, err) = thresholds("http://nowhere", &[]);
    assert_eq!(code, Some(3));
    assert!(err.contains("--from-run http://nowhere: 'nowhere' is no ADDRESS:PORT"), "{err}");
    let (code, _, err) = thresholds(&model.display().to_string(), &[]);
    assert_eq!(code, Some(3));
    assert!(err.contains("that is no /thresholds of a `run`"), "{err}");
    controller.stop().await;
}

#[test]
fn a_layers_file_needs_its_load_where_nothing_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("layers.yaml");
    std::fs::write(&model, "version: 1\nline_rate: 1Gbps\nbuffer: 2MB\nlayers: [ { parameters: 9 } ]\n")
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_trimwire-controller"))
        .arg("thresholds")
        .arg("--model")
        .arg(&model)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("'load' is missing"));
}
