// SPDX-License-Identifier: Apache-2.0
//! Queue policy in bytes: what the file says, in time, bytes or bdp, turned into one table entry
//! per (egress port, queue, importance).
//!
//! A value is looked up from the particular to the general: the port's queue, the port, the queue,
//! the fabric; in each place the importance's own value before the one for both. What nobody gives
//! takes a default, moved between its given neighbours so that `mark_at ≤ shallow_at ≤ deep_at ≤
//! drop_at` always holds; given values out of order are an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::{End, Fabric, Overload, PortPolicy, QueuePolicy, TrimCap};
use crate::spec::{PolicySection, PolicySpec};
use crate::units::{self, DataPacket, NEVER, Threshold, TrimSize};
use crate::yaml::problem::{Located, Problems};

/// Defaults for the front layers' class: times at line rate. `[less important, important]`.
const CLASS_DEFAULTS: [[Threshold; 4]; 2] = [
    [Threshold::Time(10_000), Threshold::Time(20_000), Threshold::Time(40_000), Threshold::Time(400_000)],
    [Threshold::Time(20_000), Threshold::Time(40_000), Threshold::Time(80_000), Threshold::Time(400_000)],
];
/// What the back layers' class waits longer than the front layers' before it is trimmed, in
/// millionths; those between are evenly spread. Front layers are served first and bear the more
/// loss: at 93 % accuracy 5 % against 0.3 % (MLT §3.3). In MLT's M/M/1/m (appendix B) losses fall
/// by ρ with each packet of room, so that the factor of 17 takes 55 packets at a load of 0.95: 62
/// µs at 10 Gbit/s, one and a half times the front layers' 40 µs.
const BACK_LAYERS: u64 = 2_500_000;
/// Best effort is other people's traffic, of which much is not ECN-capable: no selective drops
/// unless asked for.
const BEST_EFFORT_DEFAULTS: [Threshold; 4] =
    [Threshold::Time(80_000), Threshold::Never, Threshold::Never, Threshold::Time(400_000)];
/// Control packets are few and are what recovery hangs on.
const CONTROL_DEFAULTS: [Threshold; 4] =
    [Threshold::Never, Threshold::Never, Threshold::Never, Threshold::Time(1_000_000)];
const TRIM_LIMIT: Threshold = Threshold::Time(100_000);
/// The trim queue is served first: without a cap heads could starve everybody (UEC: at most half
/// the port).
const TRIM_CAP: Option<u32> = Some(500_000);
const WHOLE: u128 = 1_000_000;
const SHALLOW_SIZE: TrimSize = TrimSize::Planes(3);
const DEEP_SIZE: TrimSize = TrimSize::Planes(1);

/// Smallest frame that Ethernet carries, without FCS.
const SMALLEST_FRAME: u64 = 60;

/// Converts and checks. Problems name the line that gives the value at fault, once, however many
/// ports it concerns.
pub(crate) fn resolve(
    fabric: &Fabric,
    spec: &PolicySpec,
    rtt_given: bool,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>> {
    let mut resolver = Resolver {
        fabric,
        spec,
        rtt_given,
        packet: fabric.data_packet(),
        head: units::head(fabric.has_ip6()),
        found: Complaints::default(),
        doubts: Complaints::default(),
        known: BTreeMap::new(),
    };
    let mut policies: BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>> = BTreeMap::new();
    for link in &fabric.links {
        for (end, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
            let End::Port(switch, port) = end else { continue };
            let policy = resolver.shared(switch, *port, link.rate_bps, matches!(far, End::Host(_)));
            policies.entry(switch.clone()).or_default().insert(*port, policy);
        }
    }
    if spec.overload == Overload::Trim {
        resolver.header_overload(&policies);
    }
    let Resolver { found, doubts, .. } = resolver;
    for (collected, sink) in [(found, problems), (doubts, warnings)] {
        for ((line, path, _), (message, places)) in collected.places {
            let more =
                if places > 1 { format!(" (and in {} more places)", places - 1) } else { String::new() };
            sink.add(line, path, format!("{message}{more}"));
        }
    }
    policies
}

/// Line, path and kind of a complaint.
type Place = (usize, String, &'static str);

/// What is wrong, or doubtful: the first message of a place and at how many ports it applies.
#[derive(Default)]
struct Complaints {
    places: BTreeMap<Place, (String, usize)>,
    /// Those of the port that is being looked at.
    of_port: Vec<Place>,
}

/// What a port is told by, where the file does not name it: speed, and whether a host is at the
/// other end.
type Kind = (u64, bool);

/// A port's policy, and the complaints about it: of what is found wrong and of what is doubtful.
struct Known {
    policy: Arc<PortPolicy>,
    complaints: [Vec<Place>; 2],
}

struct Resolver<'f> {
    fabric: &'f Fabric,
    spec: &'f PolicySpec,
    rtt_given: bool,
    packet: DataPacket,
    /// Bytes in front of the planes of the fabric's packets.
    head: u64,
    found: Complaints,
    doubts: Complaints,
    known: BTreeMap<Kind, Known>,
}

fn complain(
    sink: &mut Complaints,
    line: usize,
    path: &str,
    kind: &'static str,
    message: impl FnOnce() -> String,
) {
    let place = (line, path.to_owned(), kind);
    sink.places.entry(place.clone()).or_insert_with(|| (message(), 0)).1 += 1;
    sink.of_port.push(place);
}

/// Where a value may be given, particular first.
struct Sections<'f>(Vec<&'f PolicySection>);

