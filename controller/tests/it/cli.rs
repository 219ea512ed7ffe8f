// SPDX-License-Identifier: Apache-2.0
//! The command's contract: exit codes, what goes to stdout and what to stderr.

#[allow(dead_code, reason = "every test binary uses its own part")]
use crate::programs;
use std::io::Write as _;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let state = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_trimwire-controller"))
        .args(arguments)
        .env_remove("TRIMWIRE_DEBUG")
        .env("TRIMWIRE_STATE", state.path())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/fabrics/single-switch.yaml");

/// A fabric whose switch nobody serves.
fn unserved() -> tempfile::NamedTempFile {
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let text = std::fs::read_to_string(EXAMPLE).unwrap().replace("127.0.0.1:9559", &address);
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn check_prints_thresholds_in_bytes_and_ends_with_0() {
    let output = run(&["check", EXAMPLE]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("ok: 1 switches, 4 hosts, 4 links") && text.contains("37500"), "{text}");

    for unit in ["10Gbps", "thresholds in bytes"] {
        assert!(text.contains(unit), "{unit}\n{text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&run(&["check", "--json", EXAMPLE]).stdout).unwrap();
    assert_eq!(json["hosts"], 4);
    assert_eq!(json["thresholds"].as_array().unwrap().len(), 4 * 7 * 2);
}

/// What a file says of its switches is what they are told: a switch that runs at another rate trims
/// where the file does not say.
#[test]
fn a_file_says_how_its_switches_are_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fabric.yaml");
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let text = text
        .replace("target: trimwire }", "target: trimwire }\n  s2: { address: \"[::1]:9560\", device_id: 7, target: bmv2 }\n  s3: { address: 127.0.0.1:9561, device_id: 8, target: stratum-tofino, pipeline: PIPELINE }\n  s4: { address: 127.0.0.1:9090, device_id: 9, target: bmv2 }")
        .replace("PIPELINE", &programs::pipeline("stratum-tofino", folder.path()))
        .replace("b: \"s1:4\", speed: 10Gbps", "b: \"s1:4\", speed: 2.5Gbps")
        .replace("links:\n", "links:\n  - { a: \"s1:9\", b: \"s2:1\", speed: 10Gbps }\n  - { a: \"s2:2\", b: \"s3:260\", speed: 10Gbps }\n  - { a: \"s2:3\", b: \"s4:1\", speed: 10Gbps }\n");
    std::fs::write(&file, text).unwrap();
    let output = run(&["check", "--start", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(
        stdout(&output),
        "trimwire-switch --no-p4 --device-id 1 -i 1@s1-eth1 -i 2@s1-eth2 -i 3@s1-eth3 -i 4@s1-eth4 -i 9@s1-eth9 --rate 10Gbps \
         --rate 4=2500Mbps -- --grpc-server-addr 127.0.0.1:9559 --cpu-port 510\n\
         simple_switch_grpc --no-p4 --device-id 7 --thrift-port 9091 -i 1@s2-eth1 -i 2@s2-eth2 -i 3@s2-eth3 -- --grpc-server-addr \
         [::1]:9560 --cpu-port 510 --priority-queues 8\n\
         # s3: stratum-tofino, started with its own chassis configuration (docs/how-to/tofino.md)\n\
         simple_switch_grpc --no-p4 --device-id 9 --thrift-port 9092 -i 1@s4-eth1 -- --grpc-server-addr 127.0.0.1:9090 --cpu-port 510 \
         --priority-queues 8\n",
        "every BMv2 has a Thrift port of its own, which no switch serves P4Runtime on"
    );
}

#[test]
fn check_shows_what_a_generator_makes() {
    let example = EXAMPLE.replace("single-switch", "leaf-spine-generated");
    let text = stdout(&run(&["check", &example]));
    // Four hosts of 10 Gbit/s over two links of 10 Gbit/s; leaf4 has one of them left.
    for expected in ["2:1", "4:1", "leaf1, leaf2, leaf3", "ok: 6 switches, 16 hosts, 24 links"] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&run(&["check", "--json", &example]).stdout).unwrap();
    assert_eq!(json["fabric"]["hosts"]["h2-3"]["ip"], "10.0.2.3");
    assert_eq!(json["fabric"]["switches"]["spine2"]["address"], "127.0.0.1:9506");
    assert_eq!(json["tiers"][0]["oversubscription_thousandths"], 2000);
    let down = json["fabric"]["links"].as_array().unwrap().iter().filter(|link| link["up"] == false).count();
    assert_eq!(down, 1);
}

#[test]
fn a_pipeline_file_that_is_not_there_ends_with_3_and_its_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = std::fs::read_to_string(EXAMPLE).unwrap();
    let text =
        text.replace("target: trimwire", "target: bmv2, pipeline: { p4info: none.txtpb, json: none.json }");
    file.write_all(text.as_bytes()).unwrap();
    let name = file.path().display().to_string();
    let output = run(&["check", &name]);
    assert_eq!(output.status.code(), Some(3));
    assert!(
        stderr(&output).contains("switches.s1.pipeline.p4info: 'none.txtpb' cannot be read"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_wrong_file_ends_with_3_and_all_its_mistakes_on_stderr() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"version: 1\nswitches: { s1: { adress: x } }\nhosts: {}\nlinks: []\n").unwrap();
    let name = file.path().display().to_string();
    for command in ["check", "plan", "apply"] {
        let output = run(&[command, &name]);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(stdout(&output), "");
        let text = stderr(&output);
        assert!(text.contains(&format!("{name}:2: switches.s1.adress: unknown key")), "{text}");
        assert!(text.contains("'device_id' is missing"), "{text}");
    }
    let output = run(&["check", "/nonexistent.yaml"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("cannot read /nonexistent.yaml"));
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in
        [&["aply", EXAMPLE][..], &["apply"], &["show", "route", EXAMPLE], &["check", EXAMPLE, "--starts"]]
    {
        assert_eq!(run(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_dead_switch_ends_with_1_and_is_named() {
    let file = unserved();
    let name = file.path().display().to_string();
    for arguments in [&["apply", &name][..], &["plan", &name], &["show", "routes", &name]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let text = stdout(&output);
        assert!(text.contains("s1") && text.contains("127.0.0.1:") && text.contains("connect"), "{text}");
    }
    let json: serde_json::Value = serde_json::from_slice(&run(&["apply", "--json", &name]).stdout).unwrap();
    assert_eq!(json["switches"][0]["switch"], "s1");
    assert!(json["switches"][0]["error"].as_str().unwrap().contains("connect"));
    assert_eq!(json["switches"][0]["remaining"], serde_json::Value::Null);
}

#[test]
fn schema_and_completions_are_printed() {
    let output = run(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &schema["title"]), (Some(0), &"Trimwire fabric".into()));
    let output = run(&["completions", "bash"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("trimwire-controller"));
}

/// The command in the example's comments, for each leaf.
#[test]
fn the_example_of_sonic_leaves_is_exported_as_it_says() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/fabrics/sonic.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    let ports = text.lines().find_map(|line| line.split_once("--platform-ports ")).unwrap().1;
    for leaf in ["leaf1", "leaf2"] {
        let output = run(&["export", "sonic", file, "--switch", leaf, "--platform-ports", ports]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["SWITCH_TRIMMING"]["GLOBAL"]["size"], "592");
        let names: Vec<&String> = json["PORT_QOS_MAP"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["Ethernet0", "Ethernet16", "Ethernet24", "Ethernet8"]);
    }
}

#[test]
fn export_sonic_prints_the_configuration_and_says_what_is_missing() {
    let ports = "Ethernet0=1,Ethernet4=2,Ethernet8=3,Ethernet12=4";
    let output = run(&["export", "sonic", EXAMPLE, "--switch", "s1", "--platform-ports", ports]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["SWITCH_TRIMMING"]["GLOBAL"]["size"], "604");
    assert_eq!(json["PORT_QOS_MAP"].as_object().unwrap().len(), 4);
    assert!(stderr(&output).contains("not expressed: policy.deep_at, deep_size"), "{}", stderr(&output));

    let both = run(&["export", "sonic", EXAMPLE, "--switch", "s1", "--pool-size", "32MiB", "--json"]);
    let both: serde_json::Value = serde_json::from_slice(&both.stdout).unwrap();
    assert!(both["notes"].as_array().unwrap().iter().any(|note| note["fidelity"] == "missing"));
    assert!(
        both["config_db"]["BUFFER_PROFILE"]
            .as_object()
            .unwrap()
            .values()
            .all(|row| row["dynamic_th"].is_string())
    );

    let output = run(&["export", "sonic", EXAMPLE, "--switch", "s2"]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
    assert!(stderr(&output).contains("did you mean 's1'?"));
    for wrong in ["Ethernet0", "Ethernet0=x", "=1"] {
        let output = run(&["export", "sonic", EXAMPLE, "--switch", "s1", "--platform-ports", wrong]);
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn every_command_has_a_manual_page_and_completions() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["man", folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let commands = ["apply", "check", "export", "history", "plan", "rollback", "run", "show", "watch"];
    for command in commands {
        assert!(page("trimwire-controller.1").contains(command), "{command}");
        assert!(page(&format!("trimwire-controller-{command}.1")).starts_with(".ie"), "{command} is roff");
    }
    assert!(page("trimwire-controller-apply.1").contains("keep\\-going"));
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(&["completions", shell]));
        assert!(commands.iter().all(|command| text.contains(command)), "{shell}");
    }
    let nowhere = folder.path().join("nowhere");
    let output = run(&["man", nowhere.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nowhere"), "{}", stderr(&output));
}

#[test]
fn files_that_never_end_or_are_no_text_are_refused_by_name() {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    file.write_all(b"version: 1\n# caf\xe9\n").unwrap();
    let binary = file.path().to_str().unwrap();
    let asked: [&[&str]; 3] = [&["check"], &["plan"], &["export", "sonic", "--switch", "s1"]];
    for words in asked {
        for (path, message) in [
            ("/dev/zero", "cannot read /dev/zero: it is longer than 16 MiB".to_owned()),
            (binary, format!("{binary}:2: not UTF-8 text")),
        ] {
            let output = run(&[words, &[path]].concat());
            assert_eq!(
                (output.status.code(), stderr(&output).trim()),
                (Some(3), message.as_str()),
                "{words:?}"
            );
        }
    }
}

#[test]
fn a_name_does_not_command_the_terminal() {
    let mut file = unserved();
    file.write_all(b"\"k\\u001b[2J\\n\\u0000\": 1\n").unwrap();
    let output = run(&["check", file.path().to_str().unwrap()]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains(r": k\u{1b}[2J\n\0: unknown key"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn of_very_many_mistakes_the_first_are_shown_and_the_others_counted() {
    let mut file = unserved();
    for number in 0..10_000 {
        writeln!(file, "k{number}: 1").unwrap();
    }
    let output = run(&["check", file.path().to_str().unwrap()]);
    let text = stderr(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(3), 201));
    assert!(text.ends_with("and 9800 more\n"), "{text}");
}

#[test]
fn a_damaged_record_is_passed_over_and_named_with_its_cause_said_once() {
    let state = tempfile::tempdir().unwrap();
    let file = unserved();
    let records = state.path().join(file.path().file_name().unwrap());
    std::fs::create_dir(&records).unwrap();
    let record = records.join("00000001.json");
    std::fs::write(&record, "{").unwrap();
    let state = state.path().to_str().unwrap();
    let output = run(&["history", "--state", state, file.path().to_str().unwrap()]);
    let cause = "EOF while parsing an object at line 1 column 1\n";
    let said = stderr(&output);
    assert!(said.ends_with(&format!("{} is no record: {cause}", record.display())), "{said}");
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 1));
}
