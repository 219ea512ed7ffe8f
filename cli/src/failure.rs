// SPDX-License-Identifier: Apache-2.0
//! Failures, each with the exit code that scripts see.

use std::fmt;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    error: anyhow::Error,
}

/// What commands return.
pub type Outcome = Result<(), Failure>;

/// Exit codes of every command, as its help states them.
pub const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failed check, 2 usage, 3 bad input.";

impl Failure {
    /// A check or a piece of work failed: 1.
    pub fn failed(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 1, error: error.into() }
    }

    /// Flags that make no sense, as clap's own errors: 2.
    pub fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 2, error: error.into() }
    }

    /// A file or a string that is not what it should be: 3.
    pub fn input(error: impl Into<anyhow::Error>) -> Self {
        Self { code: 3, error: error.into() }
    }

    /// Why, without the exit code.
    pub fn into_error(self) -> anyhow::Error {
        self.error
    }

    /// The process's exit code.
    pub fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::failed(error)
    }
}
