// SPDX-License-Identifier: Apache-2.0
//! Whose DSCP a switch believes, and its own way to choose paths: what the program has for v1model
//! alone so far.

use trimwire_p4runtime::entity::{EntityError, TableEntryBuilder};

use super::{Builder, names};
use crate::model::{End, Overload, Trust};
use crate::topology::SwitchRoutes;

/// Priorities of ternary entries; the higher one decides.
const CLAIM: i32 = 2;
const ANYTHING: i32 = 1;
/// What a claim that is not believed becomes.
const BEST_EFFORT: u8 = 0;
const REMARK: &str = "Ingress.remark_dscp";

impl Builder<'_> {
    /// A port that nobody has linked is believed nothing: whoever finds one would be served before
    /// everybody's gradients. Switches have looked at what they send on, and are believed all;
    /// hosts what the file says.
    pub(super) fn trust(&mut self, routes: &SwitchRoutes) -> Result<(), EntityError> {
        if self.index.table(names::TRUST).is_err() {
            return Ok(());
        }
        for (port, neighbour) in &routes.neighbours {
            let trust = match &neighbour.end {
                End::Host(host) => self.fabric.hosts.get(host).map_or(Trust::Agent, |host| host.trust),
                End::Port(..) => Trust::All,
            };
            if trust == Trust::None {
                continue;
            }
            let place = format!("{}:{port}", self.name);
            let entry = || TableEntryBuilder::new(self.index, names::TRUST).exact("ingress_port", *port);
            if trust == Trust::Agent {
                for dscp in self.trimmed {
                    let entry = entry().ternary("dscp", *dscp, 0x3f_u8).priority(CLAIM);
                    let entry = entry.action(REMARK).param("dscp", BEST_EFFORT).build()?;
                    self.add(entry, format!("{place} may not claim to have been trimmed"));
                }
            }
            let entry = entry().priority(ANYTHING).action("Ingress.trust_dscp").build()?;
            self.add(entry, format!("{place} is believed"));
        }
        self.add_default(
            names::TRUST,
            REMARK,
            Some(("dscp", BEST_EFFORT)),
            "ports without a link claim nothing",
        )
    }

    /// A number that no other switch of the fabric has: its device id, spread over 32 bits.
    pub(super) fn hash_seed(&mut self) -> Result<(), EntityError> {
        if self.index.table(names::HASH_SEED).is_err() {
            return Ok(());
        }
        // Odd factors lose nothing: fewer than 2^32 devices have different seeds, and 0 means none.
        let seed = (self.switch.device_id as u32).wrapping_mul(0x9e37_79b9).max(1);
        let entry = TableEntryBuilder::default_entry(self.index, names::HASH_SEED)
            .action("Ingress.set_hash_seed")
            .param("seed", seed);
        self.add(entry.build()?, "paths chosen apart from other switches'");
        Ok(())
    }

    pub(super) fn mark_trimmable(&mut self) -> Result<(), EntityError> {
        if self.index.table(names::MARK_TRIMMABLE).is_err() {
            return Ok(());
        }
        if self.fabric.mark_trimmable && self.fabric.overload == Overload::Trim {
            for dscp in &self.fabric.dscp.trimmable {
                let entry = TableEntryBuilder::new(self.index, names::MARK_TRIMMABLE)
                    .exact("dscp", *dscp)
                    .action("Ingress.mark_ce");
                self.add(entry.build()?, "trimmable, and marked from mark_at");
            }
        }
        self.add_default(names::MARK_TRIMMABLE, names::NO_ACTION, None, "trimmable, and not marked")
    }
}
