// SPDX-License-Identifier: Apache-2.0
//! Cables that are exchanged, dead in one direction or lossy, between embedded switches: what a
//! `run` says of them, what routes do, and what `apply` refuses.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use trimwire_controller::run::{Cause, Controller};
use trimwire_controller::watch::Watch;
use trimwire_controller::{Artifacts, Options, apply};
use trimwire_switch::SharedSwitch;

use crate::failure::{all_well, leaf_spine, start, started, until_ports};
use crate::run_support::{Embedded, eventually, get};

/// A switch, by its place in [`start`], and its port.
type Port = (usize, u16);

/// Where the hosts are.
const H1: Port = (0, 3);
const H2: Port = (1, 3);
/// From a leaf to a spine.
const CABLES: [(Port, Port); 4] = [((0, 1), (2, 1)), ((0, 2), (3, 1)), ((1, 1), (2, 2)), ((1, 2), (3, 2))];

/// What happens to frames outside of switches.
struct Cables {
    /// Both directions.
    leads: Vec<(Port, Port)>,
    /// One of so many frames from that port is lost.
    loses: Option<(Port, u64)>,
    /// Frames from that port so far.
    crossed: u64,
    /// Flows from h1 to h2 that send a frame each time.
    flows: u16,
    sent: u64,
    arrived: u64,
    is_over: bool,
}

/// Ends with the test.
struct Lab {
    switches: [Embedded; 4],
    cables: Arc<Mutex<Cables>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.cables().is_over = true;
    }
}

/// Ethernet, IPv4 and UDP.
pub(crate) fn frame(from: [u8; 4], to: [u8; 4], flow: u16) -> Vec<u8> {
    let mut frame = crate::run_support::frame();
    frame[26..30].copy_from_slice(&from);
    frame[30..34].copy_from_slice(&to);
    frame[24..26].fill(0);
    let sum: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!((sum + (sum >> 16)) as u16)).to_be_bytes());
    frame[34..36].copy_from_slice(&flow.to_be_bytes());
    frame
}

impl Lab {
    fn start() -> Self {
        let leads = CABLES.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
        let cables = Cables { leads, loses: None, crossed: 0, flows: 0, sent: 0, arrived: 0, is_over: false };
        let lab = Self { switches: start(), cables: Arc::new(Mutex::new(cables)) };
        let switches = lab.switches.each_ref().map(|embedded| Arc::clone(&embedded.switch));
        let cables = Arc::clone(&lab.cables);
        std::thread::spawn(move || carry(&switches, &cables));
        lab
    }

