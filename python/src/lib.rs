// SPDX-License-Identifier: Apache-2.0
//! The native module of the Python package `trimwire`; what users call is in `lib/trimwire`.

mod adaptive;
mod codec;
mod dlpack;
mod group;
mod log;
mod outcome;
mod pinned;
mod transcript;

use pyo3::prelude::*;

pyo3::create_exception!(
    trimwire,
    TransportError,
    pyo3::exceptions::PyRuntimeError,
    "A collective failed, or the network cannot be used."
);

/// Bindings.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    log::begin();
    module.add("TransportError", module.py().get_type::<TransportError>())?;
    module.add("PLANES", trimwire_encoder::PLANES)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(codec::encode, module)?)?;
    module.add_function(wrap_pyfunction!(codec::trim, module)?)?;
    module.add_function(wrap_pyfunction!(codec::decode_into, module)?)?;
    module.add_function(wrap_pyfunction!(codec::simulate_into, module)?)?;
    module.add_function(wrap_pyfunction!(codec::expected_nmse, module)?)?;
    module.add_function(wrap_pyfunction!(group::own_address, module)?)?;
    module.add_function(wrap_pyfunction!(group::own_cores, module)?)?;
    module.add_function(wrap_pyfunction!(group::default_channels, module)?)?;
    module.add_function(wrap_pyfunction!(transcript::read_transcript, module)?)?;
    module.add_function(wrap_pyfunction!(codec::coordinates_per_packet, module)?)?;
    module.add_class::<adaptive::Adaptive>()?;
    module.add_class::<transcript::RankTranscript>()?;
    module.add_class::<outcome::Verdict>()?;
    module.add_class::<group::Socket>()?;
    module.add_class::<group::Group>()?;
    module.add_function(wrap_pyfunction!(group::direct_shards, module)?)?;
    module.add_function(wrap_pyfunction!(group::channel_parts, module)?)?;
    module.add_class::<group::Desk>()?;
    module.add_class::<group::Elsewhere>()?;
    module.add_class::<group::Row>()?;
    module.add_class::<group::Rows>()?;
    module.add_class::<group::Work>()
}
