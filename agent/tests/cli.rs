//! The command `trimwire-agent` on loopback: what it prints, and its exit codes.

use serde_json::Value;
use std::net::UdpSocket;
use std::process::{Child, Command, Output, Stdio};

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    for variable in
        ["RANK", "WORLD_SIZE", "MASTER_ADDR", "TRIMWIRE_PEERS", "TRIMWIRE_HOSTS", "TRIMWIRE_SOCKET_IFNAME"]
    {
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
    loop {
        let first = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let port = first.local_addr().expect("bound").port();
        if (2..=last).all(|host| UdpSocket::bind(("127.0.0.".to_owned() + &host.to_string(), port)).is_ok()) {
            return port;
        }
    }
}

#[test]
fn send_and_recv_report_the_same_messages_in_json() {
    let port = free_port(2);
    let same = format!("--port {port} -n 256K --messages 3 --seed 9 --timeout 20s --json");
    let receiver = start(&format!("recv --bind 127.0.0.1 --from 1 {same}"));
    let sender = start(&format!("send --bind 127.0.0.2 --to 127.0.0.1 --planes 4 --bitrate 200M {same}"));
    let (sent, received) = (json(sender), json(receiver));
    for (report, role) in [(&sent, "send"), (&received, "recv")] {
        assert_eq!(report["role"], role);
        assert_eq!(report["messages"].as_array().map(Vec::len), Some(3), "{report}");
    }
    for message in received["messages"].as_array().expect("messages") {
        // Four planes of every packet: the distortion of 0.00962 in docs/wire-format.md §5, made unbiased.
        let nmse = message["nmse"].as_f64().expect("a number");
        assert!((0.008..0.0125).contains(&nmse), "{message}");
        assert_eq!(message["planes"], serde_json::json!({ "4": message["packets"] }), "{message}");
    }
    assert!(received["totals"]["data_received"].as_u64() >= sent["messages"][0]["packets"].as_u64());
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
    for column in ["size (B)", "time (us)", "algbw", "busbw", "cut %", "nmse"] {
        assert!(stdout.contains(column), "{stdout}");
    }
    assert_eq!(stdout.trim().lines().count(), 4, "a title, headings, two sizes: {stdout}");
    for rank in others {
        let report = json(rank);
        for row in report["rows"].as_array().expect("rows") {
            // Nothing cuts on loopback; a full socket may lose a packet within the bound of 1 %.
            assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 0.05), "{row}");
        }
    }
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
    let (code, _, stderr) = finish(start(&format!("send --to 127.0.0.1 --seal-key {}x", key.display())));
    assert!(code == Some(3) && stderr.contains(&format!("{}x", key.display())), "{code:?} {stderr}");
    std::fs::write(&key, [7; 5]).expect("a key");
    let (code, _, stderr) = finish(start(&format!("send --to 127.0.0.1 --seal-key {}", key.display())));
    assert!(code == Some(3) && stderr.contains("5 bytes (valid: 16, 32)"), "{code:?} {stderr}");
    std::fs::remove_file(&key).expect("the key");
}

#[test]
fn exit_codes_tell_usage_from_bad_input_from_failure() {
    let port = free_port(1);
    let code = |words: &str, says: &str| {
        let (code, _, stderr) = finish(start(words));
        assert!(stderr.contains(says), "{words}: {stderr}");
        code
    };
    assert_eq!(code("send --to nowhere", "IP:PORT"), Some(2));
    assert_eq!(code("send --to 127.0.0.1 -n 4Q", "'4Q'"), Some(2));
    assert_eq!(code("send --to 127.0.0.1 --file /nonexistent", "/nonexistent"), Some(3));
    assert_eq!(code("send --to 127.0.0.1 --rank 0", "rank 0 cannot send to rank 0"), Some(3));
    assert_eq!(code("send --to 127.0.0.1 --coordinates-per-packet 33", "33"), Some(3));
    assert_eq!(code("recv --from 0", "--rank"), Some(3));
    assert_eq!(code("recv --socket-ifname =nosuchinterface", "nosuchinterface"), Some(3));
    assert_eq!(code("perf all-reduce --rank 0 --world 2 --peers 127.0.0.1", "2 ranks"), Some(3));
    assert_eq!(
        code("perf all-reduce --rank 5 --world 2 --peers 127.0.0.1,127.0.0.2", "rank 5 of 2"),
        Some(3)
    );
    assert_eq!(code(&format!("recv --bind 192.0.2.1 --port {port}"), "192.0.2.1"), Some(1));
    assert_eq!(
        code(
            &format!("recv --bind 127.0.0.1 --port {port} --timeout 200ms"),
            "nothing was heard from rank 1"
        ),
        Some(1)
    );
    let alone = format!("send --bind 127.0.0.1 --to 127.0.0.1:9 --port {port} -n 4K --timeout 200ms");
    assert_eq!(code(&alone, "rank 0 has not answered"), Some(1));
}
