// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf` between network namespaces whose interfaces and paths have other MTUs than
//! Ethernet's. Needs root and iproute2; skipped loudly otherwise.

use serde_json::Value;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);

fn ip(words: &str) -> Result<String, String> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("ip {words}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {words}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Namespaces of one test, which go away with it.
struct Fabric {
    names: Vec<String>,
    addresses: [&'static str; 2],
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

impl Fabric {
    fn new(test: &str, count: usize) -> Result<Self, String> {
        let pid = std::process::id();
        let mut fabric = Self { names: Vec::new(), addresses: ["10.0.1.1", "10.0.1.2"] };
        for nth in 0..count {
            let name = format!("tw-{pid}-{test}-{nth}");
            ip(&format!("netns add {name}"))?;
            fabric.names.push(name);
            fabric.ip(nth, "link set lo up")?;
        }
        Ok(fabric)
    }

    fn ip(&self, nth: usize, words: &str) -> Result<String, String> {
        ip(&format!("-n {} {words}", self.names[nth]))
    }

    fn link(&self, (a, at_a): (usize, &str), (b, at_b): (usize, &str), mtu: [u16; 2]) -> Result<(), String> {
        self.ip(a, &format!("link add {at_a} type veth peer name {at_b} netns {}", self.names[b]))?;
        self.ip(a, &format!("link set {at_a} mtu {} up", mtu[0]))?;
        self.ip(b, &format!("link set {at_b} mtu {} up", mtu[1])).map(drop)
    }

    /// Two ranks and a link between.
    fn direct(test: &str, mtu: [u16; 2]) -> Result<Self, String> {
        let fabric = Self::new(test, 2)?;
        fabric.link((0, "eth"), (1, "eth"), mtu)?;
        for rank in 0..2 {
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]))?;
        }
        Ok(fabric)
    }

    /// With a bridge between, which drops what is longer than `mtu` and says nothing.
    fn bridged(test: &str, mtu: u16) -> Result<Self, String> {
        let fabric = Self::new(test, 3)?;
        fabric.ip(2, "link add br type bridge")?;
        fabric.ip(2, "link set br up")?;
        for rank in 0..2 {
            let port = format!("port{rank}");
            fabric.link((rank, "eth"), (2, &port), [9_000, mtu])?;
            fabric.ip(2, &format!("link set {port} master br"))?;
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]))?;
        }
        Ok(fabric)
    }

    /// With a router between, which drops what is longer than `mtu` on the way to rank 1, and sends
    /// ICMP messages that say so.
    fn routed(test: &str, mtu: u16) -> Result<Self, String> {
        let mut fabric = Self::new(test, 3)?;
        fabric.addresses = ["10.0.1.1", "10.0.2.1"];
        for rank in 0..2 {
            let (port, net) = (format!("port{rank}"), rank + 1);
            let own = if rank == 1 { mtu } else { 9_000 };
            fabric.link((rank, "eth"), (2, &port), [9_000, own])?;
            fabric.ip(2, &format!("addr add 10.0.{net}.254/24 dev {port}"))?;
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]))?;
            fabric.ip(rank, &format!("route add default via 10.0.{net}.254"))?;
        }
        ip(&format!("netns exec {} sysctl -qw net.ipv4.ip_forward=1", fabric.names[2]))?;
        Ok(fabric)
    }

    fn start(&self, rank: usize, words: &str, met: bool) -> Child {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[rank], env!("CARGO_BIN_EXE_trimwire-agent"), "perf"]);
        command.args("all-reduce --json --world 2 --timeout 20s --set threads=0".split(' '));
        command.args(words.split_whitespace()).args(["--rank", &rank.to_string()]);
        if met {
            command.args(["--master-addr", self.addresses[0]]);
        } else {
            command.args(["--peers", &self.addresses.join(",")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("ip runs")
    }

    /// Both ranks' reports.
    fn perf(&self, words: &str, met: bool, meanwhile: impl FnOnce()) -> [Value; 2] {
        let ranks = [0, 1].map(|rank| self.start(rank, words, met));
        meanwhile();
        ranks.map(|rank| {
            let output = finish(rank);
            let (stdout, stderr) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{words}: {stderr}");
            let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout} {stderr}"));
            for row in report["rows"].as_array().expect("rows") {
                assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-9), "{row}");
            }
            report
        })
    }
}

