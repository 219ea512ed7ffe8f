// SPDX-License-Identifier: Apache-2.0
//! From a layers file to the answer: what was assumed, the thresholds, and what they save.

use std::fmt::{self, Display};

use serde::Serialize;

use trimwire_planner::thresholds::port::{ClassLimits, PortLimits, Rungs, Traffic, fate};
use trimwire_planner::thresholds::queue::Limits;
use trimwire_planner::thresholds::solve::{Solution, again, solve};
use trimwire_planner::thresholds::{Class, Grouping, appendix_b, of_cut};

use super::model::Model;
use crate::model::Fabric;
use crate::model::PortPolicy;
use crate::table::Table;
use crate::units::{self, CutSize, DataPacket};
use crate::yaml::problem::{Problems, SpecError};

/// Packets up to which appendix B is solved to the packet.
const EXACT: u32 = 4096;
/// What UEC asks for: at most half the port.
const TRIM_CAP: f64 = 0.5;
const CLASSES: usize = 4;
const MTU: u64 = 1500;
/// Points of the curve, each √2 times the buffer of the one before.
const CURVE: std::ops::RangeInclusive<i32> = -8..=6;

/// What is known of the port once file, fabric and defaults have been put together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// Offered load in shares of the line rate.
    pub load: f64,
    /// bit/s.
    pub line_rate: u64,
    /// Bytes.
    pub buffer: u64,
    /// Bytes of a frame.
    pub mean_packet: u64,
    /// Packets that arrive together; thresholds are whole bursts.
    pub burst: u64,
    /// Bytes of a frame that was trimmed.
    pub shallow_size: u64,
    /// The same.
    pub deep_size: u64,
    /// Energy lost by each cut.
    pub trim_costs: [f64; 2],
    /// Share of the line.
    pub trim_cap: f64,
    /// Share of packets that is less important.
    pub less_important_share: f64,
    /// Share of energy that these carry.
    pub less_important_energy: f64,
}

/// Thresholds of a class in bytes, and what happens to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassAnswer {
    /// `class0`, …
    pub class: String,
    /// Layers and shares.
    #[serde(flatten)]
    pub members: Class,
    /// Share of the line that is left for the class.
    pub capacity: f64,
    /// Less important packets are trimmed, or dropped, from here.
    pub less_important_shallow_at: u64,
    /// Less important packets are trimmed deeply from here.
    pub less_important_deep_at: u64,
    /// Important packets are trimmed from here.
    pub important_shallow_at: u64,
    /// Important packets are trimmed deeply from here.
    pub important_deep_at: u64,
    /// Everything that is not trimmed is dropped from here.
    pub drop_at: u64,
    /// Share of less important packets refused, that is trimmed or dropped.
    pub less_important_refused: f64,
    /// Share of important packets refused.
    pub important_refused: f64,
    /// Share of the class's gradient energy that is lost.
    pub loss: f64,
}

/// What one way to treat refused packets comes to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PolicyAnswer {
    /// By class.
    pub classes: Vec<ClassAnswer>,
    /// Bytes that the trim queue may hold; 0 when nothing is trimmed.
    pub trim_limit: u64,
    /// Share of the line that trimmed packets ask for.
    pub trimmed: f64,
    /// Share of the trimmed packets that the trim queue refuses.
    pub trimmed_lost: f64,
    /// Σ weight × loss, 0 to 1.
    pub weighted_loss: f64,
}

/// Appendix B's own optimum.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PaperAnswer {
    /// By class: S_i and L_i in bursts.
    pub thresholds: Vec<(f64, u32)>,
    /// Weighted loss by the paper's formulas.
    pub predicted_loss: f64,
    /// Weighted loss of the same thresholds in the shared queue and with carried loads.
    pub weighted_loss: f64,
}

/// Weighted losses by buffer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Curve {
    /// Bytes.
    pub buffer: u64,
    /// With the best thresholds for dropping.
    pub dropping: f64,
    /// With the best thresholds for trimming.
    pub trimming: f64,
}

