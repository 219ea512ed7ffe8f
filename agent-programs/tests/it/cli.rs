// SPDX-License-Identifier: Apache-2.0
//! The command `trimwire-agent` on loopback: what it prints, and its exit codes.

use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use trimwire_bmv2_tests::ports;

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    for variable in ["RANK", "WORLD_SIZE", "MASTER_ADDR", "TRIMWIRE_PEERS", "TRIMWIRE_SOCKET_IFNAME"] {
        command.env_remove(variable);
    }
    command.args(words.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("starts")
}

fn finish(child: Child) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

fn json(child: Child) -> Value {
    let (code, stdout, stderr) = finish(child);
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).expect("JSON")
}

/// A port that is free on all the loopback addresses that a test uses.
fn free_port(last: u8) -> u16 {
    let hosts: Vec<String> = (1..=last).map(|host| format!("127.0.0.{host}")).collect();
    ports::free_on(&hosts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn fewer_planes_give_the_error_of_their_quantiser_and_no_more_than_the_rate_is_sent() {
    let port = free_port(3);
    let words = format!(
        "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} --root 2 --algorithm direct -b 8M -e 8M \
         -n 2 -w 0 --planes 4 --bitrate 50M --timeout 20s --json"
    );
    let ranks: Vec<Child> =
        (0..3).map(|rank| start(&format!("perf broadcast --rank {rank} {words}"))).collect();
    let reports: Vec<Value> = ranks.into_iter().map(json).collect();
    for report in &reports[..2] {
        let row = &report["rows"][0];
        // The distortion of 0.00962 in docs/reference/wire-format.md §5, made unbiased.
        let nmse = row["nmse"].as_f64().expect("a number");
        assert!((0.008..0.0125).contains(&nmse), "{row}");
        assert_eq!(row["planes"], 4);
    }
    // The root sends half of a byte a coordinate to each of two, without headers, and hands one
    // operation to its paced transport while the last is on its way: receivers see the rate, over
    // all operations. A late sender may catch up for 100 us. A receiver that gets no processor as
    // the root begins starts its clock late (by 2 to 6 ms beside three busy programs on two
    // cores): the 5 % have to be longer than that, here 34 ms.
    let least_s = f64::from(2 * 2 * (8 << 20) / 8 * 8) / 50e6;
    for report in &reports[..2] {
        let seconds = report["rows"][0]["seconds_each"].as_array().expect("operations");
        let taken: f64 = seconds.iter().map(|each| each.as_f64().expect("a number")).sum();
        assert!(seconds.len() == 2 && taken > 0.95 * least_s, "{seconds:?} of {least_s}");
    }
}

#[test]
fn an_algorithm_says_the_planes_of_every_operation_alike_at_all_ranks() {
    let port = free_port(3);
    let words = format!(
        "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} -b 64K -e 64K -n 6 -w 2 --timeout 20s --planes 9 --json \
         --adaptive trim-feedback:first=0.2"
    );
    let ranks: Vec<Child> =
        (0..3).map(|rank| start(&format!("perf all-reduce --rank {rank} {words}"))).collect();
    let taken: Vec<Value> = ranks.into_iter().map(|rank| json(rank)["rows"][0]["adaptive"].clone()).collect();
    let of = |rank: usize, key: &str| -> Vec<Value> {
        taken[rank].as_array().expect("operations").iter().map(|taken| taken[key].clone()).collect()
    };
    assert_eq!(of(0, "planes").len(), 8, "those of warm-up, too: {}", taken[0]);
    for key in ["planes", "ratio", "pace", "bytes", "seconds", "trimmed", "arrived", "lost"] {
        assert!(of(0, key) == of(1, key) && of(0, key) == of(2, key), "{key}: {taken:?}");
    }
    assert!(of(0, "planes").iter().all(|planes| (1..=9).contains(&planes.as_u64().expect("a number"))));
    let (first, ratios) = (of(0, "ratio")[0].clone(), of(0, "ratio"));
    assert!(
        ratios.iter().any(|ratio| *ratio != first),
        "where nothing is trimmed it grows, and where packets are lost it falls: {ratios:?}"
    );
}

#[test]
fn a_law_that_is_none_is_bad_input_and_said_by_name() {
    for (law, text) in [
        ("da9", "unknown algorithm 'da9'"),
        ("da2:beta=1", "da2 has no parameter 'beta'"),
        ("netsense:k_max=0.01", "netsense: k_max=0.01"),
    ] {
        let words = format!("perf all-reduce --rank 0 --world 1 --peers 127.0.0.1 --adaptive {law}");
        let (code, _, stderr) = finish(start(&words));
        assert!(
            code == Some(3) && stderr.contains("--adaptive") && stderr.contains(text),
            "{code:?}: {stderr}"
        );
    }
    let words = "perf push-pull --servers 1 --rank 0 --world 2 --peers 127.0.0.1,127.0.0.2 --adaptive da2";
    let (code, _, stderr) = finish(start(words));
    assert!(code == Some(3) && stderr.contains("--adaptive: servers"), "{code:?}: {stderr}");
}

#[test]
fn all_reduce_prints_nccl_tests_columns_and_sums() {
    let port = free_port(3);
    let words = format!(
        "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} -b 16K -e 64K -n 2 --bitrate 200M --timeout 20s"
    );
    let others: Vec<Child> =
        (1..3).map(|rank| start(&format!("perf all-reduce --rank {rank} {words} --json"))).collect();
    let (code, stdout, stderr) = finish(start(&format!("perf all-reduce --rank 0 {words}")));
    assert_eq!(code, Some(0), "{stderr}");
    for column in ["size (B)", "time (us)", "algbw", "busbw", "trimmed %", "nmse"] {
        assert!(stdout.contains(column), "{stdout}");
    }
    assert_eq!(stdout.trim().lines().count(), 4, "a title, headings, two sizes: {stdout}");
    for rank in others {
        let report = json(rank);
        for row in report["rows"].as_array().expect("rows") {
            // Nothing trims on loopback; a full socket may lose a packet within the bound of 1 %.
            assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 0.05), "{row}");
        }
    }
}

