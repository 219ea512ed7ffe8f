// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec` as a user runs it: shapes of its JSON, messages and exit codes. What the
//! figures promise is tested where they are computed.

use serde_json::Value;
use std::process::{Command, Output};

fn trimwire(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trimwire")).arg("codec").args(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = trimwire(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted<const N: usize>(mut keys: [&str; N]) -> [&str; N] {
    keys.sort_unstable();
    keys
}

fn fails(arguments: &[&str], code: i32, message: &str) {
    let output = trimwire(arguments);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains(message), "{arguments:?} said: {text}");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
}

const SMALL: [&str; 4] = ["--coordinates", "40000", "--messages", "2"];

#[test]
fn nmse_prints_one_object_of_flags_and_figures() {
    let arguments =
        [&["nmse", "--codec", "rht", "--trim-rate", "0.5", "--planes", "1", "--json"], &SMALL[..]].concat();
    let report = json(&arguments);
    let shape = sorted([
        "codec",
        "decoding",
        "distribution",
        "file",
        "dtype",
        "trim_rate",
        "planes",
        "frame_bytes",
        "sent_planes",
        "coordinates",
        "rows",
        "row_log2",
        "coordinates_per_packet",
        "messages",
        "seed",
        "nmse",
        "expected",
        "ratio",
        "standard_error",
        "trimmed_share",
        "bytes_share",
    ]);
    let mut got = keys(&report);
    got.sort_unstable();
    assert_eq!(got, shape);
    let expected = report["expected"].as_f64().unwrap();
    assert!((expected - (1.0 / (1.0 - 0.5 * (1.0 - std::f64::consts::FRAC_2_PI)) - 1.0)).abs() < 1e-9);
    assert!((report["nmse"].as_f64().unwrap() / expected - 1.0).abs() < 0.1);
    assert_eq!((&report["codec"], &report["decoding"]), (&"rht".into(), &"unbiased".into()));
}

#[test]
fn a_file_of_the_users_gradients_is_measured_in_its_own_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.bf16");
    // Magnitudes of 0.5 to 2 in bfloat16, little-endian.
    let values = (0..600).flat_map(|i| [(i * 89 % 256) as u8, 0x3f, (i * 57 % 256) as u8, 0xbf]);
    std::fs::write(&file, values.collect::<Vec<u8>>()).unwrap();
    let name = file.to_str().unwrap();
    let arguments = ["nmse", "--dist", name, "--dtype", "bf16", "--trim-rate", "0", "--messages", "1"];
    let report = json(&[&arguments[..], &["--json"]].concat());
    assert_eq!((&report["coordinates"], &report["rows"]), (&1200.into(), &2.into()), "1024 and 176");
    assert_eq!((&report["sent_planes"], &report["coordinates_per_packet"]), (&9.into(), &704.into()));
    let ratio = report["ratio"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.2 && report["expected"].as_f64().unwrap() < 1e-9, "{report}");
    let all = json(&[&arguments[..], &["--json", "--sent-planes", "10"]].concat());
    assert_eq!((&all["expected"], &all["coordinates_per_packet"]), (&0.0.into(), &448.into()));
    assert!(all["nmse"].as_f64().unwrap() < 1e-12);
}

