// SPDX-License-Identifier: Apache-2.0
//! What the switch has already: the parts of its CONFIG_DB that an export has to fit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::{ConfigDb, Field, Platform, Thresholds};
use crate::model::PortPolicy;
use crate::yaml::problem::hint;

/// The CONFIG_DB of a switch, as `/etc/sonic/config_db.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Present(pub(super) ConfigDb);

/// The name in a reference to a row: older images write `[BUFFER_PROFILE|name]`.
fn bare(text: &str) -> String {
    text.trim_matches(['[', ']']).rsplit('|').next().unwrap_or(text).to_owned()
}

/// Why a policy cannot be merged into what a switch has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresentError {
    /// Not a CONFIG_DB.
    #[error("{0}: expected a table of rows of fields, as in /etc/sonic/config_db.json")]
    Form(String),
    /// No such port.
    #[error("PORT has no {0}{1}; name ports with --platform-ports")]
    UnknownPort(String, String),
    /// No such pool.
    #[error("BUFFER_POOL has no egress pool {0}{1}")]
    UnknownPool(String, String),
    /// Several pools, and none that the queues use.
    #[error("which of the egress pools {0}? Name one with --pool")]
    WhichPool(String),
    /// A pool whose size the switch works out itself.
    #[error(
        "BUFFER_POOL|{0} has no size: the dynamic buffer model works it out. Give it with --pool-size (show mmu)"
    )]
    NoSize(String),
    /// Queues that PFC pauses.
    #[error(
        "PORT_QOS_MAP|{port}: pfc_enable has {queues}, so these queues are lossless, and nothing is trimmed in them. Give the \
         classes other queues (queues.classes), or do without PFC there: --disable-pfc"
    )]
    Lossless {
        /// The first such port.
        port: String,
        /// Of ours, those that PFC pauses.
        queues: String,
    },
}

impl Present {
    /// Reads JSON.
    pub fn parse(text: &str) -> Result<Self, PresentError> {
        let form = |place: &str| PresentError::Form(place.to_owned());
        let value: Value = serde_json::from_str(text).map_err(|error| form(&error.to_string()))?;
        let Value::Object(tables) = value else { return Err(form("the file")) };
        let mut config_db = ConfigDb::new();
        for (table, rows) in tables {
            let Value::Object(rows) = rows else { return Err(form(&table)) };
            let into = config_db.entry(table.clone()).or_default();
            for (key, fields) in rows {
                let Value::Object(fields) = fields else { return Err(form(&format!("{table}|{key}"))) };
                let row = into.entry(key).or_default();
                for (name, value) in fields {
                    let text = |value: Value| match value {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    let field = match value {
                        Value::Array(list) => Field::List(list.into_iter().map(text).collect()),
                        one => Field::Text(text(one)),
                    };
                    row.insert(name, field);
                }
            }
        }
        Ok(Self(config_db))
    }

    pub(super) fn text(&self, table: &str, key: &str, field: &str) -> Option<&str> {
        match self.0.get(table)?.get(key)?.get(field)? {
            Field::Text(text) => Some(text),
            Field::List(_) => None,
        }
    }

    fn rows(&self, table: &str) -> impl Iterator<Item = (&String, &BTreeMap<String, Field>)> {
        self.0.get(table).into_iter().flatten()
    }

    /// Rows of a table by port and queues, with the ports and the queues of their keys:
    /// `Ethernet0,Ethernet4|0-2`.
    pub(super) fn by_queue(&self, table: &str) -> Vec<(&String, BTreeSet<String>, BTreeSet<u8>)> {
        let parts = |key: &str| {
            let (ports, queues) = key.rsplit_once('|')?;
            let (first, last) = queues.split_once('-').unwrap_or((queues, queues));
            let queues: BTreeSet<u8> = (first.parse().ok()?..=last.parse().ok()?).collect();
            Some((ports.split(',').map(str::to_owned).collect(), queues))
        };
        self.rows(table)
            .filter_map(|(key, _)| {
                let (ports, queues) = parts(key)?;
                Some((key, ports, queues))
            })
            .collect()
    }

    /// Ports as access lists bind to them: a member of a LAG is bound with it (orchagent's aclorch
    /// refuses members).
    pub(super) fn bound<'n>(&'n self, ports: impl Iterator<Item = &'n String>) -> BTreeSet<String> {
        let lag = |port: &str| {
            let mut members = self.rows("PORTCHANNEL_MEMBER").filter_map(|(key, _)| key.split_once('|'));
            members.find(|(_, member)| *member == port).map(|(lag, _)| lag.to_owned())
        };
        ports.map(|port| lag(port).unwrap_or_else(|| port.clone())).collect()
    }