impl<'f> Sections<'f> {
    fn first<T>(&self, pick: impl Fn(&'f PolicySection) -> Option<&'f T>) -> Option<&'f T> {
        self.0.iter().find_map(|section| pick(section))
    }
}

impl<'f> Resolver<'f> {
    /// A port's policy. All that the file does not name and that are of a kind have one, and the
    /// same is wrong with all of them.
    fn shared(&mut self, switch: &str, port: u16, rate_bps: u64, last_hop: bool) -> Arc<PortPolicy> {
        if self.spec.ports.contains_key(&(switch.to_owned(), port)) {
            return Arc::new(self.port(switch, port, rate_bps, last_hop));
        }
        let kind = (rate_bps, last_hop);
        if let Some(Known { policy, complaints }) = self.known.get(&kind) {
            for (sink, places) in [&mut self.found, &mut self.doubts].into_iter().zip(complaints) {
                for place in places {
                    if let Some((_, count)) = sink.places.get_mut(place) {
                        *count += 1;
                    }
                }
            }
            return Arc::clone(policy);
        }
        self.found.of_port.clear();
        self.doubts.of_port.clear();
        let policy = Arc::new(self.port(switch, port, rate_bps, last_hop));
        let complaints = [&mut self.found, &mut self.doubts].map(|sink| std::mem::take(&mut sink.of_port));
        self.known.insert(kind, Known { policy: Arc::clone(&policy), complaints });
        policy
    }

    fn port(&mut self, switch: &str, port: u16, rate_bps: u64, last_hop: bool) -> PortPolicy {
        let Fabric { queues: plan, dscp, .. } = self.fabric;
        let mut queues = BTreeMap::new();
        for (name, queue) in plan.named() {
            let policies =
                [false, true].map(|important| self.queue(switch, port, rate_bps, &name, queue, important));
            queues.insert(queue, policies);
        }
        let (general, of_port) = (&self.spec.general, self.spec.ports.get(&(switch.to_owned(), port)));
        let own = |section: &PolicySection| section.trimmed_dscp.as_ref().map(|dscp| dscp.value);
        let trimmed_dscp = of_port
            .and_then(own)
            .or(dscp.trimmed_last_hop.filter(|_| last_hop))
            .or_else(|| own(general))
            .unwrap_or(dscp.trimmed);
        let trim_drop_at = queues.get(&plan.trimmed).map_or(NEVER, |both| both[1].trim_drop_at);
        let trim_cap = self.trim_cap(of_port, rate_bps, trim_drop_at);
        PortPolicy { rate_bps, queues, trimmed_dscp, trim_cap }
    }

    fn trim_cap(&self, of_port: Option<&PolicySection>, rate_bps: u64, trim_drop_at: u32) -> Option<TrimCap> {
        if self.spec.overload != Overload::Trim {
            return None;
        }
        let sections = [of_port, Some(&self.spec.general)].into_iter().flatten();
        let given = sections.filter_map(|section| section.trim_cap.as_ref()).map(|cap| cap.value).next();
        let share = given.unwrap_or(TRIM_CAP)?;
        let rate = u128::from(rate_bps) * u128::from(share) / WHOLE;
        // A bucket smaller than a head would let none through.
        let smallest = self.packet.full_frame().max(SMALLEST_FRAME);
        let burst = trim_drop_at.max(u32::try_from(smallest).unwrap_or(NEVER));
        Some(TrimCap { share, rate_bps: u64::try_from(rate).unwrap_or(u64::MAX).max(1), burst })
    }