/// The metrics at a port once they are served and what is wanted of them holds.
fn metrics_once(port: u16, wanted: impl Fn(&str) -> bool) -> String {
    let scrape = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    let look = |_| {
        let text = scrape().ok().filter(|text| wanted(text));
        if text.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        text
    };
    (0..4_000).find_map(look).expect("metrics in time")
}

/// What a metric of `text` says; 0 before it is there.
fn metric(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    line.unwrap_or(0.0)
}

#[test]
fn a_running_rank_tells_prometheus_what_it_does() {
    let (port, web) = (free_port(2), free_port(1));
    let words = format!(
        "--world 2 --peers 127.0.0.1,127.0.0.2 --port {port} -b 256K -e 256K -n 400 --bitrate 200M --timeout 20s --json"
    );
    let ranks = [
        start(&format!("perf all-reduce --rank 0 --metrics 127.0.0.1:{web} {words}")),
        start(&format!("perf all-reduce --rank 1 {words}")),
    ];
    let text =
        metrics_once(web, |text| metric(text, "trimwire_agent_peer_arrived_packets_total{peer=\"1\"}") > 0.0);
    assert!(
        metric(&text, "trimwire_agent_operation_seconds_count{operation=\"all-reduce\"}") > 0.0,
        "{text}"
    );
    assert!(
        text.contains("trimwire_agent_path_sent_packets_total{peer=\"1\",source=\"127.0.0.1\",source_port="),
        "{text}"
    );
    let (code, table, stderr) = finish(start(&format!("top 127.0.0.1:{web} --paths -i 100ms")));
    assert_eq!(code, Some(0), "{stderr}");
    let first: Vec<&str> = table.lines().nth(1).expect("a peer").split_whitespace().collect();
    assert_eq!(first[..3], ["0", "1", "all"], "{table}");
    assert!(table.lines().count() > 3, "its paths below it: {table}");
    for mut rank in ranks {
        // The rest of it shows nothing more.
        rank.kill().expect("runs");
        rank.wait().expect("ends");
    }
    let (code, _, stderr) = finish(start(&format!("top 127.0.0.1:{web} -i 10ms")));
    assert!(code == Some(1) && stderr.contains(&format!("--metrics 127.0.0.1:{web}")), "{stderr}");
}

#[test]
fn ranks_that_were_told_different_things_all_say_so() {
    let port = free_port(3);
    let words = format!(
        "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} -b 64K -e 64K -n 1 --timeout 20s"
    );
    let ranks = ["--seed 5", "--seed 5", "--seed 6"];
    let ranks: Vec<Child> = (0..)
        .zip(ranks)
        .map(|(rank, more)| start(&format!("perf all-reduce --rank {rank} {words} {more}")))
        .collect();
    for (rank, child) in ranks.into_iter().enumerate() {
        let (code, _, stderr) = finish(child);
        assert_eq!(code, Some(3), "rank {rank}: {stderr}");
        assert!(stderr.contains("--seed is") && stderr.contains("6 at rank 2"), "rank {rank}: {stderr}");
    }
}