    /// Priorities for which PFC is on, which by SONiC's maps are queues.
    pub(super) fn lossless(&self, port: &str) -> BTreeSet<u8> {
        let list = self.text("PORT_QOS_MAP", port, "pfc_enable").unwrap_or_default();
        list.split(',').filter_map(|queue| queue.trim().parse().ok()).collect()
    }

    /// The map from code points to traffic classes that a port has: its own, or that of the whole
    /// switch.
    pub(super) fn dscp_map(&self, port: &str) -> Option<String> {
        let of = |key: &str| self.text("PORT_QOS_MAP", key, "dscp_to_tc_map");
        of(port).or_else(|| of("global")).map(bare)
    }

    /// The traffic class that one of the maps gives to a code point. It is 0 for those that the map
    /// leaves out (SAI's `saiqosmap.h`, defaults of `SAI_QOS_MAP_ATTR_MAP_TO_VALUE_LIST`).
    pub(super) fn traffic_class(&self, map: &str, code_point: u8) -> u8 {
        let class = self.text("DSCP_TO_TC_MAP", map, &code_point.to_string());
        class.and_then(|class| class.parse().ok()).unwrap_or(0)
    }

    /// The pool that queues draw from, and how thresholds are written for it.
    fn pool(
        &self,
        port: Option<&String>,
        asked: Option<&str>,
        size: Option<u64>,
    ) -> Result<(String, Thresholds), PresentError> {
        let pools: Vec<&String> = self
            .rows("BUFFER_POOL")
            .filter(|(name, _)| matches!(self.text("BUFFER_POOL", name, "type"), Some("egress" | "both")))
            .map(|(name, _)| name)
            .collect();
        let in_use = || {
            let of_port = self.by_queue("BUFFER_QUEUE").into_iter().find(|(_, ports, queues)| {
                port.is_none_or(|port| ports.contains(port)) && queues.contains(&0)
            });
            let profile = bare(self.text("BUFFER_QUEUE", of_port?.0, "profile")?);
            self.text("BUFFER_PROFILE", &profile, "pool").map(bare)
        };
        let name = match (asked, in_use(), pools.as_slice()) {
            (Some(asked), ..) => asked.to_owned(),
            (None, Some(name), _) => name,
            (None, None, [only]) => (*only).clone(),
            (None, None, _) => {
                let names: Vec<&str> = pools.iter().map(|name| name.as_str()).collect();
                return Err(PresentError::WhichPool(names.join(", ")));
            }
        };
        if !pools.contains(&&name) {
            let hint = hint(&name, &pools);
            return Err(PresentError::UnknownPool(name, hint));
        }
        if self.text("BUFFER_POOL", &name, "mode") == Some("static") {
            return Ok((name, Thresholds::Static));
        }
        let known = self.text("BUFFER_POOL", &name, "size").and_then(|size| size.parse().ok());
        match size.or(known).filter(|size| *size > 0) {
            Some(pool_size) => Ok((name, Thresholds::Dynamic { pool_size })),
            None => Err(PresentError::NoSize(name)),
        }
    }

    /// `platform` with the switch's own pool, in the pool's own mode. `pool` and `pool_size` are
    /// what the user says of them.
    pub fn fit(
        &self,
        platform: Platform,
        pool: Option<&str>,
        pool_size: Option<u64>,
    ) -> Result<Platform, PresentError> {
        let port = platform.ports.values().next();
        let (pool, thresholds) = self.pool(port, pool, pool_size)?;
        Ok(Platform { pool, thresholds, ..platform })
    }

    /// Are the ports there, and do none of our queues keep PFC?
    pub(super) fn check(
        &self,
        names: &BTreeMap<u16, String>,
        policies: &BTreeMap<u16, Arc<PortPolicy>>,
        disable_pfc: bool,
    ) -> Result<(), PresentError> {
        let known: Vec<&String> = self.rows("PORT").map(|(name, _)| name).collect();
        for (port, name) in names {
            if !known.contains(&name) {
                return Err(PresentError::UnknownPort(name.clone(), hint(name, &known)));
            }
            let Some(policy) = policies.get(port) else { continue };
            let lossless: Vec<String> = self
                .lossless(name)
                .iter()
                .filter(|queue| policy.queues.contains_key(*queue))
                .map(u8::to_string)
                .collect();
            if !lossless.is_empty() && !disable_pfc {
                return Err(PresentError::Lossless { port: name.clone(), queues: lossless.join(", ") });
            }
        }
        Ok(())
    }
}