    fn queue(
        &mut self,
        switch: &str,
        port: u16,
        rate_bps: u64,
        name: &str,
        queue: u8,
        important: bool,
    ) -> QueuePolicy {
        let (spec, plan) = (self.spec, &self.fabric.queues);
        let of_port = spec.ports.get(&(switch.to_owned(), port));
        let queue_sections = [of_port, Some(&spec.general)]
            .map(|section| section.and_then(|section| section.queues.get(&queue)));
        let [port_queue, general_queue] = queue_sections;
        let class = plan.classes.iter().position(|of_class| *of_class == queue);
        let is_class = class.is_some();
        let place = || format!("at {switch}:{port} ({}), {name}", units::rate_text(rate_bps));
        // What a mapping says for queues in general is meant for gradients; best effort shares its
        // limits only.
        let own = Sections([port_queue, general_queue].into_iter().flatten().collect());
        let all = Sections(
            [port_queue, of_port, general_queue, Some(&spec.general)].into_iter().flatten().collect(),
        );
        let sections_for = |threshold: usize| {
            if is_class || (queue == plan.best_effort && matches!(threshold, 0 | 3)) { &all } else { &own }
        };
        let defaults = if let Some(class) = class {
            class_defaults(class, plan.classes.len(), important)
        } else if queue == plan.best_effort {
            BEST_EFFORT_DEFAULTS
        } else {
            CONTROL_DEFAULTS
        };
        let mut given: [Option<(&Located<Threshold>, u32)>; 4] = [None; 4];
        for (threshold, slot) in given.iter_mut().enumerate() {
            // With drop-tail only the limit counts, and marks on the way to it.
            if spec.overload == Overload::DropTail && matches!(threshold, 1 | 2) {
                continue;
            }
            *slot = sections_for(threshold)
                .first(|section| {
                    section.importance[usize::from(important)][threshold]
                        .as_ref()
                        .or(section.thresholds[threshold].as_ref())
                })
                .map(|located| (located, self.bytes(located, rate_bps, &place)));
        }
        let is_known = |slot: &Option<(&Located<Threshold>, u32)>| {
            self.rtt_given || slot.is_none_or(|(located, _)| !matches!(located.value, Threshold::Bdp(_)))
        };
        if given.iter().all(is_known) {
            self.check_order(&given, &place);
        }
        let mut values = fill(&given, defaults.map(|default| self.default_bytes(default, rate_bps)));
        if is_class {
            self.check_least(&given, &values, &place);
        }
        if spec.overload == Overload::DropTail {
            values[1] = values[3];
            values[2] = values[3];
        }

        let sizes = Sections(
            [port_queue, of_port, general_queue, Some(&spec.general)].into_iter().flatten().collect(),
        );
        // Of a trimmed sealed packet, planes between the first and the eighth are not believed.
        let usual = if self.packet.sealed { DEEP_SIZE } else { SHALLOW_SIZE };
        let shallow_size = self.size(sizes.first(|section| section.shallow_size.as_ref()), usual);
        let deep_size = self.size(sizes.first(|section| section.deep_size.as_ref()), DEEP_SIZE);
        let deep_size = self.check_sizes(&sizes, shallow_size, deep_size);
        let limit = all.first(|section| section.trim_limit.as_ref());
        let trim_drop_at = match limit {
            Some(located) => self.bytes(located, rate_bps, &place),
            None => self.default_bytes(TRIM_LIMIT, rate_bps),
        };
        if queue == plan.trimmed {
            // Packets that arrive trimmed meet this entry: only the queue's own limit counts.
            values = [trim_drop_at; 4];
        }
        let [mark_at, shallow_at, deep_at, drop_at] = values;
        QueuePolicy { mark_at, shallow_at, deep_at, drop_at, shallow_size, deep_size, trim_drop_at }
    }

    fn bytes(&mut self, located: &Located<Threshold>, rate_bps: u64, place: &dyn Fn() -> String) -> u32 {
        let Located { value, text, line, path } = located;
        if matches!(value, Threshold::Bdp(_)) && !self.rtt_given {
            // One line is missing, however many ask for it.
            let known = self.found.places.keys().find(|(.., kind)| *kind == "rtt").cloned();
            let (line, path) = known.map_or_else(|| (*line, path.clone()), |(line, path, _)| (line, path));
            complain(&mut self.found, line, &path, "rtt", || {
                format!("'{text}' needs the fabric's round-trip time; write rtt: 20us at the top")
            });
        }
        let bytes = value.bytes(rate_bps, self.fabric.rtt_ns).and_then(|bytes| u32::try_from(bytes).ok());
        bytes.unwrap_or_else(|| {
            complain(&mut self.found, *line, path, "range", || {
                format!(
                    "'{text}' is more than the switch counts ({NEVER} bytes) {}; 'never' is no limit",
                    place()
                )
            });
            NEVER
        })
    }

