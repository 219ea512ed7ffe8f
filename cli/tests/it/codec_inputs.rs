// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec nmse` on files as people have them: what is measured is what is in the file, or
//! the file is refused.

use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire"));
    command.args(["codec", "nmse", "--messages", "1"]).args(arguments);
    command
}

fn nmse(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn json(arguments: &[&str]) -> Value {
    let output = nmse(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(arguments: &[&str], said: &str) {
    for json in [&[][..], &["--json"]] {
        let output = nmse(&[arguments, json].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(said), "{arguments:?} said: {text}");
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(output.stdout.is_empty(), "figures beside an error");
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

/// Numbers with nothing special about them.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 100.0).collect()
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes(), data].concat()
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

#[test]
fn the_same_numbers_give_the_same_error_in_every_format() {
    let (folder, values) = (Folder::new(), numbers(5000));
    let raw = folder.write("g.f32", &le(&values));
    let header = r#"{"w":{"dtype":"F32","shape":[50,100],"data_offsets":[0,20000]}}"#;
    let expected = json(&["--dist", &raw]);
    assert!(expected["nmse"].as_f64().unwrap() > 0.1);
    assert_eq!(expected["file"], serde_json::json!({"format": "raw", "tensors": 1, "tensor": null}));
    for (file, format) in [
        (folder.write("g.npy", &npy("<f4", "(50, 100)", &le(&values))), "npy"),
        (folder.write("named-otherwise.bin", &npy("<f4", "(5000,)", &le(&values))), "npy"),
        (folder.write("g.safetensors", &safetensors(header, &le(&values))), "safetensors"),
    ] {
        let report = json(&["--dist", &file]);
        assert_eq!(report["file"]["format"], format);
        for key in ["nmse", "coordinates", "dtype", "bytes_share"] {
            assert_eq!(report[key], expected[key], "{key} of {file}");
        }
    }
}

#[test]
fn numbers_come_from_stdin_too() {
    let values = numbers(1000);
    let mut child =
        command(&["--dist", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&npy("<f4", "(1000,)", &le(&values))).unwrap();
    let report: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&report["coordinates"], &report["file"]["format"]), (&1000.into(), &"npy".into()));
}

#[test]
fn half_precision_tensors_are_handed_to_the_codec_as_they_are() {
    let folder = Folder::new();
    let header = r#"{"fc.weight":{"dtype":"F16","shape":[64],"data_offsets":[0,128]},"fc.bias":{"dtype":"F32","shape":[32],"data_offsets":[128,256]}}"#;
    let data = [[0x00, 0x3c, 0x00, 0xc1].repeat(32), le(&numbers(32))].concat();
    let file = folder.write("g.safetensors", &safetensors(header, &data));
    let weight = json(&["--dist", &file, "--tensor", "fc.weight"]);
    assert_eq!((&weight["dtype"], &weight["coordinates"]), (&"f16".into(), &64.into()));
    assert_eq!(weight["file"]["tensor"], "fc.weight");
    let all = json(&["--dist", &file]);
    assert_eq!(
        (&all["dtype"], &all["coordinates"], &all["file"]["tensors"]),
        (&"f32".into(), &96.into(), &2.into())
    );
    refused(&["--dist", &file, "--tensor", "weight"], "(nearest first: fc.weight, fc.bias)");
}

#[test]
fn tensors_have_rows_of_their_own() {
    let (folder, values) = (Folder::new(), numbers(1024));
    let header = r#"{"w":{"dtype":"F32","shape":[600],"data_offsets":[0,2400]},"none":{"dtype":"F32","shape":[0],"data_offsets":[2400,2400]},
                     "b":{"dtype":"F32","shape":[424],"data_offsets":[2400,4096]}}"#;
    let file = folder.write("g.safetensors", &safetensors(header, &le(&values)));
    let apart = json(&["--dist", &file]);
    // 512 and 88, padded to 128; 256 and 168, padded to 256.
    assert_eq!((&apart["rows"], &apart["coordinates"]), (&4.into(), &1024.into()));
    assert_eq!(apart["file"]["tensors"], 3);
    // A message that ends inside of the second tensor.
    assert_eq!(json(&["--dist", &file, "--coordinates", "632"])["rows"], 3);
}

#[test]
fn what_holds_no_gradients_is_refused_with_the_formats_that_do() {
    let folder = Folder::new();
    let file = folder.write("g.csv", b"0.125,0.25\n0.5,1.0\n");
    refused(
        &["--dist", &file],
        "g.csv: it looks like text, not like numbers (read are: safetensors, NumPy's",
    );
    let odd = folder.write("g.f32", &[0; 1001]);
    refused(&["--dist", &odd], "it has 1001 bytes, which is no multiple of 4 (see --dtype; read are:");
}

#[test]
fn a_row_that_holds_nearly_all_the_energy_is_warned_of() {
    let (folder, mut values) = (Folder::new(), numbers(32 << 12));
    let even = nmse(&["--dist", &folder.write("even.f32", &le(&values))]);
    assert!(even.status.success() && even.stderr.is_empty(), "{}", String::from_utf8_lossy(&even.stderr));
    values[70_000] = 1e6;
    let file = folder.write("one.f32", &le(&values));
    let output = nmse(&["--dist", &file, "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("warning"), "{said}");
    assert!(
        said.contains("row 17 of 32 (coordinates 69632 to 73727) holds 100.00 % of the energy"),
        "{said}"
    );
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
}

#[test]
fn values_that_the_codec_cannot_compute_with_are_an_error_and_not_infinity() {
    let folder = Folder::new();
    let file = folder.write("big.f32", &le(&vec![3e38; 40_000]));
    refused(&["--dist", &file], "coordinates of up to 3e38 leave its range");
    refused(&["--dist", &file, "--decoding", "paper"], "coordinates of up to 3e38 leave its range");
    // The raw codec computes nothing.
    assert_eq!(json(&["--dist", &file, "--codec", "raw"])["nmse"], 0.0);
}

/// Where Python and NumPy are: files that NumPy itself wrote.
#[test]
fn files_that_numpy_wrote_give_its_numbers() {
    let folder = Folder::new();
    let script = "
import numpy as np, sys
v = (np.arange(6000) * 7919 % 1009 - 504).astype('f4') / 100
v.tofile('g.f32')
np.save('g.npy', v.reshape(3, 20, 100))
";
    let python = Command::new("python3").args(["-c", script]).current_dir(folder.0.path()).output();
    if !python.is_ok_and(|python| python.status.success()) {
        eprintln!("skipped: python3 with numpy is not there");
        return;
    }
    let of = |name: &str| json(&["--dist", folder.0.path().join(name).to_str().unwrap()])["nmse"].clone();
    assert_eq!(of("g.npy"), of("g.f32"));
}
