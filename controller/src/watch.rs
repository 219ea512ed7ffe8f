// SPDX-License-Identifier: Apache-2.0
//! What queues do from one moment to the next: counters of every switch, and the rates between
//! them.
//!
//! Reads only. A switch that does not answer in time is said to, and holds up neither the others
//! nor the next interval.

mod rates;
mod run_state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use trimwire_p4runtime::client::Client;

pub use self::rates::Rate;
use self::rates::Rates;
use self::run_state::RunState;
use crate::counters::{self, Counters, Look};
use crate::device::{self, DeviceError, Reach};
use crate::fleet::places::Places;
use crate::fleet::{Options, Shared};
use crate::model::Fabric;
use crate::model::PortPolicy;
use crate::program::Artifacts;
use crate::run::{Fault, Links, Replacing};
use crate::show::{CounterRow, counters_table};

/// What happened between two readings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Interval {
    /// From 1.
    pub interval: u64,
    /// By port and queue; of switches that answered.
    pub queues: Vec<CounterRow<Rate>>,
    /// What routes leave out, as a `run` tells.
    pub faults: Vec<Fault>,
    /// How far a `run` has replaced programs.
    pub replacing: Replacing,
    /// What probes of a `run` have found of links.
    pub links: Links,
    /// Why no `run` tells of faults and programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_error: Option<String>,
    /// By switch: why there is nothing of it.
    pub errors: BTreeMap<String, String>,
}

impl Interval {
    /// The table of `show counters` with packets a second: of all queues, or of those where
    /// anything happens. A line for each thing that is wrong.
    pub fn table(&self, all: bool) -> String {
        let is_shown = |row: &&CounterRow<Rate>| {
            let happens = || row.counters.values().any(|rate| rate.packets > 0);
            all || row.occupancy_bytes.unwrap_or(0) > 0 || happens()
        };
        let rows: Vec<_> = self.queues.iter().filter(is_shown).collect();
        let idle = self.queues.len() - rows.len();
        let per_second = |rate: &Rate| rate.packets_per_second.round() as i64;
        let mut lines = vec![counters_table(rows, "/s", per_second)];
        lines.extend((idle > 0).then(|| format!("{idle} queues idle")));
        lines.extend(self.faults.iter().map(ToString::to_string));
        lines.extend((!self.replacing.is_over()).then(|| self.replacing.to_string()));
        lines.extend((self.links.untried() > 0).then(|| self.links.to_string()));
        lines.extend(self.errors.iter().map(|(switch, error)| format!("{switch}: {error}")));
        lines.join("\n")
    }
}

/// An answer, or why there is none.
struct Reading {
    switch: String,
    tick: u64,
    at_ns: u64,
    counters: Result<Counters, String>,
}

/// Reads all switches again and again, in the current tokio runtime.
pub struct Watch {
    interval: Duration,
    /// When the next reading is due.
    due: Instant,
    tick: u64,
    ticks: watch::Sender<u64>,
    readings: mpsc::UnboundedReceiver<Reading>,
    rates: Rates,
    fabric: Fabric,
    run: Option<SocketAddr>,
    switches: BTreeSet<String>,
    _tasks: JoinSet<()>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("interval", &self.interval)
            .field("tick", &self.tick)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Starts to read; asks a `run` that serves metrics there what routes leave out.
    pub fn new(
        fabric: &Fabric,
        artifacts: &Artifacts,
        options: &Options,
        interval: Duration,
        run: Option<SocketAddr>,
    ) -> Self {
        let shared = Shared::new(fabric, artifacts, options);
        let places = Places::new(fabric.controller.concurrency);
        let (ticks, told) = watch::channel(0);
        let (give, readings) = mpsc::unbounded_channel();
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        let mut switches = BTreeSet::new();
        for (name, switch) in &fabric.switches {
            if !options.includes(name) {
                continue;
            }
            switches.insert(name.clone());
            let reader = Reader {
                switch: name.clone(),
                // The next reading comes soon.
                reach: Reach { patience: Duration::ZERO, ..shared.reach(name, switch) },
                ports: shared.ports(name),
                shared: Arc::clone(&shared),
                places: places.clone(),
                client: None,
            };
            tasks.spawn(reader.run(told.clone(), give.clone(), started));
        }
        Self {
            interval,
            due: started,
            tick: 0,
            ticks,
            readings,
            rates: Rates::default(),
            fabric: fabric.clone(),
            run,
            switches,
            _tasks: tasks,
        }
    }

