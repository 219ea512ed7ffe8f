// SPDX-License-Identifier: Apache-2.0
//! What switches hold and count, in the fabric's words. Looks only: takes no mastership.

mod decode;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

pub(crate) use self::text::counters_table;
pub use self::text::policy_table;
use crate::counters::{Count, Counter, Counters, QueueCounters};
use crate::device::{self, DeviceError};
use crate::fleet::{ApplyError, Options, Shared, blocking, each};
use crate::program::Artifacts;

use crate::model::{Fabric, PortPolicy, QueuePolicy, Switch, TrimCap};

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Routes and their next hops.
    Routes,
    /// Thresholds and trim sizes.
    Policy,
    /// Packets and bytes counted, and bytes that wait, by port and queue.
    Counters,
}

/// A route of a switch.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct RouteRow {
    /// By its name in the fabric.
    pub switch: String,
    /// `10.0.0.1/32`.
    pub prefix: String,
    /// Whose addresses they are: a host's name, or a rack's; empty for nobody's in the file.
    pub host: String,
    /// In order of ports.
    pub next_hops: Vec<NextHop>,
}

/// One of a route's next hops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NextHop {
    /// Egress port.
    pub port: u16,
    /// What the port's link leads to; empty without a link in the file.
    pub to: String,
    /// Destination MAC of frames.
    pub mac: String,
}

/// What trimmed packets may take of a port's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CapRow {
    /// bit/s, as the table's bytes per 1,024 µs have it.
    pub rate_bps: u64,
    /// Bytes.
    pub burst: u32,
}

impl CapRow {
    pub(crate) fn of_table(rate: u32, burst: u32) -> Self {
        Self { rate_bps: TrimCap::rate_of_table(rate), burst }
    }
}

/// A table entry of the queue policy. Thresholds in the target's unit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PolicyRow {
    /// By its name in the fabric.
    pub switch: String,
    /// Egress port.
    pub port: u16,
    /// Its link's speed, bit/s; 0 without a link in the file.
    pub rate_bps: u64,
    /// Queue number.
    pub queue: u8,
    /// The queue's name in the fabric.
    pub name: String,
    /// ECT or CE.
    pub important: bool,
    /// What thresholds are counted in.
    pub unit: &'static str,
    /// In that unit, as the others.
    pub mark_at: u32,
    /// Trimmed shallow from here.
    pub shallow_at: u32,
    /// Trimmed deep from here.
    pub deep_at: u32,
    /// Dropped from here.
    pub drop_at: u32,
    /// Frame bytes.
    pub shallow_size: u16,
    /// Frame bytes.
    pub deep_size: u16,
    /// Where the trim queue takes no more.
    pub trim_drop_at: u32,
    /// Code point of packets that are trimmed here.
    pub trimmed_dscp: u8,
    /// The port's, where the program has one.
    pub trim_cap: Option<CapRow>,
}

/// What is counted of a port's queue, in all or in an interval, and what waits in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CounterRow<C = Count> {
    /// By its name in the fabric.
    pub switch: String,
    /// Egress port; none for what counts for the whole switch.
    pub port: Option<u16>,
    /// Queue number; none for what counts for the whole switch.
    pub queue: Option<u8>,
    /// The queue's name in the fabric.
    pub name: String,
    /// Bytes that wait; `None` where the target does not tell.
    pub occupancy_bytes: Option<u64>,
    /// Most in the last 8 to 17 seconds in which packets came, where the program keeps that.
    pub peak_bytes: Option<u64>,
    /// By counter: `admitted`, `trimmed`, …
    pub counters: BTreeMap<String, C>,
}

/// A row for each queue, with what `count` makes of its counters.
pub(crate) fn counter_rows<C>(
    fabric: &Fabric,
    switch: &str,
    counters: &Counters,
    count: impl Fn((u16, u8), Counter, Count) -> Option<C>,
) -> Vec<CounterRow<C>> {
    let row = |(place, queue): (&(u16, u8), &QueueCounters)| {
        let counted = queue.counts.iter().filter_map(|(counter, held)| {
            Some((counter.short_name().to_owned(), count(*place, counter, held)?))
        });
        CounterRow {
            switch: switch.to_owned(),
            port: Some(place.0),
            queue: Some(place.1),
            name: fabric.queues.name_of(place.1),
            occupancy_bytes: queue.waiting.map(|waiting| waiting.now),
            peak_bytes: queue.waiting.and_then(|waiting| waiting.peak),
            counters: counted.collect(),
        }
    };
    counters.queues.iter().map(row).collect()
}

/// Rows of all switches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// In order of switch and prefix.
    Routes(Vec<RouteRow>),
    /// In order of switch, port, queue, importance.
    Policy(Vec<PolicyRow>),
    /// In order of switch, port, queue; only queues that counted anything, or in which something
    /// waits.
    Counters(Vec<CounterRow>),
}

/// What was seen, and where nothing could be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Shown {
    /// Of the switches that could be looked at.
    #[serde(flatten)]
    pub rows: Rows,
    /// By switch: why it could not be looked at.
    pub errors: BTreeMap<String, String>,
}

