// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf --record` and `--replay`, and `trimwire-agent transcript`, on loopback.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use trimwire_bmv2_tests::ports;

fn start(words: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-agent"));
    for variable in ["RANK", "WORLD_SIZE", "TRIMWIRE_PEERS", "TRIMWIRE_SOCKET_IFNAME", "TRIMWIRE_DEBUG"] {
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

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trimwire-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A place in the compressed line of a record in a transcript's second half.
fn inside_a_record(bytes: &[u8]) -> usize {
    const GZIP_HEADER: usize = 10;
    let behind = &bytes[bytes.len() / 2..];
    let begins = behind.windows(3).position(|three| three == [0x1f, 0x8b, 8]).expect("a record begins");
    bytes.len() / 2 + begins + GZIP_HEADER + 4
}

/// Two ranks' reports, and their exit codes and complaints.
fn pair(words: &str) -> [(Option<i32>, Value, String); 2] {
    let port = ports::free_on(&["127.0.0.1", "127.0.0.2"]);
    let peers = format!("--world 2 --peers 127.0.0.1,127.0.0.2 --port {port} --timeout 20s --json");
    let ranks = [0, 1].map(|rank| start(&format!("perf all-reduce --rank {rank} {peers} {words}")));
    ranks.map(|rank| {
        let (code, stdout, stderr) = finish(rank);
        (code, serde_json::from_str(&stdout).unwrap_or_default(), stderr)
    })
}

fn hashes(report: &Value) -> Vec<String> {
    let rows = report["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["sha256"].as_str().expect("a hash").to_owned()).collect()
}

/// Of all sizes' packets together.
fn trimmed_share(report: &Value) -> f64 {
    let rows = report["rows"].as_array().expect("rows");
    let of = |row: &Value, name: &str| row[name].as_f64().expect("a number");
    let packets: f64 = rows.iter().map(|row| of(row, "packets")).sum();
    rows.iter().map(|row| of(row, "trimmed_share") * of(row, "packets")).sum::<f64>() / packets
}

/// Packets of Ethernet's length, or loopback would have hardly any to trim.
const SIZES: &str = "-b 64K -e 256K -n 2 --bitrate 400M --seed 5 --mtu 1500";
const LOSSY: &str = "--set faults=drop=0.004,truncate=0.2,duplicate=0.02,reorder=0.05";

#[test]
fn a_replay_has_the_hash_of_the_run_that_was_recorded_over_a_lossy_link() {
    for replicas in ["", "--consistent"] {
        let folder = Folder::new(&format!("replay{replicas}"));
        let (run, again) = (folder.file("run"), folder.file("again-{rank}"));
        let recorded = pair(&format!("{SIZES} {replicas} {LOSSY} --record {run}"));
        for (code, report, stderr) in &recorded {
            assert_eq!(*code, Some(0), "{stderr}");
            // A fifth is expected. Of the smaller size's 76 packets chance alone may trim three.
            assert!(trimmed_share(report) > 0.1, "{report}");
            assert_eq!(report["recorded"]["lost"], 0, "{report}");
            let bytes = report["recorded"]["bytes_per_packet"].as_f64();
            // Messages of 19 packets or more, each with a record of less than 300 bytes.
            assert!(bytes.is_some_and(|bytes| bytes < 20.0), "{report}");
        }
        let replay = format!("{SIZES} {replicas} --reliable --replay {run} --record {again}");
        let replayed = pair(&replay);
        for ((_, was, _), (code, is, stderr)) in recorded.iter().zip(&replayed) {
            assert_eq!(*code, Some(0), "{stderr}");
            assert_eq!(hashes(was), hashes(is), "{replicas}");
        }
        for name in ["again-0", "again-1"] {
            assert!(Path::new(&folder.file(name)).exists(), "{name}");
        }

        let refused = |words: &str| {
            let rank = start(&format!("perf all-reduce --rank 0 --peers 127.0.0.1,127.0.0.2 {words}"));
            let (code, _, stderr) = finish(rank);
            (code, stderr)
        };
        let (code, stderr) = refused(&format!("--world 2 {SIZES} --replay {run}"));
        assert!(code == Some(2) && stderr.contains("--reliable"), "{code:?} {stderr}");
        let (code, stderr) = refused(&format!("--world 2 --seed 6 --reliable --replay {run}"));
        assert!(code == Some(3) && stderr.contains("seed 5, this run of seed 6"), "{code:?} {stderr}");
        let (code, stderr) = refused(&format!("--world 2 --seed 5 -b 4K -e 4K --reliable --replay {run}"));
        assert!(code == Some(3) && stderr.contains("coordinates 16384"), "{code:?} {stderr}");
        let (code, stderr) = refused(
            &format!("--world 2 {SIZES} {replicas} -n 9 --reliable --replay {run}").replacen("-n 2", "", 1),
        );
        assert!(code == Some(3) && stderr.contains("operation 4 had coordinates 65536"), "{code:?} {stderr}");
        let (code, stderr) = refused(&format!("--world 2 {SIZES} --reliable --replay {run} --record {run}"));
        assert!(code == Some(3) && stderr.contains("same file"), "{code:?} {stderr}");
    }
}

#[test]
fn a_transcript_is_shown_by_operation_and_by_step_and_damage_is_named() {
    let folder = Folder::new("show");
    let run = folder.file("run");
    for (code, _, stderr) in pair(&format!("{SIZES} {LOSSY} --record {run}")) {
        assert_eq!(code, Some(0), "{stderr}");
    }
    let show = |words: &str| finish(start(&format!("transcript show {words}")));
    let (code, stdout, stderr) = show(&format!("{run}.0 {run}.1"));
    assert_eq!(code, Some(0), "{stderr}");
    for column in ["slowest rank", "slowest link", "trimmed %", "missing %", "bits/packet"] {
        assert!(stdout.contains(column), "{stdout}");
    }
    assert_eq!(stdout.trim().lines().count(), 8, "a title, headings, six operations: {stdout}");
    let (code, stdout, _) = show(&format!("{run}.0 {run}.1 --step 4"));
    assert!(code == Some(0) && stdout.contains("slowest link: rank"), "{stdout}");
    for link in ["0 > 1  reduce-scatter", "1 > 0  reduce-scatter", "0 > 1      all-gather"] {
        assert!(stdout.contains(link), "{link}: {stdout}");
    }
    let (_, stdout, _) = show(&format!("{run}.1 --step 4 --json"));
    let report: Value = serde_json::from_str(&stdout).expect("JSON");
    let messages = report["story"]["messages"].as_array().expect("messages");
    let sum = |field: &str| messages.iter().filter_map(|message| message[field].as_u64()).sum::<u64>();
    assert_eq!(Some(sum("trimmed")), report["operations"][0]["trimmed"].as_u64());
    let rungs = |message: &Value| {
        message["trimmed_to"]
            .as_array()
            .map(|rungs| rungs.iter().filter_map(|rung| rung["packets"].as_u64()).sum())
    };
    for message in messages {
        assert_eq!(rungs(message), message["trimmed"].as_u64(), "{message}");
    }

    let (code, _, stderr) = show(&format!("{run}.0 --step 99"));
    assert!(code == Some(3) && stderr.contains("no operation 99; there are 1 to 6"), "{stderr}");
    let (code, _, stderr) = show(&format!("{run}.0 {run}.0"));
    assert!(code == Some(3) && stderr.contains("both of rank 0"), "{stderr}");
    let bytes = std::fs::read(format!("{run}.0")).expect("a transcript");
    std::fs::write(folder.file("short"), &bytes[..bytes.len() - 3]).expect("written");
    let (code, stdout, _) = show(&folder.file("short"));
    assert!(code == Some(0) && stdout.contains("in the middle of a record"), "{stdout}");
    let mut damaged = bytes.clone();
    damaged[inside_a_record(&bytes)] ^= 1;
    std::fs::write(folder.file("damaged"), &damaged).expect("written");
    let (code, stdout, _) = show(&folder.file("damaged"));
    assert!(code == Some(1) && stdout.contains("is damaged"), "{stdout}");
    std::fs::write(folder.file("other"), "gradients").expect("written");
    let (code, _, stderr) = show(&folder.file("other"));
    assert!(code == Some(3) && stderr.contains("no transcript"), "{stderr}");
}

#[test]
fn a_run_that_is_killed_leaves_a_transcript_that_can_be_read() {
    let folder = Folder::new("killed");
    let run = folder.file("run");
    let peers = format!(
        "--world 2 --peers 127.0.0.1,127.0.0.2 --port {} --timeout 20s",
        ports::free_on(&["127.0.0.1", "127.0.0.2"])
    );
    let words = format!("{peers} -b 64K -e 64K -n 10000 --record {run} {LOSSY}");
    let mut ranks = [0, 1].map(|rank| start(&format!("perf all-reduce --rank {rank} {words}")));
    let recorded = || std::fs::metadata(format!("{run}.0")).is_ok_and(|file| file.len() > 8_000);
    for _ in 0..12_000 {
        if recorded() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    for rank in &mut ranks {
        rank.kill().expect("it runs");
        rank.wait().expect("it ends");
    }
    let (code, stdout, stderr) = finish(start(&format!("transcript show {run}.0 {run}.1")));
    assert_eq!(code, Some(0), "{stdout} {stderr}");
    assert!(stdout.lines().any(|line| line.contains("all-reduce  16384")), "{stdout}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_costs_the_transcript_and_not_the_sum() {
    let folder = Folder::new("full");
    let run = folder.file("run");
    std::os::unix::fs::symlink("/dev/full", format!("{run}.1")).expect("a link");
    let [(code_0, whole, stderr_0), (code_1, full, stderr_1)] =
        pair(&format!("{SIZES} --reliable --record {run}"));
    assert_eq!((code_0, code_1), (Some(0), Some(0)), "{stderr_0} {stderr_1}");
    for row in [&whole, &full].into_iter().flat_map(|report| report["rows"].as_array().expect("rows")) {
        assert!(row["nmse"].as_f64().is_some_and(|nmse| nmse < 1e-10), "{row}");
    }
    assert_eq!(whole["recorded"]["error"], Value::Null);
    assert!(full["recorded"]["error"].as_str().is_some_and(|error| error.contains("No space")), "{full}");
    assert_eq!(full["recorded"]["records"], 0);
    assert!(stderr_1.contains("run.1: the transcript ends here, the run goes on"), "{stderr_1}");
    // What cannot be made at all is found before the run.
    let nowhere = folder.file("no/such/folder/run");
    let words = format!("perf all-reduce --rank 0 --world 2 --peers 127.0.0.1,127.0.0.2 --record {nowhere}");
    let (code, _, stderr) = finish(start(&words));
    assert!(code == Some(3) && stderr.contains("cannot record to") && stderr.contains("no/such"), "{stderr}");
}

/// Two workers' reports and a server's, with exit codes and complaints. What is said to `serve`
/// need not be what is said to the workers.
/// How long ranks are waited for that end early.
const LEAVES: &str = "5s";

fn with_server(timeout: &str, worker: &str, server: &str) -> [(Option<i32>, Value, String); 3] {
    let port = ports::free_on(&["127.0.0.1", "127.0.0.2"]);
    let peers = format!(
        "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} --servers 2 --timeout {timeout}"
    );
    let ranks = [
        start(&format!("perf push-pull --rank 0 {peers} --json {worker}")),
        start(&format!("perf push-pull --rank 1 {peers} --json {worker}")),
        start(&format!("serve --rank 2 {peers} --json {server}")),
    ];
    ranks.map(|rank| {
        let (code, stdout, stderr) = finish(rank);
        (code, serde_json::from_str(&stdout).unwrap_or_default(), stderr)
    })
}

#[test]
fn a_push_pull_is_repeated_bit_for_bit_where_its_servers_kept_transcripts_too() {
    for replicas in ["", "--consistent"] {
        let folder = Folder::new(&format!("servers{replicas}"));
        let run = folder.file("run");
        let words = format!("{SIZES} {replicas}");
        let recorded = with_server(
            "20s",
            &format!("{words} {LOSSY} --record {run}"),
            &format!("{LOSSY} --record {run}"),
        );
        for (code, _, stderr) in &recorded {
            assert_eq!(*code, Some(0), "{stderr}");
        }
        let [(_, worker, _), _, (_, server, _)] = &recorded;
        assert!(trimmed_share(worker) > 0.1, "{worker}");
        // Two sizes, one warm-up and two measured of each.
        assert_eq!(server["operations"], 6, "{server}");
        assert!(server["trimmed"].as_u64() > Some(100), "what comes to the server is trimmed, too: {server}");
        assert_eq!(server["recorded"][0]["lost"], 0, "{server}");

        let again = with_server(
            "20s",
            &format!("{words} --reliable --replay {run}"),
            &format!("--replay {run} --record {}", folder.file("again")),
        );
        for ((_, was, _), (code, is, stderr)) in recorded.iter().zip(&again) {
            assert_eq!(*code, Some(0), "{stderr}");
            if was["rows"].is_array() {
                assert_eq!(hashes(was), hashes(is), "{replicas}");
            }
        }
        // The server's transcript of the replay is the run's, but for times.
        let show = |name: &str| {
            let (code, stdout, stderr) =
                finish(start(&format!("transcript show --json {}", folder.file(name))));
            assert_eq!(code, Some(0), "{stderr}");
            serde_json::from_str::<Value>(&stdout).expect("JSON")
        };
        let counts = |report: &Value| -> Vec<Value> {
            let operations = report["operations"].as_array().expect("operations");
            operations
                .iter()
                .map(|operation| {
                    ["number", "name", "coordinates", "packets", "trimmed"].map(|field| &operation[field])
                })
                .map(|fields| serde_json::json!(fields))
                .collect()
        };
        let (was, is) = (show("run.2"), show("again.2"));
        assert_eq!(counts(&was), counts(&is));
        assert!(
            was["operations"].as_array().is_some_and(|all| all.len() == 13),
            "a notice and a push-pull each: {was}"
        );

        // Without its server's part it is another run; the server waits for a next one.
        let port = ports::free_on(&["127.0.0.1", "127.0.0.2"]);
        let peers = format!(
            "--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} --servers 2 --timeout {LEAVES}"
        );
        let mut server = start(&format!("serve --rank 2 {peers}"));
        let words_again = format!("{words} --reliable --replay {run}");
        let workers =
            [0, 1].map(|rank| start(&format!("perf push-pull --rank {rank} {peers} {words_again}")));
        let said = workers.map(finish);
        server.kill().expect("it runs");
        server.wait().expect("it ends");
        for (code, _, stderr) in &said {
            assert_eq!(*code, Some(1), "{stderr}");
        }
        assert!(said.iter().any(|(_, _, stderr)| stderr.contains("SHA-256")), "{said:?}");
        let other = words.replace("-b 64K", "-b 32K");
        let [_, _, (code, _, stderr)] =
            with_server(LEAVES, &format!("{other} --reliable"), &format!("--replay {run}"));
        assert!(code == Some(1) && stderr.contains("operation 2 had coordinates 16384"), "{code:?} {stderr}");
        let [_, _, (code, _, stderr)] = with_server(
            LEAVES,
            &format!("{} --reliable", words.replace("--seed 5", "--seed 6")),
            &format!("--replay {run}"),
        );
        assert!(code == Some(3) && stderr.contains("seed 5, this run of seed 6"), "{code:?} {stderr}");
    }
}

#[test]
fn a_server_keeps_the_transcript_of_a_job_that_failed_beside_that_of_the_next() {
    let folder = Folder::new("failed");
    let run = folder.file("run");
    let port = ports::free_on(&["127.0.0.1", "127.0.0.2"]);
    let peers = format!("--world 3 --peers 127.0.0.1,127.0.0.2,127.0.0.3 --port {port} --servers 2");
    let mut server = start(&format!("serve --rank 2 {peers} --timeout 3s --record {run} --json"));
    let job = |more: &str| {
        let words = format!("{peers} -b 64K -e 64K --bitrate 100M {more}");
        [0, 1].map(|rank| start(&format!("perf push-pull --rank {rank} {words}")))
    };
    let [first, mut second] = job("-n 10000 --timeout 6s");
    let recorded = || std::fs::metadata(format!("{run}.2")).is_ok_and(|file| file.len() > 8_000);
    for _ in 0..12_000 {
        if recorded() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    second.kill().expect("it runs");
    second.wait().expect("it ends");
    let (code, _, stderr) = finish(first);
    assert!(code == Some(1) && stderr.contains("rank 1"), "{code:?} {stderr}");
    let said = std::io::BufReader::new(server.stderr.take().expect("piped"));
    let said = std::io::BufRead::lines(said).map_while(Result::ok);
    assert!(said.into_iter().any(|line| line.contains("waits for the workers")));
    for worker in job("-n 2 --timeout 20s") {
        let (code, _, stderr) = finish(worker);
        assert_eq!(code, Some(0), "{stderr}");
    }
    let (code, stdout, _) = finish(server);
    assert_eq!(code, Some(1), "it has a failure to tell of: {stdout}");
    let (code, stdout, stderr) = finish(start(&format!("transcript show {run}.2")));
    assert!(code == Some(0) && stdout.contains("failed at rank 2"), "{stdout} {stderr}");
    let (code, stdout, stderr) = finish(start(&format!("transcript show {run}.2.2")));
    assert!(
        code == Some(0) && stdout.contains("push-pull") && !stdout.contains("failed"),
        "{stdout} {stderr}"
    );
}
