// SPDX-License-Identifier: Apache-2.0
//! Planes of one row to coordinates: any prefix, any order, duplicates and repairs
//! (docs/reference/wire-format.md §6, §8).

pub(crate) mod decoding;
mod dequantise;
mod finish;
pub(crate) mod kept;
pub(crate) mod precision;
pub(crate) mod reception;
pub(crate) mod row;
pub(crate) mod weights;
pub(crate) mod words;
