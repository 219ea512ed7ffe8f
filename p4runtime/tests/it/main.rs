// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod bmv2;
mod client_server;
mod golden_wire;
mod p4info;
