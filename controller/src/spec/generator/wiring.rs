// SPDX-License-Identifier: Apache-2.0
//! Switches, hosts and links of a generated fabric. Names and numbers are documented in
//! `docs/reference/fabric-file.md`: people write them in overrides, so they never depend on
//! anything but the generator's own numbers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Addresses, Plan, Shape};
use crate::model::{End, GnmiAt, Host, Link, Mac, Switch, Trust};
use crate::spec::addresses;

type Wired = (BTreeMap<String, Switch>, BTreeMap<String, Host>, Vec<Link>);

/// Makes the fabric; the error is about the address plan.
pub(super) fn wire(plan: &Plan) -> Result<Wired, String> {
    let mut wiring = Wiring { plan, switches: BTreeMap::new(), hosts: BTreeMap::new(), links: Vec::new() };
    match plan.shape {
        Shape::Dumbbell { trunks } => wiring.dumbbell(trunks)?,
        Shape::LeafSpine { leaves, spines, parallel } => wiring.leaf_spine(leaves, spines, parallel)?,
        Shape::FatTree { k } => wiring.fat_tree(k)?,
    }
    Ok((wiring.switches, wiring.hosts, wiring.links))
}

struct Wiring<'p> {
    plan: &'p Plan,
    switches: BTreeMap<String, Switch>,
    hosts: BTreeMap<String, Host>,
    links: Vec<Link>,
}

impl Wiring<'_> {
    fn dumbbell(&mut self, trunks: u64) -> Result<(), String> {
        self.switch("left")?;
        self.switch("right")?;
        for trunk in 1..=trunks {
            self.link(("left", trunk), ("right", trunk));
        }
        for (rack, name) in (1..).zip(["left", "right"]) {
            self.rack(rack, &rack.to_string(), name, trunks)?;
        }
        Ok(())
    }

    fn leaf_spine(&mut self, leaves: u64, spines: u64, parallel: u64) -> Result<(), String> {
        for leaf in 1..=leaves {
            self.switch(&format!("leaf{leaf}"))?;
        }
        for spine in 1..=spines {
            self.switch(&format!("spine{spine}"))?;
        }
        for leaf in 1..=leaves {
            let name = format!("leaf{leaf}");
            for spine in 1..=spines {
                for link in 1..=parallel {
                    let (up, down) = ((spine - 1) * parallel + link, (leaf - 1) * parallel + link);
                    self.link((&name, up), (&format!("spine{spine}"), down));
                }
            }
            self.rack(leaf, &leaf.to_string(), &name, spines * parallel)?;
        }
        Ok(())
    }

    fn fat_tree(&mut self, k: u64) -> Result<(), String> {
        let half = k / 2;
        for (tier, last) in [("edge", half), ("agg", half)] {
            for pod in 1..=k {
                for number in 1..=last {
                    self.switch(&format!("{tier}{pod}-{number}"))?;
                }
            }
        }
        for core in 1..=half * half {
            self.switch(&format!("core{core}"))?;
        }
        for pod in 1..=k {
            for edge in 1..=half {
                let name = format!("edge{pod}-{edge}");
                for agg in 1..=half {
                    self.link((&name, agg), (&format!("agg{pod}-{agg}"), half + edge));
                }
                let rack = (pod - 1) * half + edge;
                self.rack(rack, &format!("{pod}-{edge}"), &name, half)?;
            }
            for agg in 1..=half {
                let name = format!("agg{pod}-{agg}");
                for up in 1..=half {
                    self.link((&name, up), (&format!("core{}", (agg - 1) * half + up), pod));
                }
            }
        }
        Ok(())
    }

    fn switch(&mut self, name: &str) -> Result<(), String> {
        let Addresses { device_id, grpc, .. } = &self.plan.addresses;
        let number = self.switches.len() as u64;
        let device_id = device_id.checked_add(number).ok_or("the last device_id is beyond 2^64")?;
        let address = if grpc.contains("{name}") || grpc.contains("{n}") {
            grpc.replace("{name}", name).replace("{n}", &(number + 1).to_string())
        } else {
            // Checked when it was read: a host, a colon, a port.
            let (host, port) = grpc.rsplit_once(':').unwrap_or((grpc, "9559"));
            let first: u64 = port.parse().unwrap_or(9559);
            let port = u16::try_from(first + number).map_err(|_| {
                format!(
                    "grpc: {name} would listen on port {}, the last is 65535; start lower, or write {{name}} into the pattern",
                    first + number
                )
            })?;
            format!("{host}:{port}")
        };
        let Plan { target, pipeline, .. } = self.plan;
        let switch =
            Switch { address, device_id, target: *target, pipeline: pipeline.clone(), gnmi: GnmiAt::Default };
        self.switches.insert(name.to_owned(), switch);
        Ok(())
    }

    fn link(&mut self, (a, a_port): (&str, u64), (b, b_port): (&str, u64)) {
        let end = |name: &str, port: u64| End::Port(name.to_owned(), port as u16);
        let Plan { fabric_bps, fabric_delay_ns, .. } = *self.plan;
        self.links.push(Link {
            a: end(a, a_port),
            b: end(b, b_port),
            rate_bps: fabric_bps,
            delay_ns: fabric_delay_ns,
            up: true,
        });
    }

    /// The hosts `h<label>-<n>` of a switch, on the ports behind its uplinks.
    fn rack(&mut self, rack: u64, label: &str, switch: &str, uplinks: u64) -> Result<(), String> {
        let Plan { host_bps, host_delay_ns, hosts_in_rack, .. } = *self.plan;
        for number in 1..=hosts_in_rack {
            let name = format!("h{label}-{number}");
            let host = host(&self.plan.addresses, rack, number).map_err(|what| {
                format!("{what}, which {name} would be; write a larger network, or one that starts lower")
            })?;
            self.hosts.insert(name.clone(), host);
            self.links.push(Link {
                a: End::Host(name),
                b: End::Port(switch.to_owned(), (uplinks + number) as u16),
                rate_bps: host_bps,
                delay_ns: host_delay_ns,
                up: true,
            });
        }
        Ok(())
    }
}

/// The `number`th host of the `rack`th rack, both from 1.
fn host(plan: &Addresses, rack: u64, number: u64) -> Result<Host, String> {
    let Addresses { ipv4, ipv6, mac, .. } = plan;
    let offset = u128::from(rack << 8 | number);
    let Some(IpAddr::V4(ip)) = ipv4.nth(offset) else {
        return Err(format!("ipv4: {}/{} has no host {rack}.{number}", ipv4.address, ipv4.prefix_len));
    };
    addresses::ipv4(&ip.to_string()).map_err(|error| format!("ipv4: {error}"))?;
    let ip6 = match ipv6 {
        None => None,
        Some(network) => {
            let Some(IpAddr::V6(ip)) = network.nth(u128::from(rack << 16 | number)) else {
                let place = format!("{}/{}", network.address, network.prefix_len);
                return Err(format!("ipv6: {place} has no host {rack:x}:{number:x}"));
            };
            Some(ip)
        }
    };
    let Mac([a, b, c, d, e, f]) = *mac;
    let sum = u64::from_be_bytes([0, 0, a, b, c, d, e, f]) + (rack << 8 | number);
    let [_, _, mac @ ..] = sum.to_be_bytes();
    let [first, ..] = mac;
    if sum >> 48 != 0 || first & 1 == 1 {
        return Err(format!("mac: {} + {rack}.{number} is no address of one interface", plan.mac));
    }
    Ok(Host { ip, ip6, mac: Mac(mac), trust: Trust::default() })
}