/// Everything found out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Name of the model.
    pub model: String,
    /// In sentences.
    pub assumptions: Vec<String>,
    /// The port.
    pub settings: Settings,
    /// With trimming.
    pub trimming: PolicyAnswer,
    /// With selective dropping.
    pub dropping: PolicyAnswer,
    /// MLT appendix B as printed.
    pub appendix_b: PaperAnswer,
    /// Weighted loss of dropping over that of trimming.
    pub saved: f64,
    /// Against the buffer.
    pub curve: Vec<Curve>,
}

/// Answers. What the file does not say is taken from `fabric`, else from defaults; mistakes name the file's lines.
pub fn answer(model: &Model, fabric: Option<&Fabric>) -> Result<Answer, SpecError> {
    let mut problems = Problems::default();
    let settings = settings(model, fabric, &mut problems);
    let planned = fabric.map(|fabric| fabric.queues.classes.len());
    let classes = match (model.classes, planned) {
        (Some(classes), Some(planned)) if classes > planned => {
            let message = format!("{classes} classes, but the fabric has {planned} (queues.classes)");
            problems.add(model.line("classes"), "classes", message);
            planned
        }
        (Some(classes), _) => classes,
        (None, planned) => planned.unwrap_or(CLASSES).min(model.layers.len()),
    };
    let packets = u32::try_from(settings.buffer / settings.unit()).unwrap_or(u32::MAX / 4);
    // A trimming queue holds a packet beyond its threshold before anything is dropped.
    let room = packets.saturating_sub(classes as u32);
    if room == 0 {
        let message = format!(
            "{} bytes are {packets} bursts of {} bytes; {classes} classes need one each, and one more",
            settings.buffer,
            settings.unit()
        );
        problems.add(model.line("buffer"), "buffer", message);
    }
    if !problems.is_empty() {
        return Err(problems.into_error(&model.file));
    }

    let classes = Class::of(&model.layers, model.grouping, classes);
    let traffic = Traffic {
        arrivals: classes.iter().map(|class| settings.load * class.share).collect(),
        weights: classes.iter().map(|class| class.weight).collect(),
        less_important: settings.less_important_share,
        less_important_energy: settings.less_important_energy,
    };
    let rungs = settings.rungs();
    let trimmed = solve(&traffic, Some(&rungs), room);
    let dropped = solve(&traffic, None, packets);
    let curve = curve(&traffic, &rungs, &settings, (&trimmed, &dropped));
    let trimming = policy_answer(&classes, &settings, &trimmed, true);
    let dropping = policy_answer(&classes, &settings, &dropped, false);
    Ok(Answer {
        model: model.name.clone(),
        assumptions: assumptions(model, fabric, &settings),
        appendix_b: paper(&traffic, packets),
        saved: dropping.weighted_loss / trimming.weighted_loss,
        settings,
        trimming,
        dropping,
        curve,
    })
}

impl Settings {
    /// What the queues count in, bytes.
    fn unit(&self) -> u64 {
        self.mean_packet * self.burst
    }

    fn rungs(&self) -> Rungs {
        let share = |size: u64| (size as f64 / self.mean_packet as f64).min(1.0);
        Rungs {
            sizes: [share(self.shallow_size), share(self.deep_size)],
            costs: self.trim_costs,
            cap: self.trim_cap,
        }
    }
}

