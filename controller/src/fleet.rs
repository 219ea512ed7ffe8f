// SPDX-License-Identifier: Apache-2.0
//! Many switches at a time: what they share, and what becomes of each.

pub(crate) mod places;
pub(crate) mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use trimwire_p4runtime::client::Tls;
use trimwire_p4runtime::p4info::Index;

use self::places::Places;
use self::progress::Progress;
use crate::compile::{CompileError, Compiler, Desired};
use crate::device::Reach;
use crate::model::{Fabric, PortPolicy, Switch};
use crate::program::{Artifacts, ArtifactsError};
use crate::topology::{Avoid, Detours, SwitchRoutes};

/// What a caller may set beside the fabric file.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the file's.
    pub election_id: Option<u128>,
    /// Names of the switches to work on; empty for all.
    pub only: BTreeSet<String>,
    /// Switches that routes leave out where there is another way.
    pub drained: BTreeSet<String>,
    /// Kept up to date while the work goes on.
    pub progress: Progress,
}

impl Options {
    /// Whether a switch is to be worked on.
    pub(crate) fn includes(&self, switch: &str) -> bool {
        self.only.is_empty() || self.only.contains(switch)
    }
}

/// Why nothing was done at all. What goes wrong on a switch is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The program does not read.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
    /// The program cannot hold the fabric.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// No threads to be had.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// A bug: work on a switch panicked.
    #[error("work on a switch ended abnormally: {0}")]
    Abnormal(String),
}

/// A switch listens some 30 ms after it was started, simple_switch_grpc later, and later still on a
/// busy machine.
const PATIENCE: Duration = Duration::from_secs(2);

/// What work on any switch needs.
pub(crate) struct Shared {
    pub compiler: Compiler,
    /// Drained by a person.
    pub drained: BTreeSet<String>,
    /// What was left when this was avoided, for all switches at a time.
    around: Mutex<Option<(Arc<Avoid>, Arc<Detours>)>>,
    pub election_id: u128,
    /// Most updates in one Write.
    pub batch: usize,
    timeout: Duration,
    tls: BTreeMap<String, Tls>,
}

impl Shared {
    pub(crate) fn new(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Arc<Self> {
        let compiler = Compiler::new(Arc::new(fabric.clone()), artifacts);
        Arc::new(Self {
            compiler,
            drained: options.drained.clone(),
            around: Mutex::default(),
            election_id: options.election_id.unwrap_or(fabric.controller.election_id),
            timeout: Duration::from_nanos(fabric.controller.timeout_ns),
            batch: fabric.controller.batch,
            tls: fabric.tls.clone(),
        })
    }

    /// What a switch should hold, with routes that leave drained switches out.
    pub(crate) fn compile(&self, switch: &str) -> Result<Desired, CompileError> {
        let drained = Arc::new(Avoid { drained: self.drained.clone(), ..Avoid::default() });
        self.compiler.compile_around(switch, self.around(&drained).as_deref())
    }

    /// The routes of a switch around these.
    pub(crate) fn routes(&self, switch: &str, avoid: &Arc<Avoid>) -> SwitchRoutes {
        let detours = self.around(avoid);
        self.compiler.topology().routes_around(self.compiler.fabric(), switch, detours.as_deref())
    }

    /// The links that routes use around these; `None` for all.
    pub(crate) fn around(&self, avoid: &Arc<Avoid>) -> Option<Arc<Detours>> {
        if **avoid == Avoid::default() {
            return None;
        }
        let mut around = self.around.lock().unwrap_or_else(PoisonError::into_inner);
        match &*around {
            Some((known, detours)) if Arc::ptr_eq(known, avoid) || known == avoid => {
                Some(Arc::clone(detours))
            }
            _ => {
                let detours = Arc::new(self.compiler.topology().around(avoid));
                *around = Some((Arc::clone(avoid), Arc::clone(&detours)));
                Some(detours)
            }
        }
    }

    pub(crate) fn reach(&self, name: &str, switch: &Switch) -> Reach {
        Reach {
            address: switch.address.clone(),
            device_id: switch.device_id,
            timeout: self.timeout,
            patience: PATIENCE.min(self.timeout),
            tls: self.tls.get(name).cloned(),
        }
    }

    /// Whether every switch's program can hold what it should: to be known before the first one is
    /// written to.
    pub(crate) fn fits(&self, options: &Options) -> Result<(), ApplyError> {
        let names = self.compiler.fabric().switches.keys().filter(|name| options.includes(name));
        let names: Vec<&str> = names.map(String::as_str).collect();
        self.compiler.count(&names)?;
        Ok(())
    }

    /// What the linked ports of a switch do.
    pub(crate) fn ports(&self, switch: &str) -> BTreeMap<u16, Arc<PortPolicy>> {
        self.compiler.fabric().policies.get(switch).cloned().unwrap_or_default()
    }

    /// The program of a switch.
    pub(crate) fn artifacts(&self, switch: &str) -> &Artifacts {
        self.compiler.artifacts().of(switch)
    }

    /// Names of the program that a switch runs.
    pub(crate) fn index(&self, switch: &str) -> &Index {
        self.artifacts(switch).index()
    }
}

/// Runs on a thread and a runtime of its own: blocking inside somebody else's runtime would panic.
pub(crate) fn blocking<T: Send>(
    work: impl Future<Output = Result<T, ApplyError>> + Send,
) -> Result<T, ApplyError> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(work)
        });
        worker.join().unwrap_or_else(|_| Err(ApplyError::Abnormal("it panicked".to_owned())))
    })
}

/// Works on all switches, a bounded number at a time; the results are in order of names. A slow or
/// dead switch holds up nobody but itself.
pub(crate) async fn each<T, W, F>(fabric: &Fabric, options: &Options, work: W) -> Result<Vec<T>, ApplyError>
where
    T: Send + 'static,
    W: Fn(String, Switch) -> F,
    F: Future<Output = T> + Send + 'static,
{
    options.progress.begin(fabric.switches.keys().filter(|name| options.includes(name)).cloned());
    let places = Places::new(fabric.controller.concurrency);
    let mut tasks = JoinSet::new();
    for (name, switch) in fabric.switches.iter().filter(|(name, _)| options.includes(name)) {
        let future = work(name.clone(), switch.clone());
        let (name, places) = (name.clone(), places.clone());
        tasks.spawn(async move { (name, places.work(future).await) });
    }
    let mut done = BTreeMap::new();
    while let Some(result) = tasks.join_next().await {
        let (name, result) = result.map_err(|error| ApplyError::Abnormal(error.to_string()))?;
        options.progress.done(&name);
        done.insert(name, result);
    }
    Ok(done.into_values().collect())
}
