// SPDX-License-Identifier: Apache-2.0
//! What a future becomes.

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use std::sync::Mutex;

/// For `torch.futures.Future.then`: gives the future's value, or raises what was said to have gone
/// wrong.
///
/// A function in Python would do, but for the stack: PyTorch makes text of what a callback raises,
/// its stack included, and this has none.
#[pyclass(frozen, module = "trimwire._native")]
#[derive(Default)]
pub(crate) struct Verdict {
    error: Mutex<Option<Py<PyBaseException>>>,
}

#[pymethods]
impl Verdict {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// What went wrong.
    fn fail(&self, error: Bound<'_, PyBaseException>) {
        *self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error.unbind());
    }

    fn __call__<'py>(&self, future: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let error = self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*error {
            Some(error) => Err(PyErr::from_value(error.bind(future.py()).clone().into_any())),
            None => future.call_method0("value"),
        }
    }
}