/// Of a running program.
fn signal(child: &Child, signal: nix::sys::signal::Signal) {
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, signal).expect("runs");
}

#[test]
fn servers_serve_any_sizes_until_their_workers_leave() {
    let port = free_port(4);
    let group = format!(
        "--world 4 --peers 127.0.0.1,127.0.0.2,127.0.0.3,127.0.0.4 --port {port} --servers 0,3 --bitrate 200M --timeout 20s --json"
    );
    let servers: Vec<Child> = [0, 3].map(|rank| start(&format!("serve --rank {rank} {group}"))).into();
    // The servers are told neither sizes, nor seed, nor planes.
    let words = format!("{group} -b 16K -e 256K -n 2 --seed 3 --planes 9");
    let workers = [1, 2].map(|rank| start(&format!("perf push-pull --rank {rank} {words}")));
    for worker in workers {
        let report = json(worker);
        assert_eq!(report["rows"].as_array().map(Vec::len), Some(3), "{report}");
        for row in report["rows"].as_array().expect("rows") {
            assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 0.05), "{row}");
        }
    }
    for server in servers {
        let report = json(server);
        // Three sizes, one warm-up and two measured of each.
        assert_eq!(report["operations"], 9, "{report}");
    }
}

#[test]
fn a_server_says_who_died_waits_for_another_start_and_ends_when_told() {
    let port = free_port(3);
    let group = format!("--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} --servers 2 --json");
    let web = free_port(1);
    let mut server = start(&format!("serve --rank 2 {group} --timeout 3s --metrics 127.0.0.1:{web}"));
    let words = format!("{group} -b 64K -e 64K --bitrate 100M");
    let long = format!("{words} -n 10000 --timeout 6s");
    let mut workers = [0, 1].map(|rank| start(&format!("perf push-pull --rank {rank} {long}")));
    metrics_once(web, |text| {
        metric(text, "trimwire_agent_operation_seconds_count{operation=\"push-pull\"}") > 0.0
    });
    workers[1].kill().expect("runs");
    let said = std::io::BufReader::new(server.stderr.take().expect("piped"));
    let said = std::io::BufRead::lines(said)
        .map_while(Result::ok)
        .find(|line| line.contains("waits for the workers"));
    assert!(said.as_ref().is_some_and(|said| said.contains("rank 1")), "{said:?}");
    for worker in workers {
        let (code, _, stderr) = finish(worker);
        // The other one fails by itself, because of the same rank.
        assert!(code.is_none() || (code == Some(1) && stderr.contains("rank 1")), "{code:?} {stderr}");
    }
    let again = format!("{words} -n 2 --timeout 20s");
    let workers = [0, 1].map(|rank| start(&format!("perf push-pull --rank {rank} {again}")));
    workers.into_iter().for_each(|worker| drop(json(worker)));
    let (code, stdout, _) = finish(server);
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    assert_eq!(code, Some(1), "it has failures to tell of: {report}");
    assert!(report["operations"].as_u64() >= Some(3), "{report}");
    // One that nobody comes to ends when it is told to.
    let idle = start(&format!("serve --rank 2 {group} --timeout 20s --metrics 127.0.0.1:{web}"));
    metrics_once(web, |_| true);
    signal(&idle, nix::sys::signal::Signal::SIGTERM);
    assert_eq!(finish(idle).0, Some(0));
}

