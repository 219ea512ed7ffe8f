//! What became of each knob.

use std::fmt;

use serde::Serialize;

/// How near SONiC comes. The worst stands first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fidelity {
    /// SONiC cannot say it.
    Missing,
    /// Something like it.
    Near,
    /// To be done or checked on the switch.
    Check,
    /// The same.
    Exact,
}

/// What became of one knob of the fabric file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Note {
    /// How near it is.
    pub fidelity: Fidelity,
    /// Key in the fabric file.
    pub knob: String,
    /// Where it went, `TABLE.field`; empty for nowhere.
    pub sonic: String,
    /// In words.
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.fidelity {
            Fidelity::Missing => "not expressed",
            Fidelity::Near => "nearest",
            Fidelity::Check => "check",
            Fidelity::Exact => "exact",
        };
        write!(f, "{word}: {}", self.knob)?;
        if !self.sonic.is_empty() {
            write!(f, " → {}", self.sonic)?;
        }
        write!(f, ": {}", self.message)
    }
}
