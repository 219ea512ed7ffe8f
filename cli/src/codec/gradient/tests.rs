// SPDX-License-Identifier: Apache-2.0
//! Files written byte by byte, as the formats' pages describe them.

use super::*;
use proptest::prelude::*;

fn input(tensor: Option<&str>, dtype: Option<Dtype>) -> Input {
    Input { dist: Distribution::File("x".into()), tensor: tensor.map(str::to_owned), dtype }
}

fn parse(bytes: &[u8], tensor: Option<&str>) -> Result<Gradient> {
    input(tensor, None).parse(bytes, None)
}

fn refused(bytes: &[u8], tensor: Option<&str>, said: &str) {
    let error = format!("{:#}", parse(bytes, tensor).unwrap_err());
    assert!(error.contains(said), "{error}");
}

fn npy(version: u8, descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let mut bytes = [NPY, &[version, 0][..]].concat();
    match version {
        1 => bytes.extend((text.len() as u16).to_le_bytes()),
        _ => bytes.extend((text.len() as u32).to_le_bytes()),
    }
    [&bytes, text.as_bytes(), data].concat()
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
fn an_npy_of_every_version_gives_its_numbers_and_another_one_is_refused_with_what_to_do() {
    let one = le(&[1.0, -2.5]);
    for (version, descr, shape, data) in [
        (1, "<f4", "(2,)", one.clone()),
        (2, "<f4", "(2, 1)", one.clone()),
        (3, "<f2", "(1, 2)", vec![0x00, 0x3c, 0x00, 0xc1]),
    ] {
        let gradient = parse(&npy(version, descr, "False", shape, &data), None).unwrap();
        assert_eq!(gradient.values, [1.0, -2.5], "{version} {descr}");
        assert_eq!(gradient.dtype == Dtype::F16, descr == "<f2");
        assert_eq!((gradient.origin.format, gradient.origin.tensors), ("npy", 1));
    }
    assert_eq!(parse(&npy(1, "<f4", "False", "()", &le(&[3.0])), None).unwrap().values, [3.0]);
    for descr in [">f4", "<f8", "<i8", "|V2"] {
        refused(&npy(1, descr, "False", "(2,)", &[1; 16]), None, "array.astype('<f4')");
    }
    refused(&npy(1, "<f4", "True", "(2, 1)", &one), None, "numpy.ascontiguousarray");
    for shape in ["(1000,)", "(1,)", "(4294967296, 4294967296, 4)", "(-2,)"] {
        refused(&npy(1, "<f4", "False", shape, &one), None, "is not what follows: 8 bytes");
    }
    refused(&npy(1, "<f4", "False", "(0,)", &[]), None, "no numbers");
    refused(&npy(9, "<f4", "False", "(2,)", &one), None, "version 9.0 of .npy (valid: 1.0, 2.0, 3.0)");
    refused(b"\x93NUMPY\x02\x00\xf0\xff\xff\xff{", None, "ends inside its header");
    refused(b"\x93NUMPY\x01", None, "ends inside its header");
}

#[test]
fn tensors_of_a_safetensors_file_follow_each_other_as_they_lie_or_are_taken_by_name() {
    let bytes = two_tensors();
    let all = parse(&bytes, None).unwrap();
    assert_eq!((all.values, all.dtype, all.origin.tensors), (vec![1.0, -2.0, 0.5, 4.0], Dtype::F32, 2));
    let one = parse(&bytes, Some("b")).unwrap();
    assert_eq!((one.values, one.dtype, one.origin.format), (vec![1.0, -2.0], Dtype::Bf16, "safetensors"));
    assert_eq!(input(None, None).parse(&bytes, Some(3)).unwrap().values, [1.0, -2.0, 0.5]);
    refused(&bytes, Some("steps"), "no tensor of type F16, BF16 or F32 (steps: I64)");
    refused(&bytes, Some("bb"), "nearest first: b, ");
    let many: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
    assert!(unknown(many, "v").ends_with("and 28 more)"));
}

#[test]
fn a_safetensors_file_that_contradicts_itself_is_refused() {
    for (header, data) in [
        (r#"{"w":{"dtype":"F32","shape":[1152921504606846976],"data_offsets":[0,4]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 4),
        (r#"{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 8),
        (r#"{"w":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}}"#, 4),
        ("{", 4),
    ] {
        refused(&safetensors(header, &vec![1; data]), None, "header");
    }
}

#[test]
fn what_is_no_gradient_is_refused() {
    refused(b"0.1,0.2\n", None, "looks like text");
    refused(b"PK\x03\x04\x00\x00\x00\x00", None, "safetensors.torch.save_file");
    refused(b"\x80\x04\x95\x00.", None, "a pickle");
    assert_eq!(parse(&le(&[1.0, 1e-3]), None).unwrap().origin.format, "raw");
    refused(&le(&[1.0, 2.0]), Some("w"), "--tensor w: a raw file has no names");
    refused(&le(&[1.0, f32::INFINITY]), None, "coordinate 1 is inf as f32; gradients are finite");
    let narrowed = input(None, Some(Dtype::F16)).parse(&npy(1, "<f4", "False", "(1,)", &le(&[1e5])), None);
    assert!(narrowed.unwrap_err().to_string().contains("coordinate 0 is inf as f16"));
}

proptest! {
    /// Damage to something valid reaches further than random bytes.
    #[test]
    fn damaged_files_are_read_or_refused(array: bool, at in any::<prop::sample::Index>(), to: u8, length in any::<prop::sample::Index>()) {
        let mut bytes = if array { npy(1, "<f4", "False", "(2, 3)", &le(&[1.0; 6])) } else { two_tensors() };
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = parse(&bytes, None);
        bytes.truncate(length.index(bytes.len()));
        let _ = parse(&bytes, None);
    }

    #[test]
    fn numbers_are_not_taken_for_text(values in prop::collection::vec(-10.0_f32..10.0, 16..200)) {
        prop_assert!(refuse_foreign(&le(&values)).is_ok());
    }
}
