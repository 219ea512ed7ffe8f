// SPDX-License-Identifier: Apache-2.0
//! The layers file: what it may say, and reading it.

use std::collections::BTreeMap;

use trimwire_planner::thresholds::{Grouping, Layer};

use crate::units::{self, CutSize, Threshold};
use crate::yaml::fields::{Fields, integer, word};
use crate::yaml::problem::{Problems, SpecError};
use crate::yaml::{self, Node, Value};

/// Keys of the file, in the order in which messages and documentation list them. `layers.schema.json` is tested against these.
pub(super) const TOP: &[&str] = &[
    "version",
    "model",
    "load",
    "line_rate",
    "buffer",
    "classes",
    "grouping",
    "mtu",
    "mean_packet",
    "burst",
    "shallow_size",
    "deep_size",
    "trim_cap",
    "less_important",
    "sensitivity",
    "layers",
];
pub(super) const LESS_IMPORTANT: &[&str] = &["share", "energy"];
pub(super) const SENSITIVITY: &[&str] = &["front", "back"];
pub(super) const LAYER: &[&str] = &["name", "parameters", "bytes", "sensitivity"];

/// Most layers that are read.
const MOST_LAYERS: usize = 100_000;

/// What a layers file says, checked. What it does not say is `None`: a fabric or a default gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Name of the file, for messages.
    pub file: String,
    /// Name of the model.
    pub name: String,
    /// Offered load of the congested port, in shares of its line rate.
    pub load: f64,
    /// bit/s.
    pub line_rate: Option<u64>,
    /// Buffer of the port.
    pub buffer: Threshold,
    /// How many classes.
    pub classes: Option<usize>,
    /// How layers become classes.
    pub grouping: Grouping,
    /// IP MTU, bytes.
    pub mtu: Option<u64>,
    /// Mean frame, bytes.
    pub mean_packet: Option<u64>,
    /// Packets that arrive together.
    pub burst: u64,
    /// What is left of a packet.
    pub shallow_size: Option<CutSize>,
    /// The same.
    pub deep_size: Option<CutSize>,
    /// Share of the line that the trim queue may take.
    pub trim_cap: Option<f64>,
    /// Share of the packets that is less important.
    pub less_important_share: f64,
    /// Share of the gradient's energy that these carry.
    pub less_important_energy: f64,
    /// Sensitivity of the first and of the last layer, where the layers do not give their own.
    pub rule: (f64, f64),
    /// Front first.
    pub layers: Vec<Layer>,
    /// Where the file says what.
    lines: BTreeMap<&'static str, usize>,
}

/// MLT §3.3: ResNet50 tolerates the loss of 5 % of the front layers' gradients, but of 0.3 % of the back layers'.
const RULE: (f64, f64) = (0.06, 1.0);
/// The median divides them (MLT §4.2.2).
const LESS_IMPORTANT_SHARE: f64 = 0.5;
/// Cutting the low-energy half first lowers the error about threefold; an assumption for any model that was not measured.
const LESS_IMPORTANT_ENERGY: f64 = 1.0 / 6.0;

impl Model {
    /// Reads a layers file. `file` is its name, for messages. Every mistake is found at once.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, SpecError> {
        let mut problems = Problems::default();
        let root = match yaml::parse(text) {
            Ok(root) => root,
            Err(error) => {
                problems.add(error.line, "", format!("not YAML: {}", error.reason));
                return Err(problems.into_error(file));
            }
        };
        let model = read(&root, file, &mut problems);
        if problems.is_empty() { Ok(model) } else { Err(problems.into_error(file)) }
    }

    /// Line of a key, or of the file's beginning where it does not stand.
    pub(super) fn line(&self, key: &str) -> usize {
        self.lines.get(key).copied().unwrap_or(1)
    }
}

