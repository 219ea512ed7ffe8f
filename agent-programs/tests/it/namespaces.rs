// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf` between network namespaces whose interfaces and paths have other MTUs than
//! Ethernet's. Needs root and iproute2; skipped loudly otherwise.

use serde_json::Value;
use std::process::Command;
use std::time::Duration;
use trimwire_bmv2_tests::process::{Running, poll};
use trimwire_bmv2_tests::{Namespace, namespace};

const LIMIT: Duration = Duration::from_secs(120);

/// Namespaces of one test, which go away with it: those of the ranks first.
struct Fabric {
    spaces: Vec<Namespace>,
    addresses: [&'static str; 2],
}

impl Fabric {
    fn new(count: usize) -> Self {
        let spaces = (0..count).map(|nth| Namespace::new(&format!("r{nth}")).expect("a namespace"));
        Self { spaces: spaces.collect(), addresses: ["10.0.1.1", "10.0.1.2"] }
    }

    fn ip(&self, nth: usize, words: &str) {
        self.spaces[nth].ip(words).expect("ip");
    }

    fn link(&self, (a, at_a): (usize, &str), (b, at_b): (usize, &str), mtu: [u16; 2]) {
        let peer = self.spaces[b].name();
        self.ip(a, &format!("link add {at_a} type veth peer name {at_b} netns {peer}"));
        self.ip(a, &format!("link set {at_a} mtu {} up", mtu[0]));
        self.ip(b, &format!("link set {at_b} mtu {} up", mtu[1]));
    }

    /// Two ranks and a link between.
    fn direct(mtu: [u16; 2]) -> Self {
        let fabric = Self::new(2);
        fabric.link((0, "eth"), (1, "eth"), mtu);
        for rank in 0..2 {
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]));
        }
        fabric
    }

    /// With a bridge between, which silently drops what is longer than `mtu`.
    fn bridged(mtu: u16) -> Self {
        let fabric = Self::new(3);
        fabric.ip(2, "link add bridge0 type bridge");
        fabric.ip(2, "link set bridge0 up");
        for rank in 0..2 {
            let port = format!("port{rank}");
            fabric.link((rank, "eth"), (2, &port), [9_000, mtu]);
            fabric.ip(2, &format!("link set {port} master bridge0"));
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]));
        }
        fabric
    }

    /// With a router between, which drops what is longer than `mtu` on the way to rank 1, and sends
    /// ICMP messages that say so.
    fn routed(mtu: u16) -> Self {
        let mut fabric = Self::new(3);
        fabric.addresses = ["10.0.1.1", "10.0.2.1"];
        for rank in 0..2 {
            let (port, net) = (format!("port{rank}"), rank + 1);
            let own = if rank == 1 { mtu } else { 9_000 };
            fabric.link((rank, "eth"), (2, &port), [9_000, own]);
            fabric.ip(2, &format!("addr add 10.0.{net}.254/24 dev {port}"));
            fabric.ip(rank, &format!("addr add {}/24 dev eth", fabric.addresses[rank]));
            fabric.ip(rank, &format!("route add default via 10.0.{net}.254"));
        }
        fabric.spaces[2].run("sysctl", &["-qw", "net.ipv4.ip_forward=1"]).expect("sysctl");
        fabric
    }

    fn start(&self, rank: usize, words: &str, met: bool) -> Running {
        self.start_by(self.spaces[rank].command(env!("CARGO_BIN_EXE_trimwire-agent")), rank, words, met)
    }

    fn start_by(&self, mut command: Command, rank: usize, words: &str, met: bool) -> Running {
        command.args("perf all-reduce --json --world 2 --timeout 20s --channels 1".split(' '));
        command.args(words.split_whitespace()).args(["--rank", &rank.to_string()]);
        if met {
            command.args(["--master-addr", self.addresses[0]]);
        } else {
            command.args(["--peers", &self.addresses.join(",")]);
        }
        Running::start(&mut command).expect("ip runs")
    }

    /// Both ranks' reports.
    fn perf(&self, words: &str, met: bool, meanwhile: impl FnOnce()) -> [Value; 2] {
        let ranks = [0, 1].map(|rank| self.start(rank, words, met));
        meanwhile();
        let reports = ranks.map(|rank| rank.json(LIMIT).expect("a report"));
        let rows = reports.each_ref().map(|report| report["rows"].as_array().expect("rows"));
        for (one, other) in rows[0].iter().zip(rows[1]) {
            // All of it, or, of sums that are not exact, all but what `--loss` allows. What one
            // rank misses of a shard that it sums is missing from the other's result, too.
            let missing = [one, other].map(|row| row["missing_share"].as_f64().expect("a share"));
            let allowed = !words.contains("--exact") && missing.iter().sum::<f64>() > 0.0;
            let allowed = allowed && missing.iter().all(|&share| share <= 0.01);
            for row in [one, other] {
                let right = row["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-9);
                assert!(allowed || right, "{row} beside {missing:?}");
            }
        }
        reports
    }

    /// Waits until a rank's interface has sent so many bytes more than at the call.
    fn wait_until_sent(&self, rank: usize, bytes: u64) {
        let sent = || -> anyhow::Result<u64> {
            let text = self.spaces[rank].run("cat", &["/sys/class/net/eth/statistics/tx_bytes"])?;
            Ok(text.trim().parse()?)
        };
        // An interface counts from its beginning on, with what earlier jobs sent.
        let before = sent().expect("a counter");
        let look = || Ok((sent()? >= before + bytes).then_some(()));
        poll("a rank that sends", LIMIT, look).expect("it sends");
    }
}

