// SPDX-License-Identifier: Apache-2.0
//! A tensor as it lies in a file, and which of a file's tensors are meant.

use super::super::source::Dtype;
use super::numbers::{Numbers, narrow};
use anyhow::{Result, bail};
use std::borrow::Cow;

/// One tensor.
#[derive(Debug)]
pub(super) struct Tensor<'a> {
    /// Empty in files of a single one.
    pub name: String,
    /// What its numbers are.
    pub stored: Stored,
    /// Lengths, slowest axis first.
    pub shape: Vec<usize>,
    /// Whether the first index runs fastest in memory, instead of the last.
    pub fortran: bool,
    /// The numbers.
    pub bytes: Cow<'a, [u8]>,
}

/// What a tensor's numbers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    /// Floating point that is read.
    Numbers(Numbers),
    /// No floating point, such as a count of batches: no gradient, by the name of its type.
    Whole(String),
    /// A type that could hold gradients but is not read, by name.
    Unreadable(String),
}

impl Tensor<'_> {
    /// Appends numbers until `out` holds `limit`, rounded to `dtype`, in the order of C: the last index runs fastest. `place` is what
    /// errors call the tensor.
    pub(super) fn append(
        &self,
        numbers: Numbers,
        dtype: Dtype,
        place: &str,
        limit: usize,
        out: &mut Vec<f32>,
    ) -> Result<()> {
        let size = numbers.format.bytes();
        let count = (self.bytes.len() / size).min(limit.saturating_sub(out.len()));
        out.reserve(count);
        if !self.fortran {
            for (at, number) in self.bytes.chunks_exact(size).take(count).enumerate() {
                out.push(narrow(numbers.value(number), dtype, place, at)?);
            }
            return Ok(());
        }
        let mut index = vec![0; self.shape.len()];
        for at in 0..count {
            let offset = index.iter().zip(&self.shape).rev().fold(0, |offset, (i, n)| offset * n + i);
            let number = self.bytes.get(offset * size..(offset + 1) * size).unwrap_or_default();
            out.push(narrow(numbers.value(number), dtype, place, at)?);
            for (i, n) in index.iter_mut().zip(&self.shape).rev() {
                *i += 1;
                if *i < *n {
                    break;
                }
                *i = 0;
            }
        }
        Ok(())
    }
}

/// Most names that an error lists.
const LISTED: usize = 12;

/// The tensors that are meant: all, or the one called `wanted`. Errors list what there is, nearest name first.
pub(super) fn choose(names: &[&str], wanted: Option<&str>) -> Result<Vec<usize>> {
    let Some(wanted) = wanted else { return Ok((0..names.len()).collect()) };
    if let Some(at) = names.iter().position(|name| *name == wanted) {
        return Ok(vec![at]);
    }
    let mut near: Vec<(bool, f64, &str)> = names
        .iter()
        .map(|name| (name.contains(wanted), strsim::normalized_levenshtein(name, wanted), *name))
        .collect();
    near.sort_by(|a, b| (b.0.cmp(&a.0)).then(b.1.total_cmp(&a.1)));
    let listed: Vec<&str> = near.iter().take(LISTED).map(|(_, _, name)| *name).collect();
    let more = match names.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    bail!("--tensor {wanted}: no tensor has that name (nearest first: {}{more})", listed.join(", "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_lists_what_there_is_nearest_first() {
        let names = ["conv1.weight", "conv1.bias", "module.fc.weight", "fc.wait"];
        assert_eq!(choose(&names, Some("fc.wait")).unwrap(), [3]);
        assert_eq!(choose(&names, None).unwrap(), [0, 1, 2, 3]);
        let error = choose(&names, Some("fc.weight")).unwrap_err().to_string();
        assert!(error.contains("(nearest first: module.fc.weight, fc.wait, conv1.weight"), "{error}");
        let many: Vec<String> = (0..40).map(|n| format!("w{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(choose(&many, Some("v")).unwrap_err().to_string().ends_with("and 28 more)"));
    }
}
