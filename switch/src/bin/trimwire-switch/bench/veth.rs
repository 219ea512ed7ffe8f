// SPDX-License-Identifier: Apache-2.0
//! A switch process between two veth pairs: frames are poured in at one end and counted at the other.
//!
//! The process is what users run: this switch's binary or `simple_switch_grpc`, with the same program and the same tables,
//! written by the same client. It is to run in a network namespace of its own, as root.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use super::workload::{Program, frames, install};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use trimwire_switch::driver::PacketSocket;

/// Frames handed to the kernel at once.
const BATCH: usize = 64;
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Frames that came out for each second of processor time that the switch took, in all its threads.
    pub(super) packets_per_cpu_second: f64,
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

/// Measures one switch for `seconds` per length. Interfaces `s0`, `h0`, `s1`, `h1` are made and deleted.
///
/// # Errors
/// No right to make interfaces, a switch that does not start or take the program.
pub(super) fn measure(
    switch: &SwitchUnderTest,
    program: &Program,
    lengths: &[usize],
    seconds: f64,
) -> Result<Vec<VethResult>, String> {
    ip("link set lo up")?;
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    for port in 0..2 {
        let _ = ip(&format!("link del s{port}"));
        ip(&format!("link add s{port} type veth peer name h{port}"))?;
        ip(&format!("link set s{port} up"))?;
        ip(&format!("link set h{port} up"))?;
    }
    let address = free_address()?;
    let child = Command::new(&switch.binary)
        .args([
            "--no-p4",
            "--device-id",
            "1",
            "-i",
            "0@s0",
            "-i",
            "1@s1",
            "--log-console",
            "-L",
            "error",
            "--",
        ])
        .args(["--grpc-server-addr", &address, "--cpu-port", "510", "--priority-queues", "8"])
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    // Every route leads to port 1.
    runtime.block_on(install(&address, 1, program, 1, false))?;
    lengths.iter().map(|&length| one_length(&switch.name, running.0.id(), length, seconds)).collect()
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
    let (cpu, before, start) = (cpu_seconds(pid), arrived("h1")?, Instant::now());
    let offered = pour(Duration::from_secs_f64(seconds));
    let (came, time) = (arrived("h1")? - before, start.elapsed().as_secs_f64());
    let cpu = cpu_seconds(pid) - cpu;
    Ok(VethResult {
        switch: name.to_owned(),
        packet_bytes: length,
        offered_per_second: offered as f64 / time,
        packets_per_second: came as f64 / time,
        packets_per_cpu_second: if cpu > 0.0 { came as f64 / cpu } else { 0.0 },
    })
}

/// Frames that an interface has received, from `/proc/net/dev`: a socket that takes them would be woken, and its frames copied, in the
/// time of the switch that sends them.
fn arrived(interface: &str) -> Result<u64, String> {
    let table =
        std::fs::read_to_string("/proc/net/dev").map_err(|error| format!("/proc/net/dev: {error}"))?;
    let of = |line: &str| {
        let (name, counters) = line.split_once(':')?;
        let packets = counters.split_whitespace().nth(1)?;
        if name.trim() == interface { packets.parse().ok() } else { None }
    };
    table.lines().find_map(of).ok_or_else(|| format!("/proc/net/dev has no packets of {interface}"))
}

/// User and system time of a process, from `/proc/PID/stat` (proc(5), fields 14 and 15), in ticks of 10 ms.
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