    fn default_bytes(&self, default: Threshold, rate_bps: u64) -> u32 {
        let bytes = default.bytes(rate_bps, self.fabric.rtt_ns).and_then(|bytes| u32::try_from(bytes).ok());
        bytes.unwrap_or(NEVER)
    }

    fn check_order(&mut self, given: &[Option<(&Located<Threshold>, u32)>; 4], place: &dyn Fn() -> String) {
        let mut below: Option<(usize, &Located<Threshold>, u32)> = None;
        for (threshold, slot) in given.iter().enumerate() {
            let Some((located, bytes)) = slot else { continue };
            if let Some((lower, other, lower_bytes)) = below
                && lower_bytes > *bytes
            {
                // The later line is the one that a reader arrives at with the other in mind.
                let at_fault = if other.line > located.line { other } else { *located };
                complain(&mut self.found, at_fault.line, &at_fault.path, "order", || {
                    let names = crate::spec::THRESHOLDS;
                    format!(
                        "thresholds out of order: {} {} ({lower_bytes} bytes, line {}) > {} {} ({bytes} bytes, line {}) {}; \
                         needed: mark_at ≤ shallow_at ≤ deep_at ≤ drop_at",
                        names[lower],
                        other.text,
                        other.line,
                        names[threshold],
                        located.text,
                        located.line,
                        place()
                    )
                });
            }
            below = Some((threshold, located, *bytes));
        }
    }

    /// Times at a slow line may come to less than any packet: then a threshold is met by whatever
    /// waits.
    fn check_least(
        &mut self,
        given: &[Option<(&Located<Threshold>, u32)>; 4],
        values: &[u32; 4],
        place: &dyn Fn() -> String,
    ) {
        let full = self.packet.full_frame();
        let names = crate::spec::THRESHOLDS;
        for ((threshold, slot), bytes) in given.iter().enumerate().zip(values) {
            // With drop-tail nothing is trimmed. Who writes bytes has seen them.
            let counts = threshold != 1 && threshold != 2 || self.spec.overload != Overload::DropTail;
            let is_bytes = slot.is_some_and(|(located, _)| matches!(located.value, Threshold::Bytes(_)));
            if !counts || is_bytes || u64::from(*bytes) >= full / 2 {
                continue;
            }
            let path = format!("policy.{}", names[threshold]);
            let (line, path) =
                slot.map_or((1, path.as_str()), |(located, _)| (located.line, located.path.as_str()));
            complain(&mut self.doubts, line, path, "least", || {
                format!(
                    "{} comes to {bytes} bytes {}: less than half a packet of {full}, so that one packet waiting is enough; write \
                     bytes, or a longer time",
                    names[threshold],
                    place()
                )
            });
        }
    }

    fn size(&mut self, located: Option<&Located<TrimSize>>, default: TrimSize) -> u16 {
        let size = located.map_or(default, |located| located.value);
        let bytes = size.bytes(self.packet);
        if let Some(Located { line, path, .. }) = located {
            let one_plane = TrimSize::Planes(1).bytes(self.packet);
            let head = self.head;
            if bytes < head {
                complain(&mut self.found, *line, path, "small", || {
                    format!(
                        "'{size}' is less than the {head} bytes in front of a packet's planes: nothing of it would be of use"
                    )
                });
            } else if bytes < one_plane {
                complain(&mut self.doubts, *line, path, "plane", || {
                    format!("'{size}' leaves less than one plane of a packet ({one_plane} bytes)")
                });
            } else if bytes >= self.packet.full_frame() {
                complain(&mut self.doubts, *line, path, "whole", || {
                    format!("'{size}' is a whole packet at mtu {}: nothing is trimmed", self.fabric.mtu)
                });
            }
            if u16::try_from(bytes).is_err() {
                complain(&mut self.found, *line, path, "range", || {
                    format!("'{size}' is more than 65535 bytes")
                });
            }
        }
        u16::try_from(bytes).unwrap_or(u16::MAX)
    }