fn settings(model: &Model, fabric: Option<&Fabric>, problems: &mut Problems) -> Settings {
    let mtu = model.mtu.or(fabric.map(|fabric| fabric.mtu)).unwrap_or(MTU);
    let sealed = fabric.is_some_and(|fabric| fabric.sealed);
    let packet = DataPacket::new(mtu, sealed, fabric.is_some_and(Fabric::has_ip6));
    // The slowest port is the one that congests.
    let port = fabric.and_then(|fabric| {
        fabric.policies.values().flat_map(|ports| ports.values()).min_by_key(|policy| policy.rate_bps)
    });
    let line_rate = model.line_rate.or(port.map(|port| port.rate_bps)).unwrap_or_else(|| {
        problems.add(1, "", "'line_rate' is missing; write line_rate: 100Gbps, or give a fabric");
        1
    });
    let of_fabric = |pick: fn(&crate::model::QueuePolicy) -> u16| {
        let first = fabric?.queues.classes.first()?;
        port?.queues.get(first).map(|[_, important]| CutSize::Bytes(pick(important).into()))
    };
    let size = |given: Option<CutSize>, planned: Option<CutSize>, default: u8| {
        given.or(planned).unwrap_or(CutSize::Planes(default)).bytes(packet)
    };
    let shallow_size = size(model.shallow_size, of_fabric(|queue| queue.shallow_size), 8);
    let deep_size = size(model.deep_size, of_fabric(|queue| queue.deep_size), 1);
    let mean_packet = model.mean_packet.unwrap_or_else(|| packet.full_frame());
    if deep_size > shallow_size {
        let message = format!("{deep_size} bytes are more than shallow_size, {shallow_size}");
        problems.add(model.line("deep_size"), "deep_size", message);
    }
    if shallow_size >= mean_packet {
        let message = format!("{shallow_size} bytes are a whole packet of {mean_packet}: nothing is trimmed");
        problems.add(model.line("shallow_size"), "shallow_size", message);
    }
    Settings {
        load: model.load,
        line_rate,
        buffer: model.buffer.bytes(line_rate, 0).unwrap_or(u64::MAX),
        mean_packet,
        burst: model.burst,
        shallow_size,
        deep_size,
        trim_costs: [shallow_size, deep_size].map(|size| of_cut(size, packet.coordinates, packet.sealed)),
        trim_cap: model.trim_cap.or(of_port_cap(port.map(AsRef::as_ref))).unwrap_or(TRIM_CAP),
        less_important_share: model.less_important_share,
        less_important_energy: model.less_important_energy,
    }
}

/// What the fabric lets the trim queue have, of a port that trims.
fn of_port_cap(port: Option<&PortPolicy>) -> Option<f64> {
    port.map(|port| port.trim_cap.map_or(1.0, |cap| f64::from(cap.share) / 1e6))
}

fn policy_answer(
    classes: &[Class],
    settings: &Settings,
    Solution { limits, fate }: &Solution,
    trims: bool,
) -> PolicyAnswer {
    let bytes = |packets: u32| u64::from(packets) * settings.unit();
    let class = |(index, class): (usize, &Class)| {
        let ClassLimits { limits, deep, important_deep } = limits.classes[index];
        let found = fate.classes[index];
        // Equal thresholds mean the deeper rung, so what is never trimmed deeply has room between the two.
        let drop_at = if trims { bytes(limits.all + 1) } else { bytes(limits.all) };
        ClassAnswer {
            class: format!("class{index}"),
            members: class.clone(),
            capacity: found.capacity,
            less_important_shallow_at: bytes(limits.less_important),
            less_important_deep_at: bytes(deep).min(drop_at),
            important_shallow_at: bytes(limits.all),
            important_deep_at: if important_deep { bytes(limits.all) } else { drop_at },
            drop_at,
            less_important_refused: found.refused.less_important,
            important_refused: found.refused.important,
            loss: found.loss,
        }
    };
    PolicyAnswer {
        classes: classes.iter().enumerate().map(class).collect(),
        trim_limit: if trims { bytes(limits.trim) } else { 0 },
        trimmed: fate.heads,
        trimmed_lost: fate.heads_lost,
        weighted_loss: fate.weighted_loss,
    }
}

fn paper(traffic: &Traffic, packets: u32) -> PaperAnswer {
    let unit = packets.div_ceil(EXACT).max(1);
    let mut optimum = appendix_b::optimum(traffic, packets / unit);
    for (small, large) in &mut optimum.rooms {
        (*small, *large) = (*small * unit, *large * unit);
    }
    let thresholds = optimum.thresholds(traffic.less_important);
    let class = |(first, all): &(f64, u32)| ClassLimits {
        limits: Limits { less_important: *first as u32, all: *all },
        deep: all + 1,
        important_deep: false,
    };
    let limits = PortLimits { classes: thresholds.iter().map(class).collect(), trim: 0 };
    PaperAnswer {
        predicted_loss: appendix_b::weighted_loss(traffic, &optimum.rooms),
        weighted_loss: fate(traffic, None, &limits).weighted_loss,
        thresholds,
    }
}

