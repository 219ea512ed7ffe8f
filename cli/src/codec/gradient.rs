// SPDX-License-Identifier: Apache-2.0
//! Gradients from files: safetensors, NumPy's .npy, or raw little-endian numbers, told apart by how
//! they begin.
//!
//! What looks like something else is not read as numbers, and nothing is passed over in silence:
//! figures of misread files look as good as those of gradients.

mod energy;

use super::source::{Distribution, Dtype};
use super::stdin;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use safetensors::SafeTensors;
use serde::Serialize;
use std::path::Path;
use trimwire_encoder::{Layout, Tensor as Shape, bf16, f16};

/// Which coordinates to work on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Input {
    /// Coordinates: gaussian, lognormal (±exp(N(0, 1))), student-t (3 degrees of freedom), sparse
    /// (1 in 100), one-spike (one a row), or a FILE. FILE is safetensors, NumPy's .npy, or raw
    /// little-endian numbers; - is stdin.
    #[arg(long, value_name = "NAME|FILE", default_value = "gaussian")]
    pub dist: Distribution,
    /// Tensor of FILE to take [default: all, one after another].
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// Number format of the codec's input, and of a raw FILE [default: that of FILE's tensors; f32
    /// for raw ones].
    #[arg(long, value_enum)]
    pub dtype: Option<Dtype>,
}

/// A gradient from a file.
#[derive(Debug)]
pub(crate) struct Gradient {
    /// Its coordinates.
    pub values: Vec<f32>,
    /// How many of them each tensor has. Rows straddle no tensors.
    pub tensors: Vec<usize>,
    /// The format that they are rounded to.
    pub dtype: Dtype,
    /// What the file is.
    pub origin: Origin,
}

/// What a gradient was read from.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Origin {
    /// `npy`, `safetensors` or `raw`.
    pub format: &'static str,
    /// Tensors that were read.
    pub tensors: usize,
    /// The one that was asked for.
    pub tensor: Option<String>,
}

/// One tensor as it lies in a file.
struct Tensor<'a> {
    /// Empty in files of a single one.
    name: String,
    dtype: Dtype,
    /// Little-endian.
    numbers: &'a [u8],
}

/// What is read, as error messages list it.
const FORMATS: &str = "safetensors, NumPy's .npy, raw little-endian f32, f16 and bf16";
/// What every .npy begins with.
const NPY: &[u8] = b"\x93NUMPY";
/// Bytes of a file that are looked at for text.
const LOOKED_AT: usize = 256;
/// Longest header that safetensors allows.
const LONGEST_HEADER: u64 = 100_000_000;

impl Gradient {
    /// Its tensors, as layouts take them.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        self.tensors.iter().map(|coordinates| Shape { coordinates: *coordinates, layer_class: 0 }).collect()
    }
}

impl Input {
    /// Says which flags do not go together.
    pub(crate) fn check(&self) -> Result<()> {
        let named = !matches!(self.dist, Distribution::File(_));
        ensure!(!named || self.tensor.is_none(), "--tensor is of files: --dist {} has no tensors", self.dist);
        Ok(())
    }

    /// The format that the codec is handed where no file says otherwise.
    pub(crate) fn dtype(&self) -> Dtype {
        self.dtype.unwrap_or(Dtype::F32)
    }

    /// Reads the file, if the coordinates come from one, at most `limit` of them.
    pub(crate) fn read(&self, limit: Option<usize>) -> Result<Option<Gradient>> {
        let Distribution::File(path) = &self.dist else { return Ok(None) };
        let bytes = load(path)?;
        Ok(Some(self.parse(&bytes, limit).with_context(|| self.name())?))
    }

    /// What messages call the file.
    fn name(&self) -> String {
        match &self.dist {
            Distribution::File(path) if stdin::is(path) => "stdin".to_owned(),
            other => other.to_string(),
        }
    }

    /// Warns of what makes an error say little.
    pub(crate) fn warn(&self, gradient: &Gradient, layout: &Layout) {
        let Some(heaviest) = energy::heaviest(&gradient.values, layout) else { return };
        let coordinates = layout.row_coordinates(heaviest.row);
        eprintln!(
            "trimwire: warning: {}: row {} of {} (coordinates {} to {}) holds {:.2} % of the energy, so the NMSE says little \
             about the others; --tensor measures a tensor on its own",
            self.name(),
            heaviest.row,
            heaviest.rows,
            coordinates.start,
            coordinates.end - 1,
            100.0 * heaviest.share,
        );
    }

