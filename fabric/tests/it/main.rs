// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod algorithms;
mod beside_bursts;
mod cluster;
mod fabric_program;
