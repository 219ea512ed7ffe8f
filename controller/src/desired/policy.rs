//! What a port does with its queues: thresholds, the cap of cut packets, and what a target needs beside tables.

use trimwire_p4runtime::entity::{EntityError, TableEntryBuilder};

use super::{Builder, names};
use crate::policy::PortPolicy;

impl Builder<'_> {
    pub(super) fn policy(&mut self) -> Result<(), EntityError> {
        let target = self.switch.target;
        let empty = crate::target::Ports::new();
        let ports = self.fabric.policies.get(self.name).unwrap_or(&empty);
        let ports = target.convert(ports, &self.fabric.queues);
        for (port, policy) in &ports {
            self.thresholds(*port, policy)?;
            if target.caps_by_table() {
                self.cap(*port, policy)?;
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

    fn thresholds(&mut self, port: u16, policy: &PortPolicy) -> Result<(), EntityError> {
        let queues = &self.fabric.queues;
        for (queue, both) in &policy.queues {
            for (importance, values) in (0_u8..).zip(both) {
                let word = if importance == 1 { "important" } else { "less important" };
                let entry = TableEntryBuilder::new(self.index, names::POLICY)
                    .exact("egress_port", port)
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
                self.add(entry.build()?, format!("{}:{port} {} {word}", self.name, queues.name_of(*queue)));
            }
        }
        Ok(())
    }

    fn cap(&mut self, port: u16, policy: &PortPolicy) -> Result<(), EntityError> {
        let Some(cap) = policy.trim_cap else { return Ok(()) };
        let entry = TableEntryBuilder::new(self.index, names::TRIM_CAP)
            .exact("egress_port", port)
            .action(names::SET_CAP)
            .param("rate", cap.table_rate())
            .param("burst", cap.burst);
        self.add(
            entry.build()?,
            format!("{}:{port} {}% for cut packets", self.name, f64::from(cap.share) / 10_000.0),
        );
        Ok(())
    }
}