    fn parse(&self, bytes: &[u8], limit: Option<usize>) -> Result<Gradient> {
        ensure!(!bytes.is_empty(), "it is empty");
        let (format, tensors) = self.tensors(bytes)?;
        let first = tensors.first().map_or(Dtype::F32, |tensor| tensor.dtype);
        let common = if tensors.iter().all(|tensor| tensor.dtype == first) { first } else { Dtype::F32 };
        let dtype = self.dtype.unwrap_or(common);
        let limit = limit.unwrap_or(usize::MAX);
        let (mut values, mut lengths) = (Vec::new(), Vec::new());
        for tensor in &tensors {
            let before = values.len();
            tensor.append(dtype, limit, &mut values)?;
            lengths.push(values.len() - before);
        }
        // A layout has no tensors of nothing.
        lengths.retain(|length| *length > 0);
        ensure!(!values.is_empty(), "it holds no numbers");
        ensure!(values.iter().any(|v| *v != 0.0), "all coordinates are zero");
        let origin = Origin { format, tensors: tensors.len(), tensor: self.tensor.clone() };
        Ok(Gradient { values, tensors: lengths, dtype, origin })
    }

    /// The format of a file, and the tensors that are meant.
    fn tensors<'a>(&self, bytes: &'a [u8]) -> Result<(&'static str, Vec<Tensor<'a>>)> {
        if is_safetensors(bytes) {
            return Ok(("safetensors", self.of_safetensors(bytes)?));
        }
        let (format, (dtype, numbers)) = if let Some(rest) = bytes.strip_prefix(NPY) {
            ("npy", npy(rest)?)
        } else {
            refuse_foreign(bytes)?;
            ("raw", (self.dtype(), bytes))
        };
        if let Some(name) = &self.tensor {
            bail!("--tensor {name}: a {format} file has no names (safetensors has)");
        }
        let size = dtype.bytes();
        ensure!(
            numbers.len().is_multiple_of(size),
            "it has {} bytes, which is no multiple of {size} (see --dtype; read are: {FORMATS})",
            numbers.len()
        );
        Ok((format, vec![Tensor { name: String::new(), dtype, numbers }]))
    }

    /// The tensors in the order in which they lie in the file, or the one that is asked for.
    fn of_safetensors<'a>(&self, bytes: &'a [u8]) -> Result<Vec<Tensor<'a>>> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).context("header")?;
        let content = SafeTensors::deserialize(bytes).context("header")?;
        let mut names = metadata.offset_keys();
        if let Some(wanted) = &self.tensor {
            ensure!(names.contains(wanted), "--tensor {wanted}: {}", unknown(names, wanted));
            names = vec![wanted.clone()];
        }
        let (mut tensors, mut others) = (Vec::new(), Vec::new());
        for name in names {
            let view = content.tensor(&name).context("header")?;
            let dtype = match view.dtype() {
                safetensors::Dtype::F16 => Dtype::F16,
                safetensors::Dtype::BF16 => Dtype::Bf16,
                safetensors::Dtype::F32 => Dtype::F32,
                other => {
                    others.push(format!("{name}: {other:?}"));
                    continue;
                }
            };
            tensors.push(Tensor { name, dtype, numbers: view.data() });
        }
        let others = others.join(", ");
        ensure!(!tensors.is_empty(), "no tensor of type F16, BF16 or F32 ({others})");
        if !others.is_empty() {
            eprintln!("trimwire: {}: passed over, being neither F16, BF16 nor F32: {others}", self.name());
        }
        Ok(tensors)
    }
}

