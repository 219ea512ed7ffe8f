// SPDX-License-Identifier: Apache-2.0
//! p4runtime-shell and finsy, as PyPI has them, drive the switch's own binary: pipeline, entries,
//! counters, packets, digests, idle entries, roles, TLS. What they do is in `clients/*.py`.
//!
//! The virtual environments are made once, in the target folder. Without Python, pip or a network
//! the tests are skipped, loudly; with TRIMWIRE_REQUIRE_CLIENTS set that is a failure.

use crate::tls_support::Authority;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Where the tests of this crate keep what they make.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

/// A running `trimwire-switch`, ended with this.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    /// Starts it on a free port of loopback, with these target options.
    fn new(options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"))
            .args([
                "--no-p4",
                "--device-id",
                "1",
                "--",
                "--grpc-server-addr",
                "127.0.0.1:0",
                "--cpu-port",
                "510",
            ])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let start = said.len();
            assert!(
                log.read_line(&mut said).unwrap() > 0,
                "trimwire-switch ended before it listened: {said}"
            );
            if let Some((_, address)) = said[start..].trim().split_once("P4Runtime on ") {
                break address.to_owned();
            }
        };
        // Nobody else reads the log, and a full pipe would stop the switch.
        std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
        Self { child, address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn skip(test: &str, reason: &str) -> Option<PathBuf> {
    // Past the harness's capture.
    let _ = writeln!(io::stderr(), "SKIPPED {test}: {reason}");
    assert!(std::env::var_os("TRIMWIRE_REQUIRE_CLIENTS").is_none(), "TRIMWIRE_REQUIRE_CLIENTS is set");
    None
}

fn words(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The Python of a virtual environment that has a client, made where it is missing.
fn python(client: &str) -> Option<PathBuf> {
    let requirements =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/clients/{client}_requirements.txt"));
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    let venv = folder().join(format!("{client}-venv"));
    let (python, stamp) = (venv.join("bin/python"), venv.join("requirements.txt"));
    if std::fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Some(python);
    }
    let _ = std::fs::remove_dir_all(&venv);
    match Command::new("python3").args(["-m", "venv"]).arg(&venv).output() {
        Err(error) => return skip(client, &format!("no python3: {error}")),
        Ok(output) if !output.status.success() => {
            return skip(client, &format!("python3 makes no venv: {}", words(&output)));
        }
        Ok(_) => {}
    }
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"])
        .args(["--timeout", "10", "--retries", "1", "-r"])
        .arg(&requirements);
    let output = pip.output().unwrap();
    if !output.status.success() {
        return skip(client, &format!("pip cannot install it: {}", words(&output).trim()));
    }
    std::fs::write(stamp, wanted).unwrap();
    Some(python)
}

/// Runs a client's script to its end.
fn run(python: &Path, client: &str, address: &str, more: &[PathBuf]) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python)
        .arg(here.join(format!("tests/clients/{client}_client.py")))
        .arg(address)
        .arg(here.parent().unwrap())
        .args(more)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = words(&output);
    assert!(output.status.success() && said.contains(": done"), "{client}: {said}");
}

/// In the clear, and over mutual TLS.
fn drive(client: &str) {
    let Some(python) = python(client) else { return };
    run(&python, client, &Served::new(&[]).address, &[]);

    let authority = Authority::new("test");
    let (server, own) = (authority.server(), authority.client());
    let pems = folder().join(format!("{client}-pems"));
    std::fs::create_dir_all(&pems).unwrap();
    let write = |name: &str, text: &str| {
        let path = pems.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca = write("ca.pem", &authority.certificate);
    let (cert, key) = (write("server.pem", &server.certificate), write("server.key", &server.key));
    let served = Served::new(&[
        "--grpc-server-ssl",
        "--grpc-server-with-client-auth",
        "--grpc-server-cacert",
        ca.to_str().unwrap(),
        "--grpc-server-cert",
        cert.to_str().unwrap(),
        "--grpc-server-key",
        key.to_str().unwrap(),
    ]);
    let own = [ca, write("client.pem", &own.certificate), write("client.key", &own.key)];
    run(&python, client, &served.address, &own);
}

#[test]
fn p4runtime_shell_drives_the_switch() {
    drive("shell");
}

#[test]
fn finsy_drives_the_switch() {
    drive("finsy");
}
