// SPDX-License-Identifier: Apache-2.0
//! One YAML file to a running fabric, over P4Runtime.
//!
//! ```text
//!  fabric.yaml ──► spec ──► load ──► model ──► topology ──┐
//!                  parsed   checked  plain     routes     ├──► compile ──┐  one switch's entities, on demand,
//!                             ▲      types                │              │  in its target's units
//!                             └───── policy: bytes ───────┘              ▼
//!  trimwire.p4info, .json ──► program ───► engine ◄── reconcile: what differs, in the order of writing
//!                             cookie       P4Runtime
//!                                           │     │
//!              plan, apply ◄── rollout ◄────┘     └────► run ──► board ──► metrics
//!                               report, record          show, watch: what switches hold and count
//! ```
//!
//! - [`Fabric::from_yaml`] finds every mistake of a file before anything is written.
//! - [`run::Controller`] keeps every switch in place for as long as it lives: a state machine for
//!   each switch, with a connection and a back-off of its own.
//! - [`apply`] and [`roll_out`] are a `run` until everything is in place: the same machines, tier
//!   by tier, a few switches at a time, with a look at each one's counters; they stop at a failure.
//! - What is reported as in place was read back.
//! - [`plan`], [`show`] and [`watch`] look without becoming primary.
//! - [`export`] writes a policy for switches that trim by configuration.
//!
//! What this crate deliberately does not do: it learns nothing from packets (topology and hosts are
//! the file's), and it keeps no state of its own (the switches are the state; [`record`]s are for
//! people and `rollback`). It owns only the tables, the selector, the meters and the mirror
//! sessions of the Trimwire program: multicast groups, other clone sessions and other programs'
//! tables are left alone.
#![forbid(unsafe_code)]

mod compile;
pub mod counters;
mod device;
mod engine;
pub mod export;
pub mod files;
mod fleet;
mod load;
pub mod model;
mod printable;
mod program;
mod reconcile;
pub mod record;
pub mod report;
mod rollout;
pub mod run;
pub mod show;
mod spec;
mod table;
mod target;
pub mod topology;
pub mod units;
pub mod watch;
mod yaml;

pub use self::compile::{CompileError, Compiler, Desired, DesiredEntity};
pub use self::device::DeviceError;
pub use self::fleet::progress::Progress;
pub use self::fleet::{ApplyError, Options};
pub use self::model::{Fabric, MetricsAt, PortPolicy, QueuePolicy, Target};
pub use self::printable::printable;
pub use self::program::{Artifacts, ArtifactsError};
pub use self::reconcile::{Actual, Change, Operation, actual, batches, difference, filters, writes};
pub use self::report::{Plan, Report};
pub use self::rollout::{Rollout, apply, apply_blocking, plan, plan_blocking, roll_out, roll_out_blocking};
pub use self::target::{manual_steps, start_commands};
pub use self::yaml::problem::{Problem, SpecError};

/// JSON Schema of the fabric file, for editors.
pub const SCHEMA: &str = include_str!("../fabric.schema.json");
