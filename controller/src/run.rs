// SPDX-License-Identifier: Apache-2.0
//! `run`: keeps every switch of a fabric at what its file says.
//!
//! ```text
//!              ┌► driver ─► SwitchTask   one of each per switch: own connection, own back-off
//!  Controller ─┼► driver ─► SwitchTask
//!   reload     └► driver ─► SwitchTask ─┐     a listener beside each where ports are told by gNMI
//!                                       ▼
//!                               board ──► metrics
//!                               replacements: whose turn it is to be given a new program
//! ```

mod metrics;
mod pages;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use trimwire_metrics_http::Server;

pub use self::metrics::metrics_text;
use crate::device::Reach;
use crate::engine::board::Board;
use crate::engine::driver::{Common, Terms, drive};
use crate::engine::election::{Election, Elections};
use crate::engine::faults::Detector;
pub use crate::engine::status::{
    Cause, Drift, Fault, Leader, Links, Replacing, Status, SwitchStatus, Tally, TrimmingStatus,
};
use crate::engine::turns::{Replacements, Replacer};
use crate::engine::wanted::Wanted;
use crate::fleet::places::Places;
use crate::fleet::{ApplyError, Options, Shared};
use crate::model::{Fabric, MetricsAt};
use crate::program::Artifacts;
use crate::topology::Avoid;

/// How long switches may take to be left in good order.
const PARTING: Duration = Duration::from_secs(2);

/// What a caller may set beside the fabric file.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Instead of the file's.
    pub election_id: Option<u128>,
    /// Instead of the file's.
    pub metrics: Option<MetricsAt>,
}

/// Why a controller does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// As with `apply`.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The address for metrics cannot be listened on.
    #[error(
        "cannot serve metrics on {address}: {source}; choose another with --metrics ADDRESS:PORT, or --metrics off"
    )]
    Metrics {
        /// As given.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// A controller at work, in the current tokio runtime. Dropping it ends the work;
/// [`Controller::stop`] does so in good order.
#[derive(Debug)]
pub struct Controller {
    artifacts: Artifacts,
    options: RunOptions,
    common: Common,
    /// Of the file that was taken last.
    number: u64,
    timers: [JoinHandle<()>; 2],
    drivers: BTreeMap<String, Driver>,
    metrics: Option<Server>,
}

struct Driver {
    terms: Terms,
    wanted: watch::Sender<Arc<Wanted>>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("name", &self.terms.name).finish_non_exhaustive()
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        self.drivers.values().for_each(|driver| driver.task.abort());
        self.timers.iter().for_each(JoinHandle::abort);
    }
}

impl Controller {
    /// Starts to work on every switch. Gives an error only if the work cannot begin at all.
    #[expect(clippy::unused_async, reason = "it spawns tasks, so its caller has to be in a runtime")]
    pub async fn start(
        fabric: &Fabric,
        artifacts: &Artifacts,
        options: &RunOptions,
    ) -> Result<Self, RunError> {
        let board = Board::default();
        let detector = Detector::new(board.clone(), true);
        let elections = Elections::new(detector.clone(), board.clone());
        let replacements = Replacements::new(detector.clone(), board.clone());
        let timers = [
            tokio::spawn(detector.clone().run()),
            tokio::spawn(replacements.clone().run(elections.subscribe())),
        ];
        let mut controller = Self {
            artifacts: artifacts.clone(),
            options: options.clone(),
            timers,
            number: 0,
            common: Common { board, elections, detector, replacements },
            drivers: BTreeMap::new(),
            metrics: None,
        };
        controller.serve_metrics(fabric)?;
        controller.take(fabric)?;
        Ok(controller)
    }

    /// From now on keeps the switches at what this file says. After an error nothing has changed.
    /// Where metrics are served stays as it was.
    pub fn reload(&mut self, fabric: &Fabric, artifacts: &Artifacts) -> Result<(), RunError> {
        let before = std::mem::replace(&mut self.artifacts, artifacts.clone());
        if let Err(error) = self.take(fabric) {
            self.artifacts = before;
            return Err(error);
        }
        self.common.board.change(|status| status.reloads += 1);
        Ok(())
    }

    /// A person says that our file is the one: a controller that led the fabric with another file,
    /// and is gone, does not keep us from writing any longer, nor does a switch that failed keep
    /// others from being given their new program.
    pub fn insist(&self) {
        self.common.elections.change(Election::insist);
        self.common.replacements.change(Replacer::insist);
    }

