// SPDX-License-Identifier: Apache-2.0
//! Pcap files for interfaces (`--use-files`): the frames of a recording go in from files and come out as BMv2 sent them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("trimwire-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> String {
    format!("{}/testdata/engine/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Frames that went into BMv2 and came out of it.
fn recorded() -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let text = std::fs::read_to_string(program("arithmetic.bmv2.txt")).unwrap();
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
    let of = |kind| {
        let lines = text.lines().filter_map(move |line| line.strip_prefix(kind));
        lines.map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
    };
    (of("in "), of("out "))
}

/// Big-endian, microseconds: what the switch itself does not write.
fn pcap(frames: &[(u32, &[u8])]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 2 << 16 | 4, 0, 0, 65_535, 1].map(u32::to_be_bytes).concat();
    for (at, frame) in frames {
        let length = frame.len() as u32;
        file.extend([1_700_000_000, *at, length, length].map(u32::to_be_bytes).concat());
        file.extend_from_slice(frame);
    }
    file
}

/// Frames of a little-endian file, as far as it has been written.
fn frames(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap_or_default();
    let (mut rest, mut frames) = (file.get(24..).unwrap_or(&[]), Vec::new());
    while let Some(length) = rest.get(8..12) {
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let Some(frame) = rest.get(16..16 + length) else { break };
        frames.push(frame.to_vec());
        rest = &rest[16 + length..];
    }
    frames
}

fn switch(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"));
    command.current_dir(folder).args(["--use-files", "0"]).args(more).arg(program("arithmetic.json"));
    command.args(["--", "--grpc-server-addr", "127.0.0.1:0"]).stdin(Stdio::null());
    command
}

#[test]
fn frames_from_files_go_in_by_their_times_and_come_out_as_from_bmv2() {
    let (sent, expected) = recorded();
    let folder = Folder::new("recorded");
    for port in 0..2 {
        // Times alternate between the files.
        let of_port = sent.iter().zip(0..).filter(|(_, at)| at % 2 == port);
        let of_port: Vec<_> = of_port.map(|(frame, at)| (at, frame.as_slice())).collect();
        std::fs::write(folder.0.join(format!("side{port}_in.pcap")), pcap(&of_port)).unwrap();
    }
    // The program sends everything to port 1, which is the second file's.
    let child = switch(&folder.0, &["-i", "0@side0", "-i", "1@side1"]).stderr(Stdio::null()).spawn().unwrap();
    let _running = Running(child);
    let out = folder.0.join("side1_out.pcap");
    for _ in 0..6_000 {
        if frames(&out).len() >= expected.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(frames(&out), expected);
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let folder = Folder::new("bad");
    let whole = pcap(&[(1, &[7; 60])]);
    let mut cut = whole.clone();
    cut[24 + 8..24 + 12].copy_from_slice(&59_u32.to_be_bytes());
    for (name, file, words) in [
        ("absent", None, "No such file"),
        ("text", Some(b"no capture, but a text".to_vec()), "shorter than a pcap file's header"),
        ("random", Some(vec![0x55; 100]), "0x55555555"),
        ("ng", Some([&[0x0a, 0x0d, 0x0d, 0x0a][..], &[0; 40]].concat()), "pcapng"),
        ("wifi", Some([&whole[..23], &[105]].concat()), "link type 105"),
        ("cut", Some(cut), "59 of 60 bytes"),
        ("short", Some(whole[..50].to_vec()), "it ends in frame 0"),
        ("half", Some(whole[..30].to_vec()), "header of frame 0"),
    ] {
        if let Some(file) = file {
            std::fs::write(folder.0.join(format!("{name}_in.pcap")), file).unwrap();
        }
        let output = switch(&folder.0, &["-i", &format!("3@{name}")]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {error}");
        for word in ["port 3", &format!("{name}_in.pcap"), words] {
            assert!(error.contains(word), "{name} should name '{word}': {error}");
        }
    }
}
