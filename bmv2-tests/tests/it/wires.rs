// SPDX-License-Identifier: Apache-2.0
//! Cables that are exchanged, dead in one direction or lossy, between two leaves and two spines on
//! real interfaces: what a `run` says of them, and that nothing is lost once routes lead around.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use trimwire_bmv2_tests::frames::FrameSocket;
use trimwire_bmv2_tests::packets::udp;
use trimwire_bmv2_tests::process::{Running, poll};
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::{Kind, Namespace, Programs, exclusive};

const LIMIT: Duration = Duration::from_secs(60);
const METRICS: &str = "127.0.0.1:9550";
const SWITCHES: [&str; 4] = ["leaf1", "leaf2", "spine1", "spine2"];
const CABLES: [(&str, &str); 4] =
    [("leaf1:1", "spine1:1"), ("leaf1:2", "spine2:1"), ("leaf2:1", "spine1:2"), ("leaf2:2", "spine2:2")];
const H2: [u8; 4] = [10, 0, 1, 1];

/// What becomes of frames that leave from ports.
#[derive(Default)]
struct Cables {
    leads: BTreeMap<&'static str, &'static str>,
    /// One of so many frames from that port is lost.
    loses: Option<(&'static str, u64)>,
}

/// Four switches in one namespace; this process is all cables between them, and both hosts.
struct Fabric {
    // Fields are dropped in order: the programs end before their namespace goes.
    switches: Vec<Running>,
    cables: Arc<Mutex<Cables>>,
    sockets: BTreeMap<&'static str, Arc<FrameSocket>>,
    arrived: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    file: PathBuf,
    programs: Programs,
    space: Namespace,
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The interface of a switch's port, and the cable's end in it.
fn interfaces(port: &str) -> (String, String) {
    let name = port.replace(':', "-");
    (name.clone(), format!("w{name}"))
}

impl Fabric {
    fn start(kind: &Kind, programs: &Programs) -> anyhow::Result<Self> {
        let space = Namespace::new("wires")?;
        let ports = CABLES.iter().flat_map(|(a, b)| [*a, *b]).chain(["leaf1:3", "leaf2:3"]);
        let mut sockets = BTreeMap::new();
        for port in ports {
            let (own, cable) = interfaces(port);
            space.ip(&format!("link add {own} type veth peer name {cable}"))?;
            for interface in [&own, &cable] {
                space.ip(&format!("link set {interface} up"))?;
            }
            sockets.insert(port, Arc::new(FrameSocket::open(&space, &cable)?));
        }
        let file = std::env::temp_dir().join(format!("{}.yaml", space.name()));
        std::fs::write(&file, fabric_file(kind)?)?;
        let leads = CABLES.iter().flat_map(|(a, b)| [(*a, *b), (*b, *a)]).collect();
        let fabric = Self {
            switches: start_switches(kind, &space, &sockets)?,
            cables: Arc::new(Mutex::new(Cables { leads, loses: None })),
            sockets,
            arrived: Arc::default(),
            is_over: Arc::default(),
            file,
            programs: programs.clone(),
            space,
        };
        for port in fabric.sockets.keys() {
            let (cables, sockets) = (Arc::clone(&fabric.cables), fabric.sockets.clone());
            let (arrived, is_over) = (Arc::clone(&fabric.arrived), Arc::clone(&fabric.is_over));
            let port = *port;
            std::thread::spawn(move || carry(port, &cables, &sockets, &arrived, &is_over));
        }
        Ok(fabric)
    }

    fn controller(&self, words: &[&str]) -> Command {
        let mut command = self.space.command(&self.programs.controller);
        command.args(words).arg(&self.file);
        command
    }

    /// Starts a `run`, and waits until frames arrive over both spines.
    fn run(&mut self) -> anyhow::Result<Running> {
        let run = Running::start(&mut self.controller(&["run", "--metrics", METRICS]))?;
        poll("all frames arrive", LIMIT, || Ok((self.send(200)? == 0).then_some(())))?;
        Ok(run)
    }