    /// The deep size, which is at most the shallow one: a default yields, a given one is an error.
    fn check_sizes(&mut self, sections: &Sections<'f>, shallow: u16, deep: u16) -> u16 {
        if deep <= shallow {
            return deep;
        }
        if let Some(Located { line, path, text, .. }) = sections.first(|section| section.deep_size.as_ref()) {
            complain(&mut self.found, *line, path, "sizes", || {
                format!(
                    "'{text}' ({deep} bytes) is more than shallow_size ({shallow} bytes); deep trims leave less"
                )
            });
        }
        shallow
    }

    /// Heads alone fill a link beyond a sustained overload of full frame : trimmed frame, 6:1 at
    /// one plane, and the default cap from 3:1 on, which ports of most switches can be sent. So
    /// defaults are no doubt; sizes and caps with which heads fill their share sooner are.
    fn header_overload(&mut self, policies: &BTreeMap<String, BTreeMap<u16, Arc<PortPolicy>>>) {
        let full = self.packet.full_frame().max(1);
        let usual = u128::from(DEEP_SIZE.bytes(self.packet));
        let usual_share = TRIM_CAP.map_or(WHOLE, u128::from);
        for (switch, ports) in policies {
            let all: u128 = ports.values().map(|port| u128::from(port.rate_bps)).sum();
            for (port, policy) in ports {
                let others = all - u128::from(policy.rate_bps);
                let classes = self.fabric.queues.classes.iter();
                let Some(deep) = classes
                    .filter_map(|queue| policy.queues.get(queue))
                    .flat_map(|both| both.iter().map(|queue| u128::from(queue.deep_size)))
                    .max()
                else {
                    continue;
                };
                // What heads may take of the line: all of it, or up to the cap.
                let share = policy.trim_cap.map_or(WHOLE, |cap| u128::from(cap.share));
                let sooner = deep * usual_share > usual * share;
                let fills_it =
                    others * deep * WHOLE >= u128::from(policy.rate_bps) * u128::from(full) * share;
                if !(sooner && fills_it) {
                    continue;
                }
                let sections = [self.spec.ports.get(&(switch.clone(), *port)), Some(&self.spec.general)];
                let located = sections.into_iter().flatten().find_map(|section| {
                    let size = section.deep_size.as_ref().map(|size| (size.line, size.path.as_str()));
                    let cap = section.trim_cap.as_ref().map(|cap| (cap.line, cap.path.as_str()));
                    if deep > usual { size } else { cap }
                });
                let (line, path) = located.unwrap_or((1, "policy.deep_size"));
                let rate = policy.rate_bps;
                let fills = full as f64 / deep as f64 * share as f64 / WHOLE as f64;
                complain(&mut self.doubts, line, path, "heads", || {
                    let what = if share < WHOLE {
                        format!("the {}% of the link that trim_cap leaves them", share as f64 / 10_000.0)
                    } else {
                        "the link".to_owned()
                    };
                    format!(
                        "trimmed packets alone can fill {switch}:{port}: if all other ports of {switch} send to it, the overload is \
                         {:.1}:1, and frames trimmed from {full} to {deep} bytes fill {what} from {fills:.1}:1 on; trimmed packets beyond \
                         are dropped",
                        others as f64 / rate as f64,
                    )
                });
            }
        }
    }
}

/// Class 0 is the front layers'. `drop_at` guards the buffer, and is the same for all.
fn class_defaults(class: usize, classes: usize, important: bool) -> [Threshold; 4] {
    let steps = classes.saturating_sub(1).max(1) as u64;
    let share = WHOLE as u64 + (BACK_LAYERS - WHOLE as u64) * class as u64 / steps;
    let mut defaults = CLASS_DEFAULTS[usize::from(important)];
    for default in &mut defaults[..3] {
        if let Threshold::Time(ns) = default {
            *ns = *ns * share / WHOLE as u64;
        }
    }
    defaults
}

/// Given values stay. A default moves down to what stands above it and up to the given values below
/// it.
fn fill(given: &[Option<(&Located<Threshold>, u32)>; 4], defaults: [u32; 4]) -> [u32; 4] {
    let mut values = defaults;
    let mut above = NEVER;
    for (position, value) in values.iter_mut().enumerate().rev() {
        let below = given.iter().take(position).flatten().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let own = given.get(position).copied().flatten();
        *value = own.map_or_else(|| (*value).min(above).max(below), |(_, bytes)| bytes);
        above = *value;
    }
    values
}

#[cfg(test)]
mod tests;
