// SPDX-License-Identifier: Apache-2.0
//! How a group works, and how an operation is done, as Python says it.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;
use trimwire_agent::collective::{Algorithm, Options, Replicas};
use trimwire_agent::endpoint::Reliability;
use trimwire_agent::pacing::Pace;

/// How a group works; attributes of a Python object.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct GroupOptions {
    pub(super) seed: u64,
    pub(super) rate_bps: Option<u64>,
    pub(super) give_up_s: f64,
    pub(super) operation_timeout_s: f64,
    /// All ranks run after so long; `None`: any may start later.
    pub(super) rendezvous_timeout_s: Option<f64>,
    pub(super) loss: f32,
    pub(super) seal_key: Option<Vec<u8>>,
    pub(super) job: u8,
    pub(super) record: Option<String>,
    pub(super) rate_algorithm: String,
    pub(super) trim_delay_s: Option<f64>,
    pub(super) mtu: Option<u16>,
}

/// How an operation is done; attributes of a Python object.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct OperationOptions {
    pub(super) exact: bool,
    pub(super) average: bool,
    pub(super) planes: u8,
    pub(super) layer_class: u8,
    pub(super) tag: u32,
    pub(super) consistent: bool,
    pub(super) full: bool,
    pub(super) algorithm: String,
    pub(super) deadline_s: Option<f64>,
    pub(super) pace: f64,
}

impl TryFrom<OperationOptions> for Options {
    type Error = PyErr;

    fn try_from(options: OperationOptions) -> PyResult<Self> {
        let algorithm = match options.algorithm.as_str() {
            "auto" => Algorithm::Automatic,
            "direct" => Algorithm::Direct,
            "ring" => Algorithm::Ring,
            "two-level" => Algorithm::TwoLevel,
            other => {
                let valid = "'auto', 'direct', 'ring', 'two-level'";
                return Err(PyValueError::new_err(format!("algorithm is '{other}'; valid are {valid}")));
            }
        };
        let deadline_ns = match options.deadline_s {
            Some(seconds) if !(seconds > 0.0 && seconds.is_finite()) => {
                let text = format!("deadline is {seconds} s; it has to be positive and finite");
                return Err(PyValueError::new_err(text));
            }
            seconds => seconds.map(|seconds| (seconds * 1e9) as u64),
        };
        Ok(Self {
            algorithm,
            deadline_ns,
            exact: options.exact,
            average: options.average,
            planes: options.planes,
            layer_class: options.layer_class.min(7),
            tag: options.tag,
            replicas: if options.consistent { Replicas::Consistent } else { Replicas::Free },
            pace: Pace::of_share(options.pace),
            reliability: options.full.then_some(Reliability::Full),
            ..Self::default()
        })
    }
}

pub(super) fn seconds(value: f64, name: &str) -> PyResult<u64> {
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    let duration =
        duration.ok_or_else(|| PyValueError::new_err(format!("{name}: {value}; a time in seconds")))?;
    Ok(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
