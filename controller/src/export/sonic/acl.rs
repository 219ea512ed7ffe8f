// SPDX-License-Identifier: Apache-2.0
//! What is never trimmed: flows that opted out, and code points that share a queue with trimmable
//! ones.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::Writer;
use super::notes::Fidelity;
use crate::model::{OptOut, Overload};

/// What YANG allows of `IP_PROTOCOL`.
const PROTOCOLS: std::ops::RangeInclusive<u8> = 1..=143;
/// Priority of the first rule. They all do the same, so that their order is of no account.
const PRIORITY: u32 = 9000;

/// Per IP version: name of table and of its type, and the address fields.
const TABLES: [(&str, &str, [&str; 2]); 2] = [
    ("TRIMWIRE_V4", "TRIMWIRE_TRIM_V4", ["SRC_IP", "DST_IP"]),
    ("TRIMWIRE_V6", "TRIMWIRE_TRIM_V6", ["SRC_IPV6", "DST_IPV6"]),
];
const OTHERS: [&str; 4] = ["IP_PROTOCOL", "L4_SRC_PORT", "L4_DST_PORT", "DSCP"];

impl Writer<'_> {
    pub(super) fn opt_outs(&mut self) {
        let fabric = self.fabric;
        if fabric.overload != Overload::Trim {
            return;
        }
        let mut rules: Vec<(bool, Vec<(&'static str, String)>)> = Vec::new();
        for rule in &fabric.disable_trim {
            if rule.switches.as_ref().is_some_and(|switches| !switches.contains(self.switch)) {
                continue;
            }
            if let Some(protocol) = rule.protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) {
                let message =
                    format!("IP protocol {protocol}: SONiC's rules take 1 to 143; the rule is left out");
                self.note(Fidelity::Missing, &rule.path, "", message);
                continue;
            }
            for ipv4 in [true, false] {
                rules.extend(matches(rule, ipv4).map(|fields| (ipv4, fields)));
            }
        }
        let opted_out = !rules.is_empty();
        for code_point in &fabric.dscp.droppable {
            for ipv4 in [true, false] {
                rules.push((ipv4, vec![("DSCP", code_point.to_string())]));
            }
        }
        for (number, (ipv4, fields)) in rules.iter().enumerate() {
            let (table, ..) = TABLES[usize::from(!ipv4)];
            let key = format!("{table}|RULE_{number}");
            self.set("ACL_RULE", &key, "PRIORITY", PRIORITY.saturating_sub(number as u32));
            self.set("ACL_RULE", &key, "PACKET_ACTION", "DISABLE_TRIM");
            for (field, value) in fields {
                self.set("ACL_RULE", &key, field, value);
            }
        }
        if rules.is_empty() {
            return;
        }
        let ports: BTreeSet<String> = match &self.platform.present {
            Some(present) => present.bound(self.names.values()),
            None => self.names.values().cloned().collect(),
        };
        for (table, kind, addresses) in TABLES {
            self.list("ACL_TABLE_TYPE", kind, "MATCHES", addresses.iter().chain(&OTHERS));
            self.list("ACL_TABLE_TYPE", kind, "ACTIONS", ["DISABLE_TRIM_ACTION"]);
            self.list("ACL_TABLE_TYPE", kind, "BIND_POINTS", ["PORT", "PORTCHANNEL"]);
            self.set("ACL_TABLE", table, "policy_desc", "Trimwire: never trimmed");
            self.set("ACL_TABLE", table, "type", kind);
            self.set("ACL_TABLE", table, "stage", "INGRESS");
            self.list("ACL_TABLE", table, "ports", &ports);
        }
        if opted_out {
            let message = "PACKET_ACTION DISABLE_TRIM: such packets are dropped where others are trimmed";
            self.note(Fidelity::Exact, "disable_trim", "ACL_RULE", message);
        }
        if !fabric.dscp.droppable.is_empty() {
            let message = "they share the trimmable packets' queues, whose profile trims: rules by DSCP keep them whole";
            self.note(Fidelity::Near, "dscp.droppable", "ACL_RULE.DSCP, DISABLE_TRIM", message);
        }
        let message = "a fragment's ports are unknown to rules by port; SONiC also trims TCP and whatever else is in these queues";
        self.note(Fidelity::Near, "dscp.trimmable", "BUFFER_QUEUE", message);
    }
}

/// Fields of a rule for packets of one IP version; `None` where it is about the other.
fn matches(rule: &OptOut, ipv4: bool) -> Option<Vec<(&'static str, String)>> {
    let (.., addresses) = TABLES[usize::from(!ipv4)];
    let mut fields = Vec::new();
    for (side, field) in [&rule.src, &rule.dst].into_iter().zip(addresses) {
        if let Some((address, bits)) = side {
            if matches!(address, IpAddr::V4(_)) != ipv4 {
                return None;
            }
            fields.push((field, format!("{address}/{bits}")));
        }
    }
    let ports = [("L4_SRC_PORT", rule.src_port), ("L4_DST_PORT", rule.dst_port)];
    fields.extend(rule.protocol.map(|protocol| ("IP_PROTOCOL", protocol.to_string())));
    fields.extend(ports.into_iter().filter_map(|(field, port)| Some((field, port?.to_string()))));
    Some(fields)
}
