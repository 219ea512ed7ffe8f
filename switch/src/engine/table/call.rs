// SPDX-License-Identifier: Apache-2.0
//! What an entry has a packet do.

/// An action with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) action: u32,
    pub(crate) params: Box<[u64]>,
}

/// What an entry points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Call(Call),
    /// A member's place in the table's profile.
    Member(u32),
    /// A group's place in the table's profile.
    Group(u32),
}
