// SPDX-License-Identifier: Apache-2.0
//! A controller that keeps running, against embedded switches that are restarted, written to by
//! others, slow and dead.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use crate::run_support::{Embedded, chains, dead_address, delaying_proxy, eventually, frame, get, single};
use trimwire_controller::run::{Controller, Drift, RunOptions, SwitchStatus};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, plan};
use trimwire_p4runtime::client::{Arbitration, Client, Role};
use trimwire_p4runtime::entity::{self, TableEntryBuilder};
use trimwire_p4runtime::v1::TableEntry;
use trimwire_p4runtime::v1::write_request::Atomicity;

fn read(text: &str) -> Fabric {
    Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn off() -> RunOptions {
    RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() }
}

fn any_port() -> RunOptions {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    RunOptions { metrics: Some(MetricsAt::Address(address)), ..RunOptions::default() }
}

async fn started(fabric: &Fabric, options: &RunOptions) -> Controller {
    Controller::start(fabric, &Artifacts::embedded().unwrap(), options).await.unwrap()
}

/// Waits until all switches but some are as asked.
async fn all(controller: &Controller, what: &str, but: &[&str], is_so: impl Fn(&SwitchStatus) -> bool) {
    eventually(what, || {
        let status = controller.status();
        let others =
            status.switches.iter().filter(|(name, status)| !but.contains(&name.as_str()) && !is_so(status));
        let others: Vec<_> =
            others.map(|(name, s)| (name, s.up, s.primary, s.in_place, s.failures)).collect();
        if others.is_empty() {
            Ok(())
        } else {
            Err(format!("{} are not: {:?}", others.len(), &others[..others.len().min(4)]))
        }
    })
    .await;
}

fn is_well(status: &SwitchStatus) -> bool {
    status.up && status.primary && status.in_place == Some(true) && status.failures == 0
}

fn drift(controller: &Controller, switch: &str) -> BTreeMap<Drift, u64> {
    controller.status().switches[switch].tally.drift.clone()
}

