//! How fast the switch is: our trimming program with 1,000 routes and 64 queue policies, on one core and over veth pairs.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

mod engine;
mod veth;
mod workload;

pub use engine::{EngineResult, Stages, measure};
pub use veth::{SwitchUnderTest, VethResult, measure as measure_veth};
pub use workload::{PACKET_BYTES, Program};