    /// From now on routes leave these switches out, for these reasons.
    pub fn drain(&self, drained: BTreeMap<String, String>) {
        self.common.detector.change(|faults, _| faults.drain(drained));
    }

    /// Counts a file that was not taken.
    pub fn refused_reload(&self) {
        self.common.board.change(|status| status.refused_reloads += 1);
    }

    /// What is known of the switches.
    pub fn status(&self) -> Status {
        self.common.status()
    }

    /// Where metrics are served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Server::address)
    }

    /// Ends all work, at once where something is under way, and closes the connections.
    pub async fn stop(mut self) {
        let drivers = std::mem::take(&mut self.drivers);
        // A driver that sees its channel closed ends by itself.
        let tasks: Vec<JoinHandle<()>> = drivers.into_values().map(|driver| driver.task).collect();
        let ended = async {
            for task in tasks {
                let _ = task.await;
            }
        };
        let _ = tokio::time::timeout(PARTING, ended).await;
    }

    fn serve_metrics(&mut self, fabric: &Fabric) -> Result<(), RunError> {
        let asked = self.options.metrics.unwrap_or(fabric.controller.metrics);
        let Some(address) = asked.address() else { return Ok(()) };
        match pages::serve(address, self.common.clone()) {
            Ok(served) => {
                tracing::info!("metrics at http://{}/metrics", served.address());
                self.metrics = Some(served);
                Ok(())
            }
            // Two controllers on one machine are nothing unusual.
            Err(error) if asked == MetricsAt::Default => {
                tracing::warn!(
                    "no metrics: cannot listen on {address}: {error}; --metrics chooses another address"
                );
                Ok(())
            }
            Err(source) => Err(RunError::Metrics { address, source }),
        }
    }

    fn take(&mut self, fabric: &Fabric) -> Result<(), RunError> {
        let options = Options { election_id: self.options.election_id, ..Options::default() };
        let shared = Shared::new(fabric, &self.artifacts, &options);
        shared.fits(&options)?;
        let places = Places::new(fabric.controller.concurrency);
        self.common.elections.change(|election| election.of(shared.election_id, fabric.switches.keys()));
        let hold_down_ns = fabric.controller.hold_down_ns;
        let topology = shared.compiler.topology();
        let homes = fabric.switches.keys().filter(|name| topology.tier(name) == Some(0)).cloned().collect();
        self.common.detector.change(|faults, _| faults.of(hold_down_ns, fabric.switches.keys(), homes));
        self.common.detector.wires(|wires| wires.of(topology, fabric.switches.keys()));
        self.number += 1;
        let number = self.number;
        self.common.board.change(|status| status.file = number);
        self.common.replacements.change(|replacer| replacer.of(number, Arc::clone(&shared)));
        let mut drivers = std::mem::take(&mut self.drivers);
        self.common
            .board
            .change(|status| status.switches.retain(|name, _| fabric.switches.contains_key(name)));
        for (name, switch) in &fabric.switches {
            let terms = Terms {
                name: name.clone(),
                // A driver comes back by itself.
                reach: Reach { patience: Duration::ZERO, ..shared.reach(name, switch) },
                election_id: shared.election_id,
                interval_ns: fabric.controller.interval_ns,
                audit_ns: fabric.controller.audit_ns,
                held: Arc::<Avoid>::default(),
            };
            let wanted = Arc::new(Wanted {
                name: name.clone(),
                number: self.number,
                ports: shared.ports(name),
                shared: Arc::clone(&shared),
                places: places.clone(),
                settle: Duration::from_nanos(fabric.controller.settle_ns),
                is_meant: true,
                once: None,
            });
            let driver = match drivers.remove(name).filter(|driver| driver.terms == terms) {
                Some(driver) => {
                    driver.wanted.send_replace(wanted);
                    driver
                }
                None => self.start_driver(terms, wanted),
            };
            self.drivers.insert(name.clone(), driver);
        }
        // What is left in `drivers` is not in the file any more: dropped, its channel is closed,
        // and it ends.
        Ok(())
    }

    fn start_driver(&self, terms: Terms, wanted: Arc<Wanted>) -> Driver {
        self.common
            .board
            .change(|status| status.switches.insert(terms.name.clone(), SwitchStatus::default()));
        let (wanted, told) = watch::channel(wanted);
        let task = tokio::spawn(drive(terms.clone(), told, self.common.clone()));
        Driver { terms, wanted, task }
    }
}
