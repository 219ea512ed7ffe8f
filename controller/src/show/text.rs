// SPDX-License-Identifier: Apache-2.0
//! Rows as tables for people.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{CounterRow, Planned, PolicyRow, RouteRow, Rows, Shown, port_rows};
use crate::model::{PortPolicy, Target};
use crate::table::Table;
use crate::units;

/// Rows as tables for people, one for all ports that agree in everything; in it, queues that agree
/// share a line.
pub fn policy_table(rows: &[PolicyRow]) -> String {
    // Everything of a port but which one it is, so that equal ports fall together.
    let mut ports: BTreeMap<(&str, u16), Vec<PolicyRow>> = BTreeMap::new();
    for row in rows {
        ports.entry((&row.switch, row.port)).or_default().push(placeless(row.clone()));
    }
    let mut alike = Alike::new();
    for ((switch, port), rows) in ports {
        alike.entry(in_order(rows)).or_default().entry(switch).or_default().insert(port);
    }
    tables(&alike)
}

/// Ports with one policy on one kind of switch.
type Kind<'s> = (Target, Arc<PortPolicy>, BTreeMap<&'s str, BTreeSet<u16>>);

/// Ports by what their rows say, without saying where.
type Alike<'s> = BTreeMap<Vec<PolicyRow>, BTreeMap<&'s str, BTreeSet<u16>>>;

impl fmt::Display for Planned<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<Kind<'_>> = Vec::new();
        for (switch, port, policy) in self.ports() {
            let Some(target) = self.0.switches.get(switch).map(|switch| switch.target) else { continue };
            // The last kind of port is most often the next one's, too.
            let known = kinds.iter().rposition(|(other, found, _)| *other == target && *found == policy);
            let kind = known.unwrap_or_else(|| {
                kinds.push((target, policy, BTreeMap::new()));
                kinds.len() - 1
            });
            if let Some((.., switches)) = kinds.get_mut(kind) {
                switches.entry(switch).or_default().insert(port);
            }
        }
        let mut alike = Alike::new();
        for (_, policy, switches) in kinds {
            let Some((switch, port)) = switches.iter().find_map(|(name, ports)| Some((name, ports.first()?)))
            else {
                continue;
            };
            let rows = port_rows(self.0, switch, *port, &policy).into_iter().map(placeless).collect();
            let known = alike.entry(in_order(rows)).or_default();
            for (switch, ports) in switches {
                known.entry(switch).or_default().extend(ports);
            }
        }
        f.write_str(&tables(&alike))
    }
}

fn placeless(row: PolicyRow) -> PolicyRow {
    PolicyRow { switch: String::new(), port: 0, ..row }
}

/// Served first stands first.
fn in_order(mut rows: Vec<PolicyRow>) -> Vec<PolicyRow> {
    rows.sort_by_key(|row| (std::cmp::Reverse(row.queue), row.important));
    rows
}

fn tables(alike: &Alike<'_>) -> String {
    const SHOWN: usize = 8;
    let mut tables = Vec::new();
    for (rows, switches) in alike {
        let mut ends: Vec<String> = switches
            .iter()
            .take(SHOWN)
            .map(|(name, ports)| format!("{name}:{}", units::ranges(ports)))
            .collect();
        if switches.len() > SHOWN {
            ends.push(format!("… {} switches in all", switches.len()));
        }
        let rate = rows.first().map_or(0, |row| row.rate_bps);
        let rate = if rate == 0 { "no link in the file".to_owned() } else { units::rate_text(rate) };
        let more = rows.first().map_or_else(String::new, port_text);
        tables.push(format!("ports {} ({rate}{more})\n{}", ends.join(" "), queues_table(rows)));
    }
    tables.join("\n\n")
}

/// What a port's rows have in common, where it is worth a word.
fn port_text(row: &PolicyRow) -> String {
    let unit = row.unit;
    let cap = row.trim_cap.map_or_else(String::new, |cap| {
        format!(
            ", trimmed packets up to {}, burst {} bytes",
            units::rounded_rate_text(cap.rate_bps),
            cap.burst
        )
    });
    format!(", thresholds in {unit}, sizes in bytes, trimmed DSCP {}{cap}", row.trimmed_dscp)
}

