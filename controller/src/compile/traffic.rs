// SPDX-License-Identifier: Apache-2.0
//! What packets are: their class by DSCP, how they are spread over equal paths, and which are never
//! trimmed.

use std::net::IpAddr;

use trimwire_p4runtime::bytes::Value;
use trimwire_p4runtime::entity::{EntityError, TableEntryBuilder};

use super::{Builder, names};
use crate::model::{Fabric, OptOut, Overload, Spread};

impl Builder<'_> {
    pub(super) fn classify(&mut self) -> Result<(), EntityError> {
        let Fabric { dscp, queues, overload, .. } = self.fabric;
        let trimmable =
            if *overload == Overload::Trim { "Ingress.set_trimmable" } else { "Ingress.set_plain" };
        let by_class = |code_points: &[u8], action: &'static str, word: &'static str| {
            let pairs = code_points.iter().copied().zip(queues.classes.iter().copied());
            let numbered = pairs.enumerate();
            numbered
                .map(|(class, (dscp, queue))| (dscp, action, queue, format!("{word} class {class}")))
                .collect::<Vec<_>>()
        };
        let mut entries = by_class(&dscp.trimmable, trimmable, "trimmable");
        entries.extend(by_class(&dscp.droppable, "Ingress.set_plain", "droppable"));
        // Whatever a port somewhere writes into what it trims: no switch trims it again.
        for code_point in self.trimmed.iter().copied() {
            entries.push((code_point, "Ingress.set_trimmed", queues.trimmed, "trimmed".to_owned()));
        }
        entries.push((dscp.control, "Ingress.set_plain", queues.control, "control".to_owned()));
        for (dscp, action, queue, purpose) in entries {
            let entry =
                TableEntryBuilder::new(self.index, names::CLASSIFY).exact("dscp", dscp).action(action);
            self.add(entry.param("queue", queue).build()?, purpose);
        }
        let best_effort = Some(("queue", queues.best_effort));
        self.add_default(names::CLASSIFY, "Ingress.set_plain", best_effort, "best effort")
    }

    /// `tier` is the switch's distance from hosts. Neighbouring tiers hash with different halves of
    /// the same CRC: with the same bits, all packets that one tier sends to a switch would agree in
    /// what the next tier chooses by.
    pub(super) fn load_balance(&mut self, tier: usize) -> Result<(), EntityError> {
        let Fabric { dscp, load_balance, .. } = self.fabric;
        let half = u8::from(!tier.is_multiple_of(2));
        let action = |spread| match spread {
            Spread::FiveTuple => ("Ingress.hash_five_tuple", Some(("half", half))),
            Spread::Flow => ("Ingress.hash_flow", Some(("half", half))),
            Spread::Packet => ("Ingress.spray_packet", None),
        };
        let trimmable = dscp.trimmable.iter().copied().chain(self.trimmed.iter().copied());
        let trimmable =
            trimmable.map(|code_point| (code_point, load_balance.trimmable, "trimmable or trimmed"));
        let droppable =
            dscp.droppable.iter().map(|code_point| (*code_point, load_balance.droppable, "droppable"));
        for (code_point, spread, word) in trimmable.chain(droppable) {
            if spread == load_balance.default {
                continue;
            }
            let (name, param) = action(spread);
            let mut entry = TableEntryBuilder::new(self.index, names::LOAD_BALANCE)
                .exact("dscp", code_point)
                .action(name);
            if let Some((name, value)) = param {
                entry = entry.param(name, value);
            }
            self.add(entry.build()?, format!("{word} packets"));
        }
        let (name, param) = action(load_balance.default);
        self.add_default(names::LOAD_BALANCE, name, param, "all other packets")
    }

    pub(super) fn opt_outs(&mut self) -> Result<(), EntityError> {
        for rule in &self.fabric.disable_trim {
            if rule.switches.as_ref().is_some_and(|switches| !switches.contains(self.name)) {
                continue;
            }
            for (table, ipv4) in [(names::TRIM_ACL_IPV4, true), (names::TRIM_ACL_IPV6, false)] {
                if let Some(entry) = self.opt_out(rule, table, ipv4) {
                    self.add(entry.build()?, format!("never trimmed: {}", rule.path));
                }
            }
        }
        for table in [names::TRIM_ACL_IPV4, names::TRIM_ACL_IPV6] {
            self.add_default(table, names::NO_ACTION, None, "all other flows")?;
        }
        Ok(())
    }

    /// None where the rule is about the other IP version.
    fn opt_out(&self, rule: &OptOut, table: &str, ipv4: bool) -> Option<TableEntryBuilder<'_>> {
        // All rules do the same, so their order does not matter; P4Runtime wants a priority all the
        // same.
        let mut entry = TableEntryBuilder::new(self.index, table).action(names::DISABLE_TRIM).priority(1);
        for (field, side) in [("src_addr", rule.src), ("dst_addr", rule.dst)] {
            let Some((address, prefix_len)) = side else { continue };
            if address.is_ipv4() != ipv4 {
                return None;
            }
            let (value, mask) = masked(address, prefix_len);
            entry = entry.ternary(field, value, mask);
        }
        let protocol = rule.protocol.map(u16::from);
        for (field, value, mask) in [
            ("protocol", protocol, 0xff_u16),
            ("src_port", rule.src_port, 0xffff),
            ("dst_port", rule.dst_port, 0xffff),
        ] {
            if let Some(value) = value {
                entry = entry.ternary(field, value, mask);
            }
        }
        Some(entry)
    }
}

fn masked(address: IpAddr, prefix_len: u32) -> (Value, Value) {
    match address {
        IpAddr::V4(ip) => (ip.into(), u32::MAX.checked_shl(32 - prefix_len.min(32)).unwrap_or(0).into()),
        IpAddr::V6(ip) => (ip.into(), u128::MAX.checked_shl(128 - prefix_len.min(128)).unwrap_or(0).into()),
    }
}
