// SPDX-License-Identifier: Apache-2.0
//! Files written byte by byte, as the formats' pages describe them.

use super::*;
use proptest::prelude::*;
use std::io::Write as _;
use zip::write::SimpleFileOptions;

fn input(tensor: Option<&str>, dtype: Option<Dtype>) -> Input {
    Input { dist: Distribution::File("x".into()), tensor: tensor.map(str::to_owned), join: false, dtype }
}

fn parse(bytes: &[u8], tensor: Option<&str>) -> Result<Gradient> {
    input(tensor, None).parse(bytes, Path::new("x"), None)
}

fn refused(bytes: &[u8], tensor: Option<&str>, said: &str) {
    let error = format!("{:#}", parse(bytes, tensor).unwrap_err());
    assert!(error.contains(said), "{error}");
}

fn npy(version: u8, descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let fortran = if fortran { "True" } else { "False" };
    let text = format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut bytes = [b"\x93NUMPY", &[version, 0][..]].concat();
    match version {
        1 => bytes.extend((text.len() as u16).to_le_bytes()),
        _ => bytes.extend((text.len() as u32).to_le_bytes()),
    }
    [&bytes, text.as_bytes(), data].concat()
}

fn npz(deflate: bool, files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let method = if deflate { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in files {
        archive.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn le(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// `b` lies in front of `a`, as writers that sort by size leave them, and `steps` is no gradient.
fn two_tensors() -> Vec<u8> {
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},
                     "b":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},
                     "steps":{"dtype":"I64","shape":[],"data_offsets":[12,20]},"__metadata__":{"format":"pt"}}"#;
    safetensors(header, &[&[0x80, 0x3f, 0x00, 0xc0][..], &le(&[0.5, 4.0]), &[9; 8]].concat())
}

#[test]
fn npy_of_every_version_and_format_gives_its_numbers() {
    let f8 = |v: f64| v.to_be_bytes();
    for (version, descr, data) in [
        (1, "'<f4'", le(&[1.0, -2.5])),
        (2, "\"<f4\"", le(&[1.0, -2.5])),
        (3, "'>f4'", [1.0_f32, -2.5].map(f32::to_be_bytes).concat()),
        (1, "'<f2'", vec![0x00, 0x3c, 0x00, 0xc1]),
        (1, "'>f2'", vec![0x3c, 0x00, 0xc1, 0x00]),
        (1, "'<f8'", [1.0_f64, -2.5].map(f64::to_le_bytes).concat()),
        (1, "'>f8'", [f8(1.0), f8(-2.5)].concat()),
    ] {
        let gradient = parse(&npy(version, descr, false, "(2,)", &data), None).unwrap();
        assert_eq!(gradient.values, [1.0, -2.5], "{version} {descr}");
        assert_eq!(gradient.dtype == Dtype::F16, descr.contains("f2"));
        assert_eq!((gradient.origin.format, gradient.origin.tensors), ("npy", 1));
    }
}

#[test]
fn arrays_of_any_shape_are_read_in_the_order_of_c() {
    let counted: Vec<f32> = (1..=24).map(|n| n as f32).collect();
    for shape in ["(24,)", "(4, 6)", "(2, 3, 4)", "(1, 24, 1)"] {
        let gradient = parse(&npy(1, "'<f4'", false, shape, &le(&counted)), None).unwrap();
        assert_eq!(gradient.values, counted, "{shape}");
    }
    // In Fortran's order, index (i, j, k) of (2, 3, 4) lies at i + 2 j + 6 k.
    let mut transposed = Vec::new();
    for k in 0..4 {
        for j in 0..3 {
            for i in 0..2 {
                transposed.push(counted[12 * i + 4 * j + k]);
            }
        }
    }
    let bytes = npy(1, "'<f4'", true, "(2, 3, 4)", &le(&transposed));
    assert_eq!(parse(&bytes, None).unwrap().values, counted);
    let some = input(None, None).parse(&bytes, Path::new("x"), Some(7)).unwrap();
    assert_eq!(some.values, counted[..7]);
    assert_eq!(parse(&npy(1, "'<f4'", false, "()", &le(&[3.0])), None).unwrap().values, [3.0]);
}

#[test]
fn arrays_that_are_no_gradients_are_refused_by_the_name_of_their_type() {
    for (descr, said) in [
        ("'<i8'", "numbers of type int64 are not read (valid: float16, float32 and float64"),
        ("'|u1'", "uint8"),
        ("'|b1'", "bool"),
        ("'<c8'", "complex64"),
        ("'<f16'", "float128"),
        ("'|O'", "object"),
        ("'|V2'", "is it bfloat16?"),
        ("'<U7'", "which is no number"),
        ("[('x', '<f4'), ('y', '<f4')]", "a structured type"),
    ] {
        refused(&npy(1, descr, false, "(2,)", &[1; 16]), None, said);
    }
}

#[test]
fn an_npy_that_promises_what_it_does_not_hold_is_refused() {
    let one = le(&[1.0]);
    refused(&npy(1, "'<f4'", false, "(1000,)", &one), None, "shape [1000] takes 4000 bytes, but 4 follow");
    refused(&npy(1, "'<f4'", false, "(1152921504606846976,)", &one), None, "but 4 follow");
    refused(&npy(1, "'<f4'", false, "(1152921504606846976, 1024)", &one), None, "more numbers than memory");
    refused(&npy(1, "'<f4'", true, "(4294967296, 4294967296, 4294967296)", &one), None, "more numbers");
    refused(&npy(1, "'<f4'", false, "()", &le(&[1.0, 2.0])), None, "4 bytes follow the array");
    refused(&npy(1, "'<f4'", false, "(0,)", &[]), None, "no numbers");
    refused(&npy(9, "'<f4'", false, "(1,)", &one), None, "version 9.0 of .npy (valid: 1.0, 2.0, 3.0)");
    refused(b"\x93NUMPY\x02\x00\xf0\xff\xff\xff{", None, "ends inside its header");
    refused(b"\x93NUMPY\x01", None, "ends inside its header");
}

#[test]
fn arrays_of_an_npz_follow_each_other_or_are_taken_by_name() {
    for deflate in [false, true] {
        let bytes = npz(
            deflate,
            &[
                ("w.npy", npy(1, "'<f4'", false, "(2,)", &le(&[1.0, 2.0]))),
                ("labels.npy", npy(1, "'<i8'", false, "(1,)", &[7; 8])),
                ("layer/b.npy", npy(1, "'<f2'", false, "(1,)", &[0x00, 0x42])),
            ],
        );
        let all = parse(&bytes, None).unwrap();
        assert_eq!((all.values, all.origin.tensors), (vec![1.0, 2.0, 3.0], 2));
        assert_eq!(all.dtype, Dtype::F32);
        for name in ["layer/b", "layer/b.npy"] {
            let one = parse(&bytes, Some(name)).unwrap();
            assert_eq!((one.values, one.dtype), (vec![3.0], Dtype::F16));
        }
        refused(&bytes, Some("labels"), "labels: numbers of type int64 are not read");
        refused(&bytes, Some("layer/c"), "no tensor has that name (nearest first: layer/b, ");
        refused(&bytes[..bytes.len() - 30], None, "no readable zip archive");
    }
    refused(&npz(false, &[("archive/data.pkl", vec![1])]), None, "checkpoint of torch.save");
    refused(&npz(false, &[("readme.txt", vec![1])]), None, "\"readme.txt\" in it is no .npy file");
    refused(&npz(false, &[]), None, "no tensors of floating-point numbers");
}

#[test]
fn tensors_of_a_safetensors_file_follow_each_other_as_they_lie_or_are_taken_by_name() {
    let bytes = two_tensors();
    let all = parse(&bytes, None).unwrap();
    assert_eq!((all.values, all.dtype, all.origin.tensors), (vec![1.0, -2.0, 0.5, 4.0], Dtype::F32, 2));
    let one = parse(&bytes, Some("b")).unwrap();
    assert_eq!((one.values, one.dtype, one.origin.format), (vec![1.0, -2.0], Dtype::Bf16, "safetensors"));
    refused(&bytes, Some("steps"), "steps: numbers of type I64 are not read (valid: F16, BF16, F32 and F64)");
    refused(&bytes, Some("bb"), "nearest first: b, ");
    let eighths = r#"{"w":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}}"#;
    refused(&safetensors(eighths, &[1; 4]), None, "w: numbers of type F8_E4M3");
    let doubles = r#"{"w":{"dtype":"F64","shape":[2],"data_offsets":[0,16]}}"#;
    let data = [1.0, 1e300].map(f64::to_le_bytes).concat();
    refused(&safetensors(doubles, &data), None, "w: coordinate 1 is 1e300, beyond what f32 holds");
}

#[test]
fn a_safetensors_file_that_contradicts_itself_is_refused() {
    for (header, data) in [
        (r#"{"w":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,4]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 8),
        (r#"{"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#, 4),
        ("{", 4),
    ] {
        refused(&safetensors(header, &vec![1; data]), None, "header");
    }
    refused(&two_tensors()[..40], None, "header");
}

#[test]
fn formats_are_told_by_content_and_names_that_contradict_it_are_errors() {
    let raw = le(&[1.0, 2.0, 3.0, 1e-3]);
    for name in ["g.npy", "g.npz", "g.SafeTensors"] {
        let error = input(None, None).parse(&raw, Path::new(name), None).unwrap_err().to_string();
        assert!(error.contains("does not begin as ."), "{error}");
    }
    let named = input(None, None).parse(&two_tensors(), Path::new("g.f32"), None).unwrap();
    assert_eq!(named.origin.format, "safetensors");
    assert_eq!(parse(&raw, None).unwrap().origin.format, "raw");
    refused(&raw, Some("w"), "--tensor w: a raw file has no names");
}

#[test]
fn a_dtype_that_is_asked_for_is_what_the_codec_is_handed() {
    let rounded = input(Some("a"), Some(Dtype::F16)).parse(&two_tensors(), Path::new("x"), None).unwrap();
    assert_eq!((rounded.dtype, rounded.values), (Dtype::F16, vec![0.5, 4.0]));
    let large = npy(1, "'<f4'", false, "(1,)", &le(&[1e5]));
    let error = input(None, Some(Dtype::F16)).parse(&large, Path::new("x"), None).unwrap_err().to_string();
    assert!(error.contains("coordinate 0 is 1e5, beyond what f16 holds"), "{error}");
}

proptest! {
    /// Damage to something valid reaches further than random bytes.
    #[test]
    fn damaged_files_are_read_or_refused(which in 0..4, at in any::<prop::sample::Index>(), to: u8, cut in any::<prop::sample::Index>()) {
        let array = npy(1, "'<f4'", true, "(2, 3)", &le(&[1.0; 6]));
        let mut bytes = match which {
            0 => array,
            1 => npz(false, &[("w.npy", array)]),
            2 => npz(true, &[("w.npy", array)]),
            _ => two_tensors(),
        };
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = parse(&bytes, None);
        bytes.truncate(cut.index(bytes.len()));
        let _ = parse(&bytes, None);
    }
}