/// Waits for a process; one that does not end is killed, and the test fails.
#[expect(clippy::disallowed_methods, reason = "tests of real processes wait in real time")]
fn finish(mut child: Child) -> Output {
    let end = Instant::now() + LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > end {
            let _ = child.kill();
            let output = child.wait_with_output().expect("its output");
            panic!("still running after {LIMIT:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("its output")
}

/// Waits until a rank's interface has sent so many bytes.
#[expect(clippy::disallowed_methods, reason = "as above")]
fn sent(fabric: &Fabric, rank: usize, bytes: u64) {
    let end = Instant::now() + LIMIT;
    let path = format!("netns exec {} cat /sys/class/net/eth/statistics/tx_bytes", fabric.names[rank]);
    while ip(&path).ok().and_then(|text| text.trim().parse::<u64>().ok()).is_none_or(|sent| sent < bytes) {
        assert!(Instant::now() < end, "rank {rank} sends nothing");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The fabric, or why there is none.
fn or_skip(test: &str, fabric: Result<Fabric, String>) -> Option<Fabric> {
    fabric.map_err(|error| eprintln!("SKIPPED: {test}: {error}")).ok()
}

const EXACT: &str = "-b 1M -e 1M -n 3 --exact";
const BOUNDED: &str = "-b 1M -e 1M -n 3";

fn total(report: &Value, key: &str) -> u64 {
    report["totals"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {report}"))
}

#[test]
fn packets_are_made_for_the_smaller_of_both_interfaces_met_or_by_peers() {
    for (at, mtu) in [[1_450, 1_450], [9_000, 9_000], [9_000, 1_450], [576, 1_500]].into_iter().enumerate() {
        let Some(fabric) = or_skip("MTUs of interfaces", Fabric::direct(&format!("i{at}"), mtu)) else {
            return;
        };
        for met in [true, false] {
            let [exact, _] = fabric.perf(EXACT, met, || {});
            let [bounded, _] = fabric.perf(BOUNDED, met, || {});
            // Rows are divided evenly: of what fits at least half is used, whatever the MTU.
            let most = u64::from(mtu[0].min(mtu[1])) - 28;
            for report in [exact, bounded] {
                // With those of control packets, which are a few percent.
                let mean = total(&report, "payload_bytes_sent") / total(&report, "data_sent").max(1);
                assert!(mean <= most + most / 8 && mean > most / 2, "{mtu:?}, {met}: {mean} bytes a packet");
                assert_eq!(total(&report, "pieces_sent"), 0, "{mtu:?}, {met}");
            }
        }
    }
}

#[test]
fn a_path_that_carries_less_is_found_with_and_without_icmp() {
    for (name, fabric) in [("hole", Fabric::bridged("hole", 1_280)), ("icmp", Fabric::routed("icmp", 1_400))]
    {
        let Some(fabric) = or_skip(name, fabric) else { return };
        for (words, met) in [(EXACT, true), (BOUNDED, false)] {
            let reports = fabric.perf(words, met, || {});
            let pieces: u64 = reports.iter().map(|report| total(report, "pieces_sent")).sum();
            assert!(pieces > 0, "{name}: nothing was too long");
        }
    }
}

#[test]
fn a_path_that_shrinks_under_a_job_is_lived_with() {
    const LONG: &str = "-b 4M -e 4M -n 60";
    // In the switch, silently; and at the interface of a rank itself.
    for (name, rank, words) in [("bridge", 2, "link set port1 mtu 1400"), ("own", 0, "link set eth mtu 1400")]
    {
        let Some(fabric) = or_skip(name, Fabric::bridged(name, 9_000)) else { return };
        for exact in ["", " --exact"] {
            let reports = fabric.perf(&format!("{LONG}{exact}"), true, || {
                sent(&fabric, 0, 20_000_000);
                fabric.ip(rank, words).expect("shrinks");
            });
            let pieces: u64 = reports.iter().map(|report| total(report, "pieces_sent")).sum();
            assert!(pieces > 0, "{name}: it was over before the path shrank");
            fabric.ip(rank, &words.replace("1400", "9000")).expect("grows");
        }
    }
}

#[test]
fn an_interface_below_576_bytes_is_refused_by_name() {
    let Some(fabric) = or_skip("an MTU of 400", Fabric::direct("small", [400, 400])) else { return };
    for met in [true, false] {
        let output = finish(fabric.start(0, BOUNDED, met));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("interface 'eth' (10.0.1.1) has an MTU of 400 bytes; at least 576"), "{text}");
    }
}