impl Tensor<'_> {
    /// Appends numbers until `out` holds `limit`, rounded to `dtype`. Errors are measured on finite
    /// numbers, so others are refused.
    fn append(&self, dtype: Dtype, limit: usize, out: &mut Vec<f32>) -> Result<()> {
        let (start, size) = (out.len(), self.dtype.bytes());
        let numbers = self.numbers.chunks_exact(size).take(limit.saturating_sub(start));
        out.extend(numbers.map(|number| match (self.dtype, number) {
            (Dtype::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f32(),
            (Dtype::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f32(),
            (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        }));
        let values = out.get_mut(start..).unwrap_or_default();
        dtype.round(values);
        let Some(at) = values.iter().position(|value| !value.is_finite()) else { return Ok(()) };
        let place = if self.name.is_empty() { "the array" } else { &self.name };
        bail!("{place}: coordinate {at} is {} as {}; gradients are finite", values[at], dtype.name());
    }
}

/// Whether a file begins with the length of a header, and the bracket that opens it. As a length,
/// the first two f32s of a gradient are far above what is allowed.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((length, rest)) = bytes.split_first_chunk() else { return false };
    rest.first() == Some(&b'{') && u64::from_le_bytes(*length) <= LONGEST_HEADER
}

/// The numbers of a .npy behind its first bytes (numpy/lib/format.py, versions 1.0 to 3.0), and
/// their format.
fn npy(rest: &[u8]) -> Result<(Dtype, &[u8])> {
    let ended = "it ends inside its header";
    let ([major, minor], rest) = rest.split_first_chunk().context(ended)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => bail!("version {major}.{minor} of .npy (valid: 1.0, 2.0, 3.0)"),
    }
    .context(ended)?;
    let (header, numbers) = rest.split_at_checked(length).context(ended)?;
    let header: String = String::from_utf8_lossy(header).split_whitespace().collect();
    let has = |key: &str, value: &str| header.contains(&format!("'{key}':{value}"));
    let types = [("'<f4'", Dtype::F32), ("'<f2'", Dtype::F16)];
    let Some((_, dtype)) = types.into_iter().find(|(name, _)| has("descr", name)) else {
        bail!("neither float32 nor float16, little-endian (`array.astype('<f4')` makes that): {header}");
    };
    ensure!(
        has("fortran_order", "False"),
        "columns before rows (`numpy.ascontiguousarray` mends that): {header}"
    );
    let shape = header.split_once("'shape':(").and_then(|(_, rest)| rest.split_once(')'));
    let (shape, _) = shape.with_context(|| format!("header without shape: {header}"))?;
    let lengths = shape.split(',').filter(|length| !length.is_empty());
    let mut lengths = lengths.map(|length| length.parse::<usize>().ok());
    let bytes = lengths.try_fold(dtype.bytes(), |count, n| count.checked_mul(n?));
    ensure!(
        bytes == Some(numbers.len()),
        "shape ({shape}) of {} is not what follows: {} bytes",
        dtype.name(),
        numbers.len()
    );
    Ok((dtype, numbers))
}

/// Refuses text, archives and pickles: read as raw numbers, they would give figures without
/// meaning.
fn refuse_foreign(bytes: &[u8]) -> Result<()> {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    if start.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        bail!("it looks like text, not like numbers (read are: {FORMATS})");
    }
    if matches!(bytes, [b'P', b'K', 3, 4, ..] | [0x80, 2..=5, .., b'.']) {
        bail!("it looks like an archive or a pickle: use safetensors.torch.save_file (read are: {FORMATS})");
    }
    Ok(())
}

/// Most names that an error lists.
const LISTED: usize = 12;

/// Lists the names that there are, nearest to `wanted` first.
fn unknown(mut names: Vec<String>, wanted: &str) -> String {
    let near = |name: &str| (name.contains(wanted), strsim::normalized_levenshtein(name, wanted));
    names.sort_by(|a, b| {
        let ((a_has, a), (b_has, b)) = (near(a), near(b));
        b_has.cmp(&a_has).then(b.total_cmp(&a))
    });
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("no tensor has that name (nearest first: {}{more})", names.join(", "))
}

/// A whole file, or stdin.
fn load(path: &Path) -> Result<Vec<u8>> {
    if stdin::is(path) {
        return stdin::read().context("--dist");
    }
    ensure!(
        !path.is_dir(),
        "--dist {} is a directory (valid: {}, or a file)",
        path.display(),
        Distribution::names()
    );
    std::fs::read(path).with_context(|| {
        format!("cannot read --dist {} (valid: {}, or a file)", path.display(), Distribution::names())
    })
}

#[cfg(test)]
mod tests;
