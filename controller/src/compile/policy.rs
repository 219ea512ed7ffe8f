// SPDX-License-Identifier: Apache-2.0
//! What a port does with its queues: thresholds, the cap of trimmed packets, and what a target
//! needs beside tables.

use std::sync::Arc;

use trimwire_p4runtime::bytes::Value;
use trimwire_p4runtime::entity::{EntityError, TableEntryBuilder};
use trimwire_p4runtime::v1::TableEntry;
use trimwire_p4runtime::v1::field_match::{Exact, FieldMatchType};

use super::{Builder, names, target};
use crate::model::PortPolicy;

/// A port's entries without the port: with what is behind them in words.
type Pattern = Vec<(TableEntry, String)>;

impl Builder<'_> {
    pub(super) fn policy(&mut self) -> Result<(), EntityError> {
        let target = self.switch.target;
        let empty = target::Ports::new();
        let ports = self.fabric.policies.get(self.name).unwrap_or(&empty);
        let ports = target.convert(ports, &self.fabric.queues);
        // Most ports of a switch are alike: of those that share a policy, the entries differ in the
        // port alone.
        let mut patterns: Vec<(Arc<PortPolicy>, Pattern)> = Vec::new();
        for (port, policy) in &ports {
            let known = patterns.iter().position(|(other, _)| Arc::ptr_eq(other, policy));
            let pattern = if let Some(position) = known {
                if self.counts {
                    for (entry, _) in patterns.get(position).map(|(_, entries)| entries).into_iter().flatten()
                    {
                        *self.more.entry(entry.table_id).or_default() += 1;
                    }
                    continue;
                }
                position
            } else {
                patterns.push((Arc::clone(policy), self.pattern(policy)?));
                patterns.len() - 1
            };
            let entries = patterns.get(pattern).map(|(_, entries)| entries.as_slice()).unwrap_or_default();
            for (entry, purpose) in entries {
                let entry = at(entry.clone(), *port, self)?;
                self.add(entry, format!("{}:{port} {purpose}", self.name));
            }
        }
        self.add_default(names::POLICY, names::NO_POLICY, None, "ports without a link")?;
        if target.caps_by_table() {
            self.add_default(names::TRIM_CAP, names::NO_CAP, None, "ports without a cap")?;
        }
        for (entity, purpose) in target.extras(self.name, &ports, &self.fabric.queues, self.index)? {
            self.add(entity, purpose);
        }
        Ok(())
    }

    /// What a port with this policy holds, for port 0.
    fn pattern(&self, policy: &PortPolicy) -> Result<Pattern, EntityError> {
        let mut pattern = self.thresholds(policy)?;
        if self.switch.target.caps_by_table() {
            pattern.extend(self.cap(policy)?);
        }
        Ok(pattern)
    }

    fn thresholds(&self, policy: &PortPolicy) -> Result<Pattern, EntityError> {
        let queues = &self.fabric.queues;
        let mut pattern = Pattern::new();
        for (queue, both) in &policy.queues {
            let name = queues.name_of(*queue);
            for (importance, values) in (0_u8..).zip(both) {
                let word = if importance == 1 { "important" } else { "less important" };
                let entry = TableEntryBuilder::new(self.index, names::POLICY)
                    .exact(PORT, 0_u16)
                    .exact("queue", *queue)
                    .exact("importance", importance)
                    .action(names::SET_THRESHOLDS)
                    .param("mark_at", values.mark_at)
                    .param("shallow_at", values.shallow_at)
                    .param("deep_at", values.deep_at)
                    .param("drop_at", values.drop_at)
                    .param("shallow_size", values.shallow_size)
                    .param("deep_size", values.deep_size)
                    .param("trimmed_dscp", policy.trimmed_dscp)
                    .param("trim_queue", queues.trimmed)
                    .param("trim_drop_at", values.trim_drop_at);
                pattern.push((entry.build()?, format!("{name} {word}")));
            }
        }
        Ok(pattern)
    }

    fn cap(&self, policy: &PortPolicy) -> Result<Option<(TableEntry, String)>, EntityError> {
        let Some(cap) = policy.trim_cap else { return Ok(None) };
        let entry = TableEntryBuilder::new(self.index, names::TRIM_CAP)
            .exact(PORT, 0_u16)
            .action(names::SET_CAP)
            .param("rate", cap.table_rate())
            .param("burst", cap.burst);
        Ok(Some((entry.build()?, format!("{}% for trimmed packets", f64::from(cap.share) / 10_000.0))))
    }
}

const PORT: &str = "egress_port";

/// An entry of port 0, for another port.
fn at(mut entry: TableEntry, port: u16, builder: &Builder<'_>) -> Result<TableEntry, EntityError> {
    let table = builder.index.table(entry.table_id)?;
    let field = table.match_field(PORT)?;
    let place = || format!("match field {PORT:?} of {:?}", table.table.preamble.as_ref().map(|p| &p.name));
    let value = Value::from(port)
        .to_canonical(field.bitwidth.unsigned_abs())
        .map_err(|source| EntityError::Value { place: place(), source })?;
    let kind = entry.r#match.iter_mut().find(|found| found.field_id == field.id);
    if let Some(found) = kind {
        found.field_match_type = Some(FieldMatchType::Exact(Exact { value }));
    }
    Ok(entry)
}
