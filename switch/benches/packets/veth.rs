// SPDX-License-Identifier: Apache-2.0
//! A switch process between two veth pairs: frames are poured in at one end and counted at the
//! other, as fast as it takes them, or steadily while routes are written.
//!
//! The process is what users run: this switch's binary or `simple_switch_grpc`, with the same
//! program and the same tables, written by the same client. It is to run in a network namespace of
//! its own, as root.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use super::workload::{frames, install, write_routes};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trimwire_switch::driver::PacketSocket;

/// Frames handed to the kernel at once.
const BATCH: usize = 64;
/// Frames that wait at each port for one burst, for which a ring has room, and how often it is
/// looked whether they are away.
const BURST: usize = 3_500;
const LOOK: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(30);
/// Between frames that are sent steadily.
const STEP: Duration = Duration::from_micros(100);
/// How long a frame may be inside of a switch that nobody notices.
const LATE: Duration = Duration::from_millis(1);
/// For how long they are, where nothing says when to end.
const STEADY: Duration = Duration::from_secs(2);

/// A switch to start.
#[derive(Debug, Clone)]
pub(super) struct SwitchUnderTest {
    /// Its name in results.
    pub(super) name: String,
    /// The binary, with `simple_switch_grpc`'s command line.
    pub(super) binary: PathBuf,
}

/// What a switch did with frames of one length.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct VethResult {
    /// The switch.
    pub(super) switch: String,
    /// Length of the frames.
    pub(super) packet_bytes: usize,
    /// Frames poured in.
    pub(super) offered_per_second: f64,
    /// Frames that came out.
    pub(super) packets_per_second: f64,
    /// Frames that came out for each second of processor time that the switch took, in all its
    /// threads.
    pub(super) packets_per_cpu_second: f64,
}

/// Frames that pass at a steady rate beside something.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Steady {
    /// Beside what.
    pub(super) beside: &'static str,
    /// For how long, s.
    pub(super) seconds: f64,
    /// Frames sent.
    pub(super) sent: u64,
    /// Those that did not come out.
    pub(super) lost: u64,
    /// Those that were inside for longer than a millisecond.
    pub(super) late: u64,
    /// For how long one was inside at least, ms.
    pub(super) longest_ms: f64,
}

/// Ends the process, whatever happens.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.map_err(|error| format!("`ip` (iproute2) cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("ip {arguments}: {}", said.trim())) }
}

/// A switch that runs, with tables.
pub(super) struct Bench {
    name: String,
    running: Running,
    address: String,
    ports: Range<u16>,
}

impl Bench {
    /// Measures for `seconds` per length.
    pub(super) fn rates(&self, lengths: &[usize], seconds: f64) -> Result<Vec<VethResult>, String> {
        lengths.iter().map(|&length| one_length(&self.name, self.running.0.id(), length, seconds)).collect()
    }

