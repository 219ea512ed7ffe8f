// SPDX-License-Identifier: Apache-2.0
//! What a [`SwitchTask`](super::SwitchTask) is told, what it asks for, and what it tells.

use std::collections::BTreeMap;

use crate::engine::status::Drift;
use crate::report::SwitchReport;

/// What may happen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// The switch told who is primary: first as the end of [`Action::Connect`], then whenever it
    /// changes.
    Arbitrated(Standing),
    /// It could not be reached, or the connection is gone. Why, in words.
    Lost(String),
    /// The end of [`Action::Reconcile`].
    Reconciled(Box<SwitchReport>, Loss),
    /// The other end of [`Action::Reconcile`]: the switch runs another program, and it is not its
    /// turn to have that replaced. Whether it has its routes.
    Waits(Result<(), String>, Loss),
    /// From now on its program may be replaced.
    MayReplace,
    /// The end of [`Action::Compare`].
    Compared(Result<Comparison, String>, Loss),
    /// The end of [`Action::ReadCounters`]: whether the switch runs the program.
    CountersRead(Result<bool, String>, Loss),
    /// From now on the switch should hold something else.
    FabricChanged,
    /// From now on routes leave out something else.
    Detoured,
    /// What ends next left out what routes leave out now.
    KnewDetours,
    /// The end of [`Action::Reroute`].
    Rerouted(Result<usize, String>, Loss),
    /// Whether this controller leads the fabric: it writes, and bids for switches that have no
    /// primary, only while it does.
    Leads(bool),
    /// The controller ends.
    Stop,
}

/// Whether what went wrong calls for a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It was the connection.
    Connection,
    /// It was not, or nothing went wrong.
    None,
}

/// What the switch says of us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// We may write.
    Primary,
    /// We may read.
    Backup {
        /// The highest election id that it has seen.
        highest: Option<u128>,
        /// Whether its owner is connected.
        primary_exists: bool,
    },
}

/// What a backup found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// Entities that differ from what the switch should hold, or would after a push.
    pub differing: usize,
    /// Whether it runs the program.
    pub program: bool,
}

/// What the driver is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Connect and bid with this election id.
    Connect(u128),
    /// Bring the switch to what it should hold.
    Reconcile,
    /// Write what routes have changed, without reading anything.
    Reroute,
    /// See how it differs.
    Compare,
    /// See whether it runs the program, and count.
    ReadCounters,
    /// Drop what is under way, at once.
    Abandon,
    /// Drop the connection.
    Disconnect,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Connected.
    Up(Standing),
    /// Not connected any more, or still not. Why, and when the next attempt is, in ns from now.
    Down(String, u64),
    /// Told otherwise than before.
    Changed(Standing),
    /// Nobody is primary: we bid with this id.
    TakingOver(u128),
    /// In place for the first time since the controller or the fabric file changed; so many
    /// updates.
    InPlace(usize),
    /// It runs another program, and waits until it is its turn to have that replaced.
    Waits,
    /// Was in place, was found otherwise, and is in place again: kinds with their numbers, and the
    /// first few differences.
    Repaired(BTreeMap<Drift, u64>, Vec<String>),
    /// Routes lead elsewhere; so many updates.
    Rerouted(usize),
    /// Could not be brought in place. Why, and when the next attempt is, in ns from now.
    Failed(String, u64),
}

/// What a switch is known to run since the fabric file, or the leader, last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// Not known.
    Unknown,
    /// Its program, and it held what it should.
    Wanted,
    /// Another program, which waits to be replaced.
    Another,
}