fn read(root: &Node, file: &str, problems: &mut Problems) -> Model {
    let top = Fields::of(root, "", TOP, problems);
    top.required("version", "1", problems, |text| {
        if text == "1" {
            Ok(())
        } else {
            Err(format!("'{text}' is not a version that this controller reads; valid: 1"))
        }
    });
    let (share, energy) = less_important(&top, problems);
    let rule = rule(&top, problems);
    let valid_load = positive("load, as in 0.9 or 90%", 100.0);
    let load = top.required("load", "0.9", problems, valid_load);
    let mut model = Model {
        file: file.to_owned(),
        name: top
            .parsed("model", problems, |text| Ok::<_, String>(text.to_owned()))
            .map_or_else(|| "model".to_owned(), |name| name.value),
        load: load.map_or(1.0, |load| load.value),
        line_rate: top.parsed("line_rate", problems, units::rate).map(|rate| rate.value),
        buffer: top
            .required("buffer", "512KiB", problems, buffer)
            .map_or(Threshold::Bytes(1), |buffer| buffer.value),
        classes: top.parsed("classes", problems, integer(1_usize..=8)).map(|classes| classes.value),
        grouping: top
            .parsed(
                "grouping",
                problems,
                word(&[("depth", Grouping::Depth), ("sensitivity", Grouping::Sensitivity)]),
            )
            .map_or(Grouping::Depth, |grouping| grouping.value),
        mtu: top.parsed("mtu", problems, integer(128_u64..=65_535)).map(|mtu| mtu.value),
        mean_packet: top.parsed("mean_packet", problems, packet).map(|size| size.value),
        burst: top.parsed("burst", problems, integer(1_u64..=10_000)).map_or(1, |burst| burst.value),
        shallow_size: top.parsed("shallow_size", problems, CutSize::parse).map(|size| size.value),
        deep_size: top.parsed("deep_size", problems, CutSize::parse).map(|size| size.value),
        trim_cap: top
            .parsed("trim_cap", problems, positive("share, as in 50%", 1.0))
            .map(|share| share.value),
        less_important_share: share,
        less_important_energy: energy,
        rule,
        layers: Vec::new(),
        lines: TOP.iter().filter_map(|key| Some((*key, top.node(key)?.line))).collect(),
    };
    model.layers = layers(&top, rule, problems);
    if let Some(classes) = model.classes
        && !model.layers.is_empty()
        && model.layers.len() < classes
    {
        problems.add(
            model.line("classes"),
            "classes",
            format!("{classes} classes, but only {} layers", model.layers.len()),
        );
    }
    model
}

fn buffer(text: &str) -> Result<Threshold, String> {
    match Threshold::parse(text)? {
        Threshold::Never | Threshold::Bdp(_) | Threshold::Bytes(0) | Threshold::Time(0) => Err(format!(
            "'{text}' is no buffer; write bytes (512KiB) or a time at line rate (400us), not zero"
        )),
        buffer => Ok(buffer),
    }
}

fn packet(text: &str) -> Result<u64, String> {
    match Threshold::parse(text)? {
        Threshold::Bytes(bytes @ 60..=65_549) => Ok(bytes),
        _ => Err(format!("'{text}' is no frame; write 60B to 65549B")),
    }
}

/// A number above zero and up to `most`, plain or in per cent.
fn positive(what: &'static str, most: f64) -> impl Fn(&str) -> Result<f64, String> {
    move |text| {
        number(text).filter(|number| *number > 0.0 && *number <= most).ok_or_else(|| {
            format!("'{text}' is no {what}; valid are numbers above 0 and up to {most}, or in per cent")
        })
    }
}

/// A share, the ends included.
fn share(text: &str) -> Result<f64, String> {
    number(text)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("'{text}' is no share; write 0 to 1, or 0% to 100%"))
}

fn number(text: &str) -> Option<f64> {
    // f64's own reader also takes 'inf', 'nan' and exponents, of which a file has no use but the last.
    let (digits, scale) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 0.01),
        None => (text.trim(), 1.0),
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    digits
        .replace('_', "")
        .parse::<f64>()
        .ok()
        .map(|number| number * scale)
        .filter(|number| number.is_finite())
}

fn sensitivity(text: &str) -> Result<f64, String> {
    number(text).ok_or_else(|| format!("'{text}' is no sensitivity; write a number, 0 or more"))
}

