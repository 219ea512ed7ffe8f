// SPDX-License-Identifier: Apache-2.0
//! What the control plane knows beside the switch, and who may touch it.

use super::arbitration::Arbitration;
use super::costs::Costs;
use super::digests::Digests;
use super::entities::{self, Target};
use super::limits::Limits;
use super::peer::Peer;
use super::pipeline_config::Realm;
use super::refusal::Refusal;
use crate::engine::Pipeline;
use crate::wake::Wake;
use crate::{SharedSwitch, Switch};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Request, Status};
use trimwire_p4runtime::v1::{self, entity::Entity as Kind};

/// The clock of a switch's driver, in ns.
pub(super) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Guarded by one lock, which is taken before the switch's.
pub(super) struct State {
    pub(super) arbitration: Arbitration,
    /// What the switch runs.
    pub(super) running: Option<Realm>,
    /// Verified and saved, to be committed: reads and writes go to it until then
    /// ("VERIFY_AND_SAVE").
    pub(super) saved: Option<(Realm, Pipeline)>,
    pub(super) digests: Digests,
    /// Counts what pipelines reads and writes have been about.
    pub(super) generation: u64,
}

impl State {
    /// The pipeline that reads and writes are about.
    pub(super) fn target<'a>(
        &'a mut self,
        switch: &'a mut Switch,
        now_ns: u64,
    ) -> Result<Target<'a>, Refusal> {
        let (realm, pipeline) = match (&mut self.saved, &mut self.running) {
            (Some((realm, pipeline)), _) => (realm, pipeline),
            (None, Some(realm)) => (realm, switch.pipeline().ok_or_else(Refusal::no_pipeline)?),
            (None, None) => return Err(Refusal::no_pipeline()),
        };
        Ok(Target { control: pipeline.control(), ledger: &mut realm.ledger, index: &realm.index, now_ns })
    }

    /// What the pipeline that reads and writes are about costs.
    pub(super) fn costs(&self) -> Option<&Costs> {
        let realm = self.saved.as_ref().map(|(realm, _)| realm).or(self.running.as_ref())?;
        Some(&realm.costs)
    }

    /// Makes the digests that are on those that have been written for the running program.
    pub(super) fn subscribe(&mut self) {
        if let Some(realm) = &self.running {
            entities::subscribe(&mut self.digests, &realm.index, &realm.ledger, &realm.costs);
        }
    }

    /// The same after these updates, which are mostly about something else.
    pub(super) fn subscribe_after(&mut self, updates: &[v1::Update]) {
        let about_digests = |update: &v1::Update| {
            matches!(
                update.entity.as_ref().and_then(|entity| entity.entity.as_ref()),
                Some(Kind::DigestEntry(_))
            )
        };
        if updates.iter().any(about_digests) {
            self.subscribe();
        }
    }
}

/// The switch, the state, and the clock. Cheap to clone.
#[derive(Clone)]
pub(super) struct Service {
    switch: SharedSwitch,
    state: Arc<Mutex<State>>,
    waker: Option<Wake>,
    clock: Option<Clock>,
    device_id: u64,
    limits: Arc<Limits>,
    /// Programs are compiled one at a time.
    loads: Arc<Semaphore>,
}

impl Service {
    pub(super) fn new(
        switch: SharedSwitch,
        waker: Option<Wake>,
        clock: Option<Clock>,
        limits: Arc<Limits>,
    ) -> Self {
        let device_id = switch.lock().unwrap_or_else(PoisonError::into_inner).device_id();
        let state = State {
            arbitration: Arbitration::new(device_id, Arc::clone(&limits)),
            running: None,
            saved: None,
            digests: Digests::default(),
            generation: 0,
        };
        let loads = Arc::new(Semaphore::new(1));
        Self { switch, state: Arc::new(Mutex::new(state)), waker, clock, device_id, limits, loads }
    }

    // A poisoned lock means that another thread panicked; entries are changed one by one, so the
    // state is usable.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The switch's clock: its driver's, where there is one that runs by itself.
    pub(super) fn now_ns(&self, switch: &Switch) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock()).max(switch.now_ns())
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whose request it is.
    pub(super) fn peer_of<T>(&self, request: &Request<T>) -> Arc<Peer> {
        Peer::of(request.extensions()).unwrap_or_else(|| Peer::new(&self.limits))
    }

    /// The right to compile a program, when it is one's turn.
    pub(super) async fn load_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.loads).acquire_owned().await.ok()
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker();
        }
    }

    pub(super) fn check_device(&self, asked: u64) -> Result<(), Status> {
        if asked == self.device_id {
            return Ok(());
        }
        Err(Status::not_found(format!(
            "device id {asked} is not here; this switch is device {}",
            self.device_id
        )))
    }
}

/// Ns since the epoch, for messages that carry a time stamp.
#[expect(
    clippy::disallowed_methods,
    reason = "time stamps of notifications are those of the server's local clock"
)]
pub(super) fn timestamp() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}
