// SPDX-License-Identifier: Apache-2.0
//! What a `run` writes down: each fabric file that it takes while it leads, and what becomes of it.
//! As roll-outs are, so that `history` shows it and `rollback` finds the file before.

use std::collections::BTreeMap;

use trimwire_controller::record::{Record, Records};
use trimwire_controller::run::{Leader, Status};
use trimwire_controller::{Artifacts, Fabric};

use super::rollout::told;

/// A file that is in force, and has no record yet.
struct Taken {
    command: &'static str,
    text: String,
    fabric: Fabric,
    artifacts: Artifacts,
    /// A person asked for it: it is written down, even if nothing has changed.
    is_asked_for: bool,
}

/// The records of a `run`.
pub(crate) struct Recording {
    records: Records,
    taken: Option<Taken>,
    /// Begun and not ended.
    open: Option<Record>,
}

impl Recording {
    /// Of the file that it starts with. A `run` that is started anew with what was in place has
    /// nothing to write down.
    pub(crate) fn start(records: Records, text: &str, fabric: &Fabric, artifacts: &Artifacts) -> Self {
        let mut recording = Self { records, taken: None, open: None };
        recording.take("run", text, fabric, artifacts);
        recording
    }

    /// A person gave it another file, or the same once more.
    pub(crate) fn reload(&mut self, status: &Status, text: &str, fabric: &Fabric, artifacts: &Artifacts) {
        self.end(status);
        self.take("run, SIGHUP", text, fabric, artifacts);
        if let Some(taken) = &mut self.taken {
            taken.is_asked_for = true;
        }
    }

    fn take(&mut self, command: &'static str, text: &str, fabric: &Fabric, artifacts: &Artifacts) {
        let (text, fabric, artifacts) = (text.to_owned(), fabric.clone(), artifacts.clone());
        self.taken = Some(Taken { command, text, fabric, artifacts, is_asked_for: false });
    }

    /// Whoever follows writes nothing to switches, and nothing down: the leader does. Two of them
    /// may share a folder.
    pub(crate) fn look(&mut self, status: &Status) {
        let leads = status.leader == Leader::This && status.switches.values().any(|switch| switch.primary);
        if leads && let Some(taken) = self.taken.take() {
            let Taken { command, text, fabric, artifacts, is_asked_for } = taken;
            if is_asked_for || !self.records.is_last_good(&text, &fabric, &artifacts) {
                self.open = told(self.records.begin(command, &text, &fabric, &artifacts, &[]));
            }
        }
        if status.is_in_place() {
            self.end(status);
        }
    }

    /// What is begun ends: all are in place, or another file comes, or the `run` ends.
    pub(crate) fn end(&mut self, status: &Status) {
        let Some(record) = self.open.take() else { return };
        let (mut failed, mut not_begun) = (BTreeMap::new(), Vec::new());
        for (name, switch) in &status.switches {
            if switch.is_in_place_of(status.file) {
                continue;
            }
            if status.replacing.waiting.contains(name) {
                not_begun.push(name.clone());
            } else {
                let why =
                    if switch.up { "not in place when this ended" } else { "not connected when this ended" };
                failed.insert(name.clone(), why.to_owned());
            }
        }
        let in_place = status.switches.len() - failed.len() - not_begun.len();
        told(self.records.close(record, in_place, failed, not_begun));
    }
}