    /// Waits for the end of the next interval. May be dropped and called again.
    pub async fn next(&mut self) -> Interval {
        if self.tick == 0 {
            // What is counted from.
            let _ = self.interval().await;
        }
        self.interval().await
    }

    async fn interval(&mut self) -> Interval {
        tokio::time::sleep_until(self.due).await;
        self.tick += 1;
        self.due = (self.due + self.interval).max(Instant::now());
        self.ticks.send_replace(self.tick);
        // The rest is for showing it.
        let enough = Instant::now() + self.interval * 9 / 10;
        let asked = self.run.map(|at| tokio::spawn(run_state::ask(at, self.interval * 9 / 10)));
        let mut missing = self.switches.clone();
        let mut errors = BTreeMap::new();
        let mut queues = Vec::new();
        while !missing.is_empty() {
            let Ok(Some(answer)) = tokio::time::timeout_at(enough, self.readings.recv()).await else { break };
            let Reading { switch, tick, at_ns, counters } = answer;
            if tick == self.tick {
                missing.remove(&switch);
            }
            match counters {
                Ok(counters) => {
                    errors.remove(&switch);
                    queues.extend(self.rates.update(&self.fabric, &switch, at_ns, counters));
                }
                Err(error) => {
                    errors.insert(switch, error);
                }
            }
        }
        for switch in missing {
            errors.entry(switch).or_insert_with(|| format!("no answer within {:?}", self.interval));
        }
        queues.sort_by(|a: &CounterRow<Rate>, b| {
            (&a.switch, a.port, b.queue).cmp(&(&b.switch, b.port, a.queue))
        });
        let (mut told, mut run_error) = (RunState::default(), None);
        if let Some(asked) = asked {
            // It ends by itself, and in time.
            match asked.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(answer) => told = answer,
                Err(error) => run_error = Some(error),
            }
        }
        let RunState { mut faults, replacing, links } = told;
        faults.retain(|fault| self.switches.contains(&fault.switch));
        Interval { interval: self.tick - 1, queues, faults, replacing, links, run_error, errors }
    }
}

/// Reads one switch whenever it is told to, and is done with the last reading.
struct Reader {
    switch: String,
    reach: Reach,
    ports: BTreeMap<u16, Arc<PortPolicy>>,
    shared: Arc<Shared>,
    places: Places,
    client: Option<Client>,
}

impl Reader {
    async fn run(
        mut self,
        mut ticks: watch::Receiver<u64>,
        readings: mpsc::UnboundedSender<Reading>,
        started: Instant,
    ) {
        while ticks.changed().await.is_ok() {
            let tick = *ticks.borrow_and_update();
            let places = self.places.clone();
            let seen = places.work(self.read()).await;
            let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            if seen.is_err() {
                self.client = None;
            }
            let counters = seen.map_err(|error| error.to_string());
            if readings.send(Reading { switch: self.switch.clone(), tick, at_ns, counters }).is_err() {
                return;
            }
        }
    }

    async fn read(&mut self) -> Result<Counters, DeviceError> {
        let client = match &mut self.client {
            Some(client) => client,
            client => {
                let connected = self.reach.observe().await?;
                device::expect_program(&connected, self.shared.artifacts(&self.switch).cookie()).await?;
                client.insert(connected)
            }
        };
        Ok(counters::read(client, self.shared.index(&self.switch), Some(&self.ports), &Look::default())
            .await?)
    }
}
