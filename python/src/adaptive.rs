// SPDX-License-Identifier: Apache-2.0
//! Laws that say how much of the next step is sent.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, MutexGuard, PoisonError};
use trimwire_agent::planes::{Adaptive as Steering, COUNTS, Counts, Step};

/// An algorithm, its limits and what it knows of the network.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Adaptive(Mutex<Steering>);

impl Adaptive {
    fn law(&self) -> MutexGuard<'_, Steering> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("adaptive: {error}"))
}

#[pymethods]
impl Adaptive {
    /// An algorithm as in `da5:k_min=0.1,alpha=1.5`, which sends at most so many planes.
    #[new]
    fn new(algorithm: &str, planes: u8) -> PyResult<Self> {
        if !(1..=trimwire_encoder::PLANES).contains(&planes) {
            let most = trimwire_encoder::PLANES;
            return Err(PyValueError::new_err(format!("planes: {planes}; valid are 1 to {most}")));
        }
        Steering::new(algorithm, planes).map(|law| Self(Mutex::new(law))).map_err(refused)
    }

    /// Planes of the next step.
    #[getter]
    fn planes(&self) -> u8 {
        self.law().planes()
    }

    /// Share of the line's rate at which the next step leaves at most.
    #[getter]
    fn pace(&self) -> f64 {
        self.law().pace()
    }

    /// The algorithm's ratio.
    #[getter]
    fn ratio(&self) -> f64 {
        self.law().ratio()
    }

    /// Steps taken, and refused.
    #[getter]
    fn steps(&self) -> (u64, u64) {
        self.law().steps()
    }

    /// Takes all ranks' counts of a step, in the order of the ranks. Says what was measured; `None`
    /// and why where that cannot be, which changes nothing.
    fn step<'py>(
        &self,
        py: Python<'py>,
        ranks: Vec<[u64; COUNTS]>,
    ) -> PyResult<(Option<Bound<'py, PyDict>>, Option<String>)> {
        let ranks: Vec<Counts> = ranks.into_iter().map(Counts::from_numbers).collect();
        match self.law().step(&ranks) {
            Ok(Step { bytes, delay_ns, trimmed, arrived, lost, .. }) => {
                let dict = PyDict::new(py);
                dict.set_item("bytes", bytes)?;
                dict.set_item("seconds", delay_ns as f64 / 1e9)?;
                for (name, share) in [("trimmed", trimmed), ("arrived", arrived), ("lost", lost)] {
                    dict.set_item(name, share)?;
                }
                Ok((Some(dict), None))
            }
            Err(error) => Ok((None, Some(error.to_string()))),
        }
    }

    /// What a checkpoint keeps, as JSON.
    fn state(&self) -> PyResult<String> {
        serde_json::to_string(&self.law().state()).map_err(refused)
    }

    /// Goes on from what a checkpoint kept.
    fn restore(&self, state: &str) -> PyResult<()> {
        self.law().restore(&mut serde_json::Deserializer::from_str(state)).map_err(refused)
    }
}