/// Looks at every switch of a fabric.
pub async fn show(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    what: What,
) -> Result<Shown, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    let seen = each(fabric, options, |name, switch| {
        let shared = Arc::clone(&shared);
        async move {
            let rows = look(&name, &switch, &shared, what).await;
            (name, rows.map_err(|error| error.to_string()))
        }
    })
    .await?;
    let mut rows = empty(what);
    let mut errors = BTreeMap::new();
    for (name, seen) in seen {
        match seen {
            Ok(more) => extend(&mut rows, more),
            Err(error) => {
                errors.insert(name, error);
            }
        }
    }
    Ok(Shown { rows, errors })
}

/// [`show`] for callers without an async runtime.
pub fn show_blocking(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    what: What,
) -> Result<Shown, ApplyError> {
    blocking(show(fabric, artifacts, options, what))
}

fn empty(what: What) -> Rows {
    match what {
        What::Routes => Rows::Routes(Vec::new()),
        What::Policy => Rows::Policy(Vec::new()),
        What::Counters => Rows::Counters(Vec::new()),
    }
}

fn extend(rows: &mut Rows, more: Rows) {
    match (rows, more) {
        (Rows::Routes(rows), Rows::Routes(more)) => rows.extend(more),
        (Rows::Policy(rows), Rows::Policy(more)) => rows.extend(more),
        (Rows::Counters(rows), Rows::Counters(more)) => rows.extend(more),
        // All switches are asked the same.
        _ => {}
    }
}

async fn look(name: &str, switch: &Switch, shared: &Shared, what: What) -> Result<Rows, DeviceError> {
    let client = shared.reach(name, switch).observe().await?;
    device::expect_program(&client, shared.artifacts(name).cookie()).await?;
    let decoder = decode::Decoder {
        compiler: &shared.compiler,
        switch: name,
        index: shared.index(name),
        client: &client,
    };
    match what {
        What::Routes => decoder.routes().await.map(Rows::Routes),
        What::Policy => decoder.policy().await.map(Rows::Policy),
        What::Counters => decoder.counters().await.map(Rows::Counters),
    }
}

/// The policy that a fabric file asks for, in each target's unit. As JSON a row for each table
/// entry, for people a table for all ports that are alike; a large fabric has more rows than
/// anybody wants to hold.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'f>(pub &'f Fabric);

impl<'f> Planned<'f> {
    /// Row by row, in order of switch, port, queue, importance.
    pub fn rows(self) -> impl Iterator<Item = PolicyRow> + 'f {
        let Self(fabric) = self;
        self.ports().flat_map(move |(switch, port, policy)| port_rows(fabric, switch, port, &policy))
    }

    /// Every linked port with its policy in its target's unit.
    fn ports(self) -> impl Iterator<Item = (&'f str, u16, Arc<PortPolicy>)> {
        let Self(fabric) = self;
        fabric.policies.iter().flat_map(move |(switch, ports)| {
            let target = fabric.switches.get(switch).map(|switch| switch.target);
            let converted = target.map(|target| target.convert(ports, &fabric.queues)).unwrap_or_default();
            converted.into_iter().map(move |(port, policy)| (switch.as_str(), port, policy))
        })
    }
}

impl Serialize for Planned<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows())
    }
}

fn port_rows(fabric: &Fabric, switch: &str, port: u16, policy: &PortPolicy) -> Vec<PolicyRow> {
    let caps_by_table = fabric.switches.get(switch).is_some_and(|switch| switch.target.caps_by_table());
    let cap = policy.trim_cap.filter(|_| caps_by_table);
    let cap = cap.map(|cap| CapRow::of_table(cap.table_rate(), cap.burst));
    let mut rows = Vec::new();
    for (queue, both) in &policy.queues {
        for (important, values) in [false, true].into_iter().zip(both) {
            let entry = Entry { port, queue: *queue, important, trimmed_dscp: policy.trimmed_dscp };
            rows.push(row(fabric, switch, &entry, values, cap));
        }
    }
    rows
}

/// What an entry of the policy table says beside thresholds and sizes.
pub(crate) struct Entry {
    pub port: u16,
    pub queue: u8,
    pub important: bool,
    pub trimmed_dscp: u8,
}

pub(crate) fn row(
    fabric: &Fabric,
    switch: &str,
    entry: &Entry,
    values: &QueuePolicy,
    trim_cap: Option<CapRow>,
) -> PolicyRow {
    let QueuePolicy { mark_at, shallow_at, deep_at, drop_at, shallow_size, deep_size, trim_drop_at } =
        *values;
    let Entry { port, queue, important, trimmed_dscp } = *entry;
    PolicyRow {
        switch: switch.to_owned(),
        port,
        rate_bps: fabric
            .policies
            .get(switch)
            .and_then(|ports| ports.get(&port))
            .map_or(0, |port| port.rate_bps),
        queue,
        name: fabric.queues.name_of(queue),
        important,
        unit: fabric.switches.get(switch).map_or("bytes", |switch| switch.target.unit()),
        mark_at,
        shallow_at,
        deep_at,
        drop_at,
        shallow_size,
        deep_size,
        trim_drop_at,
        trimmed_dscp,
        trim_cap,
    }
}
