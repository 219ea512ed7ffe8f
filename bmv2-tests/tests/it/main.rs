// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod congestion;
mod differential;
mod doctor;
mod drift;
mod neighbours;
mod readme;
mod wires;
