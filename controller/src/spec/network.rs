// SPDX-License-Identifier: Apache-2.0
//! `switches`, `hosts` and `links`, on top of what `topology` generates.

use std::collections::{BTreeMap, BTreeSet};

use super::addresses::{ipv4, ipv6, mac, socket};
use super::generator::{self, Generated};
use super::{keys, switch};
use crate::model::{End, Host, Link, Mac, Switch, Target, Trust};
use crate::units;
use crate::yaml::fields::{Fields, entries, integer, join, word};
use crate::yaml::problem::{Located, Problems, hint};
use crate::yaml::{Node, Value};

/// Ports of `bit<9>` without v1model's drop port (511) and the CPU port (510).
const LAST_PORT: u16 = 509;

/// What the sections say.
pub(super) struct Network {
    pub switches: BTreeMap<String, Switch>,
    pub hosts: BTreeMap<String, Host>,
    pub links: Vec<Link>,
    /// Ends of all links, of those with mistakes too.
    pub ends: BTreeSet<End>,
    /// Where each switch and link stands.
    pub switch_lines: BTreeMap<String, usize>,
    pub link_lines: Vec<(usize, String)>,
    /// Whether mistakes in the generator leave open what there is.
    pub unknown: bool,
    /// Names that stand in the file, whatever is wrong with their entries: links to them are not
    /// wrong as well.
    names: Names,
}

struct Names {
    switches: Vec<String>,
    hosts: Vec<String>,
}

/// A section's entries: name, line, value.
type Entries<'n> = Vec<(&'n str, usize, &'n Node)>;

pub(super) fn read(top: &Fields<'_>, problems: &mut Problems) -> Network {
    let generated = generator::read(top, problems);
    let mut network = Network {
        switches: BTreeMap::new(),
        hosts: BTreeMap::new(),
        links: Vec::new(),
        ends: BTreeSet::new(),
        switch_lines: BTreeMap::new(),
        link_lines: Vec::new(),
        unknown: false,
        names: Names { switches: Vec::new(), hosts: Vec::new() },
    };
    // With a generator nothing else has to be there.
    let written_out = top.node("topology").is_none();
    if generated.is_none() && !written_out {
        // Whatever refers to what it did not generate is not wrong as well.
        network.unknown = true;
        return network;
    }
    let mut sections = Vec::new();
    for (section, example) in [("switches", "{ s1: { … } }"), ("hosts", "{ h1: { … } }")] {
        sections.push(if let Some(node) = top.node(section) {
            entries(node, section, problems)
        } else {
            if written_out {
                top.missing(section, example, problems);
            }
            Vec::new()
        });
    }
    let hosts = sections.pop().unwrap_or_default();
    let switches = sections.pop().unwrap_or_default();
    check_names(&switches, &hosts, generated.as_ref(), problems);
    let all = |written: &Entries<'_>, made: Option<Vec<&String>>| {
        let written = written.iter().map(|(name, ..)| (*name).to_owned());
        let names: BTreeSet<String> = written.chain(made.into_iter().flatten().cloned()).collect();
        names.into_iter().collect::<Vec<String>>()
    };
    network.names = Names {
        switches: all(&switches, generated.as_ref().map(|made| made.switches.keys().collect())),
        hosts: all(&hosts, generated.as_ref().map(|made| made.hosts.keys().collect())),
    };
    read_switches(&switches, generated.as_ref(), &mut network, problems);
    read_hosts(&hosts, generated.as_ref(), &mut network, problems);
    let none = Node { line: top.line, value: Value::Sequence(Vec::new()) };
    match top.node("links") {
        None if written_out => top.missing("links", "[{ a: h1, b: \"s1:1\", speed: 10Gbps }]", problems),
        node => read_links(node.unwrap_or(&none), generated.as_ref(), &mut network, problems),
    }
    network
}

