// SPDX-License-Identifier: Apache-2.0
//! What stands for machine code where it is not built in (feature `native`): there is never any.

pub(super) mod call {
    use super::super::code::Code;
    use super::super::flow_cache::Resume;
    use super::super::machine::Machine;
    use super::super::packet::Packet;
    use super::super::program::Program;
    use super::super::state::InitialState;

    /// No value of it exists.
    #[derive(Debug)]
    pub(crate) enum Native {}

    impl Native {
        pub(crate) fn compile(_: &Code, _: &Program, _: &InitialState) -> Result<Self, String> {
            Err("machine code is not built in (feature `native`)".into())
        }

        pub(crate) fn run(&self, _: &mut Machine<'_>, _: Resume, _: &mut [u64], _: &mut Packet) {
            match *self {}
        }

        pub(crate) fn write_headers(&self, _: &[u64], _: &mut [u8]) -> bool {
            match *self {}
        }
    }
}

pub(super) mod packing {
    use super::super::flow_cache::packing::Packing;

    /// No value of it exists.
    #[derive(Debug)]
    pub(crate) enum NativePacking {}

    impl NativePacking {
        pub(crate) fn compile(_: &Packing, _: &[Packing]) -> Option<Self> {
            None
        }

        pub(crate) fn take(&self, _: &[u64], _: &mut [u64]) -> bool {
            match *self {}
        }

        pub(crate) fn put(&self, _: usize, _: &[u64], _: &mut [u64]) {
            match *self {}
        }
    }
}
