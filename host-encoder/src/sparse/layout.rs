// SPDX-License-Identifier: Apache-2.0
//! Which coordinates a sparse message is about.

use crate::wire::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// Why a layout is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparseLayoutError {
    /// Nothing to send.
    #[error("a message needs at least one coordinate")]
    Empty,
    /// A tensor of no coordinates.
    #[error("tensor {0} has no coordinates")]
    EmptyTensor(usize),
    /// A layer class that does not fit the header's three bits.
    #[error("tensor {tensor} is of layer class {layer_class} (valid: 0 to 7)")]
    LayerClass {
        /// Which one.
        tensor: usize,
        /// Its class.
        layer_class: u8,
    },
    /// Places of entries have 32 bits.
    #[error("more than 2^32 coordinates")]
    TooLong,
}

/// The coordinates of a sparse message and their layer classes; both ends derive it from the same tensors. Cloning is cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SparseLayout(Arc<[Run]>);

/// Neighbouring tensors of one layer class. No packet straddles two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) coordinates: Range<u64>,
    pub(super) layer_class: u8,
}

impl SparseLayout {
    /// A message of one tensor in layer class 0, of at least one and at most 2^32 coordinates.
    pub fn new(coordinates: usize) -> Result<Self, SparseLayoutError> {
        if coordinates == 0 {
            return Err(SparseLayoutError::Empty);
        }
        Self::of_tensors(&[Tensor { coordinates, layer_class: 0 }])
    }

    /// A message of several tensors, one behind the other.
    pub fn of_tensors(tensors: &[Tensor]) -> Result<Self, SparseLayoutError> {
        let mut runs: Vec<Run> = Vec::new();
        let mut end = 0u64;
        for (number, tensor) in tensors.iter().enumerate() {
            let Tensor { coordinates, layer_class } = *tensor;
            if coordinates == 0 {
                return Err(SparseLayoutError::EmptyTensor(number));
            }
            if layer_class > 7 {
                return Err(SparseLayoutError::LayerClass { tensor: number, layer_class });
            }
            let start = end;
            end = end.saturating_add(coordinates as u64);
            if end > 1 << 32 {
                return Err(SparseLayoutError::TooLong);
            }
            match runs.last_mut() {
                Some(run) if run.layer_class == layer_class => run.coordinates.end = end,
                _ => runs.push(Run { coordinates: start..end, layer_class }),
            }
        }
        if runs.is_empty() { Err(SparseLayoutError::Empty) } else { Ok(Self(runs.into())) }
    }

    /// Coordinates of the message.
    pub fn coordinates(&self) -> usize {
        self.0.last().map_or(0, |run| run.coordinates.end as usize)
    }

    pub(super) fn runs(&self) -> &[Run] {
        &self.0
    }

    /// The run that a coordinate is in.
    pub(super) fn run(&self, coordinate: u32) -> Option<&Run> {
        let coordinate = u64::from(coordinate);
        self.0.get(self.0.partition_point(|run| run.coordinates.end <= coordinate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(of: &[(usize, u8)]) -> Vec<Tensor> {
        of.iter().map(|&(coordinates, layer_class)| Tensor { coordinates, layer_class }).collect()
    }

    #[test]
    fn neighbours_of_one_class_are_one_run() {
        let layout = SparseLayout::of_tensors(&tensors(&[(3, 1), (4, 1), (5, 0), (1, 1)])).unwrap();
        let runs: Vec<_> =
            layout.runs().iter().map(|run| (run.coordinates.clone(), run.layer_class)).collect();
        assert_eq!(runs, [(0..7, 1), (7..12, 0), (12..13, 1)]);
        let classes: Vec<_> = [0, 6, 7, 12].map(|at| layout.run(at).unwrap().layer_class).into();
        assert_eq!((classes, layout.run(13)), (vec![1, 1, 0, 1], None));
        assert_eq!(layout.coordinates(), 13);
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(SparseLayout::new(0), Err(SparseLayoutError::Empty));
        assert_eq!(SparseLayout::of_tensors(&[]), Err(SparseLayoutError::Empty));
        let of = |of: &[_]| SparseLayout::of_tensors(&tensors(of));
        assert_eq!(of(&[(2, 0), (0, 0)]), Err(SparseLayoutError::EmptyTensor(1)));
        assert_eq!(of(&[(2, 8)]), Err(SparseLayoutError::LayerClass { tensor: 0, layer_class: 8 }));
        assert_eq!(of(&[(1 << 32, 0), (1, 0)]), Err(SparseLayoutError::TooLong));
        assert_eq!(of(&[(usize::MAX, 0), (usize::MAX, 0)]), Err(SparseLayoutError::TooLong));
        assert_eq!(of(&[(1 << 32, 0)]).unwrap().coordinates(), 1 << 32);
    }
}
