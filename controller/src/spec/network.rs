//! `switches`, `hosts` and `links`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::fields::{Fields, Located, entries, integer, join, word};
use super::problem::{Problems, hint};
use super::{End, Host, Link, Mac, Switch, Target, keys};
use crate::units;
use crate::yaml::{Node, Value};

/// Ports of `bit<9>` without v1model's drop port (511) and the CPU port (510).
const LAST_PORT: u16 = 509;

/// What the three sections say.
pub(super) struct Network {
    pub switches: BTreeMap<String, Switch>,
    pub hosts: BTreeMap<String, Host>,
    pub links: Vec<Link>,
    /// Ends of all links, of those with mistakes too.
    pub ends: BTreeSet<End>,
    /// Names that stand in the file, whatever is wrong with their entries: links to them are not wrong as well.
    names: Names,
}

struct Names {
    switches: Vec<String>,
    hosts: Vec<String>,
}

pub(super) fn read(top: &Fields<'_>, problems: &mut Problems) -> Network {
    let mut network = Network {
        switches: BTreeMap::new(),
        hosts: BTreeMap::new(),
        links: Vec::new(),
        ends: BTreeSet::new(),
        names: Names { switches: Vec::new(), hosts: Vec::new() },
    };
    let mut lines: BTreeMap<String, usize> = BTreeMap::new();
    let mut sections = Vec::new();
    for (section, example) in [("switches", "{ s1: { … } }"), ("hosts", "{ h1: { … } }")] {
        let named = if let Some(node) = top.node(section) {
            entries(node, section, problems)
        } else {
            top.missing(section, example, problems);
            Vec::new()
        };
        for (name, line, _) in &named {
            check_name(name, *line, &join(section, name), problems);
            if let Some(first) = lines.insert((*name).to_owned(), *line) {
                problems.add(
                    *line,
                    join(section, name),
                    format!("the name is already a switch's, in line {first}"),
                );
            }
        }
        sections.push(named);
    }
    let hosts = sections.pop().unwrap_or_default();
    let switches = sections.pop().unwrap_or_default();
    network.names.switches = switches.iter().map(|(name, ..)| (*name).to_owned()).collect();
    network.names.hosts = hosts.iter().map(|(name, ..)| (*name).to_owned()).collect();
    read_switches(&switches, &mut network, problems);
    read_hosts(&hosts, &mut network, problems);
    match top.node("links") {
        Some(node) => read_links(node, &mut network, problems),
        None => top.missing("links", "[{ a: h1, b: \"s1:1\", speed: 10Gbps }]", problems),
    }
    network
}

fn check_name(name: &str, line: usize, path: &str, problems: &mut Problems) {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(valid) {
        problems.add(line, path, "names are 1 to 64 letters, digits, '_', '-' and '.'");
    }
}

/// Reports values that have to be unique and are not.
struct Unique<T> {
    seen: BTreeMap<T, (String, usize)>,
    what: &'static str,
}

impl<T: Ord> Unique<T> {
    fn new(what: &'static str) -> Self {
        Self { seen: BTreeMap::new(), what }
    }

    fn claim(&mut self, found: &Located<T>, owner: &str, shown: &str, problems: &mut Problems)
    where
        T: Clone,
    {
        if let Some((first, line)) = self.seen.get(&found.value) {
            let what = self.what;
            problems.add(
                found.line,
                &found.path,
                format!("{what} {shown} is already {first}'s, in line {line}"),
            );
        } else {
            self.seen.insert(found.value.clone(), (owner.to_owned(), found.line));
        }
    }
}

fn read_switches(switches: &[(&str, usize, &Node)], network: &mut Network, problems: &mut Problems) {
    const TARGETS: &[(&str, Target)] = &[("trimwire", Target::Trimwire), ("bmv2", Target::Bmv2)];
    let mut device_ids = Unique::new("device id");
    for (name, line, node) in switches {
        let path = join("switches", name);
        let mut fields = Fields::of(node, &path, keys::SWITCH, problems);
        fields.line = *line;
        let address = fields.required("address", "127.0.0.1:9559", problems, address);
        let device_id = fields.required("device_id", "1", problems, integer(0_u64..=u64::MAX));
        let target = fields.parsed("target", problems, word(TARGETS));
        if let Some(id) = &device_id {
            device_ids.claim(id, name, &id.value.to_string(), problems);
        }
        let (Some(address), Some(device_id)) = (address, device_id) else { continue };
        let target = target.map_or(Target::Trimwire, |target| target.value);
        let switch = Switch { address: address.value, device_id: device_id.value, target };
        network.switches.insert((*name).to_owned(), switch);
    }
}

fn address(text: &str) -> Result<String, String> {
    const FORM: &str = "expected HOST:PORT, as in 127.0.0.1:9559 or [::1]:9559";
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("'{text}' has no port; {FORM}"));
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    let literal = || host.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok();
    let is_host = plain || (bracketed && literal());
    if !is_host {
        return Err(format!("'{text}': '{host}' is no host; {FORM}"));
    }
    match port.parse::<u16>() {
        Ok(number) if number > 0 && !port.starts_with('+') => Ok(text.to_owned()),
        _ => Err(format!("'{text}': '{port}' is no TCP port; {FORM}")),
    }
}