fn less_important(top: &Fields<'_>, problems: &mut Problems) -> (f64, f64) {
    let (mut packets, mut energy) = (LESS_IMPORTANT_SHARE, LESS_IMPORTANT_ENERGY);
    let Some(node) = top.node("less_important") else { return (packets, energy) };
    let fields = Fields::of(node, "less_important", LESS_IMPORTANT, problems);
    for (key, slot) in [("share", &mut packets), ("energy", &mut energy)] {
        if let Some(given) = fields.parsed(key, problems, share) {
            *slot = given.value;
        }
    }
    if energy > packets {
        let message = format!(
            "{packets} of the packets carry {energy} of the energy: then they are the more important ones; \
             energy is at most share"
        );
        problems.add(node.line, "less_important", message);
    }
    (packets, energy)
}

fn rule(top: &Fields<'_>, problems: &mut Problems) -> (f64, f64) {
    let (mut front, mut back) = RULE;
    let Some(node) = top.node("sensitivity") else { return RULE };
    let fields = Fields::of(node, "sensitivity", SENSITIVITY, problems);
    for (key, slot) in [("front", &mut front), ("back", &mut back)] {
        if let Some(given) =
            fields.parsed(key, problems, positive("sensitivity of the rule, whose steps are ratios", 1e12))
        {
            *slot = given.value;
        }
    }
    (front, back)
}

fn layers(top: &Fields<'_>, rule: (f64, f64), problems: &mut Problems) -> Vec<Layer> {
    let Some(node) = top.node("layers") else {
        top.missing("layers", "[{ name: fc, parameters: 2049000 }, …]", problems);
        return Vec::new();
    };
    let Value::Sequence(items) = &node.value else {
        problems.add(
            node.line,
            "layers",
            format!("is {}; a list of layers is wanted, front first", node.kind()),
        );
        return Vec::new();
    };
    if items.is_empty() || items.len() > MOST_LAYERS {
        problems.add(node.line, "layers", format!("{} layers; valid are 1 to {MOST_LAYERS}", items.len()));
        return Vec::new();
    }
    let steps = (items.len().max(2) - 1) as f64;
    let mut layers = Vec::new();
    let mut counted_in: Option<(&str, usize)> = None;
    for (position, item) in items.iter().enumerate() {
        let fields = Fields::of(item, &format!("layers[{position}]"), LAYER, problems);
        let (parameters, bytes) = (size(&fields, "parameters", problems), size(&fields, "bytes", problems));
        let size = match (parameters, bytes) {
            (Some((_, line)), Some(_)) => {
                problems.add(line, fields.path("bytes"), "beside 'parameters'; write one of the two");
                None
            }
            (None, None) => {
                if fields.node("parameters").is_none() && fields.node("bytes").is_none() {
                    fields.missing("parameters", "2049000, or bytes: 8196000", problems);
                }
                None
            }
            (Some((size, line)), None) => Some(("parameters", size, line)),
            (None, Some((size, line))) => Some(("bytes", size, line)),
        };
        let Some((unit, size, line)) = size else { continue };
        // Only shares matter, but shares of unlike things mean nothing.
        let (first, first_line) = *counted_in.get_or_insert((unit, line));
        if unit != first {
            let message = format!("the layer of line {first_line} is counted in {first}; count all alike");
            problems.add(line, fields.path(unit), message);
        }
        let given = fields.parsed("sensitivity", problems, sensitivity);
        let (front, back) = rule;
        let by_rule = front * (back / front).powf(position as f64 / steps);
        layers.push(Layer {
            name: fields
                .parsed("name", problems, |text| Ok::<_, String>(text.to_owned()))
                .map_or_else(|| position.to_string(), |name| name.value),
            size,
            sensitivity: given.as_ref().map_or(by_rule, |given| given.value),
            measured: given.is_some(),
        });
    }
    if !layers.is_empty() && layers.iter().all(|layer| layer.sensitivity == 0.0) {
        problems.add(node.line, "layers", "no layer is sensitive to anything: every threshold is as good");
    }
    layers
}

fn size(fields: &Fields<'_>, key: &str, problems: &mut Problems) -> Option<(f64, usize)> {
    let size = fields.parsed(key, problems, integer(1_u64..=1 << 50))?;
    Some((size.value as f64, size.line))
}