#[test]
fn the_planes_that_a_format_is_sent_with_are_said() {
    for (dtype, planes) in [("f32", 10), ("f16", 9), ("bf16", 9)] {
        let output = trimwire(&[&["nmse", "--dtype", dtype][..], &SMALL].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let said =
            format!("of 40000 coordinates in 12 row(s), sent with {planes} planes of {dtype}; 100.00 %");
        assert!(text.contains(&said), "{text}");
    }
}

#[test]
fn within_turns_a_figure_into_a_check() {
    let base = ["nmse", "--trim-rate", "1", "--within"];
    assert!(trimwire(&[&base[..], &["5"], &SMALL].concat()).status.success());
    // One spike is what signs carry exactly: far from the Gaussian closed form.
    fails(&[&base[..], &["5", "--dist", "one-spike"], &SMALL].concat(), 1, "is not within 5 % of");
}

#[test]
fn bad_flags_are_named_with_what_is_valid() {
    fails(&["nmse", "--codec", "rth"], 2, "valid: rht, rht-paper, sign-magnitude, sq, sd, raw");
    fails(&["nmse", "--trim-rate", "1.5"], 2, "--trim-rate 1.5: valid are 0 to 1");
    let planes =
        "--planes 11: valid are 0 (lost) to 10 (whole, as f32 is sent with codec rht; see --sent-planes)";
    fails(&["nmse", "--planes", "11"], 2, planes);
    fails(&["nmse", "--planes", "10", "--dtype", "f16"], 2, "valid are 0 (lost) to 9 (whole, as f16 is sent");
    fails(&["nmse", "--sent-planes", "0"], 2, "--sent-planes 0: valid are 1 to 10 for codec rht");
    fails(
        &["nmse", "--per-packet", "33"],
        2,
        "--per-packet: 33 coordinates a packet (valid: multiples of 32",
    );
    fails(&["nmse", "--row-log2", "3"], 2, "--row-log2: rows of 2^3");
    fails(&["nmse", "--coordinates", "0"], 2, "--coordinates 0");
    fails(&["nmse", "--messages", "0"], 2, "--messages 0: valid are 1 to");
    fails(&["bench", "--isa", "mmx"], 2, "\"mmx\" is not available here (available: portable");
    fails(&["bench", "--planes", "0"], 2, "--planes 0: valid are 1 to 10");
    fails(&["bench", "--codec", "sq"], 2, "unknown codec \"sq\" (valid: rht, raw)");
    let heads =
        "--planes 3: valid are 0 (lost) to 2 (whole, as f32 is sent with codec sq; see --sent-planes)";
    fails(&["nmse", "--codec", "sq", "--planes", "3"], 2, heads);
    fails(&["nmse", "--tensor", "w"], 2, "--tensor is of files: --dist gaussian has no tensors");
}

#[test]
fn inspect_without_packets_says_what_it_takes_and_only_that() {
    let usage = "Usage: trimwire codec inspect [OPTIONS] <FILE | --pcap FILE | --hex STRING>...";
    fails(&["inspect"], 2, usage);
    let text = String::from_utf8(trimwire(&["inspect"]).stderr).unwrap();
    assert!(!text.contains("--port") && !text.contains("--json"), "{text}");
}

#[test]
fn bad_files_are_named_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    fails(&["nmse", "--dist", "gausian"], 3, "cannot read --dist gausian (valid: gaussian, lognormal");
    fails(&["nmse", "--dist", &write("odd", &[1, 2, 3])], 3, "it has 3 bytes, which is no multiple of 4");
    let empty = write("empty", &[]);
    fails(&["nmse", "--dist", &empty], 3, "is empty");
    let nan = [1.0_f32, f32::NAN].map(f32::to_le_bytes).concat();
    fails(&["nmse", "--dist", &write("nan", &nan)], 3, "coordinate 1 is NaN as f32");
    fails(&["nmse", "--dist", &write("zero", &[0; 8])], 3, "all coordinates are zero");
    fails(&["inspect", "--pcap", &write("text", b"no capture")], 3, "is no capture");
    let folder = folder.path().to_str().unwrap();
    fails(&["nmse", "--dist", folder], 3, "is a directory (valid: gaussian, lognormal");
    fails(
        &["inspect", &empty],
        3,
        "empty is neither a capture (pcap, pcapng) nor a UDP payload: it has 0 bytes",
    );
    fails(&["inspect", folder], 3, "is a directory; packets are in files");
    fails(&["inspect", "/nowhere/c.pcap"], 3, "cannot read /nowhere/c.pcap");
    fails(&["inspect", "--hex", "12 3x"], 3, "'x' is no hex digit");
    fails(&["inspect", "--hex", "ffff"], 1, "1 of 1 packets cannot be decoded");
}

