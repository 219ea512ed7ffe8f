// SPDX-License-Identifier: Apache-2.0
//! Beside a page: each flow, and slowdowns by size as HPCC's `fct_analysis.py` prints them.

use anyhow::Context as _;
use serde::Serialize;
use std::path::Path;
use trimwire_lab::sim::report::alone_ns;
use trimwire_lab::sim::run::Outcome;
use trimwire_lab::sim::scenario::Prepared;

/// Parts of the flows, by size: HPCC's, a twentieth each.
const PARTS: usize = 20;

#[derive(Debug, Serialize)]
struct Flow<'a> {
    run: &'a str,
    source: u32,
    destination: u32,
    bytes: u64,
    began_ns: u64,
    took_ns: u64,
    /// On an idle network.
    alone_ns: u64,
    share_kept: f64,
}

/// Flows of a part, the largest of which has so many bytes.
#[derive(Debug, Serialize)]
struct Part<'a> {
    run: &'a str,
    from: f64,
    bytes: u64,
    p50: f64,
    p95: f64,
    p99: f64,
}

/// Rows of both files.
#[derive(Debug)]
pub(super) struct Flows {
    flows: csv::Writer<Vec<u8>>,
    slowdowns: csv::Writer<Vec<u8>>,
}

impl Default for Flows {
    fn default() -> Self {
        let writer = || csv::Writer::from_writer(Vec::new());
        Self { flows: writer(), slowdowns: writer() }
    }
}

impl Flows {
    /// The flows of a run that are over.
    pub(super) fn add(&mut self, prepared: &Prepared, outcome: &Outcome) -> anyhow::Result<()> {
        let (run, demands) = (prepared.name.as_str(), &prepared.setup.demands);
        let alone = alone_ns(&prepared.setup);
        let mut found: Vec<(u64, f64)> = Vec::new();
        for flow in &outcome.flows {
            let demand = &demands[flow.demand];
            if !demand.foreground || demand.computes() {
                continue;
            }
            let (alone_ns, took_ns, bytes) = (alone(demand), flow.duration_ns, demand.bytes);
            // As HPCC has it.
            found.push((bytes, (took_ns as f64 / alone_ns as f64).max(1.0)));
            let (source, destination) = (demand.source, demand.destination);
            let (began_ns, share_kept) = (flow.began_ns, flow.share_kept);
            let row = Flow { run, source, destination, bytes, began_ns, took_ns, alone_ns, share_kept };
            self.flows.serialize(row)?;
        }
        found.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        for part in 0..PARTS {
            let all = found.len();
            let here = &found[part * all / PARTS..(part + 1) * all / PARTS];
            let Some(&(bytes, _)) = here.last() else { continue };
            let mut slowdowns: Vec<f64> = here.iter().map(|flow| flow.1).collect();
            slowdowns.sort_by(f64::total_cmp);
            let nth = |share: f64| slowdowns[(slowdowns.len() as f64 * share) as usize];
            let of = |share: f64| (nth(share) * 1e3).round() / 1e3;
            let from = part as f64 / PARTS as f64;
            self.slowdowns.serialize(Part {
                run,
                from,
                bytes,
                p50: of(0.5),
                p95: of(0.95),
                p99: of(0.99),
            })?;
        }
        Ok(())
    }

    /// Writes both into a folder.
    pub(super) fn write(self, folder: &Path) -> anyhow::Result<()> {
        for (name, rows) in [("flows.csv", self.flows), ("slowdown.csv", self.slowdowns)] {
            let (path, rows) = (folder.join(name), rows.into_inner().context("cannot keep rows")?);
            std::fs::write(&path, rows).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}
