// SPDX-License-Identifier: Apache-2.0
//! The whole controller against real switches: the embedded one, and another implementation, BMv2's
//! `simple_switch_grpc`.
//!
//! BMv2's part is skipped, with a line on stderr, where it is not on PATH. Needs no root: the
//! switches have no interfaces.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use trimwire_controller::run::Drift;
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::show::{Rows, What, show_blocking};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, Report, apply_blocking, plan_blocking};
use trimwire_switch::server::{ServerHandle, serve};
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

struct Bmv2(Child);

impl Drop for Bmv2 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(address: &str) -> Option<Bmv2> {
    let thrift = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("simple_switch_grpc")
        .args(["--no-p4", "--device-id", "1", "--thrift-port", &thrift.to_string()])
        .args(["--notifications-addr", &format!("ipc:///tmp/trimwire-controller-bmv2-{thrift}.ipc")])
        .args(["--", "--grpc-server-addr", address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => Some(Bmv2(child)),
        Err(error) => {
            eprintln!(
                "SKIPPED: simple_switch_grpc does not start ({error}); the controller is not tested on BMv2"
            );
            None
        }
    }
}

const EXAMPLE: &str = include_str!("../../../examples/fabrics/single-switch.yaml");

fn read(text: &str) -> Fabric {
    Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// The switch that is there.
fn s1() -> Options {
    Options { only: ["s1".to_owned()].into(), ..Options::default() }
}

fn applied(fabric: &Fabric, options: &Options) -> Report {
    apply_blocking(fabric, &Artifacts::embedded().unwrap(), options).unwrap()
}

/// Up, again, changed; every state read back from the switch at `address`.
fn life(address: &str, target: &str, registers: bool) {
    let text = EXAMPLE.replace("127.0.0.1:9559", address).replace("target: trimwire", target);
    // Two parallel links to a second switch, which is not there, make a group.
    let text = text
        .replace("hosts:\n", "  s2: { address: 127.0.0.1:1, device_id: 2 }\n\nhosts:\n")
        .replace(
            "links:\n",
            "links:\n  - { a: \"s1:8\", b: \"s2:8\", speed: 10Gbps }\n  - { a: \"s1:9\", b: \"s2:9\", speed: 10Gbps }\n",
        )
        .replace("b: \"s1:4\"", "b: \"s2:4\"");
    // The tables beside routes and thresholds.
    let text = format!(
        "{text}dscp: {{ trimmed_last_hop: 36 }}
load_balance: {{ default: flow, trimmable: packet }}
disable_trim:
  - {{ dst: h2, protocol: udp, dst_port: 4791 }}
  - {{ src: 10.0.0.0/24, src_port: 9 }}
"
    );
    let (fabric, artifacts, options) = (read(&text), Artifacts::embedded().unwrap(), s1());
    let first = applied(&fabric, &options);
    assert!(first.is_ok() && first.switches[0].pipeline_pushed, "{first}");

    let plan = plan_blocking(&fabric, &artifacts, &options).unwrap();
    assert!(plan.is_empty(), "{plan}");
    let second = applied(&fabric, &options);
    assert!(second.is_ok() && second.written() == 0 && !second.switches[0].pipeline_pushed, "{second}");

    // Other thresholds and one link less: entries are modified, routes turn away from the group, it
    // is deleted.
    let text = text
        .replace("drop_at: 120us", "drop_at: 200us\n  trim_cap: 25%")
        .replace("default: flow", "default: five_tuple")
        .replace("dst_port: 4791", "dst_port: 4792")
        .replace("b: \"s2:9\", speed: 10Gbps", "b: \"s2:9\", speed: 10Gbps, state: down");
    let changed = read(&text);
    let third = applied(&changed, &options);
    assert!(third.is_ok(), "{third}");
    let written = third.switches[0].written;
    // The exemption of a port moved, in both IP versions: two keys for two others.
    assert!(written.modified > 2 && written.deleted == 4 && written.inserted == 2, "{third}");

    let show = |what| show_blocking(&changed, &artifacts, &options, what).unwrap();
    let Rows::Routes(routes) = show(What::Routes).rows else { panic!() };
    let h4 = routes.iter().find(|row| row.host == "h4").unwrap();
    assert_eq!(
        (h4.prefix.as_str(), h4.next_hops.len(), h4.next_hops[0].to.as_str()),
        ("10.0.0.4/30", 1, "s2:8")
    );
    let Rows::Policy(policy) = show(What::Policy).rows else { panic!() };
    let planned = trimwire_controller::show::Planned(&changed).rows();
    assert_eq!(policy, planned.filter(|row| row.switch == "s1").collect::<Vec<_>>());
    let row = policy.iter().find(|row| row.port == 1).unwrap();
    assert_eq!((row.trimmed_dscp, row.trim_cap.unwrap().rate_bps), (36, 2_500_000_000));
    let counters = show(What::Counters);
    assert!(counters.errors.is_empty(), "{counters}");
    let json = serde_json::to_value(&counters).unwrap();
    assert!(json["counters"].is_array() && json["errors"].is_object(), "{json}");
    let Rows::Counters(rows) = &counters.rows else { panic!() };
    let queues = rows.iter().filter(|row| row.port.is_some());
    assert!(
        queues.map(|row| row.occupancy_bytes.is_some()).all(|is_told| is_told == registers),
        "{counters}"
    );
}

#[test]
#[expect(clippy::disallowed_methods, reason = "waits for a real process, with a deadline")]
fn bmv2_is_brought_up_changed_and_a_second_apply_writes_nothing() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Some(_bmv2) = start(&address.to_string()) else { return };
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < deadline, "simple_switch_grpc does not listen on {address}");
        std::thread::sleep(Duration::from_millis(20));
    }
    life(&address.to_string(), "target: bmv2", false);
}