#[test]
fn bench_takes_the_rows_that_a_file_s_tensors_make() {
    let file = tempfile::Builder::new().suffix(".npy").tempfile().unwrap();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }";
    let header = format!("{header:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    (0..1000u16).for_each(|i| bytes.extend((f32::from(i) - 500.0).to_le_bytes()));
    std::fs::write(file.path(), bytes).unwrap();
    let path = file.path().to_str().unwrap();
    let report = json(&[
        "bench",
        "--dist",
        path,
        "--coordinates",
        "2500",
        "--rounds",
        "1",
        "--isa",
        "portable",
        "--json",
    ]);
    // Three times a tensor of 1,000, whose row of 1,024 has less than a thirty-second of padding.
    assert_eq!((&report["coordinates"], &report["rows"]), (&3000.into(), &3.into()));
}

#[test]
fn bench_prints_every_op_on_every_instruction_set_next_to_memcpy() {
    let report = json(&["bench", "--coordinates", "40000", "--rounds", "2", "--json"]);
    let results = report["results"].as_array().unwrap();
    let ops = |isa: &str| -> Vec<&str> {
        results.iter().filter(|r| r["isa"] == isa).map(|r| r["op"].as_str().unwrap()).collect()
    };
    assert_eq!(ops("libc"), ["memcpy-row", "memcpy", "memcpy-bf16"]);
    let plain = ["encode", "encode-keeping", "receive", "decode", "accumulate"];
    assert_eq!(ops("portable"), [&["transform"][..], &plain, &["encode-bf16", "decode-bf16"]].concat());
    assert_eq!((&report["planes"], &report["bf16_planes"]), (&10.into(), &9.into()));
    for result in results {
        for key in ["bytes_per_second", "median_bytes_per_second", "memcpy_ratio", "median_memcpy_ratio"] {
            assert!(result[key].as_f64().unwrap() > 0.0, "{key} in {result}");
        }
        let best = result["bytes_per_second"].as_f64().unwrap();
        assert!(best >= result["median_bytes_per_second"].as_f64().unwrap());
    }
}

#[test]
fn bench_measures_sealed_packets_where_it_is_asked_to() {
    let arguments = ["bench", "--coordinates", "70000", "--rounds", "1", "--isa", "portable", "--sealed"];
    let report = json(&[&arguments[..], &["--json"]].concat());
    let results = report["results"].as_array().unwrap();
    let line = |op: &str| results.iter().find(|line| line["op"] == op).unwrap();
    for op in ["encode-sealed", "decode-sealed"] {
        let speed = |line: &Value| line["bytes_per_second"].as_f64().unwrap();
        let ratio = line(op)["memcpy_ratio"].as_f64().unwrap();
        assert!((ratio / (speed(line(op)) / speed(line("memcpy"))) - 1.0).abs() < 1e-9, "{op}");
    }
    let table = String::from_utf8(trimwire(&arguments).stdout).unwrap();
    assert!(table.contains("decode-sealed") && table.contains("in 19 rows, 1 rounds"), "{table}");
}

#[test]
fn inspect_prints_packets_and_a_summary() {
    // Header of job 1, rank 2, message 3, packet 0 of 32 coordinates, σ = 1, κ = 204, peak 64, and
    // its check; then one plane and half of another.
    let text = "51 07 0402 00000003 000000 03f800 0002 cc 40 d216  0f0f0f0f aaaa";
    let report = json(&["inspect", "--hex", text, "--json"]);
    let packet = &report["packets"][0];
    assert_eq!((&packet["kind"], &packet["bytes"]), (&"DATA".into(), &26.into()));
    assert_eq!((&packet["stream"]["job"], &packet["stream"]["rank"]), (&1.into(), &2.into()));
    assert_eq!(packet["data"]["planes_held"], 1);
    assert_eq!(packet["data"]["partial_plane"], serde_json::json!({"plane": 1, "coordinates": 16}));
    assert_eq!(packet["data"]["values"][1]["code"], 0xc000_0000_u32);
    assert_eq!(report["summary"]["packets"], 1);
    assert_eq!(report["summary"]["trimmed"], 1);
    let output = trimwire(&["inspect", "--hex", text]);
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("codec rht, packet 0: 32 coordinates (rotated), σ = 1.000000e0"), "{table}");
    assert!(table.contains("check 0xd216, right"), "{table}");
    assert!(table.contains("26 of 116 bytes: plane 0, plane 1 of 16 coordinates"), "{table}");
}