fn curve(
    traffic: &Traffic,
    rungs: &Rungs,
    settings: &Settings,
    (trimmed, dropped): (&Solution, &Solution),
) -> Vec<Curve> {
    let classes = traffic.arrivals.len() as u32;
    let mut points = Vec::new();
    let mut below: Option<[Solution; 2]> = None;
    for step in CURVE {
        let buffer = (settings.buffer as f64 * 2_f64.powf(f64::from(step) / 2.0)) as u64;
        let Ok(packets) = u32::try_from(buffer / settings.unit()) else { break };
        let Some(room) = packets.checked_sub(classes).filter(|room| *room > 0) else { continue };
        let best = |which: usize, rungs: Option<&Rungs>, from: &Solution, room: u32| {
            let below = below.as_ref().map(|both| &both[which].limits);
            if step == 0 { from.clone() } else { again(traffic, rungs, room, &from.limits, below) }
        };
        let found = [best(0, None, dropped, packets), best(1, Some(rungs), trimmed, room)];
        let [dropping, trimming] = [&found[0], &found[1]].map(|solution| solution.fate.weighted_loss);
        points.push(Curve { buffer, dropping, trimming });
        below = Some(found);
    }
    points
}

fn assumptions(model: &Model, fabric: Option<&Fabric>, settings: &Settings) -> Vec<String> {
    let Settings {
        load,
        line_rate,
        buffer,
        mean_packet,
        burst,
        shallow_size,
        deep_size,
        trim_costs,
        trim_cap,
        ..
    } = settings;
    let rate = units::rate_text(*line_rate);
    let mut lines = vec![
        format!(
            "traffic: {load} of a {rate} line, shared out among layers by their sizes; bursts of {burst} packets of {mean_packet} bytes in \
             Poisson arrivals, exponential around that size and taken or refused whole (M/M/1)"
        ),
        format!("buffer: {buffer} bytes for all queues of the port; thresholds are whole bursts"),
        "priority: strict, class0 first; a class has what those before it, and the trim queue, leave of the line on average"
            .to_owned(),
        format!(
            "importance: {} % of the packets are less important and carry {:.1} % of the energy, in every layer",
            100.0 * settings.less_important_share,
            100.0 * settings.less_important_energy
        ),
        "independence: which packets are refused does not depend on what is in them, and classes' losses add up".to_owned(),
        format!(
            "trims: to {shallow_size} bytes lose {} of a packet's energy, to {deep_size} bytes {} (expected error of the rht codec's \
             planes that survive); a lost packet loses 1",
            figure(trim_costs[0]),
            figure(trim_costs[1])
        ),
        format!(
            "trim queue: served first, at most {} % of the line; what it refuses is lost",
            100.0 * trim_cap
        ),
    ];
    let ruled = model.layers.iter().filter(|layer| !layer.measured).count();
    if ruled > 0 {
        let (front, back) = model.rule;
        lines.push(format!(
            "sensitivities: {ruled} of {} layers have none of their own and take {front} (front) to {back} (back), in equal ratios: \
             an assumption, to be replaced by measurements",
            model.layers.len()
        ));
    }
    if model.grouping == Grouping::Sensitivity {
        lines.push(
            "grouping: by sensitivity; the agent tags layers by depth, so tag these yourself as listed"
                .to_owned(),
        );
    }
    if let Some(fabric) = fabric {
        let others = fabric.policies.values().flat_map(|ports| ports.values());
        let others = others.filter(|policy| policy.rate_bps != *line_rate).count();
        if others > 0 {
            lines.push(format!(
                "fabric: {others} ports of {} are not {rate} and would get the same bytes; move the fragment under policy.ports \
                 where they should not",
                fabric.file
            ));
        }
    }
    lines
}