    /// Frames a second, burst by burst: the switch stands still while frames of one length come to
    /// all ports, and then sends them while nobody else works.
    ///
    /// # Errors
    /// Frames that are not sent.
    pub(super) fn bursts(&self, length: usize, seconds: f64) -> Result<Vec<f64>, String> {
        let names: Vec<String> = self.ports.clone().map(|port| format!("h{port}")).collect();
        let open = |name| PacketSocket::open(name, 0).map_err(|error| format!("{name}: {error}"));
        let senders = names.iter().map(|name| open(name)).collect::<Result<Vec<_>, _>>()?;
        let frames: Vec<_> = frames(length, 256).into_iter().cycle().take(BURST).collect();
        let arrived = Arrived::open()?;
        let all = || arrived.at_all(&names);
        let (start, mut rates) = (Instant::now(), Vec::new());
        // The first one makes it allocate.
        while rates.len() < 2 || start.elapsed().as_secs_f64() < seconds {
            self.signal("STOP")?;
            let mut offered = 0;
            for sender in &senders {
                for batch in frames.chunks(BATCH) {
                    offered += sender.send(batch).map_or(0, |sent| sent.taken - sent.refused) as u64;
                }
            }
            let end = all()? + offered;
            let burst = Instant::now();
            self.signal("CONT")?;
            while all()? < end {
                if burst.elapsed() > PATIENCE {
                    return Err(format!("{} of {offered} frames did not come out", end - all()?));
                }
                std::thread::sleep(LOOK);
            }
            rates.push(offered as f64 / burst.elapsed().as_secs_f64());
        }
        rates.remove(0);
        Ok(rates)
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        let pid = self.running.0.id().to_string();
        let output = Command::new("kill").args([&format!("-{name}"), &pid]).output();
        let output = output.map_err(|error| format!("`kill` cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { Ok(()) } else { Err(format!("kill -{name} {pid}: {}", said.trim())) }
    }

    /// Frames of one length beside nothing, beside a thread that is busy with nothing, and while
    /// more routes are written in one request.
    pub(super) fn steady(&self, length: usize, routes: u32) -> Result<Vec<Steady>, String> {
        // Caches, carrier, and a first packet that makes the switch allocate.
        steadily("", length, &|| true)?;
        let idle = steadily("nothing", length, &|| true)?;
        let end = AtomicBool::new(false);
        let busy = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let busy = steadily("a busy thread", length, &|| true);
            end.store(true, Ordering::Relaxed);
            busy
        })?;
        let written = AtomicBool::new(false);
        let (wrote, beside) = std::thread::scope(|scope| {
            let wrote = scope.spawn(|| {
                let wrote = runtime().and_then(|runtime| {
                    // In the middle of frames.
                    std::thread::sleep(STEADY / 4);
                    let wrote = runtime.block_on(write_routes(&self.address, routes));
                    std::thread::sleep(STEADY / 4);
                    wrote
                });
                written.store(true, Ordering::Relaxed);
                wrote
            });
            let beside = steadily("routes", length, &|| written.load(Ordering::Relaxed));
            (wrote.join(), beside)
        });
        wrote.map_err(|_| "the writing thread has panicked".to_owned())??;
        Ok(vec![idle, busy, beside?])
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())
}