/// As somebody with a higher election id does it: a route deleted, one added, a queue changed.
async fn write_foreign(address: SocketAddr, device_id: u64, election_id: u128) {
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let mut client = Client::connect(&address.to_string()).await.unwrap();
    let told = client.arbitrate(device_id, election_id, Role::default()).await.unwrap();
    assert!(matches!(told, Arbitration::Primary { .. }));
    let route =
        |ip: [u8; 4]| TableEntryBuilder::new(index, "Ingress.ipv4_route").lpm("dst_addr", ip, 32).member(2);
    let routes =
        TableEntry { table_id: index.table("Ingress.ipv4_route").unwrap().id(), ..TableEntry::default() };
    let ours = client.read(vec![routes.into()]).await.unwrap().remove(0);
    let queue = TableEntryBuilder::new(index, "Ingress.classify").exact("dscp", 3_u8);
    let queue = queue.action("Ingress.set_plain").param("queue", 1_u8).build().unwrap();
    let updates = vec![
        entity::delete(ours),
        entity::insert(route([10, 9, 9, 9]).build().unwrap()),
        entity::modify(queue),
    ];
    client.write(updates, Atomicity::ContinueOnError).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_switches_are_kept_in_place_through_restarts_foreign_writes_and_a_change_of_controllers() {
    let mut switches: Vec<Embedded> = (1..=64).map(Embedded::start).collect();
    let mut addresses: Vec<SocketAddr> = switches.iter().map(|switch| switch.address).collect();
    let (dead, slow) = (20, 40);
    addresses[dead] = dead_address();
    addresses[slow] = delaying_proxy(addresses[slow], Duration::from_millis(100)).await;
    // Fewer places than are needed, were the dead and the slow one to keep theirs.
    let fabric = read(&chains(&addresses, "interval: 1s, timeout: 5s, concurrency: 2"));
    let first = started(&fabric, &off()).await;
    all(&first, "in place but for the dead one", &["s20"], is_well).await;
    let status = first.status();
    assert!(!status.switches["s20"].up && status.switches["s20"].failures > 0);
    assert!(status.switches.values().all(|status| status.tally.drift.is_empty()), "bringing up is no drift");

    // Before anything is restarted: while routes change, nothing tells who else has written.
    let written = 50;
    write_foreign(switches[written].address, written as u64 + 1, 100).await;
    eventually("a foreign write is repaired", || {
        let expected = BTreeMap::from([(Drift::Missing, 1), (Drift::Changed, 1), (Drift::Foreign, 1)]);
        let seen = drift(&first, "s50");
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    all(&first, "in place after a foreign write", &["s20"], is_well).await;

    for restarted in [0, 33, 63] {
        switches[restarted].restart();
    }
    eventually("restarts are seen", || {
        let seen = ["s0", "s33", "s63"].map(|name| drift(&first, name));
        let restarted = BTreeMap::from([(Drift::Restarted, 1)]);
        if seen.iter().all(|seen| *seen == restarted) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    all(&first, "in place after restarts", &["s20"], is_well).await;

    let second = started(&fabric, &RunOptions { election_id: Some(1000), ..off() }).await;
    all(&second, "the second controller is primary", &["s20"], is_well).await;
    all(&first, "the first is backup and sees all in place", &["s20"], |status| {
        status.up && !status.primary && status.in_place == Some(true)
    })
    .await;
    second.stop().await;
    all(&first, "the first is back", &["s20"], is_well).await;

    let status = first.status();
    let drifted: Vec<&String> = status
        .switches
        .iter()
        .filter(|(_, status)| !status.tally.drift.is_empty())
        .map(|(name, _)| name)
        .collect();
    assert_eq!(drifted, ["s0", "s33", "s50", "s63"], "nothing else drifted, and nobody fought over entries");
    let only = fabric.switches.keys().filter(|name| *name != "s20").cloned().collect();
    let options = Options { only, ..Options::default() };
    let plan = plan(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    assert!(plan.is_empty(), "{plan}");
    first.stop().await;
}

/// A controller that went on writing would have updates refused: the switch takes them from its
/// primary alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_is_demoted_in_the_middle_of_writing_stops_and_goes_on_when_it_is_back() {
    let switch = Embedded::start(1);
    let slow = delaying_proxy(switch.address, Duration::from_millis(20)).await;
    // One update a Write, 40 ms each: some seconds in all.
    let fabric = read(&chains(&[slow], "interval: 1s, timeout: 5s, batch: 1"));
    let controller = started(&fabric, &off()).await;
    let mut other = Client::connect(&switch.address.to_string()).await.unwrap();
    other.observe(1);
    // Of all tables.
    let entries = async |client: &Client| {
        client.read(vec![TableEntry::default().into()]).await.map_or(0, |entries| entries.len())
    };
    let mut written = 0;
    for _ in 0..2000 {
        written = entries(&other).await;
        if written > 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(written > 2, "it has begun");
    let told = other.arbitrate(1, 9, Role::default()).await.unwrap();
    assert!(matches!(told, Arbitration::Primary { .. }));
    all(&controller, "backup", &[], |status| status.up && !status.primary && status.in_place == Some(false))
        .await;
    let left = entries(&other).await;
    let tally = controller.status().switches["s0"].tally.clone();
    assert_eq!(
        (tally.refused, tally.failed, tally.succeeded),
        (0, 0, 0),
        "nothing was written after the news"
    );

    drop(other);
    all(&controller, "primary again, and through", &[], is_well).await;
    let mut observer = Client::connect(&switch.address.to_string()).await.unwrap();
    observer.observe(1);
    let whole = entries(&observer).await;
    assert!(left < whole, "it was in the middle: {left} of {whole}");
    assert_eq!(drift(&controller, "s0"), BTreeMap::new(), "it had never been in place");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_file_is_taken_while_running_and_what_it_changes_is_no_drift() {
    let (one, two) = (Embedded::start(1), Embedded::start(2));
    let text = chains(&[one.address, two.address], "interval: 200ms, audit: 200ms");
    let mut controller = started(&read(&text), &off()).await;
    all(&controller, "in place", &[], is_well).await;
    let before = controller.status().switches["s0"].tally.succeeded;
    let changed = read(&format!("{text}policy: {{ drop_at: 700us }}\n"));
    controller.reload(&changed, &Artifacts::embedded().unwrap()).unwrap();
    eventually("the new thresholds are in the tables", || {
        let status = controller.status();
        if status.switches["s0"].tally.succeeded > before + 1 {
            Ok(())
        } else {
            Err("no pass since".to_owned())
        }
    })
    .await;
    all(&controller, "in place", &[], is_well).await;
    let plan = plan(&changed, &Artifacts::embedded().unwrap(), &Options::default()).await.unwrap();
    assert!(plan.is_empty(), "{plan}");
    assert_eq!((drift(&controller, "s0"), drift(&controller, "s1")), (BTreeMap::new(), BTreeMap::new()));

    let without_s1 = text
        .lines()
        .filter(|line| !line.contains("s1") && !line.contains("h1:"))
        .fold(String::new(), |text, line| text + line + "\n");
    controller.reload(&read(&without_s1), &Artifacts::embedded().unwrap()).unwrap();
    assert_eq!(controller.status().switches.keys().collect::<Vec<_>>(), ["s0"]);
    assert_eq!(controller.status().reloads, 2);
    controller.stop().await;
}

/// Polls the metrics until these lines are in them. The switch's time is nobody's but the test's,
/// and has to pass.
async fn scraped(address: SocketAddr, switch: &Embedded, now: &mut u64, lines: &[&str]) -> String {
    let mut last = String::new();
    let polling = async {
        loop {
            *now += 20_000_000;
            switch.pass_time(*now);
            last = get(address, "/metrics").await;
            if lines.iter().all(|line| last.lines().any(|found| found == *line)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(20), polling).await.is_ok();
    let missing: Vec<_> = lines.iter().filter(|line| !last.lines().any(|found| found == **line)).collect();
    assert!(in_time, "missing {missing:#?} in\n{last}");
    last
}

/// How many packets are trimmed is what `implementations.rs` derives from the file's 20 µs at 10
/// Gbit/s: all but 19.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_count_trims_in_sonics_words_and_digests_tell_when_trimming_starts_and_stops() {
    let switch = Embedded::start(1);
    let fabric = read(&single(switch.address, "interval: 100ms"));
    let controller = started(&fabric, &any_port()).await;
    let address = controller.metrics_address().unwrap();
    all(&controller, "in place", &[], is_well).await;
    let mut now = switch.forward(0, &vec![frame(); 100]);
    // All came at once; of the 19 one is sent.
    let peak =
        format!("trimwire_queue_peak_bytes{{switch=\"s1\",port=\"2\",queue=\"5\"}} {}", 18 * frame().len());
    let text = scraped(
        address,
        &switch,
        &mut now,
        &[
            "trimwire_controller_switch_up{switch=\"s1\"} 1",
            "trimwire_controller_switch_primary{switch=\"s1\"} 1",
            "trimwire_controller_switch_in_place{switch=\"s1\"} 1",
            "trimwire_controller_switch_backoff_seconds{switch=\"s1\"} 0.0",
            "trimwire_controller_drift_repaired_total{switch=\"s1\",kind=\"foreign\"} 0",
            "trimwire_controller_refused_updates_total{switch=\"s1\"} 0",
            "trimwire_admitted_packets_total{switch=\"s1\",port=\"2\",queue=\"5\"} 19",
            "trimwire_trim_packets_total{switch=\"s1\",port=\"2\",queue=\"5\"} 81",
            "trimwire_trim_tx_packets_total{switch=\"s1\",port=\"2\",queue=\"5\"} 81",
            "trimwire_dropped_packets_total{switch=\"s1\",port=\"2\",queue=\"5\",cause=\"tail\"} 0",
            &peak,
            "trimwire_queue_trimming{switch=\"s1\",port=\"2\",queue=\"5\"} 1",
            "trimwire_queue_trimming_starts_total{switch=\"s1\",port=\"2\",queue=\"5\"} 1",
        ],
    )
    .await;
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.ends_with("# EOF\n"), "{text}");
    // Four linked ports, seven queues with a policy.
    let listed =
        |name: &str| text.lines().filter(|line| line.starts_with(&format!("trimwire_{name}{{"))).count();
    let (drops, trims) = (listed("dropped_packets_total"), listed("trim_packets_total"));
    assert_eq!(
        (drops, trims, listed("trim_drp_packets_total"), listed("queue_occupancy_bytes")),
        (2, 1, 0, 0),
        "the class's queue and the trim queue, of 4 ports' 28, and of these what is not zero: {text}"
    );
    assert!(
        text.contains("trimwire_controller_switch_last_success_timestamp_seconds{switch=\"s1\"} 1"),
        "{text}"
    );

    now = switch.forward(now, &[frame()]);
    scraped(
        address,
        &switch,
        &mut now,
        &[
            "trimwire_queue_trimming{switch=\"s1\",port=\"2\",queue=\"5\"} 0",
            "trimwire_queue_trimming_stops_total{switch=\"s1\",port=\"2\",queue=\"5\"} 1",
        ],
    )
    .await;
    assert!(get(address, "/").await.starts_with("HTTP/1.1 404"));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_for_metrics_that_is_taken_ends_the_start_if_it_was_asked_for() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let fabric = read(&single(dead_address(), "interval: 1s"));
    let options = RunOptions {
        metrics: Some(MetricsAt::Address(taken.local_addr().unwrap())),
        ..RunOptions::default()
    };
    let error =
        Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap_err().to_string();
    assert!(
        error.contains(&taken.local_addr().unwrap().to_string()) && error.contains("--metrics"),
        "{error}"
    );
}