fn queues_table(rows: &[PolicyRow]) -> Table {
    let mut table = Table::new(&[
        "queue",
        "packets",
        "mark_at",
        "shallow_at",
        "deep_at",
        "drop_at",
        "shallow_size",
        "deep_size",
        "trim_limit",
    ]);
    let values = |row: &PolicyRow| {
        let threshold =
            |bytes: u32| if bytes == units::NEVER { "never".to_owned() } else { bytes.to_string() };
        [
            threshold(row.mark_at),
            threshold(row.shallow_at),
            threshold(row.deep_at),
            threshold(row.drop_at),
            row.shallow_size.to_string(),
            row.deep_size.to_string(),
            threshold(row.trim_drop_at),
        ]
    };
    // Names of queues, and their lines: whose packets, and what applies to them. Equal neighbours
    // merge.
    type Lines = Vec<(&'static str, [String; 7])>;
    let mut queues: Vec<(Vec<String>, Lines)> = Vec::new();
    for both in rows.chunk_by(|a, b| a.queue == b.queue) {
        let [first, ..] = both else { continue };
        let word = |row: &PolicyRow| if row.important { "important" } else { "less important" };
        let mut lines: Vec<_> = both.iter().map(|row| (word(row), values(row))).collect();
        if let [one, other] = lines.as_slice()
            && one.1 == other.1
        {
            lines = vec![("all", one.1.clone())];
        }
        let name = format!("{} {}", first.queue, first.name);
        match queues.last_mut() {
            Some((names, last)) if *last == lines => names.push(name),
            _ => queues.push((vec![name], lines)),
        }
    }
    for (names, lines) in queues {
        for (position, (packets, values)) in lines.into_iter().enumerate() {
            let name = if position == 0 { names.join(", ") } else { String::new() };
            table.row([name, packets.to_owned()].into_iter().chain(values));
        }
    }
    table
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rows {
            Rows::Routes(rows) => f.write_str(&routes_table(rows))?,
            Rows::Policy(rows) => f.write_str(&policy_table(rows))?,
            Rows::Counters(rows) if rows.is_empty() => f.write_str("nothing counted yet")?,
            Rows::Counters(rows) => f.write_str(&counters_table(rows, "", |count| count.packets))?,
        }
        for (switch, error) in &self.errors {
            write!(f, "\n{switch}: {error}")?;
        }
        Ok(())
    }
}

fn routes_table(rows: &[RouteRow]) -> String {
    let mut table = Table::new(&["switch", "prefix", "host", "port", "to", "mac"]);
    for row in rows {
        for (position, hop) in row.next_hops.iter().enumerate() {
            let first = |text: &str| if position == 0 { text.to_owned() } else { String::new() };
            table.row([
                first(&row.switch),
                first(&row.prefix),
                first(&row.host),
                hop.port.to_string(),
                hop.to.clone(),
                hop.mac.clone(),
            ]);
        }
    }
    table.to_string()
}

/// The counters that a column adds up, and its heading. The trimming ones have SONiC's words and
/// meanings (SAI's per-queue statistics): at the queue that had no room, whatever became of the
/// trimmed packet.
const COLUMNS: [(&[&str], &str); 9] = [
    (&["admitted"], "ADMITTED"),
    (&["trimmed", "trim_dropped", "deflected"], "TRIM_PKTS"),
    (&["trim_transmitted"], "TRIM_TX_PKTS"),
    (&["trim_dropped"], "TRIM_DRP_PKTS"),
    (&["selective_dropped"], "SELECTIVE_DRP"),
    (&["tail_dropped"], "TAIL_DRP"),
    (&["marked"], "MARKED"),
    (&["transmitted"], "TX"),
    (&["unroutable"], "UNROUTABLE"),
];

/// What is counted, in packets of `unit`, and what waits.
pub(crate) fn counters_table<'r, C: 'r>(
    rows: impl IntoIterator<Item = &'r CounterRow<C>>,
    unit: &str,
    packets: impl Fn(&C) -> i64,
) -> String {
    let headings = COLUMNS.map(|(_, heading)| format!("{heading}{unit}"));
    let mut all = vec!["port", "queue", "WAITING_BYTES", "PEAK_BYTES"];
    all.extend(headings.iter().map(String::as_str));
    let mut table = Table::new(&all);
    let or_dash = |number: Option<i128>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    for row in rows {
        let counted = COLUMNS.map(|(counters, _)| {
            let counted = counters.iter().filter_map(|counter| row.counters.get(*counter)).map(&packets);
            counted.reduce(i64::saturating_add).map(i128::from)
        });
        let bytes = [row.occupancy_bytes, row.peak_bytes].map(|bytes| bytes.map(i128::from));
        let place = [
            row.port.map_or_else(|| row.switch.clone(), |port| format!("{}:{port}", row.switch)),
            row.queue.map_or_else(|| "-".to_owned(), |queue| format!("{queue} {}", row.name)),
        ];
        table.row(place.into_iter().chain(bytes.into_iter().chain(counted).map(or_dash)));
    }
    table.to_string()
}