    /// What a `run` says is out of routes.
    fn faults(&self) -> anyhow::Result<String> {
        self.space.enter(|| {
            let mut stream = TcpStream::connect(METRICS)?;
            stream.write_all(b"GET /faults HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
    }

    /// Waits until all of these words are in what a `run` says.
    fn told(&self, words: &[&str]) -> anyhow::Result<String> {
        poll("faults", LIMIT, || {
            let faults = self.faults()?;
            anyhow::ensure!(words.iter().all(|word| faults.contains(word)), "{faults}");
            Ok(Some(faults))
        })
    }

    /// Sends that many frames of as many flows from h1 to h2, a few each millisecond; how many do
    /// not arrive.
    fn send(&self, frames: u16) -> anyhow::Result<u64> {
        let before = self.arrived.load(Ordering::Relaxed);
        for flow in 0..frames {
            self.sockets["leaf1:3"].send(&udp(0, H2, 20_000 + flow, &[0; 100]))?;
            if flow % 4 == 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // What comes later than this counts for the next ones.
        let missing = || (before + u64::from(frames)).saturating_sub(self.arrived.load(Ordering::Relaxed));
        let _ = poll("frames", Duration::from_millis(200), || Ok((missing() == 0).then_some(())));
        Ok(missing())
    }

    /// How long frames are lost from now on, by when the last of which some are was begun: until
    /// 400 one after another have arrived.
    fn loses_for(&self) -> anyhow::Result<Duration> {
        #[expect(clippy::disallowed_methods, reason = "a figure that a person reads")]
        let began = Instant::now();
        let mut until = Duration::ZERO;
        poll("frames arrive", LIMIT, || {
            let now = began.elapsed();
            let lost = self.send(100)?;
            if lost > 0 {
                until = now;
            }
            let is_over = lost == 0 && self.send(400)? == 0;
            Ok(is_over.then_some(()))
        })?;
        Ok(until)
    }
}

fn start_switches(
    kind: &Kind,
    space: &Namespace,
    sockets: &BTreeMap<&'static str, Arc<FrameSocket>>,
) -> anyhow::Result<Vec<Running>> {
    let (Kind::Trimwire(program) | Kind::Bmv2(program)) = kind;
    let mut switches = Vec::new();
    for (number, name) in (1..).zip(SWITCHES) {
        let mut command = space.command(program);
        command.args(["--no-p4", "--device-id", &number.to_string()]);
        for port in sockets.keys().filter(|port| port.starts_with(name)) {
            let (_, digits) = port.split_once(':').context("a port")?;
            command.args(["-i", &format!("{digits}@{}", interfaces(port).0)]);
        }
        let is_bmv2 = matches!(kind, Kind::Bmv2(_));
        if is_bmv2 {
            let ipc = format!("ipc:///tmp/{}-{name}.ipc", space.name());
            let thrift = (9_090 + number).to_string();
            command.args(["--thrift-port", &thrift, "--notifications-addr", &ipc, "-L", "off"]);
        }
        let address = format!("127.0.0.1:{}", 9_560 + number);
        command.args(["--", "--grpc-server-addr", &address, "--cpu-port", "510"]);
        if is_bmv2 {
            command.args(["--priority-queues", "8"]);
        }
        switches.push(Running::start(&mut command)?);
        poll("a switch's gRPC server", LIMIT, || {
            space.enter(|| Ok(TcpStream::connect(&address).is_ok().then_some(())))
        })?;
    }
    Ok(switches)
}

fn fabric_file(kind: &Kind) -> anyhow::Result<String> {
    let mut text = "version: 1\ncontroller: { hold_down: 2s }\nswitches:\n".to_owned();
    for (number, name) in (1..).zip(SWITCHES) {
        let address = format!("127.0.0.1:{}", 9_560 + number);
        let target = kind.target();
        writeln!(text, "  {name}: {{ address: \"{address}\", device_id: {number}, target: {target} }}")?;
    }
    text.push_str(
        "hosts:
  h1: { ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }
  h2: { ip: 10.0.1.1, mac: \"02:00:00:00:01:01\" }
links:
  - { a: h1, b: \"leaf1:3\", speed: 1Gbps }
  - { a: h2, b: \"leaf2:3\", speed: 1Gbps }
",
    );
    for (a, b) in CABLES {
        writeln!(text, "  - {{ a: \"{a}\", b: \"{b}\", speed: 1Gbps }}")?;
    }
    Ok(text)
}

/// Takes frames from one port to another until the test is over.
fn carry(
    port: &'static str,
    cables: &Mutex<Cables>,
    sockets: &BTreeMap<&'static str, Arc<FrameSocket>>,
    arrived: &AtomicU64,
    is_over: &AtomicBool,
) {
    let mut crossed = 0_u64;
    while !is_over.load(Ordering::Relaxed) {
        let Ok(Some(frame)) = sockets[port].receive_within(Duration::from_millis(50)) else { continue };
        if port == "leaf2:3" {
            arrived.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let (to, loses) = {
            let cables = cables.lock().expect("no test panics with it");
            (cables.leads.get(port).copied(), cables.loses)
        };
        if let Some((_, every)) = loses.filter(|(lossy, _)| *lossy == port) {
            crossed += 1;
            if crossed.is_multiple_of(every) {
                continue;
            }
        }
        if let Some(to) = to {
            let _ = sockets[to].send(&frame);
        }
    }
}

fn cables(kind: &Kind, programs: &Programs) -> anyhow::Result<()> {
    let mut fabric = Fabric::start(kind, programs)?;
    let applied =
        |fabric: &Fabric| Running::start(&mut fabric.controller(&["apply", "--yes"]))?.finish(LIMIT);
    let run = fabric.run()?;
    let exchange = |fabric: &Fabric| {
        let mut cables = fabric.cables.lock().expect("no test panics with it");
        let swap = |port: &'static str| match port {
            "spine1:1" => "spine1:2",
            "spine1:2" => "spine1:1",
            other => other,
        };
        cables.leads = cables.leads.iter().map(|(from, to)| (swap(from), swap(to))).collect();
    };

    exchange(&fabric);
    let lost = fabric.loses_for()?;
    fabric.told(&["\"cause\":\"miscabled\"", "leaf1:1 should lead to spine1:1, and leads to spine1:2"])?;
    println!("exchanged cables: the last batch that lost frames was begun {lost:?} later");
    drop(run);
    let output = applied(&fabric)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(output.status.code() == Some(1), "{output:?}");
    anyhow::ensure!(text.contains("leaf1:1 should lead to spine1:1, and leads to spine1:2"), "{text}");
    exchange(&fabric);
    let output = applied(&fabric)?;
    anyhow::ensure!(output.status.success(), "{output:?}");

    let run = fabric.run()?;
    fabric.cables.lock().expect("no test panics with it").loses = Some(("leaf1:1", 1));
    let lost = fabric.loses_for()?;
    let words = "no frame from leaf1:1 arrives at spine1:1, while frames come back";
    fabric.told(&["\"cause\":\"one_way\"", words])?;
    println!("one direction dead: the last batch that lost frames was begun {lost:?} later");
    drop(run);
    fabric.cables.lock().expect("no test panics with it").loses = None;

    let run = fabric.run()?;
    fabric.cables.lock().expect("no test panics with it").loses = Some(("leaf1:1", 100));
    #[expect(clippy::disallowed_methods, reason = "a figure that a person reads")]
    let began = Instant::now();
    let told = poll("lossy", LIMIT, || {
        fabric.send(400)?;
        let faults = fabric.faults()?;
        Ok(faults.contains("\"cause\":\"lossy\"").then_some(faults))
    })?;
    println!("1 % lost: told after {:?}", began.elapsed());
    anyhow::ensure!(told.contains("frames from leaf1:1 to spine1:1 were lost ("), "{told}");
    anyhow::ensure!(fabric.loses_for()? < LIMIT);
    drop(run);
    fabric.switches.iter_mut().for_each(|switch| assert!(switch.is_running()));
    Ok(())
}

#[test]
fn wrong_one_way_and_lossy_cables_between_trimwire_switches_are_named_and_led_around() {
    let _turn = exclusive();
    let Some(programs) = Programs::or_skip("cables between trimwire-switches") else { return };
    cables(&Kind::ours(&programs), &programs).expect("as promised");
}

#[test]
fn wrong_one_way_and_lossy_cables_between_bmv2_switches_are_named_and_led_around() {
    let _turn = exclusive();
    let test = "cables between BMv2 switches";
    let Some(programs) = Programs::or_skip(test) else { return };
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    cables(&Kind::Bmv2(bmv2), &programs).expect("as promised");
}
