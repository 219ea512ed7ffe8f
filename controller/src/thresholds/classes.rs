//! Layers to classes: which share of the traffic a class is, and what its loss costs.

use serde::Serialize;
use trimwire_encoder::layer_class;

use super::model::{Grouping, Model};

/// The layers that share a queue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Class {
    /// Names, in the order of the file.
    pub layers: Vec<String>,
    /// Share of the gradient's bytes.
    pub share: f64,
    /// Sum of the layers' sensitivities, in shares of all layers' sum: a class loses the same share of each of its layers.
    pub weight: f64,
}

impl Class {
    /// Groups a model's layers; class 0 is served first. Classes without a layer are left out.
    pub fn of(model: &Model, classes: usize) -> Vec<Self> {
        let mut order: Vec<usize> = (0..model.layers.len()).collect();
        if model.grouping == Grouping::Sensitivity {
            order.sort_by(|a, b| model.layers[*a].sensitivity.total_cmp(&model.layers[*b].sensitivity));
        }
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); classes];
        for (position, layer) in order.into_iter().enumerate() {
            let class = layer_class(position, model.layers.len(), u8::try_from(classes).unwrap_or(u8::MAX));
            if let Some(members) = members.get_mut(usize::from(class)) {
                members.push(layer);
            }
        }
        let size: f64 = model.layers.iter().map(|layer| layer.size).sum();
        let weight: f64 = model.layers.iter().map(|layer| layer.sensitivity).sum();
        members
            .into_iter()
            .filter(|members| !members.is_empty())
            .map(|mut members| {
                members.sort_unstable();
                let of = |pick: fn(&super::Layer) -> f64| {
                    members.iter().map(|layer| pick(&model.layers[*layer])).sum::<f64>()
                };
                Self {
                    share: of(|layer| layer.size) / size,
                    weight: of(|layer| layer.sensitivity) / weight.max(f64::MIN_POSITIVE),
                    layers: members.iter().map(|layer| model.layers[*layer].name.clone()).collect(),
                }
            })
            .collect()
    }
}
