// SPDX-License-Identifier: Apache-2.0
//! The layers file: a model's layers and the congested port (`docs/reference/layers-file.md`).

use serde::de::{Deserializer, Error, Visitor};
use serde::{Deserialize, Serialize};
use trimwire_controller::units::{self, Threshold, TrimSize};

use super::{Grouping, Layer};

/// Most layers that are read.
const MOST_LAYERS: usize = 100_000;
/// MLT §3.3: ResNet50 tolerates the loss of 5 % of the front layers' gradients, but of 0.3 % of the
/// back layers'.
const RULE: Rule = Rule { front: 0.06, back: 1.0 };
/// The median divides them (MLT §4.2.2). Trimming the low-energy half first lowers the error about
/// threefold; an assumption for any model that was not measured.
const LESS_IMPORTANT: LessImportant = LessImportant { share: 0.5, energy: 1.0 / 6.0 };

/// Why a layers file was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {reason}")]
pub struct LayersError {
    /// Its name.
    pub file: String,
    /// What is wrong.
    pub reason: String,
}

/// What a layers file says. `None` where a default is taken.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layers {
    version: u32,
    /// Name of the model.
    #[serde(default = "unnamed")]
    pub model: String,
    /// Offered load of the congested port, in shares of its line rate.
    #[serde(deserialize_with = "load")]
    pub load: f64,
    /// bit/s.
    #[serde(deserialize_with = "rate")]
    pub line_rate: u64,
    /// Buffer of the port.
    #[serde(deserialize_with = "buffer")]
    pub buffer: Threshold,
    /// How many classes.
    #[serde(default = "four")]
    pub classes: usize,
    /// How layers become classes.
    #[serde(default)]
    pub grouping: Group,
    /// IP MTU, bytes.
    #[serde(default = "ethernet")]
    pub mtu: u64,
    /// Mean frame, bytes.
    #[serde(default, deserialize_with = "frame")]
    pub mean_packet: Option<u64>,
    /// Packets that arrive together.
    #[serde(default = "one")]
    pub burst: u64,
    /// What is left of a packet.
    #[serde(default = "three_planes", deserialize_with = "size")]
    pub shallow_size: TrimSize,
    /// The same.
    #[serde(default = "one_plane", deserialize_with = "size")]
    pub deep_size: TrimSize,
    /// Share of the line that the trim queue may take. UEC asks for at most half the port.
    #[serde(default = "half", deserialize_with = "share")]
    pub trim_cap: f64,
    /// Packets that are less important.
    #[serde(default = "less_important")]
    pub less_important: LessImportant,
    /// Sensitivities of layers without one of their own.
    #[serde(default = "rule")]
    pub sensitivity: Rule,
    #[serde(rename = "layers")]
    given: Vec<Given>,
}

/// How layers become classes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// As the agent tags them.
    #[default]
    Depth,
    /// The least sensitive first.
    Sensitivity,
}

impl From<Group> for Grouping {
    fn from(group: Group) -> Self {
        match group {
            Group::Depth => Self::Depth,
            Group::Sensitivity => Self::Sensitivity,
        }
    }
}

/// Less important packets.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LessImportant {
    /// Of the packets.
    #[serde(deserialize_with = "share")]
    pub share: f64,
    /// Of the gradient's energy.
    #[serde(deserialize_with = "share")]
    pub energy: f64,
}

impl Default for LessImportant {
    fn default() -> Self {
        LESS_IMPORTANT
    }
}

/// Sensitivities from the first to the last layer, in equal ratios.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Of the first layer.
    pub front: f64,
    /// Of the last layer.
    pub back: f64,
}

impl Default for Rule {
    fn default() -> Self {
        RULE
    }
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Given {
    name: Option<String>,
    parameters: Option<u64>,
    bytes: Option<u64>,
    sensitivity: Option<f64>,
}

impl Layers {
    /// Reads a layers file. `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, LayersError> {
        let wrong = |reason: String| LayersError { file: file.to_owned(), reason };
        let layers: Self = yaml_serde::from_str(text).map_err(|error| wrong(error.to_string()))?;
        layers.check().map_err(wrong)?;
        Ok(layers)
    }