fn check_names(
    switches: &Entries<'_>,
    hosts: &Entries<'_>,
    generated: Option<&Generated>,
    problems: &mut Problems,
) {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    for (section, named) in [("switches", switches), ("hosts", hosts)] {
        for (name, line, _) in named {
            if name.is_empty() || name.len() > 64 || !name.chars().all(valid) {
                let path = join(section, name);
                problems.add(*line, path, "names are 1 to 64 letters, digits, '_', '-' and '.'");
            }
        }
    }
    for (name, line, _) in hosts {
        let written = switches.iter().find(|(other, ..)| other == name).map(|(_, line, _)| *line);
        let made = generated.filter(|made| made.switches.contains_key(*name)).map(|made| made.line);
        if let Some(first) = written.or(made) {
            problems.add(
                *line,
                join("hosts", name),
                format!("the name is already a switch's, in line {first}"),
            );
        }
    }
    for (name, line, _) in switches {
        if let Some(made) = generated.filter(|made| made.hosts.contains_key(*name)) {
            let message = format!("the name is already a host's, of {} in line {}", made.path, made.line);
            problems.add(*line, join("switches", name), message);
        }
    }
}

/// Reports values that have to be unique and are not.
struct Unique<T> {
    seen: BTreeMap<T, (String, usize)>,
    what: &'static str,
}

impl<T: Ord + Clone> Unique<T> {
    fn new(what: &'static str) -> Self {
        Self { seen: BTreeMap::new(), what }
    }

