// SPDX-License-Identifier: Apache-2.0
//! Layers to classes: which share of the traffic a class is, and what its loss costs.

use serde::Serialize;
use trimwire_encoder::layer_class;

/// How layers become classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// ⌊layer · classes / layers⌋, front layers first: MLT §4.2.2, and what the agent tags.
    Depth,
    /// The same over the layers in the order of their sensitivity, least sensitive first.
    Sensitivity,
}

/// A layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Size of its gradient in whatever all layers are counted in: only shares matter.
    pub size: f64,
    /// What the training loses when all of the layer's gradient is lost, in whatever unit all
    /// layers share.
    pub sensitivity: f64,
    /// Whether the sensitivity was given, or follows from the rule.
    pub measured: bool,
}

/// The layers that share a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    /// Names, in the order of the file.
    pub layers: Vec<String>,
    /// Share of the gradient's bytes.
    pub share: f64,
    /// Sum of the layers' sensitivities, in shares of all layers' sum: a class loses the same share
    /// of each of its layers.
    pub weight: f64,
}

impl Class {
    /// Groups a model's layers, front first; class 0 is served first. Classes without a layer are
    /// left out.
    pub fn of(layers: &[Layer], grouping: Grouping, classes: usize) -> Vec<Self> {
        let mut order: Vec<usize> = (0..layers.len()).collect();
        if grouping == Grouping::Sensitivity {
            order.sort_by(|a, b| layers[*a].sensitivity.total_cmp(&layers[*b].sensitivity));
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); classes];
        for (position, layer) in order.into_iter().enumerate() {
            let class = layer_class(position, layers.len(), u8::try_from(classes).unwrap_or(u8::MAX));
            if let Some(members) = members.get_mut(usize::from(class)) {
                members.push(layer);
            }
        }
        let size: f64 = layers.iter().map(|layer| layer.size).sum();
        let weight: f64 = layers.iter().map(|layer| layer.sensitivity).sum();
        members
            .into_iter()
            .filter(|members| !members.is_empty())
            .map(|mut members| {
                members.sort_unstable();
                let of =
                    |pick: fn(&Layer) -> f64| members.iter().map(|layer| pick(&layers[*layer])).sum::<f64>();
                Self {
                    share: of(|layer| layer.size) / size,
                    weight: of(|layer| layer.sensitivity) / weight.max(f64::MIN_POSITIVE),
                    layers: members.iter().map(|layer| layers[*layer].name.clone()).collect(),
                }
            })
            .collect()
    }
}
