// SPDX-License-Identifier: Apache-2.0
//! Why a file cannot be run.

/// Why an STF file cannot be run: what is wrong with it, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}: {message}")]
pub struct StfError {
    /// Counts from 1.
    pub line: usize,
    /// The culprit, and the valid choices.
    pub message: String,
}

/// `; did you mean …` for a near miss, else the choices.
pub(super) fn hint(asked: &str, valid: &[String]) -> String {
    const SHOWN: usize = 12;
    let near = trimwire_p4runtime::p4info::nearest(asked, valid);
    if let Some(near) = near.first() {
        return format!("; did you mean '{near}'?");
    }
    let more = if valid.len() > SHOWN { ", …" } else { "" };
    match valid.get(..valid.len().min(SHOWN)).unwrap_or_default() {
        [] => "; there are none".to_owned(),
        shown => format!("; there are: {}{more}", shown.join(", ")),
    }
}
