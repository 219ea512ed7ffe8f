// SPDX-License-Identifier: Apache-2.0
//! What stands for machine code where it is not built in (feature `native`): there is never any.

use super::code::Code;
use super::flow_cache::{Packing, Resume};
use super::machine::Machine;
use super::packet::Packet;
use super::program::Parts;

/// No value of it exists.
#[derive(Debug)]
pub(super) enum Native {}

impl Native {
    pub(super) fn compile(_: &Code, _: &Parts<'_>) -> Result<Self, String> {
        Err("machine code is not built in (feature `native`)".into())
    }

    pub(super) fn run(&self, _: &mut Machine<'_>, _: Resume, _: &mut [u64], _: &mut Packet) {
        match *self {}
    }

    pub(super) fn write_headers(&self, _: &[u64], _: &mut [u8]) -> bool {
        match *self {}
    }
}

/// No value of it exists.
#[derive(Debug)]
pub(super) enum NativePacking {}

impl NativePacking {
    pub(super) fn compile(_: &Packing, _: &[Packing]) -> Option<Self> {
        None
    }

    pub(super) fn take(&self, _: &[u64], _: &mut [u64]) -> bool {
        match *self {}
    }

    pub(super) fn put(&self, _: usize, _: &[u64], _: &mut [u64]) {
        match *self {}
    }
}
