// SPDX-License-Identifier: Apache-2.0
//! [`Follow`] on the real clock, shared by all drivers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::board::{Board, Leader};
use crate::counters::Counters;
use crate::follow::Follow;
use crate::model::{Fabric, PortPolicy};

/// Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Follower {
    started: Instant,
    core: Arc<Mutex<Follow>>,
    board: Board,
    /// The end of the window may have moved.
    moved: Arc<Notify>,
    /// Policies are to change.
    changed: Arc<Notify>,
}

impl Follower {
    pub(super) fn new(fabric: &Fabric, board: Board) -> Self {
        let core = Arc::new(Mutex::new(Follow::new(fabric, 0)));
        let (moved, changed) = (Arc::default(), Arc::default());
        Self { started: Instant::now(), core, board, moved, changed }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn core(&self) -> MutexGuard<'_, Follow> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The policies of a fabric file, as they follow the load if it says of thresholds what was taken last.
    pub(super) fn policies(&self, fabric: &Fabric) -> BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>> {
        let core = self.core();
        if core.is_of(fabric) { core.policies() } else { fabric.policies.clone() }
    }

    /// A fabric file was taken. What follows begins anew where it says something else of thresholds.
    pub(super) fn begin(&self, fabric: &Fabric) {
        let mut core = self.core();
        if !core.is_of(fabric) {
            *core = Follow::new(fabric, self.now());
            self.moved.notify_one();
        }
        self.board.change(|status| status.following = core.told());
    }

    /// A switch's counters. While a decision is computed nobody waits for it: the next ones have what these had.
    pub(super) fn read(&self, switch: &str, counters: &Counters) {
        if let Ok(mut core) = self.core.try_lock() {
            core.handle_counters(self.now(), switch, counters);
        }
    }

    /// Waits until policies are to change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Decides at the end of each window, for as long as it is polled.
    pub(super) async fn run(self) {
        loop {
            let due = self.core().poll_timeout();
            tokio::select! {
                () = self.moved.notified() => continue,
                () = tokio::time::sleep_until(self.started + Duration::from_nanos(due)) => {}
            }
            let own = self.clone();
            // Milliseconds of computing for each kind of port.
            let _ = tokio::task::spawn_blocking(move || own.decide()).await;
        }
    }

    fn decide(&self) {
        let leads = self.board.change(|status| status.leader == Leader::This);
        let mut core = self.core();
        core.handle_timeout(self.now(), leads);
        while let Some(notice) = core.poll_notice() {
            tracing::info!("{notice}");
        }
        if core.poll_change() {
            self.changed.notify_one();
        }
        self.board.change(|status| status.following = core.told());
    }
}