const EXACT: &str = "-b 1M -e 1M -n 3 --exact";
const BOUNDED: &str = "-b 1M -e 1M -n 3";

fn total(report: &Value, key: &str) -> u64 {
    report["totals"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {report}"))
}

#[test]
fn packets_are_made_for_the_smaller_of_both_interfaces_met_or_by_peers() {
    if !namespace::or_skip("MTUs of interfaces") {
        return;
    }
    for mtu in [[1_450, 1_450], [9_000, 9_000], [9_000, 1_450], [576, 1_500]] {
        let fabric = Fabric::direct(mtu);
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
    if !namespace::or_skip("paths with smaller MTUs") {
        return;
    }
    for (name, fabric) in [("hole", Fabric::bridged(1_280)), ("icmp", Fabric::routed(1_400))] {
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
    if !namespace::or_skip("a path that shrinks") {
        return;
    }
    // In the switch, silently; and at the interface of a rank itself.
    for (name, rank, words) in [("bridge", 2, "link set port1 mtu 1400"), ("own", 0, "link set eth mtu 1400")]
    {
        let fabric = Fabric::bridged(9_000);
        for exact in ["", " --exact"] {
            let reports = fabric.perf(&format!("{LONG}{exact}"), true, || {
                fabric.wait_until_sent(0, 20_000_000);
                fabric.ip(rank, words);
            });
            let pieces: u64 = reports.iter().map(|report| total(report, "pieces_sent")).sum();
            assert!(pieces > 0, "{name}: it was over before the path shrank");
            fabric.ip(rank, &words.replace("1400", "9000"));
        }
    }
}

#[test]
fn an_interface_below_576_bytes_is_refused_by_name() {
    if !namespace::or_skip("an MTU of 400") {
        return;
    }
    let fabric = Fabric::direct([400, 400]);
    for met in [true, false] {
        let output = fabric.start(0, BOUNDED, met).finish(LIMIT).expect("it ends");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        assert!(text.contains("interface 'eth' (10.0.1.1) has an MTU of 400 bytes; at least 576"), "{text}");
    }
}

#[test]
fn half_of_the_paths_dead_delays_a_job_and_does_not_end_it() {
    if !namespace::or_skip("dead paths") {
        return;
    }
    let fabric = Fabric::direct([1_500, 1_500]);
    for space in &fabric.spaces {
        // Every second source port of DATA; control packets come from port 9217.
        let rules = [
            "add table inet dead",
            "add chain inet dead in { type filter hook input priority 0 ; }",
            "add rule inet dead in udp sport > 20000 udp sport & 1 == 1 drop",
        ];
        for rule in rules {
            if let Err(why) = space.run("nft", &rule.split(' ').collect::<Vec<_>>()) {
                return trimwire_bmv2_tests::skip("dead paths", &format!("nft: {why:#}"));
            }
        }
    }
    for words in ["-b 4K -e 4K -n 50", "-b 1M -e 1M -n 3 --exact"] {
        fabric.perf(words, false, || {});
    }
}

#[test]
fn an_ordinary_users_sockets_are_enough() {
    if !namespace::or_skip("a job without capabilities") {
        return;
    }
    let fabric = Fabric::direct([1_500, 1_500]);
    let start = |rank: usize| {
        let mut command = fabric.spaces[rank].command("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all", env!("CARGO_BIN_EXE_trimwire-agent")]);
        fabric.start_by(command, rank, "-b 16M -e 16M -n 3 --exact", false)
    };
    for rank in [0, 1].map(start) {
        let report = rank.json(LIMIT).expect("a report");
        assert_eq!(total(&report, "overflowed"), 0, "{report}");
        assert!(report["rows"][0]["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-9), "{report}");
    }
}
