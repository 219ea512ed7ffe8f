// SPDX-License-Identifier: Apache-2.0
//! From a layers file to the answer: what was assumed, the thresholds, and what they save.

use std::fmt::Write as _;

use serde::Serialize;
use trimwire_controller::units::{self, DataPacket};

use super::layers::{Layers, LayersError, Rule};
use super::port::{ClassLimits, PortLimits, Rungs, Traffic, fate};
use super::queue::Limits;
use super::solve::{Solution, again, solve};
use super::{Class, Grouping, Layer, appendix_b, of_trimmed};

/// Packets up to which appendix B is solved to the packet.
const EXACT: u32 = 4096;
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
    /// Energy lost by each trim.
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

/// Answers. Mistakes name the file.
pub fn answer(file: &Layers, name: &str) -> Result<Answer, LayersError> {
    let wrong = |reason: String| LayersError { file: name.to_owned(), reason };
    let settings = settings(file).map_err(wrong)?;
    let packets = u32::try_from(settings.buffer / settings.unit()).unwrap_or(u32::MAX / 4);
    // A trimming queue holds a packet beyond its threshold before anything is dropped.
    let room = packets.saturating_sub(file.classes as u32);
    if room == 0 {
        return Err(wrong(format!(
            "buffer: {} bytes are {packets} bursts of {} bytes; {} classes need one each, and one more",
            settings.buffer,
            settings.unit(),
            file.classes
        )));
    }
    let layers = file.layers();
    let classes = Class::of(&layers, file.grouping.into(), file.classes);
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
        model: file.model.clone(),
        assumptions: assumptions(file, &layers, &settings),
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

fn settings(file: &Layers) -> Result<Settings, String> {
    let packet = DataPacket::new(file.mtu, false, false);
    let (shallow_size, deep_size) = (file.shallow_size.bytes(packet), file.deep_size.bytes(packet));
    let mean_packet = file.mean_packet.unwrap_or_else(|| packet.full_frame());
    if deep_size > shallow_size {
        return Err(format!("deep_size: {deep_size} bytes are more than shallow_size, {shallow_size}"));
    }
    if shallow_size >= mean_packet {
        return Err(format!(
            "shallow_size: {shallow_size} bytes are a whole packet of {mean_packet}: nothing is trimmed"
        ));
    }
    Ok(Settings {
        load: file.load,
        line_rate: file.line_rate,
        buffer: file.buffer.bytes(file.line_rate, 0).unwrap_or(u64::MAX),
        mean_packet,
        burst: file.burst,
        shallow_size,
        deep_size,
        trim_costs: [shallow_size, deep_size].map(|size| of_trimmed(size, packet.coordinates, packet.sealed)),
        trim_cap: file.trim_cap,
        less_important_share: file.less_important.share,
        less_important_energy: file.less_important.energy,
    })
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
        // Equal thresholds mean the deeper rung, so what is never trimmed deeply has room between
        // the two.
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

fn assumptions(file: &Layers, layers: &[Layer], settings: &Settings) -> Vec<String> {
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
    let ruled = layers.iter().filter(|layer| !layer.measured).count();
    if ruled > 0 {
        let Rule { front, back } = file.sensitivity;
        lines.push(format!(
            "sensitivities: {ruled} of {} layers have none of their own and take {front} (front) to {back} (back), in equal ratios: \
             an assumption, to be replaced by measurements",
            layers.len()
        ));
    }
    if Grouping::from(file.grouping) == Grouping::Sensitivity {
        lines.push(
            "grouping: by sensitivity; the agent tags layers by depth, so tag these yourself as listed"
                .to_owned(),
        );
    }
    lines
}

/// Three digits, whatever the size.
pub fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if (0.001..1000.0).contains(&value) {
        let places = (2 - value.log10().floor() as i32).clamp(0, 6) as usize;
        format!("{value:.places$}")
    } else {
        format!("{value:.2e}")
    }
}

impl Answer {
    /// The `policy` of a fabric file that trims at these thresholds.
    pub fn policy(&self) -> String {
        let (settings, policy) = (&self.settings, &self.trimming);
        let time = |bytes: u64| {
            let ns = u128::from(bytes) * 8_000_000_000 / u128::from(settings.line_rate.max(1));
            format!("{:.1} us", ns as f64 / 1000.0)
        };
        let mut text = format!(
            "# {}: thresholds of least weighted loss at load {} of {}, {} bytes of buffer.\n\
             # docs/explanation/thresholds.md has the assumptions. Times are at that line rate.\n\
             policy:\n  shallow_size: {}B\n  deep_size: {}B\n  trim_limit: {}B  # {}\n  queues:\n",
            // A comment ends where its line does.
            self.model.replace(['\n', '\r'], " "),
            settings.load,
            units::rate_text(settings.line_rate),
            settings.buffer,
            settings.shallow_size,
            settings.deep_size,
            policy.trim_limit,
            time(policy.trim_limit)
        );
        for class in &policy.classes {
            let (name, drop_at) = (&class.class, class.drop_at);
            let _ = writeln!(text, "    {name}:\n      drop_at: {drop_at}B  # {}", time(drop_at));
            for (name, shallow, deep) in [
                ("important", class.important_shallow_at, class.important_deep_at),
                ("less_important", class.less_important_shallow_at, class.less_important_deep_at),
            ] {
                let _ = writeln!(
                    text,
                    "      {name}: {{ shallow_at: {shallow}B, deep_at: {deep}B }}  # {}, {}",
                    time(shallow),
                    time(deep)
                );
            }
        }
        text
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
