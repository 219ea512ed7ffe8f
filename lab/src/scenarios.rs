// SPDX-License-Identifier: Apache-2.0
//! A network in a few lines, on which laws are compared: virtual time, no randomness but a seed.
//!
//! ```text
//!  profile: what the bottleneck has for us at a time ─► link: bytes in, delay and trims out ─► a law ─► ratio ─► …
//! ```
//!
//! One bottleneck and one job, step by step: what it is not, is packets. The agent in virtual time
//! (the fabric crate) has those.

mod link;
mod networks;
mod profile;
mod run;
mod transfer;

pub use link::Link;
pub use networks::{IMAGES, Network, RANKS, RESNET18, RESNET50, VGG16};
pub use profile::{Profile, profiles};
pub use run::{Job, Outcome, Sample, run};
pub use transfer::Transfer;
