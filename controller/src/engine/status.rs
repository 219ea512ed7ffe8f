// SPDX-License-Identifier: Apache-2.0
//! Plain types: what is known and told of the switches of a fabric.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;
pub use crate::report::Links;

/// One switch.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SwitchStatus {
    /// Connected.
    pub up: bool,
    /// We are its primary controller.
    pub primary: bool,
    /// It holds what it should, when last seen; `None` before that.
    pub in_place: Option<bool>,
    /// The number of the fabric file that it was last found or brought in place of, by us; 0 before
    /// that.
    pub file: u64,
    /// Failures since the last success.
    pub failures: u32,
    /// Until the next attempt, as of when the last one failed, in seconds; 0 when all is well.
    pub backoff_seconds: f64,
    /// When it was last found or brought in place, in seconds since 1970.
    pub last_success: Option<f64>,
    /// What has been done to it.
    pub tally: Tally,
    /// By port and queue.
    pub trimming: BTreeMap<(u16, u8), TrimmingStatus>,
    /// Counters and occupancy, as last read; of the last connection.
    pub counters: Arc<Counters>,
}

impl SwitchStatus {
    /// Whether it holds what the fabric file of this number says, when last seen.
    pub fn is_in_place_of(&self, file: u64) -> bool {
        self.up && self.in_place == Some(true) && self.file == file
    }
}

/// What a queue told by digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrimmingStatus {
    /// It trims, as far as it told.
    pub is_trimming: bool,
    /// Times it started.
    pub starts: u64,
    /// Times it stopped.
    pub stops: u64,
}

/// Who leads a fabric, of the controllers that run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leader {
    /// This one: it writes.
    #[default]
    This,
    /// Another one is primary of most switches. This one writes nothing.
    Another,
    /// Nobody: who led had another file, and is gone. Nothing is written until a person says so
    /// (SIGHUP).
    Nobody,
}

/// What a running controller knows.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Fabric files are numbered as they are taken. That of the last one.
    pub file: u64,
    /// By name in the fabric.
    pub switches: BTreeMap<String, SwitchStatus>,
    /// Who leads the fabric.
    pub leader: Leader,
    /// Switches that hold something else than our file says, because the leader's says so.
    pub another_file: Vec<String>,
    /// What routes leave out.
    pub faults: Vec<Fault>,
    /// How far programs are replaced.
    pub replacing: Replacing,
    /// What is known of links between switches.
    pub links: Links,
    /// Fabric files taken after the first.
    pub reloads: u64,
    /// Fabric files that were wrong and not taken.
    pub refused_reloads: u64,
}

impl Status {
    /// Whether all switches hold what the fabric file says, and none waits for anything.
    pub fn is_in_place(&self) -> bool {
        self.switches.values().all(|switch| switch.is_in_place_of(self.file)) && self.replacing.is_over()
    }
}

/// How a switch was found to have drifted from what this controller had brought it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Drift {
    /// It ran no program: it was restarted.
    Restarted,
    /// It ran another program.
    Pipeline,
    /// An entity was not there.
    Missing,
    /// An entity had other contents.
    Changed,
    /// An entity was there that should not be.
    Foreign,
}

impl Drift {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Restarted, Self::Pipeline, Self::Missing, Self::Changed, Self::Foreign];

    /// As in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restarted => "restarted",
            Self::Pipeline => "pipeline",
            Self::Missing => "missing",
            Self::Changed => "changed",
            Self::Foreign => "foreign",
        }
    }
}

/// What has been done to a switch since the controller started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passes after which the switch held what it should.
    pub succeeded: u64,
    /// Passes after which it did not.
    pub failed: u64,
    /// Drift that was repaired, by kind.
    pub drift: BTreeMap<Drift, u64>,
    /// Updates that the switch refused.
    pub refused: u64,
}

/// How one switch stands to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Not connected.
    Unreached,
    /// We are primary.
    Ours,
    /// Nobody is.
    Vacant,
    /// Another controller is.
    Theirs {
        /// Its election id.
        id: Option<u128>,
        /// Whether the switch holds what our file says; `None` while that is not known for sure.
        agrees: Option<bool>,
    },
}

/// Why something is out of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The switch cannot be reached, or came back and does not hold its tables yet.
    Dead,
    /// It was found without its tables, and does not hold them yet.
    Empty,
    /// The port or its link is down.
    Link,
    /// The link leads to another port than the file says.
    Miscabled,
    /// Nothing crosses the link this way.
    #[serde(rename = "one_way")]
    OneWay,
    /// Some frames get lost on the link.
    Lossy,
    /// A person took it out.
    Drained,
    /// Its program is replaced.
    Replaced,
}

impl Cause {
    /// What probes over links find.
    pub(crate) const OF_WIRES: [Self; 3] = [Self::Miscabled, Self::OneWay, Self::Lossy];

    /// As in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Empty => "empty",
            Self::Link => "link",
            Self::Miscabled => "miscabled",
            Self::OneWay => "one_way",
            Self::Lossy => "lossy",
            Self::Drained => "drained",
            Self::Replaced => "replaced",
        }
    }
}

/// What is out of routes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// By its name in the fabric.
    pub switch: String,
    /// Of a link; absent for the whole switch.
    pub port: Option<u16>,
    /// Why.
    pub cause: Cause,
    /// In words.
    pub reason: String,
    /// It is well, and waits for its hold-down to end.
    pub held: bool,
    /// Failures of the last ten minutes.
    pub failures: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switch, port, cause, reason, held, failures } = self;
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let held = if *held { ", well again and held down" } else { "" };
        let often =
            if *failures > 1 { format!(", failed {failures} times in 10 min") } else { String::new() };
        write!(f, "{switch}{port} out of routes, {}: {reason}{held}{often}", cause.name())
    }
}

/// How far the replacing of programs has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacing {
    /// Switches that run another program and wait for their turn.
    pub waiting: Vec<String>,
    /// Those whose turn it is.
    pub switches: BTreeSet<String>,
    /// Why it does not go on.
    pub stopped: Option<String>,
    /// Switches that are waited for, and why, while nothing is wrong.
    pub waits_for: BTreeMap<String, String>,
}

impl Replacing {
    /// No switch waits.
    pub fn is_over(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Replacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiting, switches, stopped, waits_for } = self;
        f.write_str("new programs: ")?;
        if switches.is_empty() {
            f.write_str("it is nobody's turn")?;
        } else {
            write!(f, "it is {}'s turn", shortened(switches.iter().cloned()))?;
        }
        if !waiting.is_empty() {
            write!(f, ", {} more wait ({})", waiting.len(), shortened(waiting.iter().cloned()))?;
        }
        if !waits_for.is_empty() {
            let names = waits_for.iter().map(|(name, why)| format!("{name} ({why})"));
            write!(f, "; waiting for {}", shortened(names))?;
        }
        match stopped {
            Some(why) => write!(f, "; it does not go on: {why}"),
            None => Ok(()),
        }
    }
}

/// The first few of many.
fn shortened(all: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 6;
    let more = all.len().saturating_sub(SHOWN);
    let shown = all.take(SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown}, …") } else { shown }
}
