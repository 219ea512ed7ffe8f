// SPDX-License-Identifier: Apache-2.0
//! The command `trimwire-switch`: exit codes, messages, and what it writes when it is stopped.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Output, Stdio};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn refused(arguments: &[&str], code: i32, words: &[&str]) {
    let Output { status, stderr, .. } = command(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(code), "{arguments:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{arguments:?} should name '{word}': {stderr}");
    }
}

#[test]
fn exit_codes_tell_usage_input_and_failure_apart() {
    refused(&[], 2, &["JSON", "--no-p4"]);
    refused(&["--no-p4", "-i", "veth1"], 2, &["veth1", "PORT@IFACE"]);
    refused(&["--no-p4", "--", "--drop-port", "1"], 2, &["511"]);
    refused(&["nosuch.json"], 3, &["nosuch.json", "No such file"]);
    refused(&[concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")], 3, &["Cargo.toml", "not a BMv2 JSON"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refused(&["--no-p4", "--", "--grpc-server-addr", &address], 1, &[&address, "--grpc-server-addr"]);
    // Without CAP_NET_RAW the socket is refused; with it the name.
    refused(&["--no-p4", "-i", "3@nosuch0"], 1, &["port 3", "nosuch0"]);
    assert!(command(&["--help"]).output().unwrap().status.success());
    assert!(command(&["--version"]).output().unwrap().status.success());
}

#[test]
fn a_check_says_in_a_few_lines_how_the_program_runs() {
    for level in ["info", "debug", "off"] {
        let Output { status, stderr, .. } =
            command(&["--check", "--log-level", level, PROGRAM]).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        let code = if cfg!(feature = "native") {
            "code: it runs as machine code"
        } else {
            "code: it is interpreted: machine code is not built in (feature `native`)"
        };
        assert!(status.success() && stderr.contains(code), "{stderr:.2000}");
        // The compiler has a line for each of its instructions.
        assert!(stderr.lines().count() < 20, "{stderr:.2000}");
    }
}

#[test]
fn it_says_when_it_listens_and_stops_cleanly_with_its_counters() {
    let folder = std::env::temp_dir().join(format!("trimwire-switch-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let path = folder.join(format!("{signal}.json"));
        let path_text = path.to_str().unwrap();
        let arguments = [
            PROGRAM,
            "--stats-json",
            path_text,
            "--thrift-port",
            "9090",
            "--",
            "--grpc-server-addr",
            "127.0.0.1:0",
        ];
        let mut child = command(&arguments).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("listening for P4Runtime on 127.0.0.1:") {
            line.clear();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended without listening");
        }
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        std::net::TcpStream::connect(&address).unwrap();
        // SAFETY: no pointers are passed; the process is our own child, not yet waited for.
        assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "{rest}");
        assert!(rest.contains("switch: 0 received"), "{rest}");
        let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(json["switch"]["received"], 0);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