/// Three digits, whatever the size.
fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if (0.001..1000.0).contains(&value) {
        let places = (2 - value.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{value:.places$}")
    } else {
        format!("{value:.2e}")
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: thresholds of least weighted loss\n\nAssumed", self.model)?;
        for line in &self.assumptions {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "\nTrimming")?;
        policy_table(f, &self.trimming, true)?;
        writeln!(
            f,
            "  trim queue: trim_limit {} bytes, trimmed packets ask for {} of the line, {} of them lost",
            self.trimming.trim_limit,
            figure(self.trimming.trimmed),
            figure(self.trimming.trimmed_lost)
        )?;
        writeln!(f, "\nSelective dropping (MLT §4.2.2), best thresholds")?;
        policy_table(f, &self.dropping, false)?;
        writeln!(f, "\nMLT appendix B as printed (split queues, offered loads)")?;
        let mut table = Table::new(&["class", "S, bursts", "L, bursts"]);
        for (class, (first, all)) in self.appendix_b.thresholds.iter().enumerate() {
            table.row([format!("class{class}"), format!("{first:.1}"), all.to_string()]);
        }
        indented(f, &table)?;
        let weighted = figure(self.dropping.weighted_loss);
        let mut table = Table::new(&["policy", "loss"]);
        for (policy, loss) in [
            ("appendix B's thresholds, by its formulas", self.appendix_b.predicted_loss),
            ("appendix B's thresholds, in shared queues", self.appendix_b.weighted_loss),
            ("selective dropping", self.dropping.weighted_loss),
            ("trimming", self.trimming.weighted_loss),
        ] {
            table.row([policy.to_owned(), figure(loss)]);
        }
        writeln!(f, "\nWeighted loss (0: nothing is lost, 1: everything)")?;
        indented(f, &table)?;
        let mut table = Table::new(&["buffer", "dropping", "trimming"]);
        for Curve { buffer, dropping, trimming } in &self.curve {
            table.row([units::bytes_text(*buffer), figure(*dropping), figure(*trimming)]);
        }
        writeln!(f, "\nThe same by buffer, with the best thresholds for each")?;
        indented(f, &table)?;
        write!(
            f,
            "\ntrimming loses {} where dropping loses {weighted}: {} times less",
            figure(self.trimming.weighted_loss),
            figure(self.saved)
        )
    }
}

fn policy_table(f: &mut fmt::Formatter<'_>, policy: &PolicyAnswer, trims: bool) -> fmt::Result {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for class in &policy.classes {
        let layers = &class.members.layers;
        let span = match (layers.first(), layers.last()) {
            (Some(first), Some(last)) if layers.len() > 1 => format!("{first} … {last}"),
            (Some(only), _) => only.clone(),
            _ => String::new(),
        };
        let mut row = vec![
            class.class.clone(),
            span,
            format!("{:.1} %", 100.0 * class.members.share),
            figure(class.members.weight),
            class.less_important_shallow_at.to_string(),
        ];
        if trims {
            row.push(class.less_important_deep_at.to_string());
            row.push(class.important_shallow_at.to_string());
            row.push(class.important_deep_at.to_string());
        }
        row.push(class.drop_at.to_string());
        row.extend([class.less_important_refused, class.important_refused, class.loss].map(figure));
        rows.push(row);
    }
    let head: &[&str] = if trims {
        &[
            "class",
            "layers",
            "bytes",
            "weight",
            "shallow_at, less",
            "deep_at, less",
            "shallow_at",
            "deep_at",
            "drop_at",
            "trimmed, less",
            "trimmed",
            "loss",
        ]
    } else {
        &[
            "class",
            "layers",
            "bytes",
            "weight",
            "shallow_at, less",
            "drop_at",
            "dropped, less",
            "dropped",
            "loss",
        ]
    };
    let mut table = Table::new(head);
    rows.into_iter().for_each(|row| table.row(row));
    indented(f, &table)
}

fn indented(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    for line in table.to_string().lines() {
        writeln!(f, "  {line}")?;
    }
    Ok(())
}
