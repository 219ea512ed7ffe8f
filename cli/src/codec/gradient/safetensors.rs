// SPDX-License-Identifier: Apache-2.0
//! Hugging Face's safetensors: a JSON header that says where each tensor lies, then their numbers, little-endian.

use super::numbers::{Format, Numbers};
use super::tensor::{Stored, Tensor, choose};
use anyhow::{Context as _, Result};
use safetensors::{Dtype, SafeTensors};
use std::borrow::Cow;

/// What is read, as error messages list it.
pub(super) const VALID: &str = "F16, BF16, F32 and F64";

/// Longest header that the format allows.
const LONGEST: u64 = 100_000_000;

/// Whether a file begins as the format does: the length of a header, and the bracket that opens it. A length is far below what
/// the first two f32s of a gradient would make of those bytes.
pub(super) fn is(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    rest.first() == Some(&b'{') && u64::from_le_bytes(*length) <= LONGEST
}

/// The tensors in the order in which they lie in the file, or the one called `wanted`.
pub(super) fn tensors<'a>(bytes: &'a [u8], wanted: Option<&str>) -> Result<Vec<Tensor<'a>>> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).context("header")?;
    let content = SafeTensors::deserialize(bytes).context("header")?;
    let names = metadata.offset_keys();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let chosen = choose(&names, wanted)?;
    chosen
        .into_iter()
        .map(|at| {
            let view = content.tensor(names[at]).context("header")?;
            Ok(Tensor {
                name: names[at].to_owned(),
                stored: stored(view.dtype()),
                shape: view.shape().to_vec(),
                fortran: false,
                bytes: Cow::Borrowed(view.data()),
            })
        })
        .collect()
}

fn stored(dtype: Dtype) -> Stored {
    match dtype {
        Dtype::F16 => Stored::Numbers(Numbers::little(Format::F16)),
        Dtype::BF16 => Stored::Numbers(Numbers::little(Format::Bf16)),
        Dtype::F32 => Stored::Numbers(Numbers::little(Format::F32)),
        Dtype::F64 => Stored::Numbers(Numbers::little(Format::F64)),
        Dtype::BOOL
        | Dtype::U8
        | Dtype::I8
        | Dtype::I16
        | Dtype::U16
        | Dtype::I32
        | Dtype::U32
        | Dtype::I64
        | Dtype::U64 => Stored::Whole(format!("{dtype:?}")),
        _ => Stored::Unreadable(format!("{dtype:?}")),
    }
}
