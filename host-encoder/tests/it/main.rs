// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod arrival;
mod arrivals;
mod codec;
mod codecs;
mod edges;
mod fuzz;
mod held;
mod input;
mod kept;
mod own;
mod packets;
mod repack;
mod seal;
mod vectors;
mod zeros;
