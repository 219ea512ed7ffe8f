// SPDX-License-Identifier: Apache-2.0
//! What became of each knob.

use std::fmt;

use serde::Serialize;

use super::{Thresholds, Writer};

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

impl Writer<'_> {
    /// What to look at before the result is loaded into a switch that has a configuration.
    pub(super) fn merging(&mut self) {
        let Some(present) = &self.platform.present else {
            if self.platform.thresholds == Thresholds::Static {
                let message = "static thresholds are for a static pool; SONiC's own images have dynamic ones, which take --pool-size, or the \
                               switch's own configuration (--config-db)";
                self.note(Fidelity::Check, "policy", "BUFFER_POOL.mode", message);
            }
            let message = "merged without a look at what is there, rows such as BUFFER_QUEUE|Ethernet0|0-2 stay beside those of its queues, a \
                           QUEUE's wred_profile drops before anything is trimmed, and queues with PFC (3 and 4 in many images) are lossless: give \
                           the switch's configuration (--config-db), and a patch says what has to go";
            self.note(Fidelity::Check, "queues", "BUFFER_QUEUE, QUEUE, PORT_QOS_MAP", message);
            return;
        };
        let paused: Vec<String> = self
            .names
            .iter()
            .filter_map(|(port, name)| {
                let own = &self.policies.get(port)?.queues;
                let paused: Vec<String> = present
                    .lossless(name)
                    .iter()
                    .filter(|queue| own.contains_key(*queue))
                    .map(u8::to_string)
                    .collect();
                (!paused.is_empty()).then(|| format!("{name} {}", paused.join(", ")))
            })
            .collect();
        if !paused.is_empty() {
            let message = format!(
                "the patch turns PFC off for queues of {}: what is sent there is lossless no more. BUFFER_PG and TC_TO_PRIORITY_GROUP_MAP \
                 are left as they are, and keep headroom that nobody uses",
                paused.join("; ")
            );
            self.note(Fidelity::Check, "queues", "PORT_QOS_MAP.pfc_enable, pfcwd_sw_enable", message);
        }
    }
}
