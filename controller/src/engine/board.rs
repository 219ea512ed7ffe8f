// SPDX-License-Identifier: Apache-2.0
//! A [`Status`] that the switches' drivers write, and metrics and tests read.

use std::sync::{Arc, Mutex, PoisonError};

use super::status::{Status, SwitchStatus};

/// A [`Status`] that many may write to; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<Status>>);

impl Board {
    pub(crate) fn status(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn change_switch(&self, name: &str, change: impl FnOnce(&mut SwitchStatus)) {
        self.change(|status| {
            if let Some(switch) = status.switches.get_mut(name) {
                change(switch);
            }
        });
    }
}