    fn claim(&mut self, found: &Located<T>, owner: &str, shown: &str, problems: &mut Problems) {
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

    /// Of something generated: the first to claim, so that what is written is at fault.
    fn reserve(&mut self, value: T, owner: &str, line: usize) {
        self.seen.entry(value).or_insert_with(|| (owner.to_owned(), line));
    }
}

fn read_switches(
    switches: &Entries<'_>,
    generated: Option<&Generated>,
    network: &mut Network,
    problems: &mut Problems,
) {
    let mut device_ids = Unique::new("device id");
    // What the file overrides gives its generated id up.
    let overridden: BTreeSet<&str> = switches
        .iter()
        .filter(|(_, _, node)| {
            Fields::of(node, "", keys::SWITCH, &mut Problems::default()).node("device_id").is_some()
        })
        .map(|(name, ..)| *name)
        .collect();
    if let Some(Generated { line, switches, .. }) = generated {
        for (name, switch) in switches {
            if !overridden.contains(name.as_str()) {
                device_ids.reserve(switch.device_id, name, *line);
            }
            network.switch_lines.insert(name.clone(), *line);
            network.switches.insert(name.clone(), switch.clone());
        }
    }
    for (name, line, node) in switches {
        let path = join("switches", name);
        let mut fields = Fields::of(node, &path, keys::SWITCH, problems);
        fields.line = *line;
        let base = generated.and_then(|made| made.switches.get(*name));
        let (address, device_id) = if base.is_some() {
            (
                fields.parsed("address", problems, socket),
                fields.parsed("device_id", problems, integer(0_u64..=u64::MAX)),
            )
        } else {
            (
                fields.required("address", "127.0.0.1:9559", problems, socket),
                fields.required("device_id", "1", problems, integer(0_u64..=u64::MAX)),
            )
        };
        if let Some(id) = &device_id {
            device_ids.claim(id, name, &id.value.to_string(), problems);
        }
        let target = switch::target(&fields, problems).map(|target| target.value);
        let target = target.or(base.map(|base| base.target)).unwrap_or(Target::Trimwire);
        let own_files = switch::pipeline(&fields, target, problems);
        let files = own_files.or_else(|| {
            base.filter(|base| base.target.is_stratum() == target.is_stratum())?.pipeline.clone()
        });
        if target.is_stratum() && files.is_none() && fields.node("pipeline").is_none() {
            problems.add(*line, &path, switch::no_pipeline(target));
        }
        let address = address.map(|address| address.value).or_else(|| base.map(|base| base.address.clone()));
        let device_id = device_id.map(|id| id.value).or_else(|| base.map(|base| base.device_id));
        let (Some(address), Some(device_id)) = (address, device_id) else { continue };
        network.switch_lines.insert((*name).to_owned(), *line);
        let gnmi = fields.parsed("gnmi", problems, switch::gnmi).map(|gnmi| gnmi.value).unwrap_or_default();
        let switch = Switch { address, device_id, target, pipeline: files, gnmi };
        network.switches.insert((*name).to_owned(), switch);
    }
}

fn read_hosts(
    hosts: &Entries<'_>,
    generated: Option<&Generated>,
    network: &mut Network,
    problems: &mut Problems,
) {
    let mut ips = Unique::new("address");
    let mut ip6s = Unique::new("address");
    let mut macs = Unique::new("MAC");
    let mut read = Vec::new();
    for (name, line, node) in hosts {
        let path = join("hosts", name);
        let mut fields = Fields::of(node, &path, keys::HOST, problems);
        fields.line = *line;
        let generated = generated.is_some_and(|made| made.hosts.contains_key(*name));
        let ip6 = fields.parsed("ip6", problems, ipv6);
        let trust = fields.parsed(
            "trust",
            problems,
            word(&[("agent", Trust::Agent), ("none", Trust::None), ("all", Trust::All)]),
        );
        let (ip, mac) = if generated {
            (fields.parsed("ip", problems, ipv4), fields.parsed("mac", problems, mac))
        } else {
            (
                fields.required("ip", "10.0.0.1", problems, ipv4),
                fields.required("mac", "\"02:00:00:00:00:01\"", problems, mac),
            )
        };
        read.push((*name, ip, ip6, mac, trust));
    }
    if let Some(Generated { line, hosts, .. }) = generated {
        for (name, host) in hosts {
            let own = read.iter().find(|(other, ..)| *other == name.as_str());
            if own.is_none_or(|(_, ip, ..)| ip.is_none()) {
                ips.reserve(host.ip, name, *line);
            }
            if let (Some(ip6), true) = (host.ip6, own.is_none_or(|(_, _, ip6, ..)| ip6.is_none())) {
                ip6s.reserve(ip6, name, *line);
            }
            if own.is_none_or(|(.., mac, _)| mac.is_none()) {
                macs.reserve(host.mac, name, *line);
            }
            network.hosts.insert(name.clone(), host.clone());
        }
    }
    for (name, ip, ip6, mac, trust) in read {
        if let Some(ip) = &ip {
            ips.claim(ip, name, &ip.value.to_string(), problems);
        }
        if let Some(ip6) = &ip6 {
            ip6s.claim(ip6, name, &ip6.value.to_string(), problems);
        }
        if let Some(mac) = &mac {
            macs.claim(mac, name, &mac.value.to_string(), problems);
        }
        let base = network.hosts.get(name);
        let ip = ip.map(|ip| ip.value).or_else(|| base.map(|base| base.ip));
        let mac = mac.map(|mac: Located<Mac>| mac.value).or_else(|| base.map(|base| base.mac));
        let ip6 = ip6.map(|ip6| ip6.value).or_else(|| base.and_then(|base| base.ip6));
        let trust =
            trust.map(|trust| trust.value).or_else(|| base.map(|base| base.trust)).unwrap_or_default();
        let (Some(ip), Some(mac)) = (ip, mac) else { continue };
        network.hosts.insert(name.to_owned(), Host { ip, ip6, mac, trust });
    }
}

fn read_links(node: &Node, generated: Option<&Generated>, network: &mut Network, problems: &mut Problems) {
    let Value::Sequence(items) = &node.value else {
        problems.add(node.line, "links", format!("is {}; a list of links is wanted", node.kind()));
        return;
    };
    let mut reader =
        Links { generated, network, used: BTreeMap::new(), made: BTreeMap::new(), changed: BTreeMap::new() };
    reader.take_generated();
    for (position, item) in items.iter().enumerate() {
        reader.read(item, format!("links[{position}]"), problems);
    }
    let used = reader.used;
    network.ends = used.keys().cloned().collect();
    for host in &network.names.hosts {
        if !used.contains_key(&End::Host(host.clone())) {
            problems.add(node.line, "links", format!("host {host} has no link"));
        }
    }
}

struct Links<'r> {
    generated: Option<&'r Generated>,
    network: &'r mut Network,
    /// Line of the link that has this end.
    used: BTreeMap<End, usize>,
    /// Position of a generated link, by its ends in order.
    made: BTreeMap<(End, End), usize>,
    /// Line that changed a generated link.
    changed: BTreeMap<usize, usize>,
}