fn read_hosts(hosts: &[(&str, usize, &Node)], network: &mut Network, problems: &mut Problems) {
    let mut ips = Unique::new("address");
    let mut ip6s = Unique::new("address");
    let mut macs = Unique::new("MAC");
    for (name, line, node) in hosts {
        let path = join("hosts", name);
        let mut fields = Fields::of(node, &path, keys::HOST, problems);
        fields.line = *line;
        let ip = fields.required("ip", "10.0.0.1", problems, ipv4);
        let ip6 = fields.parsed("ip6", problems, ipv6);
        let mac = fields.required("mac", "\"02:00:00:00:00:01\"", problems, mac);
        if let Some(ip) = &ip {
            ips.claim(ip, name, &ip.value.to_string(), problems);
        }
        if let Some(ip6) = &ip6 {
            ip6s.claim(ip6, name, &ip6.value.to_string(), problems);
        }
        if let Some(mac) = &mac {
            macs.claim(mac, name, &mac.value.to_string(), problems);
        }
        let (Some(ip), Some(mac)) = (ip, mac) else { continue };
        let host = Host { ip: ip.value, ip6: ip6.map(|ip6| ip6.value), mac: mac.value };
        network.hosts.insert((*name).to_owned(), host);
    }
}

fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    let ip: Ipv4Addr = text.parse().map_err(|_| format!("'{text}' is no IPv4 address, as in 10.0.0.1"))?;
    if ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast() || ip.is_loopback() {
        return Err(format!("'{text}' is no address of one host on a network"));
    }
    Ok(ip)
}

fn ipv6(text: &str) -> Result<Ipv6Addr, String> {
    let ip: Ipv6Addr = text.parse().map_err(|_| format!("'{text}' is no IPv6 address, as in fd00::1"))?;
    if ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() {
        return Err(format!("'{text}' is no address of one host on a network"));
    }
    Ok(ip)
}

fn mac(text: &str) -> Result<Mac, String> {
    let wrong = || format!("'{text}' is no MAC address, as in \"02:00:00:00:00:01\"");
    let mut bytes = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
        *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    let [first, ..] = bytes;
    if first & 1 == 1 || bytes == [0; 6] {
        return Err(format!(
            "'{text}' is no address of one interface (group addresses have an odd first byte)"
        ));
    }
    Ok(Mac(bytes))
}

fn read_links(node: &Node, network: &mut Network, problems: &mut Problems) {
    let Value::Sequence(items) = &node.value else {
        problems.add(node.line, "links", format!("is {}; a list of links is wanted", node.kind()));
        return;
    };
    let mut used: BTreeMap<End, usize> = BTreeMap::new();
    for (position, item) in items.iter().enumerate() {
        let path = format!("links[{position}]");
        let fields = Fields::of(item, &path, keys::LINK, problems);
        let ends = ["a", "b"].map(|key| {
            let found = fields.required(key, "\"s1:1\" or h1", problems, |text| end(text, &network.names))?;
            if let Some(first) = used.get(&found.value) {
                let end = &found.value;
                let what = if matches!(end, End::Host(_)) { "a host has one link, and" } else { "port" };
                problems.add(
                    found.line,
                    &found.path,
                    format!("{what} {end} is already linked in line {first}"),
                );
            } else {
                used.insert(found.value.clone(), found.line);
            }
            Some(found.value)
        });
        let rate = fields.required("speed", "10Gbps", problems, units::rate);
        let delay = fields.parsed("delay", problems, units::time);
        let up = fields.parsed("state", problems, word(&[("up", true), ("down", false)]));
        let ([Some(a), Some(b)], Some(rate)) = (ends, rate) else { continue };
        match (&a, &b) {
            (End::Host(_), End::Host(_)) => {
                problems.add(
                    item.line,
                    path,
                    format!("{a} and {b} are both hosts; links go through a switch"),
                );
            }
            (End::Port(one, _), End::Port(other, _)) if one == other => {
                problems.add(item.line, path, format!("both ends, {a} and {b}, are on switch {one}"));
            }
            _ => {}
        }
        let link = Link {
            a,
            b,
            rate_bps: rate.value,
            delay_ns: delay.map_or(0, |delay| delay.value),
            up: up.is_none_or(|up| up.value),
        };
        network.links.push(link);
    }
    network.ends = used.keys().cloned().collect();
    for host in &network.names.hosts {
        if !used.contains_key(&End::Host(host.clone())) {
            problems.add(node.line, "links", format!("host {host} has no link"));
        }
    }
}

/// A host's name or `SWITCH:PORT`.
fn end(text: &str, names: &Names) -> Result<End, String> {
    let Names { switches, hosts } = names;
    let Some((name, port)) = text.rsplit_once(':') else {
        return if hosts.iter().any(|host| host == text) {
            Ok(End::Host(text.to_owned()))
        } else if switches.iter().any(|switch| switch == text) {
            Err(format!("'{text}' is a switch; its port is missing, write \"{text}:1\""))
        } else {
            let all: Vec<&String> = hosts.iter().chain(switches).collect();
            let all: Vec<&str> = all.into_iter().map(String::as_str).collect();
            Err(format!("unknown host or switch '{text}'{}", hint(text, &all)))
        };
    };
    if hosts.iter().any(|host| host == name) {
        return Err(format!("'{text}': {name} is a host, which has one interface; write {name}"));
    }
    if !switches.iter().any(|switch| switch == name) {
        return Err(format!("'{text}': unknown switch '{name}'{}", hint(name, switches)));
    }
    let port = integer(0_u16..=LAST_PORT)(port).map_err(|error| format!("'{text}': port {error}"))?;
    Ok(End::Port(name.to_owned(), port))
}
