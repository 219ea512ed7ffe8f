// SPDX-License-Identifier: Apache-2.0
//! A law in a job's collectives: counts of a step in, planes and pace of the next one out.

use serde::{Deserialize, Serialize};
use trimwire_encoder::PLANES;

use super::controller::{Controller, Limits};
use super::counts::Counts;
use super::ladder::{packet_share, planes_within};
use super::parse::{LawError, parse};
use super::step::{Step, StepError};

/// A law as collectives apply it.
///
/// Every rank feeds it all ranks' counts, in the order of the ranks, so that all send the next step
/// with the same planes, and hold the same state in their checkpoints. Collectives send at least
/// one plane: limits are narrowed to what one plane and the most planes take, lest a law winds
/// itself up where nothing answers to it.
#[derive(Debug, Clone, PartialEq)]
pub struct Adaptive {
    state: State,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    #[serde(rename = "algorithm")]
    law: String,
    most_planes: u8,
    steps: u64,
    refused: u64,
    at_ns: u64,
    controller: Controller,
}

/// Why a law's state is not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// Another law's, or another's parameters.
    #[error(
        "the state is of '{saved}' with up to {saved_planes} planes, and the algorithm is '{law}' with up to {planes}"
    )]
    OtherLaw {
        /// Whose state it is.
        saved: String,
        /// Its planes.
        saved_planes: u8,
        /// The law.
        law: String,
        /// Its planes.
        planes: u8,
    },
    /// A ratio that its limits do not allow.
    #[error("the state's ratio is {ratio}; valid are {k_min} to {k_max}")]
    Ratio {
        /// As written.
        ratio: f64,
        /// Its limits.
        k_min: f64,
        /// Its limits.
        k_max: f64,
    },
}

impl Adaptive {
    /// A law as users write it ([`parse`]), which sends at most so many planes, 1 to 10.
    ///
    /// # Errors
    /// [`LawError`] where the text is no law, or its limits leave no number of planes.
    pub fn new(law: &str, most: u8) -> Result<Self, LawError> {
        let most = most.clamp(1, PLANES);
        let controller = parse(law)?;
        let (one, all) = (packet_share(1), packet_share(most));
        let Limits { k_min, k_max } = controller.limits();
        let outside = |key, value: f64, valid| {
            let name = super::controller::Law::name(controller.law());
            Err(LawError::Value { law: name, key, value: value.to_string(), valid })
        };
        if k_max < one {
            return outside(
                "k_max",
                k_max,
                "numbers from 0.0425 on, which is one plane: collectives send no less",
            );
        }
        if k_min > all {
            return outside(
                "k_min",
                k_min,
                "numbers up to what the most planes take: 0.761 with 10, 0.511 with 9",
            );
        }
        let limits = Limits { k_min: k_min.max(one), k_max: k_max.min(all) };
        let controller = Controller::new(controller.law().clone(), limits, controller.ratio());
        let law = law.to_owned();
        Ok(Self { state: State { law, most_planes: most, steps: 0, refused: 0, at_ns: 0, controller } })
    }

    /// The law, as it was written.
    pub fn law(&self) -> &str {
        &self.state.law
    }

    /// Planes of the next step: what the ratio has room for, at least one.
    pub fn planes(&self) -> u8 {
        // A ratio that is exactly what planes take has room for them, whatever was rounded.
        planes_within(self.ratio() * (1.0 + 1e-9)).map_or(1, |planes| planes.min(self.state.most_planes))
    }

    /// Share of the line's rate at which the next step's data may leave, above 0, up to 1.
    pub fn pace(&self) -> f64 {
        self.state.controller.pace()
    }

    /// The law's ratio.
    pub fn ratio(&self) -> f64 {
        self.state.controller.ratio()
    }

    /// The limits that it keeps to.
    pub fn limits(&self) -> Limits {
        self.state.controller.limits()
    }

    /// Steps taken, and steps refused because they cannot have been measured.
    pub fn steps(&self) -> (u64, u64) {
        (self.state.steps, self.state.refused)
    }

    /// Takes all ranks' counts of a step, in the order of the ranks.
    ///
    /// # Errors
    /// [`StepError`] where they cannot have been measured: planes and pace stay what they were.
    pub fn step(&mut self, ranks: &[Counts]) -> Result<Step, StepError> {
        let state = &mut self.state;
        let step = Counts::step(ranks, state.at_ns);
        match state.controller.step(&step) {
            Ok(_) => {
                (state.at_ns, state.steps) = (step.at_ns, state.steps + 1);
                Ok(step)
            }
            Err(error) => {
                state.refused += 1;
                Err(error)
            }
        }
    }

    /// What a checkpoint keeps.
    pub fn state(&self) -> impl Serialize + use<'_> {
        &self.state
    }

    /// Goes on from what a checkpoint kept, in any of serde's formats.
    ///
    /// # Errors
    /// Where it cannot be read, it says what the format says; where it is another law's,
    /// [`RestoreError`].
    pub fn restore<'de, D: serde::Deserializer<'de>>(&mut self, state: D) -> Result<(), D::Error> {
        let state = State::deserialize(state)?;
        self.take(state).map_err(serde::de::Error::custom)
    }

    fn take(&mut self, state: State) -> Result<(), RestoreError> {
        if state.law != self.state.law || state.most_planes != self.state.most_planes {
            let (law, planes) = (self.state.law.clone(), self.state.most_planes);
            let (saved, saved_planes) = (state.law, state.most_planes);
            return Err(RestoreError::OtherLaw { saved, saved_planes, law, planes });
        }
        let (ratio, Limits { k_min, k_max }) = (state.controller.ratio(), self.limits());
        if state.controller.limits() != self.limits() || !(k_min..=k_max).contains(&ratio) {
            return Err(RestoreError::Ratio { ratio, k_min, k_max });
        }
        self.state = state;
        Ok(())
    }
}
