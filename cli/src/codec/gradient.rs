// SPDX-License-Identifier: Apache-2.0
//! Gradients from files: NumPy, safetensors or raw numbers, told apart by what they begin with.
//!
//! ```text
//! file ─► format by its first bytes ─► tensors: name, type, shape, bytes ─► numbers one after another, rounded to --dtype
//! ```
//!
//! Nothing is read as numbers that looks like something else, and nothing is passed over in silence: figures of misread files
//! look as good as those of gradients.

mod energy;
mod foreign;
mod literal;
mod npy;
mod npz;
mod numbers;
mod safetensors;
mod tensor;

use super::source::{Distribution, Dtype};
use super::stdin;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use numbers::{Format, Numbers};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;
use tensor::{Stored, Tensor};
use trimwire_encoder::{Layout, Tensor as Shape};

/// Which coordinates to work on.
#[derive(Debug, Clone, Args)]
pub(crate) struct Input {
    /// Coordinates: gaussian, lognormal (±exp(N(0, 1))), student-t (3 degrees of freedom), sparse (1 in
    /// 100), one-spike (one a row), or a FILE. FILE is NumPy (.npy, .npz), safetensors, or raw
    /// little-endian numbers; - is stdin.
    #[arg(long, value_name = "NAME|FILE", default_value = "gaussian")]
    pub dist: Distribution,
    /// Tensor of FILE to take [default: all, one after another].
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// Join FILE's tensors to one [default: each tensor has its own rows].
    #[arg(long)]
    pub join: bool,
    /// Number format of the codec's input, and of a raw FILE [default: that of FILE's tensors; f32 for raw
    /// ones].
    #[arg(long, value_enum)]
    pub dtype: Option<Dtype>,
}

/// A gradient from a file.
#[derive(Debug)]
pub(crate) struct Gradient {
    /// Its coordinates.
    pub values: Vec<f32>,
    /// How many of them each tensor has that rows do not straddle.
    pub tensors: Vec<usize>,
    /// The format that they are rounded to.
    pub dtype: Dtype,
    /// What the file is.
    pub origin: Origin,
}

/// What a gradient was read from.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Origin {
    /// `npy`, `npz`, `safetensors` or `raw`.
    pub format: &'static str,
    /// Tensors that were read.
    pub tensors: usize,
    /// The one that was asked for.
    pub tensor: Option<String>,
    /// Whether they were joined to one.
    pub joined: bool,
}

/// What is read, as error messages list it.
const FORMATS: &str = "NumPy .npy and .npz, safetensors, raw little-endian f32, f16 and bf16";

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
        ensure!(!named || !self.join, "--join is of files: --dist {} has no tensors", self.dist);
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
        Ok(Some(self.parse(&bytes, path, limit).with_context(|| self.name())?))
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

    fn parse(&self, bytes: &[u8], path: &Path, limit: Option<usize>) -> Result<Gradient> {
        ensure!(!bytes.is_empty(), "it is empty");
        let (format, tensors) = self.tensors(bytes, path)?;
        let valid = if format == "safetensors" { safetensors::VALID } else { npy::VALID };
        let mut chosen = Vec::new();
        let mut passed_over = Vec::new();
        for tensor in &tensors {
            let called = if tensor.name.is_empty() { String::new() } else { format!("{}: ", tensor.name) };
            match &tensor.stored {
                Stored::Numbers(numbers) => chosen.push((tensor, *numbers)),
                Stored::Whole(dtype) if tensors.len() > 1 => passed_over.push(format!("{called}{dtype}")),
                Stored::Whole(dtype) | Stored::Unreadable(dtype) => {
                    bail!("{called}numbers of type {dtype} are not read (valid: {valid})")
                }
            }
        }
        ensure!(!chosen.is_empty(), "it has no tensors of floating-point numbers (valid: {valid})");
        if !passed_over.is_empty() {
            eprintln!(
                "trimwire: {}: passed over, being no floats: {}",
                path.display(),
                passed_over.join(", ")
            );
        }
        let dtype = self.dtype.unwrap_or_else(|| common(chosen.iter().map(|(_, numbers)| numbers.format)));
        let (mut values, mut lengths) = (Vec::new(), Vec::new());
        let limit = limit.unwrap_or(usize::MAX);
        for (tensor, numbers) in &chosen {
            let place = if tensor.name.is_empty() { "the array" } else { &tensor.name };
            let before = values.len();
            tensor.append(*numbers, dtype, place, limit, &mut values)?;
            lengths.push(values.len() - before);
        }
        // A layout has no tensors of nothing.
        lengths.retain(|length| *length > 0);
        if self.join {
            lengths = vec![values.len()];
        }
        ensure!(!values.is_empty(), "it holds no numbers");
        ensure!(values.iter().any(|v| *v != 0.0), "all coordinates are zero");
        let origin = Origin { format, tensors: chosen.len(), tensor: self.tensor.clone(), joined: self.join };
        Ok(Gradient { values, tensors: lengths, dtype, origin })
    }

    /// The format of a file, and the tensors that are meant.
    fn tensors<'a>(&self, bytes: &'a [u8], path: &Path) -> Result<(&'static str, Vec<Tensor<'a>>)> {
        let wanted = self.tensor.as_deref();
        if npz::MAGIC.iter().any(|magic| bytes.starts_with(magic)) {
            return Ok(("npz", npz::tensors(bytes, wanted)?));
        }
        if safetensors::is(bytes) {
            return Ok(("safetensors", safetensors::tensors(bytes, wanted)?));
        }
        let (format, tensor) = if bytes.starts_with(npy::MAGIC) {
            ("npy", npy::tensor(bytes, "")?)
        } else {
            ("raw", self.raw(bytes, path)?)
        };
        if let Some(name) = wanted {
            bail!("--tensor {name}: a {format} file has no names (.npz and safetensors have)");
        }
        Ok((format, vec![tensor]))
    }

    /// The numbers of a file without a header.
    fn raw<'a>(&self, bytes: &'a [u8], path: &Path) -> Result<Tensor<'a>> {
        foreign::refuse(bytes, FORMATS)?;
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        ensure!(
            !["npy", "npz", "safetensors"].contains(&extension.as_str()),
            "it does not begin as .{extension} files do"
        );
        let format = Format::from(self.dtype());
        let size = format.bytes();
        ensure!(
            bytes.len().is_multiple_of(size),
            "it has {} bytes, which is no multiple of {size} (see --dtype; read are: {FORMATS})",
            bytes.len()
        );
        Ok(Tensor {
            name: String::new(),
            stored: Stored::Numbers(Numbers::little(format)),
            shape: vec![bytes.len() / size],
            fortran: false,
            bytes: Cow::Borrowed(bytes),
        })
    }
}

/// The format that all tensors have, or f32.
fn common(mut formats: impl Iterator<Item = Format>) -> Dtype {
    let first = formats.next().map_or(Dtype::F32, Format::dtype);
    if formats.all(|format| format.dtype() == first) { first } else { Dtype::F32 }
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