/// Asks for metrics, whatever the answer.
async fn ask(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();
}

/// Digests, counters one by one, and arbitration as BMv2 has them; nothing that it answers may look
/// like drift.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bmv2_is_kept_in_place_through_a_restart() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let Some(first) = start(&address.to_string()) else { return };
    let text =
        EXAMPLE.replace("127.0.0.1:9559", &address.to_string()).replace("target: trimwire", "target: bmv2");
    let mut fabric = read(&text);
    (fabric.controller.interval_ns, fabric.controller.audit_ns) = (200_000_000, 200_000_000);
    let any_port = MetricsAt::Address(any_port());
    let options = RunOptions { metrics: Some(any_port), ..RunOptions::default() };
    let controller = Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    // Passes since the last failure, at least so many.
    let in_place = async |passes: u64, restarts: u64| {
        let polling = async {
            loop {
                // Counters are read for who asks.
                ask(controller.metrics_address().unwrap()).await;
                let status = controller.status().switches.remove("s1").unwrap();
                let drift = &status.tally.drift;
                let restarted = drift.get(&Drift::Restarted).copied().unwrap_or(0);
                let is_well = status.up
                    && status.primary
                    && status.in_place == Some(true)
                    && !status.counters.queues.is_empty();
                if is_well && status.tally.succeeded >= passes && restarted == restarts {
                    assert_eq!(drift.len() as u64, restarts, "{drift:?}");
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(40), polling).await;
        waited.unwrap_or_else(|_| panic!("not in place: {:?}", controller.status().switches))
    };
    let status = in_place(3, 0).await;
    assert_eq!(status.counters.queues.len(), 4 * 7);
    assert!(
        status
            .counters
            .queues
            .values()
            .all(|queue| queue.counts.iter().count() == 8 && queue.waiting.is_none())
    );
    drop(first);
    let _second = start(&address.to_string());
    in_place(status.tally.succeeded + 3, 1).await;
    controller.stop().await;
}

fn embedded(address: SocketAddr, device_id: u64) -> (SharedSwitch, ServerHandle) {
    let default_port = PortConfig { rate_bps: 10_000_000_000, ..PortConfig::default() };
    let config = SwitchConfig { device_id, default_port, ..SwitchConfig::default() };
    let switch: SharedSwitch = Arc::new(Mutex::new(Switch::new(config)));
    let server = serve(Arc::clone(&switch), address).unwrap();
    (switch, server)
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

#[test]
fn the_embedded_switch_is_brought_up_changed_and_a_second_apply_writes_nothing() {
    let (_switch, server) = embedded(any_port(), 1);
    life(&server.local_addr().to_string(), "target: trimwire", true);
}

/// An Ethernet, IPv4 and UDP frame from h1 to h2 of the example, of `length` bytes in all.
fn frame(tos: u8, length: u16) -> Vec<u8> {
    let mut frame = vec![0; usize::from(length)];
    frame[0..12].copy_from_slice(&[6, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, tos]);
    frame[16..18].copy_from_slice(&(length - 14).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame[34..38].copy_from_slice(&[0x30, 0x39, 0x24, 0x01]);
    frame[38..40].copy_from_slice(&(length - 34).to_be_bytes());
    frame
}

/// The file says at how many bytes packets are trimmed, and to what; the switch does it, and its
/// counters show it.
#[test]
fn a_congested_port_trims_where_the_file_says_and_show_counts_it() {
    let (switch, server) = embedded(any_port(), 1);
    let fabric = read(&EXAMPLE.replace("127.0.0.1:9559", &server.local_addr().to_string()));
    assert!(applied(&fabric, &Options::default()).is_ok());
    let (length, packets) = (1406_u16, 100_u32);
    let class0_important = (3 << 2) | 2;
    let mut lengths = Vec::new();
    {
        let mut switch = switch.lock().unwrap();
        for _ in 0..packets {
            switch.handle_frame(0, 1, &frame(class0_important, length));
        }
        let mut now = 0;
        loop {
            while let Some(transmit) = switch.poll_transmit() {
                assert_eq!(transmit.port, 2);
                assert_eq!(transmit.frame[0..6], [2, 0, 0, 0, 0, 2]);
                lengths.push(transmit.frame.len() as u16);
            }
            match switch.poll_timeout() {
                Some(at) if at < 1_000_000_000 => now = at.max(now),
                _ => break,
            }
            switch.handle_timeout(now);
        }
    }
    let count = |all: &[u16], wanted: u16| all.iter().filter(|found| **found == wanted).count();
    let whole = count(&lengths, length);
    // 20 µs at 10 Gbit/s are 25,000 bytes, which 18 frames reach. The first to leave for the line
    // waits no more: 19.
    assert_eq!(whole, 19, "{lengths:?}");
    assert_eq!(whole + count(&lengths, 604), packets as usize, "{lengths:?}");

    let artifacts = Artifacts::embedded().unwrap();
    let shown = show_blocking(&fabric, &artifacts, &Options::default(), What::Counters).unwrap();
    let Rows::Counters(rows) = &shown.rows else { panic!() };
    let class0 = rows.iter().find(|row| (row.port, row.queue) == (Some(2), Some(5))).unwrap();
    let counted = |name: &str| class0.counters.get(name).map_or(0, |count| count.packets);
    assert_eq!(counted("admitted") as usize, whole, "{shown}");
    assert_eq!(counted("admitted") + counted("trimmed"), i64::from(packets), "{shown}");
    assert_eq!(counted("trim_transmitted"), counted("trimmed"), "{shown}");
    assert!(class0.occupancy_bytes == Some(0) && class0.peak_bytes > Some(0), "drained: {shown}");
}

/// Files that generators wrote, on real switches: a leaf–spine of six comes up, and a link that
/// goes down is routed round.
#[test]
fn a_generated_fabric_comes_up_and_routes_round_a_broken_link() {
    let servers: Vec<_> = (1..=6).map(|id| embedded(any_port(), id)).collect();
    let mut text = "version: 1
topology: { leaf_spine: { leaves: 4, spines: 2, hosts_per_leaf: 2, host_speed: 10Gbps } }
switches:
"
    .to_owned();
    for (name, (_, server)) in ["leaf1", "leaf2", "leaf3", "leaf4", "spine1", "spine2"].iter().zip(&servers) {
        text = format!("{text}  {name}: {{ address: {} }}\n", server.local_addr());
    }
    let fabric = read(&text);
    let report = applied(&fabric, &Options::default());
    assert!(report.is_ok(), "{report}");
    assert_eq!(applied(&fabric, &Options::default()).written(), 0);
    let broken = read(&format!("{text}links: [{{ a: \"leaf1:1\", b: \"spine1:1\", state: down }}]\n"));
    let report = applied(&broken, &Options::default());
    assert!(report.is_ok() && report.written() > 0, "{report}");
    let shown =
        show_blocking(&broken, &Artifacts::embedded().unwrap(), &Options::default(), What::Routes).unwrap();
    let Rows::Routes(rows) = shown.rows else { panic!() };
    let next = |switch: &str, prefix: &str| {
        let row = rows.iter().find(|row| row.switch == switch && row.prefix == prefix).unwrap();
        row.next_hops.iter().map(|hop| hop.to.clone()).collect::<Vec<_>>()
    };
    assert_eq!(next("leaf1", "10.0.4.0/24"), ["spine2:1"]);
    assert_eq!(next("leaf4", "10.0.1.0/24"), ["spine2:4"]);
    assert_eq!(next("leaf4", "10.0.2.0/23"), ["spine1:4", "spine2:4"]);
}

#[test]
fn a_restarted_switch_is_found_empty_and_brought_up_again() {
    let (_first, server) = embedded(any_port(), 1);
    let address = server.local_addr();
    let fabric = read(&EXAMPLE.replace("127.0.0.1:9559", &address.to_string()));
    let written = applied(&fabric, &Options::default()).written();
    server.shutdown();
    let (_second, _server) = embedded(address, 1);
    let plan = plan_blocking(&fabric, &Artifacts::embedded().unwrap(), &Options::default()).unwrap();
    assert!(plan.to_string().contains("push the pipeline (it runs: none)"), "{plan}");
    let report = applied(&fabric, &Options::default());
    assert!(report.is_ok() && report.written() == written, "{report}");
}

#[test]
fn a_wrong_device_id_is_the_switchs_refusal_with_its_words() {
    let (_switch, server) = embedded(any_port(), 5);
    let fabric = read(&EXAMPLE.replace("127.0.0.1:9559", &server.local_addr().to_string()));
    let report = applied(&fabric, &Options::default());
    let error = report.switches[0].error.clone().unwrap();
    assert!(
        error.contains(&server.local_addr().to_string()) && error.to_lowercase().contains("device"),
        "{error}"
    );
}

#[test]
fn sixty_four_switches_come_up_at_once() {
    let servers: Vec<_> = (1..=64).map(|id| embedded(any_port(), id)).collect();
    let mut text = "version: 1\nswitches:\n".to_owned();
    let mut hosts = "hosts:\n".to_owned();
    let mut links = "links:\n".to_owned();
    for (number, (_, server)) in servers.iter().enumerate() {
        let id = number + 1;
        text += &["  s", &id.to_string(), ": { address: ", &server.local_addr().to_string(), ", device_id: "]
            .concat();
        text += &[&id.to_string(), " }\n"].concat();
        hosts += &["  h", &id.to_string(), ": { ip: 10.0.1.", &id.to_string(), ", mac: \"02:00:00:00:01:"]
            .concat();
        hosts = format!("{hosts}{id:02x}\" }}\n");
        links = format!("{links}  - {{ a: h{id}, b: \"s{id}:1\", speed: 10Gbps }}\n");
        if id > 1 {
            links = format!("{links}  - {{ a: \"s{number}:2\", b: \"s{id}:3\", speed: 10Gbps }}\n");
        }
    }
    let fabric = read(&(text + &hosts + &links));
    let report = applied(&fabric, &Options::default());
    assert!(report.is_ok(), "{report}");
    assert_eq!(applied(&fabric, &Options::default()).written(), 0);
}