/// Starts a switch with these ports, on interfaces `s0`, `h0`, `s1`, `h1` and so on, and so many
/// threads if these are more than one. Routes lead to ports 1 to the last.
///
/// # Errors
/// No right to make interfaces, a switch that does not start or take the program.
pub(super) fn start(switch: &SwitchUnderTest, ports: Range<u16>, threads: u16) -> Result<Bench, String> {
    ip("link set lo up")?;
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    let mut words: Vec<String> = Vec::new();
    for port in ports.clone() {
        let _ = ip(&format!("link del s{port}"));
        ip(&format!("link add s{port} type veth peer name h{port}"))?;
        ip(&format!("link set s{port} up"))?;
        ip(&format!("link set h{port} up"))?;
        words.extend(["-i".into(), format!("{port}@s{port}")]);
    }
    if threads > 1 {
        words.extend(["--threads".into(), threads.to_string()]);
    }
    let address = free_address()?;
    let child = Command::new(&switch.binary)
        .args(["--no-p4", "--device-id", "1", "--log-console", "-L", "error"])
        .args(words)
        .args(["--", "--grpc-server-addr", &address, "--cpu-port", "510", "--priority-queues", "8"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start '{}': {error}", switch.binary.display()))?;
    let mut running = Running(child);
    let start = Instant::now();
    while std::net::TcpStream::connect(&address).is_err() {
        if let Ok(Some(status)) = running.0.try_wait() {
            return Err(format!("'{}' ended at once: {status}", switch.binary.display()));
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("'{}' does not listen on {address}", switch.binary.display()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    runtime()?.block_on(install(&address, 1, u32::from(ports.end) - 1, false))?;
    Ok(Bench { name: switch.name.clone(), running, address, ports })
}

/// Sends a frame each [`STEP`] until `over`, for [`STEADY`] at least, and looks each time how many
/// came out.
fn steadily(beside: &'static str, length: usize, over: &dyn Fn() -> bool) -> Result<Steady, String> {
    let frames = frames(length, 256);
    let sender = PacketSocket::open("h0", 0).map_err(|error| format!("h0: {error}"))?;
    let arrived = Arrived::open()?;
    let (start, before) = (Instant::now(), arrived.at("h1")?);
    let (mut sent, mut came) = (0_u64, 0);
    // When those were sent that are inside of the switch.
    let mut inside = VecDeque::new();
    let (mut looked, mut late, mut longest) = (start, 0, Duration::ZERO);
    for (nth, frame) in (1_u32..).zip(frames.iter().cycle()) {
        if start.elapsed() >= STEADY && over() {
            break;
        }
        if sender.send(std::slice::from_ref(frame)).is_ok_and(|sent| sent.taken > sent.refused) {
            inside.push_back(Instant::now());
            sent += 1;
        }
        let count = arrived.at("h1")? - before;
        for at in inside.drain(..inside.len().min((count - came) as usize)) {
            // It was still inside when this thread looked last: how long it was there since, this
            // thread may have slept.
            let inside = looked.saturating_duration_since(at);
            late += u64::from(inside > LATE);
            longest = longest.max(inside);
        }
        (came, looked) = (count, Instant::now());
        std::thread::sleep((start + STEP * nth).saturating_duration_since(looked));
    }
    let seconds = start.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(200));
    let lost = sent.saturating_sub(arrived.at("h1")? - before);
    Ok(Steady { beside, seconds, sent, lost, late, longest_ms: longest.as_secs_f64() * 1e3 })
}

fn one_length(name: &str, pid: u32, length: usize, seconds: f64) -> Result<VethResult, String> {
    let frames = frames(length, 256);
    let sender = PacketSocket::open("h0", 0).map_err(|error| format!("h0: {error}"))?;
    let pour = |time: Duration| {
        let (start, mut offered) = (Instant::now(), 0u64);
        for batch in frames.chunks(BATCH).cycle() {
            if start.elapsed() >= time {
                break;
            }
            offered += sender.send(batch).map_or(0, |sent| sent.taken - sent.refused) as u64;
        }
        offered
    };
    // Caches, carrier, and a first packet that makes the switch allocate.
    pour(Duration::from_millis(300));
    let arrived = Arrived::open()?;
    let (cpu, before, start) = (cpu_seconds(pid), arrived.at("h1")?, Instant::now());
    let offered = pour(Duration::from_secs_f64(seconds));
    let (came, time) = (arrived.at("h1")? - before, start.elapsed().as_secs_f64());
    let cpu = cpu_seconds(pid) - cpu;
    Ok(VethResult {
        switch: name.to_owned(),
        packet_bytes: length,
        offered_per_second: offered as f64 / time,
        packets_per_second: came as f64 / time,
        packets_per_cpu_second: if cpu > 0.0 { came as f64 / cpu } else { 0.0 },
    })
}

/// Frames that an interface has received, from `/proc/net/dev`: a socket that takes them would be
/// woken, and its frames copied, in the time of the switch that sends them.
struct Arrived(File);

impl Arrived {
    fn open() -> Result<Self, String> {
        File::open("/proc/net/dev").map(Self).map_err(|error| format!("/proc/net/dev: {error}"))
    }

    fn at(&self, interface: &str) -> Result<u64, String> {
        self.at_all(&[interface.to_owned()])
    }

    /// Those of all these interfaces together.
    fn at_all(&self, interfaces: &[String]) -> Result<u64, String> {
        // A line has some 130 bytes.
        let mut table = [0; 4_096];
        let length = self.0.read_at(&mut table, 0).map_err(|error| format!("/proc/net/dev: {error}"))?;
        let table = String::from_utf8_lossy(&table[..length]);
        let mut sum = 0;
        for interface in interfaces {
            let of = |line: &str| {
                let (name, counters) = line.split_once(':')?;
                let packets = counters.split_whitespace().nth(1)?;
                if name.trim() == interface { packets.parse::<u64>().ok() } else { None }
            };
            let found = table.lines().find_map(of);
            sum += found.ok_or_else(|| format!("/proc/net/dev has no packets of {interface}"))?;
        }
        Ok(sum)
    }
}

/// User and system time of a process, from `/proc/PID/stat` (proc(5), fields 14 and 15), in ticks
/// of 10 ms.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command, in parentheses, may hold blanks.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>()
        / 100.0
}

fn free_address() -> Result<String, String> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    listener.local_addr().map(|addr| addr.to_string()).map_err(|error| error.to_string())
}