    fn check(&self) -> Result<(), String> {
        let Self { version, classes, burst, mtu, less_important, sensitivity, given: layers, .. } = self;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        if *version != 1 {
            return Err(format!("version: {version} is not read here; valid: 1"));
        }
        for (key, value, valid) in
            [("classes", *classes as u64, 1..=8), ("burst", *burst, 1..=10_000), ("mtu", *mtu, 128..=65_535)]
        {
            if !valid.contains(&value) {
                return Err(format!("{key}: {value}; valid are {} to {}", valid.start(), valid.end()));
            }
        }
        if less_important.energy > less_important.share {
            return Err(format!(
                "less_important: {} of the packets carry {} of the energy: then they are the more important \
                 ones; energy is at most share",
                less_important.share, less_important.energy
            ));
        }
        if !positive(sensitivity.front) || !positive(sensitivity.back) {
            return Err("sensitivity: front and back are numbers above 0".to_owned());
        }
        if layers.is_empty() || layers.len() > MOST_LAYERS {
            return Err(format!("layers: {}; valid are 1 to {MOST_LAYERS}", layers.len()));
        }
        if layers.len() < *classes {
            return Err(format!("classes: {classes}, but there are {} layers", layers.len()));
        }
        let counted_in = |layer: &Given| layer.bytes.is_some();
        for (position, layer) in layers.iter().enumerate() {
            let wrong = |why: &str| Err(format!("layers[{position}]: {why}"));
            match (layer.parameters, layer.bytes) {
                (None, None) => {
                    return wrong("'parameters' is missing; write parameters: 2049000, or bytes: 8196000");
                }
                (Some(_), Some(_)) => return wrong("'parameters' beside 'bytes'; write one of the two"),
                (Some(size), None) | (None, Some(size)) if !(1..=1 << 50).contains(&size) => {
                    return wrong("a size is a whole number from 1 to 2^50");
                }
                // Only shares matter, but shares of unlike things mean nothing.
                _ if counted_in(layer) != counted_in(&layers[0]) => {
                    return wrong(
                        "not counted in what the first layer is; count all in parameters, or in bytes",
                    );
                }
                _ => {}
            }
            if layer.sensitivity.is_some_and(|value| !(value.is_finite() && value >= 0.0)) {
                return wrong("a sensitivity is a number, 0 or more");
            }
        }
        if layers.iter().all(|layer| layer.sensitivity == Some(0.0)) {
            return Err("layers: none is sensitive to anything: every threshold is as good".to_owned());
        }
        Ok(())
    }

    /// The layers, front first. One without a sensitivity has the rule's.
    pub fn layers(&self) -> Vec<Layer> {
        let Rule { front, back } = self.sensitivity;
        let steps = (self.given.len().max(2) - 1) as f64;
        let layer = |(position, given): (usize, &Given)| Layer {
            name: given.name.clone().unwrap_or_else(|| position.to_string()),
            size: given.parameters.or(given.bytes).unwrap_or(1) as f64,
            sensitivity: given
                .sensitivity
                .unwrap_or_else(|| front * (back / front).powf(position as f64 / steps)),
            measured: given.sensitivity.is_some(),
        };
        self.given.iter().enumerate().map(layer).collect()
    }
}

fn unnamed() -> String {
    "model".to_owned()
}

fn one() -> u64 {
    1
}

fn four() -> usize {
    4
}

fn ethernet() -> u64 {
    1500
}

fn half() -> f64 {
    0.5
}

fn one_plane() -> TrimSize {
    TrimSize::Planes(1)
}

fn three_planes() -> TrimSize {
    TrimSize::Planes(3)
}

fn rule() -> Rule {
    RULE
}

fn less_important() -> LessImportant {
    LESS_IMPORTANT
}

/// Parses a value as it is written: YAML takes `0.9` for a number, and `90%` for text. A mistake is
/// told while the value is visited, so that the error has its key.
struct AsWritten<F>(F);

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for AsWritten<F> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a number or text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

fn parsed<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(AsWritten(parse))
}

fn number(text: &str) -> Option<f64> {
    let (digits, scale) = match text.trim().strip_suffix('%') {
        Some(digits) => (digits.trim_end(), 0.01),
        None => (text.trim(), 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    Some(number * scale).filter(|number| number.is_finite())
}

fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    parsed(deserializer, |text| {
        number(text).filter(|load| *load > 0.0 && *load <= 100.0).ok_or_else(|| {
            format!("'{text}' is no load, as in 0.9 or 90%; valid are numbers above 0 and up to 100")
        })
    })
}

fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    parsed(deserializer, |text| {
        number(text)
            .filter(|share| (0.0..=1.0).contains(share))
            .ok_or_else(|| format!("'{text}' is no share; write 0 to 1, or 0% to 100%"))
    })
}

fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parsed(deserializer, units::rate)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TrimSize, D::Error> {
    parsed(deserializer, TrimSize::parse)
}

fn buffer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Threshold, D::Error> {
    parsed(deserializer, |text| match text.parse()? {
        Threshold::Never | Threshold::Bdp(_) | Threshold::Bytes(0) | Threshold::Time(0) => Err(format!(
            "'{text}' is no buffer; write bytes (512KiB) or a time at line rate (400us), not zero"
        )),
        buffer => Ok(buffer),
    })
}

fn frame<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    parsed(deserializer, |text| match text.parse()? {
        Threshold::Bytes(bytes @ 60..=65_549) => Ok(Some(bytes)),
        _ => Err(format!("'{text}' is no frame; write 60B to 65549B")),
    })
}
