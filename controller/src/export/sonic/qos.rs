// SPDX-License-Identifier: Apache-2.0
//! Maps, schedulers, marking, and the trimming itself.

use std::collections::{BTreeMap, BTreeSet};

use super::notes::Fidelity;
use super::{Asic, Writer};
use crate::model::Overload;
use crate::units::{self, NEVER, TrimSize};

/// Name of our maps.
pub(super) const MAP: &str = "TRIMWIRE";
/// What YANG allows of a key of QUEUE.
const MOST_QUEUE: u8 = 7;

impl Writer<'_> {
    /// Traffic classes are queue numbers; trimmed packets have one of their own, so that a port's
    /// map remarks nothing else.
    fn trim_tc(&self) -> u8 {
        let used: Vec<u8> = self.fabric.queues.named().into_iter().map(|(_, queue)| queue).collect();
        (0..=7).find(|tc| !used.contains(tc)).unwrap_or(8)
    }

    /// The queue, and so the traffic class, of packets with a code point.
    fn queue_of(&self, code_point: u8) -> u8 {
        let (fabric, plan) = (self.fabric, &self.fabric.queues);
        let class = |list: &[u8]| list.iter().position(|known| *known == code_point);
        if fabric.trimmed_code_points().contains(&code_point) {
            plan.trimmed
        } else if code_point == fabric.dscp.control {
            plan.control
        } else {
            class(&fabric.dscp.trimmable)
                .or(class(&fabric.dscp.droppable))
                .and_then(|class| plan.classes.get(class).copied())
                .unwrap_or(plan.best_effort)
        }
    }

    pub(super) fn maps(&mut self) {
        let plan = &self.fabric.queues;
        for code_point in 0..64 {
            self.set("DSCP_TO_TC_MAP", MAP, &code_point.to_string(), self.queue_of(code_point));
        }
        let trim_tc = self.trim_tc();
        let used: Vec<u8> = plan.named().into_iter().map(|(_, queue)| queue).collect();
        for tc in 0..=trim_tc.max(7).max(plan.trimmed) {
            let queue = if used.contains(&tc) { tc } else { plan.best_effort };
            let queue = if tc == trim_tc { plan.trimmed } else { queue };
            self.set("TC_TO_QUEUE_MAP", MAP, &tc.to_string(), queue);
        }
        for (name, _) in self.ports() {
            self.set("PORT_QOS_MAP", &name, "dscp_to_tc_map", MAP);
            self.set("PORT_QOS_MAP", &name, "tc_to_queue_map", MAP);
        }
        self.note(
            Fidelity::Exact,
            "dscp, queues",
            "DSCP_TO_TC_MAP, TC_TO_QUEUE_MAP, PORT_QOS_MAP",
            "a traffic class is a queue's number",
        );
        self.replaced_maps();
    }

    /// Which code points leave the traffic class that the switch's own maps give them: the file
    /// knows nothing of the other traffic of these ports, routing protocols among it, and makes it
    /// best effort.
    fn replaced_maps(&mut self) {
        const SONIC: &str = "PORT_QOS_MAP.dscp_to_tc_map";
        let best_effort = self.fabric.queues.best_effort;
        let classes: Vec<String> = self.fabric.queues.classes.iter().map(u8::to_string).collect();
        let Some(present) = &self.platform.present else {
            let message = format!(
                "{MAP} takes the place of the ports' own map: a code point that the file does not name is best effort, traffic class \
                 {best_effort}, those of routing protocols (48, 56) too. With --config-db the ones that change are listed here"
            );
            self.note(Fidelity::Check, "dscp", SONIC, message);
            return;
        };
        let mut ports_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for port in self.names.values() {
            if let Some(map) = present.dscp_map(port) {
                ports_of.entry(map).or_default().push(port.clone());
            }
        }
        for (map, ports) in ports_of {
            let mut moved: BTreeMap<(u8, u8), BTreeSet<u16>> = BTreeMap::new();
            for code_point in 0..64 {
                let (before, after) = (present.traffic_class(&map, code_point), self.queue_of(code_point));
                if before != after {
                    moved.entry((after, before)).or_default().insert(u16::from(code_point));
                }
            }
            if moved.is_empty() {
                continue;
            }
            let text = |((after, before), code_points): (&(u8, u8), &BTreeSet<u16>)| {
                format!("{} from {before} to {after}", units::ranges(code_points))
            };
            let moved: Vec<String> = moved.iter().map(text).collect();
            let message = format!(
                "{MAP} takes the place of {map} on {}. Code points that change their traffic class: {}. What the file does not name is \
                 best effort, class {best_effort}: look for what else runs here, such as routing protocols (48, 56). To give one another \
                 class, change its line in DSCP_TO_TC_MAP|{MAP} of the patch; a class is a queue's number, and {} are the layer classes'",
                ports.join(", "),
                moved.join("; "),
                classes.join(", ")
            );
            self.note(Fidelity::Check, "dscp", SONIC, message);
        }
    }

    pub(super) fn trimming(&mut self) {
        let (fabric, plan) = (self.fabric, &self.fabric.queues);
        if fabric.overload != Overload::Trim {
            self.note(Fidelity::Exact, "policy.trim", "BUFFER_PROFILE.packet_discard_action", "off: drop");
            return;
        }
        let sizes: Vec<(u16, u16)> = self
            .policies
            .values()
            .flat_map(|port| plan.classes.iter().filter_map(|queue| port.queues.get(queue)))
            .flatten()
            .map(|queue| (queue.shallow_size, queue.deep_size))
            .collect();
        let shallow: BTreeSet<u16> = sizes.iter().map(|(shallow, _)| *shallow).collect();
        let (least, most) = (shallow.first().copied().unwrap_or(128), shallow.last().copied().unwrap_or(128));
        let (size, mut fidelity, mut why) = self.platform.asic.size(least);
        self.set("SWITCH_TRIMMING", "GLOBAL", "size", size);
        if least != most {
            fidelity = fidelity.min(Fidelity::Near);
            why = format!(
                "{why}; one size for the whole switch, the least of those in the file (up to {most})"
            );
        }
        let signs = TrimSize::Planes(1).bytes(fabric.data_packet());
        if u64::from(size) < signs {
            fidelity = fidelity.min(Fidelity::Near);
            why = format!(
                "{why}. Signs of packets of eight planes take {signs} bytes, so part of them is lost: send nine planes, or packets of fewer coordinates"
            );
        }
        self.note(fidelity, "policy.shallow_size", "SWITCH_TRIMMING.size", why);
        let deep: BTreeSet<u16> = sizes.iter().map(|(_, deep)| *deep).collect();
        if deep != shallow {
            let message = "one size only: there is no deeper rung; where trimmed packets overflow the trim queue they are lost";
            self.note(Fidelity::Missing, "policy.deep_at, deep_size", "", message);
        }

        self.trim_queue();
        let code_points = self.distinct(|port| port.trimmed_dscp);
        let knob = "dscp.trimmed, dscp.trimmed_last_hop, policy.ports.*.trimmed_dscp";
        if let [only] = code_points.iter().copied().collect::<Vec<_>>()[..] {
            self.set("SWITCH_TRIMMING", "GLOBAL", "dscp_value", only);
            self.note(Fidelity::Exact, knob, "SWITCH_TRIMMING.dscp_value", "symmetric");
            return;
        }
        let tc = self.trim_tc();
        self.set("SWITCH_TRIMMING", "GLOBAL", "dscp_value", "from-tc");
        self.set("SWITCH_TRIMMING", "GLOBAL", "tc_value", tc);
        let mut replaced = Vec::new();
        for (name, policy) in self.ports() {
            let map = format!("{MAP}_{}", policy.trimmed_dscp);
            let present = self.platform.present.as_ref();
            let own = present.and_then(|present| present.text("PORT_QOS_MAP", &name, "tc_to_dscp_map"));
            replaced.extend(own.filter(|own| *own != map).map(|own| format!("{own} on {name}")));
            self.set("TC_TO_DSCP_MAP", &map, &tc.to_string(), policy.trimmed_dscp);
            self.set("PORT_QOS_MAP", &name, "tc_to_dscp_map", map);
        }
        if !replaced.is_empty() {
            let message = format!(
                "takes the place of {}: other traffic classes are remarked no more. Copy their lines into {MAP}_…",
                replaced.join(", ")
            );
            self.note(Fidelity::Check, knob, "PORT_QOS_MAP.tc_to_dscp_map", message);
        }
        self.note(
            Fidelity::Exact,
            knob,
            "SWITCH_TRIMMING.dscp_value, TC_TO_DSCP_MAP",
            format!("asymmetric, by egress port, over traffic class {tc}; packets trimmed upstream keep their code point"),
        );
        let message = "try it: SAI lets a switch remark what the map does not name to code point 0 (opencomputeproject/SAI#2349), and there \
                       this mode is of no use";
        self.note(Fidelity::Check, knob, "PORT_QOS_MAP.tc_to_dscp_map", message);
    }

    fn trim_queue(&mut self) {
        const SONIC: &str = "SWITCH_TRIMMING.queue_index";
        let queue = self.fabric.queues.trimmed;
        let present = self.platform.present.as_ref();
        let is_dynamic = present.and_then(|present| present.text("SWITCH_TRIMMING", "GLOBAL", "queue_index"))
            == Some("dynamic");
        let (value, fidelity, message) = match self.platform.asic.fixed_queue() {
            Some(fixed) if fixed != queue => {
                let message = format!(
                    "this chip puts what it trims into queue {fixed}, another queue of the file: write queues: {{ trimmed: {fixed} }}, and \
                     move what has it"
                );
                (fixed.to_string(), Fidelity::Missing, message)
            }
            Some(fixed) => {
                let message = format!("queue {fixed}, fixed by this chip; the file's is moved there");
                (fixed.to_string(), Fidelity::Near, message)
            }
            None if is_dynamic => {
                let message =
                    format!("dynamic, as the switch has it: the maps lead trimmed packets to queue {queue}");
                ("dynamic".to_owned(), Fidelity::Exact, message)
            }
            None if self.platform.asic == Asic::Unknown => {
                let message = "static; whether this chip takes it is not known (--asic)".to_owned();
                (queue.to_string(), Fidelity::Check, message)
            }
            None => (queue.to_string(), Fidelity::Exact, "static".to_owned()),
        };
        self.set("SWITCH_TRIMMING", "GLOBAL", "queue_index", value);
        self.note(fidelity, "queues.trimmed", SONIC, message);
    }

    pub(super) fn schedulers(&mut self) {
        const STRICT: &str = "trimwire_strict";
        self.set("SCHEDULER", STRICT, "type", "STRICT");
        let plan = &self.fabric.queues;
        let mut capped = false;
        for (name, policy) in self.ports() {
            for (_, queue) in plan.named().into_iter().filter(|(_, queue)| *queue <= MOST_QUEUE) {
                let mut scheduler = STRICT.to_owned();
                if queue == plan.trimmed
                    && let Some(cap) = policy.trim_cap
                {
                    // SCHEDULER counts in bytes per second.
                    let rate = (cap.rate_bps / 8).max(1);
                    scheduler = format!("trimwire_cap_{rate}");
                    for (field, value) in [("type", "STRICT"), ("meter_type", "bytes")] {
                        self.set("SCHEDULER", &scheduler, field, value);
                    }
                    for field in ["cir", "pir"] {
                        self.set("SCHEDULER", &scheduler, field, rate);
                    }
                    for field in ["cbs", "pbs"] {
                        self.set("SCHEDULER", &scheduler, field, cap.burst);
                    }
                    capped = true;
                }
                self.set("QUEUE", &format!("{name}|{queue}"), "scheduler", scheduler);
            }
        }
        self.note(
            Fidelity::Exact,
            "queues",
            "SCHEDULER.type, QUEUE.scheduler",
            "strict, the highest queue first",
        );
        if plan.trimmed > MOST_QUEUE {
            let message =
                format!("queue {} has no scheduler in CONFIG_DB: the chip's own stays", plan.trimmed);
            self.note(Fidelity::Missing, "policy.trim_cap", "", message);
        }
        if capped {
            let message = "a shaper: trimmed packets above the cap wait, up to trim_limit, where our program drops them at once";
            self.note(Fidelity::Near, "policy.trim_cap", "SCHEDULER.cir, pir, cbs, pbs", message);
        }
    }

    pub(super) fn marking(&mut self) {
        let (fabric, plan) = (self.fabric, &self.fabric.queues);
        let bind = match fabric.overload {
            Overload::Trim => self.platform.mark_trimmable,
            Overload::SelectiveDrop => true,
            Overload::DropTail => false,
        };
        if !bind {
            let message = "WRED marks ECT packets and drops others from the same point: not-ECT trimmable packets would be dropped \
                           before they can be trimmed (--mark-trimmable writes it all the same)";
            let message =
                if fabric.overload == Overload::Trim { message } else { "nothing but drop-tail is wanted" };
            self.note(Fidelity::Missing, "policy.mark_at", "", message);
            return;
        }
        for (name, policy) in self.ports() {
            for queue in &plan.classes {
                let Some([less, important]) = policy.queues.get(queue) else { continue };
                // MLT §5.2: from here ECT packets are marked and others dropped.
                let at = if fabric.overload == Overload::SelectiveDrop {
                    less.shallow_at
                } else {
                    important.mark_at
                };
                if at == NEVER {
                    continue;
                }
                let profile = format!("trimwire_mark_{at}");
                for colour in ["green", "yellow", "red"] {
                    for bound in ["min", "max"] {
                        self.set("WRED_PROFILE", &profile, &format!("{colour}_{bound}_threshold"), at);
                    }
                    self.set("WRED_PROFILE", &profile, &format!("wred_{colour}_enable"), "true");
                    self.set("WRED_PROFILE", &profile, &format!("{colour}_drop_probability"), 100);
                }
                self.set("WRED_PROFILE", &profile, "ecn", "ecn_all");
                self.set("QUEUE", &format!("{name}|{queue}"), "wred_profile", profile);
            }
        }
        let (knob, message) = if fabric.overload == Overload::SelectiveDrop {
            (
                "policy.mark_at, less_important.shallow_at",
                "MLT §5.2: one point, shallow_at of the less important, from which ECT packets are marked and others dropped",
            )
        } else {
            (
                "policy.mark_at",
                "ECT packets are marked, trimmable ones too; others are dropped from there, not trimmed",
            )
        };
        self.note(Fidelity::Near, knob, "WRED_PROFILE, QUEUE.wred_profile", message);
    }

    pub(super) fn rest(&mut self) {
        if self.fabric.overload != Overload::DropTail {
            let message = "trimming knows no importance: one point for both, that of important packets";
            if self.fabric.overload == Overload::Trim {
                self.note(Fidelity::Missing, "policy.important, less_important", "", message);
            }
        }
        let default = crate::model::LoadBalance::default();
        if self.fabric.load_balance != default {
            let message = "hashing is SONiC's own (SWITCH_HASH); not written";
            self.note(Fidelity::Missing, "load_balance", "", message);
        }
        self.note(
            Fidelity::Missing,
            "hosts, links",
            "",
            "routes are left to SONiC's routing; addresses of its interfaces are not written",
        );
        let assumed: Vec<String> = self
            .names
            .iter()
            .filter(|(port, _)| !self.platform.ports.contains_key(port))
            .map(|(port, name)| format!("{port} = {name}"))
            .collect();
        if !assumed.is_empty() {
            let message = format!("names assumed: {}; give them with --platform-ports", assumed.join(", "));
            self.note(Fidelity::Check, "links", "PORT", message);
        }
        let message = format!(
            "nothing is written for {} but what belongs to these tables: merge, do not replace",
            self.switch
        );
        self.note(Fidelity::Check, "switches", "config_db.json", message);
    }
}
