// SPDX-License-Identifier: Apache-2.0
//! A model, as its file describes it: tensors in the order in which the backward pass makes their
//! gradients.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::name::{is_name, printable};

/// What is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name.
    pub model: String,
    /// The forward pass and the optimiser, ms: what an iteration takes besides.
    pub forward_ms: f64,
    /// In the order of the backward pass.
    pub tensors: Vec<Tensor>,
}

/// A tensor's gradient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Elements, signed so that what is negative can be refused by name.
    pub elements: i64,
    /// How long the backward pass computes it, µs.
    pub compute_us: f64,
    /// Tensors whose gradients have to be there before, beyond the order of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

/// What is wrong with a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Nothing to do.
    #[error("tensors: there are none")]
    Empty,
    /// More than 10,000: what planning takes grows with their square.
    #[error("tensors: {count}; valid are up to 10000")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A name that is none, or would do something to a terminal.
    #[error("{key}: '{name}'; valid are names of 1 to 1000 characters that can be printed")]
    Name {
        /// Whose.
        key: String,
        /// The beginning of it, what cannot be printed escaped.
        name: String,
    },
    /// A value that makes no sense.
    #[error("{tensor}.{key}: {value}; valid are {valid}")]
    Value {
        /// Whose.
        tensor: String,
        /// Which.
        key: &'static str,
        /// What it is.
        value: String,
        /// What may be.
        valid: &'static str,
    },
    /// Two of a name.
    #[error("two tensors are called '{name}'")]
    Twice {
        /// The name.
        name: String,
    },
    /// Waits for a tensor that is not there.
    #[error("{tensor}.after: there is no tensor '{name}'")]
    Unknown {
        /// Who waits.
        tensor: String,
        /// For whom.
        name: String,
    },
    /// Wait for each other.
    #[error("cycle of tensors that wait for each other: {}", names.join(" → "))]
    Cycle {
        /// The first once more at the end.
        names: Vec<String>,
    },
}

const MOST: usize = 10_000;

impl Model {
    /// Checks values and brings tensors into an order in which each comes behind those that it
    /// waits for, the file's order otherwise.
    pub fn check(mut self) -> Result<Self, ModelError> {
        if self.tensors.is_empty() {
            return Err(ModelError::Empty);
        }
        if self.tensors.len() > MOST {
            return Err(ModelError::TooMany { count: self.tensors.len() });
        }
        name("model", &self.model)?;
        for (i, tensor) in self.tensors.iter().enumerate() {
            name(&format!("tensors[{i}].name"), &tensor.name)?;
            for (j, before) in tensor.after.iter().enumerate() {
                name(&format!("tensors[{i}].after[{j}]"), before)?;
            }
        }
        let value = |tensor: &str, key, value: String, valid| {
            Err(ModelError::Value { tensor: tensor.to_owned(), key, value, valid })
        };
        if !(0.0..=1e9).contains(&self.forward_ms) {
            return value(&self.model, "forward_ms", self.forward_ms.to_string(), "0 to 1000000000");
        }
        for tensor in &self.tensors {
            if !(1..=1 << 40).contains(&tensor.elements) {
                return value(&tensor.name, "elements", tensor.elements.to_string(), "1 to 2^40");
            }
            if !(0.0..=1e9).contains(&tensor.compute_us) {
                return value(&tensor.name, "compute_us", tensor.compute_us.to_string(), "0 to 1000000000");
            }
        }
        self.tensors = ordered(self.tensors)?;
        Ok(self)
    }
}

fn name(key: &str, name: &str) -> Result<(), ModelError> {
    if is_name(name) {
        return Ok(());
    }
    Err(ModelError::Name { key: key.to_owned(), name: printable(name) })
}

fn ordered(tensors: Vec<Tensor>) -> Result<Vec<Tensor>, ModelError> {
    let mut places = BTreeMap::new();
    for (i, tensor) in tensors.iter().enumerate() {
        if places.insert(tensor.name.clone(), i).is_some() {
            return Err(ModelError::Twice { name: tensor.name.clone() });
        }
    }
    let mut before = Vec::with_capacity(tensors.len());
    for tensor in &tensors {
        let place = |name: &String| {
            let unknown = || ModelError::Unknown { tensor: tensor.name.clone(), name: name.clone() };
            places.get(name).copied().ok_or_else(unknown)
        };
        before.push(tensor.after.iter().map(place).collect::<Result<Vec<usize>, _>>()?);
    }
    // Depth first without recursion: a file may have a chain of any length.
    let mut order = Vec::with_capacity(tensors.len());
    let mut state = vec![State::New; tensors.len()];
    for start in 0..tensors.len() {
        let mut path = vec![(start, 0)];
        while let Some((tensor, next)) = path.pop() {
            if state[tensor] == State::Done {
                continue;
            }
            state[tensor] = State::Open;
            let Some(first) = before[tensor].get(next) else {
                state[tensor] = State::Done;
                order.push(tensor);
                continue;
            };
            path.push((tensor, next + 1));
            match state[*first] {
                State::Done => {}
                State::New => path.push((*first, 0)),
                State::Open => {
                    let from = path.iter().position(|(on, _)| on == first).unwrap_or(0);
                    let names = path[from..].iter().map(|(on, _)| *on).chain([*first]);
                    return Err(ModelError::Cycle {
                        names: names.map(|i| tensors[i].name.clone()).collect(),
                    });
                }
            }
        }
    }
    let mut tensors: Vec<Option<Tensor>> = tensors.into_iter().map(Some).collect();
    Ok(order.into_iter().filter_map(|i| tensors[i].take()).collect())
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    New,
    Open,
    Done,
}
