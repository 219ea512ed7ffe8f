// SPDX-License-Identifier: Apache-2.0
//! Scenario files: one network, one workload, several runs that differ in what they say.

mod check;
mod dcqcn;
mod figure;
mod file;
mod locate;
mod prepare;
mod training;
mod transports;
mod tune;
mod words;

pub use super::quantity::{Bytes, Duration, Rate, number};
pub use figure::{Claim, Measure, Unit};
pub use file::{File, Files, Programmed, ScenarioError};
pub use prepare::Prepared;
pub use training::{Coding, Training};
