// SPDX-License-Identifier: Apache-2.0
//! All integration tests of this crate in one program: a crate links once, not once a file.

mod codec_command;
mod codec_inputs;
mod demo;
