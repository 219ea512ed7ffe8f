// SPDX-License-Identifier: Apache-2.0
//! Sparse packets of tensors, without a network.

use crate::dlpack::{Tensor, Values};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use trimwire_encoder::sparse::{SparseEncoder, SparseLayout, SparseMessage, SparseReceiver, SparseStats};
use trimwire_encoder::{Envelope, StreamId, Tensor as Part};

fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What both ends agree on.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct Agreement {
    /// Coordinates and layer class of each tensor.
    tensors: Vec<(usize, u8)>,
    job: u8,
    rank: u16,
    message: u32,
}

impl Agreement {
    fn layout(&self) -> PyResult<SparseLayout> {
        let part = |&(coordinates, layer_class): &(usize, u8)| Part { coordinates, layer_class };
        SparseLayout::of_tensors(&self.tensors.iter().map(part).collect::<Vec<_>>()).map_err(invalid)
    }

    fn envelope(&self) -> PyResult<Envelope> {
        let Self { job, rank, message, .. } = *self;
        let stream = StreamId::new(job, rank).ok_or_else(|| {
            PyValueError::new_err(format!("job {job}, rank {rank}; valid are 0 to 63 and 0 to 1023"))
        })?;
        Ok(Envelope { stream, message })
    }
}

/// How a sender likes its packets.
#[derive(Debug, Clone, Copy, FromPyObject)]
pub(crate) struct Choice {
    fraction_bits: u8,
    packet_bytes: usize,
    important: bool,
    strict: bool,
}

/// The packets of the `k` largest magnitudes of a tensor, as bytes.
#[pyfunction]
pub(crate) fn sparse_encode<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    k: usize,
    choice: Choice,
    agreement: Agreement,
) -> PyResult<Bound<'py, PyList>> {
    let tensor = Tensor::import(tensor, "tensor")?;
    let envelope = agreement.envelope()?;
    let encoder = SparseEncoder::new(agreement.layout()?)
        .with_fraction_bits(choice.fraction_bits)
        .and_then(|encoder| encoder.with_packet_bytes(choice.packet_bytes))
        .map_err(invalid)?
        .important(choice.important)
        .strict(choice.strict);
    let values = tensor.values()?;
    let message = py.detach(|| {
        let mut message = SparseMessage::default();
        match values {
            Values::F32(values) => encoder.encode_top(values, k, envelope, &mut message),
            Values::F16(values) => encoder.encode_top(values, k, envelope, &mut message),
            Values::Bf16(values) => encoder.encode_top(values, k, envelope, &mut message),
        }
        .map(|()| message)
    });
    let message = message.map_err(|error| PyValueError::new_err(format!("tensor: {error}")))?;
    PyList::new(py, (0..message.packets()).map(|index| PyBytes::new(py, message.packet(index))))
}

/// Decodes what arrived of a tensor's sparse packets into `out`, in the order of arrival, or adds it. Gives how many packets are full, cut and missing (`None`: nobody said how many there are), and
/// which were refused, with why.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "one Python function calls it, which has names for them")]
pub(crate) fn sparse_decode_into(
    py: Python<'_>,
    packets: Vec<Vec<u8>>,
    out: &Bound<'_, PyAny>,
    accumulate: bool,
    agreement: Agreement,
) -> PyResult<(usize, usize, Option<usize>, Vec<(usize, String)>)> {
    let mut out = Tensor::import(out, "out")?;
    let mut receiver = SparseReceiver::new(agreement.layout()?, agreement.envelope()?);
    let values = out.values_mut()?;
    py.detach(|| {
        let mut refused = Vec::new();
        for (nth, packet) in packets.iter().enumerate() {
            if let Err(error) = receiver.receive(packet) {
                refused.push((nth, error.to_string()));
            }
        }
        let done = if accumulate { receiver.add_into(values) } else { receiver.decode_into(values) };
        done.map_err(|error| PyValueError::new_err(format!("out: {error}")))?;
        let SparseStats { full, cut, missing } = receiver.stats();
        Ok((full, cut, missing, refused))
    })
}
