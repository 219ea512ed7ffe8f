// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod channels;
mod cli;
mod launch;
mod namespaces;
mod survivors;
mod transcript_command;