    fn cables(&self) -> MutexGuard<'_, Cables> {
        self.cables.lock().unwrap()
    }

    /// Exchanges the cables of two ports, or back.
    fn exchange(&self, a: Port, b: Port) {
        for (from, to) in &mut self.cables().leads {
            for end in [from, to] {
                *end = if *end == a {
                    b
                } else if *end == b {
                    a
                } else {
                    *end
                };
            }
        }
    }

    fn fabric(&self) -> trimwire_controller::Fabric {
        let addresses = [0, 1, 2, 3].map(|at: usize| self.switches[at].address);
        leaf_spine(addresses, "interval: 100ms, hold_down: 300ms")
    }

    /// What a `run` says, sorted.
    async fn until_told(&self, controller: &Controller, expected: &[&str]) {
        eventually("faults", || {
            let told: Vec<String> = controller.status().faults.iter().map(ToString::to_string).collect();
            let is_so = told.len() == expected.len()
                && told.iter().zip(expected).all(|(told, expected)| told.starts_with(expected));
            if is_so { Ok(()) } else { Err(format!("{told:#?}")) }
        })
        .await;
    }

    /// So many frames are sent from h1 from now on, and this many of them arrive.
    async fn send(&self, frames: u64) -> u64 {
        let (sent, arrived) = {
            let mut cables = self.cables();
            cables.flows = 40;
            (cables.sent, cables.arrived)
        };
        eventually("frames", || {
            let mut cables = self.cables();
            if cables.sent >= sent + frames {
                cables.flows = 0;
                return Ok(());
            }
            Err(format!("{} of {frames}", cables.sent - sent))
        })
        .await;
        let sent = self.cables().sent - sent;
        // A frame takes a few rounds; one that is lost takes for ever.
        for _ in 0..200 {
            if self.cables().arrived - arrived == sent {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        sent - (self.cables().arrived - arrived)
    }
}

/// Takes frames from port to port, a millisecond each time, until the test is over.
fn carry(switches: &[SharedSwitch; 4], cables: &Mutex<Cables>) {
    let mut now = 0;
    loop {
        std::thread::sleep(Duration::from_millis(1));
        now += 1_000_000;
        let mut arriving = Vec::new();
        for (number, switch) in switches.iter().enumerate() {
            let mut switch = switch.lock().unwrap();
            switch.handle_timeout(now);
            while let Some(sent) = switch.poll_transmit() {
                arriving.push(((number, sent.port), sent.frame));
            }
        }
        let mut cables = cables.lock().unwrap();
        if cables.is_over {
            return;
        }
        for (from, frame) in arriving {
            if from == H2 {
                cables.arrived += 1;
                continue;
            }
            if let Some((port, every)) = cables.loses
                && port == from
            {
                cables.crossed += 1;
                if cables.crossed.is_multiple_of(every) {
                    continue;
                }
            }
            let to = cables.leads.iter().find(|(near, _)| *near == from);
            if let Some((_, (number, port))) = to {
                switches[*number].lock().unwrap().handle_frame(now, *port, &frame);
            }
        }
        for flow in 0..cables.flows {
            switches[H1.0].lock().unwrap().handle_frame(
                now,
                H1.1,
                &frame([10, 0, 1, 1], [10, 0, 2, 1], flow),
            );
            cables.sent += 1;
        }
    }
}

const EXCHANGED: [&str; 4] = [
    "leaf1:1 out of routes, miscabled: leaf1:1 should lead to spine1:1, and leads to spine1:2",
    "leaf2:1 out of routes, miscabled: leaf2:1 should lead to spine1:2, and leads to spine1:1",
    "spine1:1 out of routes, miscabled: spine1:1 should lead to leaf1:1, and leads to leaf2:1",
    "spine1:2 out of routes, miscabled: spine1:2 should lead to leaf2:1, and leads to leaf1:1",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanged_cables_are_named_left_out_of_routes_and_refused_by_apply() {
    let lab = Lab::start();
    let (fabric, artifacts) = (lab.fabric(), Artifacts::embedded().unwrap());
    let report = apply(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(report.is_ok(), "{report}");
    assert!(report.to_string().ends_with("\n4 of 4 links tried"), "{report}");
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    assert_eq!(lab.send(400).await, 0);

    lab.exchange((2, 1), (2, 2));
    lab.cables().flows = 40;
    lab.until_told(&controller, &EXCHANGED).await;
    lab.cables().flows = 0;
    until_ports(&fabric, &[], &[2], &[2]).await;
    assert_eq!(lab.send(400).await, 0, "routes lead round");
    // What came while they did not was dropped where it came in.
    eventually("strays are counted", || {
        let counters = &controller.status().switches["spine1"].counters;
        let strays = counters.strays.get(&(2, "wrong_neighbour")).copied().unwrap_or(0);
        if strays > 0 { Ok(()) } else { Err(format!("{:?}", counters.strays)) }
    })
    .await;
    let address = controller.metrics_address().unwrap();
    let metrics = get(address, "/metrics").await;
    for line in [
        "trimwire_controller_out_of_routes{switch=\"spine1\",port=\"2\",cause=\"miscabled\"} 1",
        "trimwire_stray_packets_total{switch=\"spine1\",port=\"2\",cause=\"wrong_neighbour\"}",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    let mut watching =
        Watch::new(&fabric, &artifacts, &Options::default(), Duration::from_millis(300), Some(address));
    let table = watching.next().await.table(false);
    assert!(EXCHANGED.iter().all(|fault| table.contains(fault)), "{table}");

    controller.stop().await;
    let report = apply(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(!report.is_ok(), "{report}");
    let expected = "leaf1:1 should lead to spine1:1, and leads to spine1:2";
    assert!(report.to_string().contains(expected), "{report}");

    let controller = started(&fabric).await;
    lab.until_told(&controller, &EXCHANGED).await;
    lab.exchange((2, 1), (2, 2));
    lab.until_told(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    assert_eq!(lab.send(400).await, 0);
    controller.stop().await;
    let report = apply(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(report.is_ok(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_no_probe_crosses_are_named_by_apply_by_a_run_and_by_watch() {
    let switches = start();
    let fabric =
        leaf_spine([0, 1, 2, 3].map(|at: usize| switches[at].address), "interval: 100ms, hold_down: 300ms");
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let report = apply(&fabric, &artifacts, &options).await.unwrap();
    assert!(report.is_ok(), "switches may be started without their interfaces: {report}");
    let links = "0 of 4 links tried
  not tried, no probe came back: leaf1:1 to spine1:1, leaf1:2 to spine2:1, leaf2:1 to spine1:2, leaf2:2 to spine2:2";
    assert!(report.to_string().ends_with(links), "{report}");

    let controller = started(&fabric).await;
    eventually("probes are sent", || {
        let found = controller.status().links.to_string();
        if found == links { Ok(()) } else { Err(found) }
    })
    .await;
    let address = controller.metrics_address().unwrap();
    let metrics = get(address, "/metrics").await;
    assert!(metrics.contains("trimwire_controller_links{state=\"untried\"} 4"), "{metrics}");
    let mut watching = Watch::new(&fabric, &artifacts, &options, Duration::from_secs(1), Some(address));
    let table = watching.next().await.table(false);
    assert!(table.contains(links), "{table}");
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_direction_that_is_dead_is_left_out_whatever_a_host_forges_and_apply_refuses_it() {
    let lab = Lab::start();
    let (fabric, artifacts) = (lab.fabric(), Artifacts::embedded().unwrap());
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    lab.cables().loses = Some(((0, 1), 1));
    let one_way =
        "leaf1:1 out of routes, one_way: no frame from leaf1:1 arrives at spine1:1, while frames come back";
    lab.until_told(&controller, &[one_way]).await;
    assert_eq!(controller.status().faults[0].cause, Cause::OneWay);
    until_ports(&fabric, &[], &[2], &[2]).await;
    assert_eq!(lab.send(400).await, 0);

    // A host at leaf1 and leaf2 that says it is leaf1:1, and that it is spine2:1: nothing comes of
    // it.
    let leaf = |number: usize| lab.switches[number].switch.lock().unwrap();
    let probes = [[6, 0, 0, 1, 0, 1], [6, 0, 0, 4, 0, 1]].map(|source: [u8; 6]| {
        let mut probe = [&[6, 0, 0, 3, 0, 1], &source[..], &[0x88, 0xb5]].concat();
        probe.resize(60, 0xff);
        probe
    });
    let before = controller.status().faults;
    for _ in 0..20 {
        for (probe, number) in probes.iter().flat_map(|probe| [(probe, 0), (probe, 1)]) {
            let now = 0;
            leaf(number).handle_frame(now, 3, probe);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(controller.status().faults, before);
    }
    controller.stop().await;
    let report = apply(&fabric, &artifacts, &Options::default()).await.unwrap();
    assert!(report.to_string().contains("no frame from leaf1:1 arrives at spine1:1"), "{report}");
    assert!(!report.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_loses_some_frames_is_told_with_their_share() {
    let lab = Lab::start();
    let fabric = lab.fabric();
    let controller = started(&fabric).await;
    all_well(&controller, &[]).await;
    until_ports(&fabric, &[], &[1, 2], &[1, 2]).await;
    lab.cables().flows = 4;
    eventually("the link carries frames", || {
        if lab.cables().arrived > 100 { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
    assert!(controller.status().faults.is_empty());
    lab.cables().loses = Some(((0, 1), 100));
    eventually("it is told", || {
        let faults = controller.status().faults;
        match faults.first() {
            Some(fault) if fault.cause == Cause::Lossy => {
                assert!(fault.reason.contains("frames from leaf1:1 to spine1:1 were lost ("), "{fault}");
                Ok(())
            }
            _ => Err(format!("{faults:?}")),
        }
    })
    .await;
    until_ports(&fabric, &[], &[2], &[2]).await;
    controller.stop().await;
}
