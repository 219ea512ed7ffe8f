// SPDX-License-Identifier: Apache-2.0
//! NumPy's .npy: a Python dictionary that describes one array, then its numbers (numpy/lib/format.py, versions 1.0 to 3.0).

use super::literal::{self, Literal};
use super::numbers::{Format, Numbers};
use super::tensor::{Stored, Tensor};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use std::borrow::Cow;

/// What every .npy begins with.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// What is read, as error messages list it.
pub(super) const VALID: &str = "float16, float32 and float64, little- and big-endian";

/// What the dictionary says.
struct Header {
    descr: Literal,
    fortran: bool,
    shape: Vec<usize>,
}

/// The array of a file; `name` is its own in an .npz, and empty of a file of one array.
pub(super) fn tensor<'a>(bytes: &'a [u8], name: &str) -> Result<Tensor<'a>> {
    let (header, data) = split(bytes)?;
    let header = self::header(header)?;
    let stored = stored(&header.descr);
    if let Stored::Numbers(numbers) = stored {
        let count = header.shape.iter().try_fold(1_usize, |count, n| count.checked_mul(*n));
        let promised = count.and_then(|count| count.checked_mul(numbers.format.bytes()));
        let shape = &header.shape;
        let promised =
            promised.with_context(|| format!("shape {shape:?} has more numbers than memory has bytes"))?;
        ensure!(
            data.len() >= promised,
            "shape {shape:?} takes {promised} bytes, but {} follow: the file is cut off",
            data.len()
        );
        ensure!(
            data.len() == promised,
            "{} bytes follow the array of shape {shape:?}; files of several arrays are .npz",
            data.len() - promised
        );
    }
    Ok(Tensor {
        name: name.to_owned(),
        stored,
        shape: header.shape,
        fortran: header.fortran,
        bytes: Cow::Borrowed(data),
    })
}

/// The dictionary and the numbers.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).context("it does not begin as .npy files do")?;
    let cut = || anyhow!("it ends inside its header");
    let ([major, minor], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => bail!("version {major}.{minor} of .npy (valid: 1.0, 2.0, 3.0)"),
    }
    .ok_or_else(cut)?;
    rest.split_at_checked(length).ok_or_else(cut)
}

fn header(text: &[u8]) -> Result<Header> {
    // Versions 1.0 and 2.0 are Latin-1; names of structured types are all that could differ, and those are not read.
    let text = String::from_utf8_lossy(text);
    let Literal::Dictionary(entries) = literal::parse(&text).context("header")? else {
        bail!("header: no dictionary");
    };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    for (key, value) in entries {
        match (key.as_str(), value) {
            ("descr", value) => descr = Some(value),
            ("fortran_order", Literal::Flag(flag)) => fortran = Some(flag),
            ("shape", Literal::Sequence(lengths)) => shape = Some(lengths),
            (key, _) => bail!("header: {key:?} is no key, or not what it should be"),
        }
    }
    let length = |literal| match literal {
        Literal::Number(n) => usize::try_from(n).context("header: a length in \"shape\" is too large"),
        _ => bail!("header: \"shape\" holds what is no length"),
    };
    let shape = shape.context("header: no \"shape\"")?;
    Ok(Header {
        descr: descr.context("header: no \"descr\"")?,
        fortran: fortran.context("header: no \"fortran_order\"")?,
        shape: shape.into_iter().map(length).collect::<Result<_>>()?,
    })
}

/// What the numbers are: a byte order, a letter and a size, as in `<f4`.
fn stored(descr: &Literal) -> Stored {
    let Literal::Text(text) = descr else { return Stored::Unreadable("a structured type".to_owned()) };
    let (order, kind) = match text.split_at_checked(1) {
        Some((order @ ("<" | ">" | "=" | "|"), kind)) => (order, kind),
        _ => ("=", text.as_str()),
    };
    let big_endian = order == ">" || (order == "=" && cfg!(target_endian = "big"));
    let numbers = |format| Stored::Numbers(Numbers { format, big_endian });
    match kind {
        "f2" => numbers(Format::F16),
        "f4" => numbers(Format::F32),
        "f8" => numbers(Format::F64),
        _ => other(text, kind),
    }
}

/// The name of a type that is not read, as NumPy says it.
fn other(text: &str, kind: &str) -> Stored {
    let letter = kind.chars().next().unwrap_or('?');
    let size = kind.get(1..).unwrap_or_default();
    let bits = || size.parse::<u32>().ok().and_then(|bytes| bytes.checked_mul(8)).unwrap_or_default();
    match letter {
        'i' => Stored::Whole(format!("int{}", bits())),
        'u' => Stored::Whole(format!("uint{}", bits())),
        'b' => Stored::Whole("bool".to_owned()),
        'S' | 'U' | 'M' | 'm' => Stored::Whole(format!("{text:?}, which is no number")),
        'f' => Stored::Unreadable(format!("float{}", bits())),
        'c' => Stored::Unreadable(format!("complex{}", bits())),
        'O' => Stored::Unreadable("object (pickled Python objects)".to_owned()),
        'V' if size == "2" => {
            Stored::Unreadable(format!("{text:?} (is it bfloat16? .npy does not say so; safetensors does)"))
        }
        _ => Stored::Unreadable(format!("{text:?}")),
    }
}
