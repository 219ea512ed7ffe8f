// SPDX-License-Identifier: Apache-2.0
//! Handles of operations, to wait for.

use super::locks::lock;
use super::network::Command;
use super::options::seconds;
use crate::TransportError;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trimwire_agent::collective::OutcomeStats;
use trimwire_agent::driver::Wake;

/// Why an operation failed, and which rank is to blame where one is.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) text: String,
    pub(super) rank: Option<u16>,
}

/// How an operation ended.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) error: Option<Failure>,
    pub(super) stats: OutcomeStats,
    /// On the network's thread's clock.
    pub(super) ended_ns: u64,
    pub(super) duration_ns: u64,
}

#[derive(Default)]
pub(super) struct State {
    /// Whether it may be trimmed.
    pub(super) lossy: bool,
    pub(super) ending: Mutex<Option<Ending>>,
    pub(super) ended: Condvar,
    pub(super) callbacks: Mutex<Vec<Py<PyAny>>>,
}

impl State {
    pub(super) fn end(&self, ending: Ending) {
        *lock(&self.ending) = Some(ending);
        self.ended.notify_all();
    }
}

/// An operation under way.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Work {
    pub(super) state: Arc<State>,
    pub(super) commands: Sender<Command>,
    pub(super) wake: Arc<Wake>,
}

/// A wait is interrupted so often to see whether the user has pressed Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(200);

#[pymethods]
impl Work {
    /// Whether it is over, well or not.
    fn done(&self) -> bool {
        lock(&self.state.ending).is_some()
    }

    /// Waits until it is over, at most `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    #[expect(clippy::disallowed_methods, reason = "Python waits in real time")]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let end = match timeout {
            Some(timeout) => Some(Instant::now() + Duration::from_nanos(seconds(timeout, "timeout")?)),
            None => None,
        };
        loop {
            let ending = py.detach(|| {
                let left =
                    end.map_or(SIGNALS, |end| end.saturating_duration_since(Instant::now()).min(SIGNALS));
                let ending = lock(&self.state.ending);
                let waited = self.state.ended.wait_timeout_while(ending, left, |ending| ending.is_none());
                waited.unwrap_or_else(PoisonError::into_inner).0.clone()
            });
            if let Some(Ending { error, .. }) = ending {
                return error.map_or(Ok(()), |error| Err(TransportError::new_err(error.text)));
            }
            py.check_signals()?;
            if end.is_some_and(|end| end <= Instant::now()) {
                let text = format!("not over after {} s; it goes on", timeout.unwrap_or_default());
                return Err(PyTimeoutError::new_err(text));
            }
        }
    }

    /// Why it failed; `None` where it did not, or is not over.
    fn error(&self) -> Option<String> {
        Some(lock(&self.state.ending).as_ref()?.error.as_ref()?.text.clone())
    }

    /// The rank to blame for its failure, as in the beginning; `None` where there is none.
    fn culprit(&self) -> Option<u16> {
        lock(&self.state.ending).as_ref()?.error.as_ref()?.rank
    }

    /// Gives it up here, and tells the other ranks, who fail; nothing where it is over.
    fn cancel(&self) {
        let _ = self.commands.send(Command::Cancel(Arc::clone(&self.state)));
        self.wake.wake();
    }

    /// How its packets fared, once it is over.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(Ending { stats, ended_ns, duration_ns, .. }) = lock(&self.state.ending).clone() else {
            return Ok(None);
        };
        let dict = PyDict::new(py);
        for (name, value) in [
            ("packets_received", stats.packets),
            ("packets_trimmed", stats.trimmed),
            ("packets_missing", stats.missing),
            ("packets_sent", stats.sent),
            ("packets_repaired", stats.repaired),
            ("bytes_sent", stats.bytes_sent),
            ("bytes_expected", stats.bytes_expected),
            ("bytes_received", stats.bytes_received),
        ] {
            dict.set_item(name, value)?;
        }
        dict.set_item("began", ended_ns.saturating_sub(duration_ns) as f64 / 1e9)?;
        dict.set_item("ended", ended_ns as f64 / 1e9)?;
        dict.set_item("seconds", duration_ns as f64 / 1e9)?;
        Ok(Some(dict))
    }

    /// Calls `callback` when it is over, after those that were given before; at once where it is.
    /// The callback may wait for other operations.
    fn then(&self, py: Python<'_>, callback: Py<PyAny>) -> PyResult<()> {
        let ending = lock(&self.state.ending);
        if ending.is_none() {
            lock(&self.state.callbacks).push(callback);
            return Ok(());
        }
        drop(ending);
        callback.call0(py).map(drop)
    }
}
