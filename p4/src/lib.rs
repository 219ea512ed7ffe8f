// SPDX-License-Identifier: Apache-2.0
//! What p4c made of the P4 program in this folder, for programs that load it into a switch.
//!
//! The sources and `build/manifest.json`, which says what was compiled from what, are in the
//! package beside it.
#![no_std]
#![forbid(unsafe_code)]

/// BMv2 JSON of the program for v1model, as p4c writes it.
pub const BMV2_JSON: &[u8] = include_bytes!("../build/bmv2/trimwire.json");

/// P4Info of the program for v1model, as text.
pub const P4INFO: &str = include_str!("../build/bmv2/trimwire.p4info.txtpb");