impl Links<'_> {
    fn take_generated(&mut self) {
        let Some(Generated { line, path, links, .. }) = self.generated else { return };
        for link in links {
            self.made.insert(in_order(&link.a, &link.b), self.network.links.len());
            for end in [&link.a, &link.b] {
                self.used.insert(end.clone(), *line);
            }
            self.network.links.push(link.clone());
            self.network.link_lines.push((*line, path.clone()));
        }
    }

    fn read(&mut self, item: &Node, path: String, problems: &mut Problems) {
        let fields = Fields::of(item, &path, keys::LINK, problems);
        let names = &self.network.names;
        let ends =
            ["a", "b"].map(|key| fields.required(key, "\"s1:1\" or h1", problems, |text| end(text, names)));
        if let [Some(a), Some(b)] = &ends
            && let Some(position) = self.made.get(&in_order(&a.value, &b.value)).copied()
        {
            self.change(position, item.line, &path, &fields, problems);
            return;
        }
        let ends = ends.map(|found| {
            let found = found?;
            match self.used.get(&found.value) {
                Some(first) => problems.add(found.line, &found.path, self.already(&found.value, *first)),
                None => drop(self.used.insert(found.value.clone(), found.line)),
            }
            Some(found.value)
        });
        let rate = fields.required("speed", "10Gbps", problems, units::rate);
        let delay = fields.parsed("delay", problems, units::time);
        let up = state(&fields, problems);
        let ([Some(a), Some(b)], Some(rate)) = (ends, rate) else { return };
        match (&a, &b) {
            (End::Host(_), End::Host(_)) => {
                let message = format!("{a} and {b} are both hosts; links go through a switch");
                problems.add(item.line, &path, message);
            }
            (End::Port(one, _), End::Port(other, _)) if one == other => {
                problems.add(item.line, &path, format!("both ends, {a} and {b}, are on switch {one}"));
            }
            _ => {}
        }
        self.network.link_lines.push((item.line, path));
        self.network.links.push(Link {
            a,
            b,
            rate_bps: rate.value,
            delay_ns: delay.map_or(0, |delay| delay.value),
            up: up.is_none_or(|up| up.value),
        });
    }

    /// A generated link takes what the entry gives and keeps the rest.
    fn change(
        &mut self,
        position: usize,
        line: usize,
        path: &str,
        fields: &Fields<'_>,
        problems: &mut Problems,
    ) {
        let rate = fields.parsed("speed", problems, units::rate);
        let delay = fields.parsed("delay", problems, units::time);
        let up = state(fields, problems);
        if let Some(first) = self.changed.insert(position, line) {
            problems.add(line, path, format!("this link is already changed in line {first}"));
        }
        let (Some(link), Some(place)) =
            (self.network.links.get_mut(position), self.network.link_lines.get_mut(position))
        else {
            return;
        };
        *place = (line, path.to_owned());
        link.rate_bps = rate.map_or(link.rate_bps, |rate| rate.value);
        link.delay_ns = delay.map_or(link.delay_ns, |delay| delay.value);
        link.up = up.map_or(link.up, |up| up.value);
    }

    fn already(&self, end: &End, first: usize) -> String {
        let what = if matches!(end, End::Host(_)) { "a host has one link, and" } else { "port" };
        let made =
            self.made.keys().find_map(|(a, b)| if a == end { Some(b) } else { (b == end).then_some(a) });
        match made {
            Some(other) => format!(
                "{what} {end} is already linked to {other}, by the generator in line {first}; to change that link, give both \
                 of its ends"
            ),
            None => format!("{what} {end} is already linked in line {first}"),
        }
    }
}

fn in_order(a: &End, b: &End) -> (End, End) {
    if a <= b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) }
}

fn state(fields: &Fields<'_>, problems: &mut Problems) -> Option<Located<bool>> {
    fields.parsed("state", problems, word(&[("up", true), ("down", false)]))
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
