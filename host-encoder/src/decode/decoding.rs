// SPDX-License-Identifier: Apache-2.0
//! What is made of coordinates that arrived in part.

/// How coordinates that did not arrive whole are filled in (docs/reference/wire-format.md §8).
///
/// | codec | unbiased | mmse | paper |
/// |---|---|---|---|
/// | rht | λ · centroid | centroid | f · sign |
/// | raw | what arrived | the same | the same |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decoding {
    /// λ · centroid with λ = 1 / (1 − Σ p_b D_b): unbiased, NMSE = λ − 1.
    #[default]
    Unbiased,
    /// The centroid itself: biased, the smallest error of a single transfer.
    Mmse,
    /// f · sign on every trimmed coordinate with f = ‖V‖² / ‖R(V)‖₁ of the row (the HotNets'24
    /// paper, §3.2); σ · sign without a rotation (§3.1).
    Paper,
}
