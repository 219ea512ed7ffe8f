// SPDX-License-Identifier: Apache-2.0
//! Lines that a switch was started with, beside those of the fabric file. Thresholds in times and
//! packets are worked out from the file's rates, so that a switch with other lines queues for other
//! times than it says; and what is sent to a port without a line is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use trimwire_p4runtime::client::Client;

use crate::model::PortPolicy;
use crate::units;

/// What to tell people of a switch's lines. A switch that does not tell its rates, or not now,
/// gives nothing to tell.
pub(crate) async fn warnings(client: &Client, ports: &BTreeMap<u16, Arc<PortPolicy>>) -> Vec<String> {
    match client.line_rates().await {
        Ok(rates) => compare(&rates, ports),
        Err(error) => {
            tracing::debug!("no line rates: {error}");
            Vec::new()
        }
    }
}

/// One line for ports that differ in the same way.
fn compare(rates: &BTreeMap<u16, u64>, ports: &BTreeMap<u16, Arc<PortPolicy>>) -> Vec<String> {
    let missing: BTreeSet<u16> = ports.keys().filter(|port| !rates.contains_key(port)).copied().collect();
    let missing = (!rates.is_empty() && !missing.is_empty()).then(|| {
        let (word, it) = if missing.len() == 1 { ("port", "it") } else { ("ports", "them") };
        let ports = units::ranges(&missing);
        format!(
            "{word} {ports}: the switch has no interface for {it}, and loses what is sent there. Start it with -i PORT@INTERFACE \
             (`check --start` has the command), or correct the link's port"
        )
    });
    let mut differing: BTreeMap<(u64, u64), BTreeSet<u16>> = BTreeMap::new();
    for (port, policy) in ports {
        if let Some(rate) = rates.get(port).filter(|rate| **rate != policy.rate_bps) {
            differing.entry((policy.rate_bps, *rate)).or_default().insert(*port);
        }
    }
    let line = |((wanted, found), ports): ((u64, u64), BTreeSet<u16>)| {
        let (word, ports) = (if ports.len() == 1 { "port" } else { "ports" }, units::ranges(&ports));
        let wanted = units::exact_rate(wanted);
        let found = match found {
            0 => "the switch was told none, so that only the interface itself makes packets wait".to_owned(),
            found => format!("the switch was told {}", units::exact_rate(found)),
        };
        format!(
            "{word} {ports}: the file says {wanted}, and thresholds are meant for that; {found}. Start it with --rate {wanted} \
             (`check --start` has the command), or correct the link's speed"
        )
    };
    missing.into_iter().chain(differing.into_iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(rate_bps: u64) -> Arc<PortPolicy> {
        Arc::new(PortPolicy { rate_bps, queues: BTreeMap::new(), trimmed_dscp: 35, trim_cap: None })
    }

    #[test]
    fn ports_that_differ_alike_are_one_line_and_others_none() {
        let ports: BTreeMap<_, _> = (1..=5).map(|number| (number, port(10_000_000_000))).collect();
        let rates = BTreeMap::from([(1, 200_000_000), (2, 200_000_000), (3, 10_000_000_000), (4, 0), (9, 7)]);
        let lines = compare(&rates, &ports);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("port 5: the switch has no interface for it"), "{lines:?}");
        assert!(
            lines[1].starts_with("port 4: the file says 10Gbps") && lines[1].contains("told none"),
            "{lines:?}"
        );
        assert!(
            lines[2].starts_with("ports 1-2: the file says 10Gbps") && lines[2].contains("told 200Mbps"),
            "{lines:?}"
        );
        assert!(compare(&BTreeMap::new(), &ports).is_empty(), "a switch that tells nothing");
    }
}
