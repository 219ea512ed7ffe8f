// SPDX-License-Identifier: Apache-2.0
//! The fabric file: what it may say, and reading it.
//!
//! [`read`] takes the file apart and finds what is wrong with each part of it. Whether the parts
//! fit together, `load` finds out.

mod addresses;
mod balance;
mod generator;
pub(crate) mod keys;
mod network;
mod opt_out;
mod plan;
mod policy;
mod switch;
mod tls;

use std::collections::BTreeMap;

use trimwire_p4runtime::client::Tls;

pub(crate) use self::policy::{PolicySection, PolicySpec, THRESHOLDS};
use crate::model::{ControllerSettings, Fabric, MetricsAt};
use crate::yaml::fields::{Fields, integer, switched};
use crate::yaml::problem::Problems;
use crate::{units, yaml};

/// A file that was read, with what is needed to tell where something stands.
pub(crate) struct Draft {
    /// Without policies and warnings.
    pub fabric: Fabric,
    pub policy: PolicySpec,
    pub rtt_given: bool,
    /// Line of each switch.
    pub switch_lines: BTreeMap<String, usize>,
    /// Line and path of each link, in their order.
    pub link_lines: Vec<(usize, String)>,
}

/// Reads a file. `None` where it is no YAML at all.
pub(crate) fn read(
    text: &str,
    file: &str,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> Option<Draft> {
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(error) => {
            problems.add(error.line, "", format!("not YAML: {}", error.reason));
            return None;
        }
    };
    let top = Fields::of(&root, "", keys::TOP, problems);
    top.required("version", "1", problems, version);
    let controller = controller(&top, problems);
    let mtu = top.parsed("mtu", problems, integer(128_u64..=65_535)).map_or(1500, |mtu| mtu.value);
    let rtt = top.parsed("rtt", problems, units::time);
    let network = network::read(&top, problems);
    let before = problems.len();
    let tls = tls::read(&top, network.switches.keys(), file, problems, warnings);
    // Files that cannot be used are not the same as none.
    if problems.len() == before {
        check_clear(&controller, &network, &tls, problems);
    }
    let (dscp, queues) = plan::read(&top, problems);
    let policy = policy::read(&top, &network, (&dscp, &queues), problems);
    let load_balance = balance::read(&top, problems);
    let disable_trim = opt_out::read(&top, &network, problems);
    let fabric = Fabric {
        file: file.to_owned(),
        controller,
        mtu,
        rtt_ns: rtt.as_ref().map_or(0, |rtt| rtt.value),
        switches: network.switches,
        hosts: network.hosts,
        links: network.links,
        dscp,
        queues,
        overload: policy.overload,
        sealed: policy.sealed,
        mark_trimmable: policy.mark_trimmable,
        load_balance,
        disable_trim,
        tls,
        policies: BTreeMap::new(),
        warnings: Vec::new(),
    };
    let (switch_lines, link_lines) = (network.switch_lines, network.link_lines);
    Some(Draft { fabric, policy, rtt_given: rtt.is_some(), switch_lines, link_lines })
}

/// Whoever reads the network between here and a switch that is talked to in the clear can take the
/// switch over.
fn check_clear(
    controller: &ControllerSettings,
    network: &network::Network,
    tls: &BTreeMap<String, Tls>,
    problems: &mut Problems,
) {
    if controller.insecure {
        return;
    }
    // A generated fabric is one line: its first switch says it for all.
    let mut found: BTreeMap<usize, (&str, &str, usize)> = BTreeMap::new();
    for (name, switch) in &network.switches {
        let mut asked = [Some(switch.address.as_str()), switch.gnmi_address()].into_iter().flatten();
        if let Some(address) = asked.find(|address| !addresses::is_loopback(address))
            && !tls.contains_key(name)
        {
            let line = network.switch_lines.get(name).copied().unwrap_or(1);
            found.entry(line).or_insert((name, address, 0)).2 += 1;
        }
    }
    for (line, (name, address, count)) in found {
        let more = if count > 1 { format!(" (and {} more switches)", count - 1) } else { String::new() };
        let message = format!(
            "would be controlled in the clear at {address}, where others may listen and write; give it tls: {{ ca: ca.pem }}, or \
             write insecure: true in controller{more}"
        );
        problems.add(line, format!("switches.{name}"), message);
    }
}

fn version(text: &str) -> Result<(), String> {
    if text == "1" {
        Ok(())
    } else {
        Err(format!("'{text}' is not a version that this controller reads; valid: 1"))
    }
}

fn controller(top: &Fields<'_>, problems: &mut Problems) -> ControllerSettings {
    let mut settings = ControllerSettings::default();
    let Some(node) = top.node("controller") else { return settings };
    let fields = Fields::of(node, "controller", keys::CONTROLLER, problems);
    if let Some(id) = fields.parsed("election_id", problems, integer(1..=u128::MAX)) {
        settings.election_id = id.value;
    }
    if let Some(count) = fields.parsed("concurrency", problems, integer(1_usize..=4096)) {
        settings.concurrency = count.value;
    }
    if let Some(count) = fields.parsed("batch", problems, integer(1_usize..=100_000)) {
        settings.batch = count.value;
    }
    if let Some(timeout) = fields.parsed("timeout", problems, units::time) {
        if timeout.value == 0 {
            problems.add(timeout.line, timeout.path, "no switch answers within no time; write timeout: 10s");
        } else {
            settings.timeout_ns = timeout.value;
        }
    }
    if let Some(interval) = fields.parsed("interval", problems, units::time) {
        if interval.value == 0 {
            problems.add(
                interval.line,
                interval.path,
                "switches are not looked at all the time; write interval: 5s",
            );
        } else {
            settings.interval_ns = interval.value;
        }
    }
    if let Some(hold_down) = fields.parsed("hold_down", problems, units::time) {
        settings.hold_down_ns = hold_down.value;
    }
    if let Some(count) = fields.parsed("max_unavailable", problems, integer(1_usize..=4096)) {
        settings.max_unavailable = count.value;
    }
    if let Some(settle) = fields.parsed("settle", problems, units::time) {
        settings.settle_ns = settle.value;
    }
    if let Some(audit) = fields.parsed("audit", problems, units::time) {
        settings.audit_ns = audit.value;
    }
    settings.insecure = fields.parsed("insecure", problems, switched).is_some_and(|insecure| insecure.value);
    if let Some(metrics) = fields.parsed("metrics", problems, MetricsAt::parse) {
        settings.metrics = metrics.value;
    }
    settings
}

#[cfg(test)]
mod tests;