#[test]
fn sealed_ranks_sum_among_themselves_and_hear_nobody_else() {
    let port = free_port(2);
    let key = std::env::temp_dir().join(format!("trimwire-key-{port}"));
    std::fs::write(&key, [7; 32]).expect("a key");
    let words = format!(
        "--world 2 --peers 127.0.0.1,127.0.0.2 --port {port} -b 64K -e 64K -n 2 --planes 9 --timeout 20s --json"
    );
    let sealed = format!("{words} --seal-key {}", key.display());
    let other = start(&format!("perf all-reduce --rank 1 {sealed}"));
    let report = json(start(&format!("perf all-reduce --rank 0 {sealed}")));
    assert!(report["rows"][0]["nmse"].as_f64().is_some_and(|nmse| nmse < 0.05), "{report}");
    assert_eq!(report["totals"]["unsealed"], 0);
    json(other);
    // One has no key: they never meet, and say who was missing.
    let short = |words: &str| words.replace("--timeout 20s", "--timeout 1s");
    let other = start(&short(&format!("perf all-reduce --rank 1 {words}")));
    let (code, _, stderr) = finish(start(&short(&format!("perf all-reduce --rank 0 {sealed}"))));
    assert!(code == Some(1) && stderr.contains("rank 1"), "{code:?} {stderr}");
    finish(other);
    let with = |key: &str| {
        finish(start(&format!("perf all-reduce --rank 0 --world 1 --peers 127.0.0.1 --seal-key {key}")))
    };
    let (code, _, stderr) = with(&format!("{}x", key.display()));
    assert!(code == Some(3) && stderr.contains(&format!("{}x", key.display())), "{code:?} {stderr}");
    std::fs::write(&key, [7; 5]).expect("a key");
    let (code, _, stderr) = with(&key.display().to_string());
    assert!(code == Some(3) && stderr.contains("5 bytes (valid: 16, 32)"), "{code:?} {stderr}");
    std::fs::remove_file(&key).expect("the key");
}

#[test]
fn the_doctor_looks_at_this_host_and_at_the_way_to_another() {
    let port = free_port(1);
    let listener = start(&format!("doctor --listen --bind 127.0.0.1 --port {port}"));
    let (code, stdout, stderr) = finish(start(&format!("doctor --peer 127.0.0.1 --port {port} --json")));
    let report: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("JSON: {stdout} {stderr}"));
    assert_eq!(code, Some(i32::from(report["fine"] == false)), "{report}");
    let findings = report["findings"].as_array().expect("findings");
    let state = |check: &str| {
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.unwrap_or_else(|| panic!("no {check}: {report}"))["state"].as_str().expect("a state").to_owned()
    };
    for check in ["receive buffer", "bursts", "timer slack", "processors", "to 127.0.0.1: round trip"] {
        state(check);
    }
    // Nothing rewrites DSCPs or shortens packets on loopback.
    for way in ["to 127.0.0.1", "from 127.0.0.1"] {
        for check in ["MTU of the path", "DSCP", "UDP without checksums"] {
            assert_eq!(state(&format!("{way}: {check}")), "fine", "{report}");
        }
        assert_ne!(state(&format!("{way}: trimming")), "fine", "nothing trims: {report}");
    }
    assert_eq!(finish(listener).0, Some(0));
    let (code, stdout, _) = finish(start("doctor"));
    assert!(matches!(code, Some(0 | 1)) && stdout.contains("receive buffer: "), "{stdout}");
}

#[test]
fn exit_codes_tell_usage_from_bad_input_from_failure() {
    let port = free_port(1);
    let code = |words: &str, says: &str| {
        let (code, _, stderr) = finish(start(words));
        assert!(stderr.contains(says), "{words}: {stderr}");
        code
    };
    let alone = "perf all-reduce --rank 0 --world 1 --peers 127.0.0.1";
    assert_eq!(code("perf", "Usage"), Some(2));
    assert_eq!(code(&format!("{alone} --exact --deadline 1s"), "--deadline"), Some(2));
    assert_eq!(code(&format!("{alone} -b 4Q"), "'4Q'"), Some(2));
    assert_eq!(code(&format!("{alone} --min-byte 4K"), "--min-bytes"), Some(2));
    assert_eq!(code("doctor --peer no.such.host.invalid", "no.such.host.invalid"), Some(3));
    assert_eq!(code("perf all-reduce --rank 0 --world 2 --peers 127.0.0.1", "2 ranks"), Some(3));
    assert_eq!(
        code("perf all-reduce --rank 5 --world 2 --peers 127.0.0.1,127.0.0.2", "rank 5 of 2"),
        Some(3)
    );
    assert_eq!(code("doctor --socket-ifname =nosuchinterface", "nosuchinterface"), Some(3));
    assert_eq!(code(&format!("doctor --listen --bind 192.0.2.1 --port {port}"), "192.0.2.1"), Some(1));
    let call = format!("doctor --peer 127.0.0.1 --port {port} --timeout 200ms");
    assert_eq!(code(&call, "does `doctor --listen` run there?"), Some(1));
}
