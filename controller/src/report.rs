// SPDX-License-Identifier: Apache-2.0
//! What `plan` found and `apply` did, for people and as JSON.

mod summary;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::program::names;
pub use crate::reconcile::ParameterChange;
use crate::reconcile::{Change, Operation};

/// One change, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangeReport {
    /// Insert, modify, delete.
    pub operation: Operation,
    /// In the program's names.
    pub entity: String,
    /// What a modified entity is before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub before: String,
    /// In the fabric's names.
    pub purpose: String,
    /// The table, or what stands for one.
    pub table: String,
    /// What of a modified entry changes, where its action stays the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<ParameterChange>,
}

impl From<&Change> for ChangeReport {
    fn from(change: &Change) -> Self {
        Self {
            operation: change.operation,
            entity: change.text.clone(),
            before: change.before.clone(),
            purpose: change.purpose.clone(),
            table: change.table.clone(),
            parameters: change.parameters.clone(),
        }
    }
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, entity, before, purpose, .. } = self;
        let sign = match operation {
            Operation::Insert => '+',
            Operation::Modify => '~',
            Operation::Delete => '-',
        };
        write!(f, "{sign} {entity}")?;
        if !before.is_empty() {
            // The key is the same: what follows it is what changes.
            let was = before.split_once(" -> ").map_or(before.as_str(), |(_, was)| was);
            write!(f, " (was {was})")?;
        }
        write!(f, "  # {purpose}")
    }
}

/// An update that a switch refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// What was to be done.
    #[serde(flatten)]
    pub change: ChangeReport,
    /// The switch's words.
    pub error: String,
}

/// The pipeline of a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum PipelineState {
    /// The switch was not reached.
    Unknown,
    /// It runs this program.
    Same,
    /// It runs none.
    Absent,
    /// It runs another.
    Different {
        /// Of the other one.
        cookie: u64,
    },
}

impl fmt::Display for PipelineState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::Same => f.write_str("the same"),
            Self::Absent => f.write_str("none"),
            Self::Different { cookie } => write!(f, "another, cookie {cookie:#018x}"),
        }
    }
}

/// Updates by operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Inserted.
    pub inserted: usize,
    /// Modified.
    pub modified: usize,
    /// Deleted.
    pub deleted: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, operation: Operation) {
        match operation {
            Operation::Insert => self.inserted += 1,
            Operation::Modify => self.modified += 1,
            Operation::Delete => self.deleted += 1,
        }
    }

    /// Of all kinds.
    pub fn total(self) -> usize {
        self.inserted + self.modified + self.deleted
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inserted, modified, deleted } = self;
        write!(f, "{inserted} inserted, {modified} modified, {deleted} deleted")
    }
}

/// What `apply` did to one switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SwitchReport {
    /// By its name in the fabric.
    pub switch: String,
    /// `HOST:PORT`.
    pub address: String,
    /// As it was found.
    pub pipeline_before: PipelineState,
    /// Whether the program was pushed.
    pub pipeline_pushed: bool,
    /// What differed when the tables were read. Not in JSON: what became of it is.
    #[serde(skip)]
    pub found: Vec<ChangeReport>,
    /// Updates that the switch took.
    pub written: Counts,
    /// Updates that the switch refused.
    pub refused: Vec<Refusal>,
    /// What still differs, read back at the end; `None` if it could not be read back.
    pub remaining: Option<Vec<ChangeReport>>,
    /// Entities that are in place, read back at the end.
    pub in_place: Option<usize>,
    /// What ended the work on this switch.
    pub error: Option<String>,
    /// The roll-out stopped before it.
    pub not_begun: bool,
    /// What of the switch itself does not go with the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SwitchReport {
    pub(crate) fn new(switch: &str, address: &str) -> Self {
        Self {
            switch: switch.to_owned(),
            address: address.to_owned(),
            pipeline_before: PipelineState::Unknown,
            pipeline_pushed: false,
            found: Vec::new(),
            written: Counts::default(),
            refused: Vec::new(),
            remaining: None,
            in_place: None,
            error: None,
            not_begun: false,
            warnings: Vec::new(),
        }
    }

    /// Whether the switch holds exactly what it should.
    pub fn is_ok(&self) -> bool {
        self.error.is_none() && self.refused.is_empty() && self.remaining.as_ref().is_some_and(Vec::is_empty)
    }
}

impl fmt::Display for SwitchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switch, address, written, .. } = self;
        if self.not_begun {
            return write!(f, "{switch} ({address}): not begun");
        }
        let verdict = if self.is_ok() { "ok" } else { "FAILED" };
        let pipeline = match (self.pipeline_pushed, self.pipeline_before) {
            (true, before) => format!("pipeline pushed (before: {before})"),
            (false, PipelineState::Same) => "pipeline unchanged".to_owned(),
            (false, before) => format!("pipeline not pushed (it runs: {before})"),
        };
        write!(f, "{switch} ({address}): {verdict}: {pipeline}; {written}")?;
        for warning in &self.warnings {
            write!(f, "\n  warning: {warning}")?;
        }
        if let Some(error) = &self.error {
            write!(f, "\n  error: {error}")?;
        }
        for Refusal { change, error } in &self.refused {
            write!(f, "\n  refused: {change}: {error}")?;
        }
        if self.is_ok() {
            return Ok(());
        }
        match (&self.remaining, self.in_place) {
            (Some(remaining), in_place) => {
                let count = remaining.len();
                write!(f, "\n  in place: {} entities; not in place: {count}", in_place.unwrap_or(0))?;
                let refused =
                    |change: &&ChangeReport| self.refused.iter().any(|refusal| refusal.change == **change);
                let others = remaining.iter().filter(|change| !refused(change));
                for change in others {
                    write!(f, "\n    {change}")?;
                }
            }
            (None, _) => {
                f.write_str("\n  what is in place is unknown: the switch could not be read back")?;
            }
        }
        f.write_str("\n  running apply again continues from here")
    }
}

/// What probes have found of links between switches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Links {
    /// Probes have crossed them, or were lost on them.
    pub tried: usize,
    /// Those of which nothing is known, by the reason.
    pub untried: BTreeMap<String, Vec<String>>,
}

impl Links {
    /// How many nothing is known of.
    pub fn untried(&self) -> usize {
        self.untried.values().map(Vec::len).sum()
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} links tried", self.tried, self.tried + self.untried())?;
        for (why, links) in &self.untried {
            let links: Vec<&str> = links.iter().map(String::as_str).collect();
            write!(f, "\n  not tried, {why}: {}", summary::names(&links))?;
        }
        Ok(())
    }
}

/// What `apply` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// By name.
    pub switches: Vec<SwitchReport>,
    /// Of links between them; none where a switch failed before they were tried.
    pub links: Links,
    /// Of the fabric file.
    pub warnings: Vec<String>,
}

impl Report {
    /// Whether every switch holds exactly what it should.
    pub fn is_ok(&self) -> bool {
        self.switches.iter().all(SwitchReport::is_ok)
    }

    /// Updates that switches took, of all kinds.
    pub fn written(&self) -> usize {
        self.switches.iter().map(|switch| switch.written.total()).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for switch in self.switches.iter().filter(|switch| !switch.not_begun) {
            writeln!(f, "{switch}")?;
        }
        let names = |not_begun: bool| -> Vec<&str> {
            let wrong =
                self.switches.iter().filter(|switch| !switch.is_ok() && switch.not_begun == not_begun);
            wrong.map(|switch| switch.switch.as_str()).collect()
        };
        let (failed, not_begun) = (names(false), names(true));
        let in_place = self.switches.len() - failed.len() - not_begun.len();
        write!(f, "{in_place} of {} switches in place", self.switches.len())?;
        if !failed.is_empty() {
            write!(f, "; not in place: {}", failed.join(", "))?;
        }
        if !not_begun.is_empty() {
            let names = summary::names(&not_begun);
            write!(f, "; not begun, because of that: {names}. --keep-going does not stop there")?;
        }
        if self.links == Links::default() { Ok(()) } else { write!(f, "\n{}", self.links) }
    }
}

/// What `apply` would do to one switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SwitchPlan {
    /// By its name in the fabric.
    pub switch: String,
    /// `HOST:PORT`.
    pub address: String,
    /// As it was found.
    pub pipeline: PipelineState,
    /// What would be written, in order.
    pub changes: Vec<ChangeReport>,
    /// Entities that are as they should be.
    pub in_place: usize,
    /// Why the switch could not be looked at.
    pub error: Option<String>,
    /// What of the switch itself does not go with the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SwitchPlan {
    /// Whether it was looked at, and `apply` would leave it as it is.
    pub fn is_empty(&self) -> bool {
        self.error.is_none() && !self.changes()
    }

    /// Whether `apply` would change it. Of a switch that cannot be looked at nobody knows.
    pub fn changes(&self) -> bool {
        self.error.is_none() && (self.pipeline != PipelineState::Same || !self.changes.is_empty())
    }

    /// Whether `apply` would change its routes, or its program with them.
    pub fn changes_routes(&self) -> bool {
        let is_route =
            |change: &ChangeReport| names::ROUTING.iter().any(|name| change.table.starts_with(name));
        self.error.is_none() && (self.pipeline != PipelineState::Same || self.changes.iter().any(is_route))
    }
}

impl fmt::Display for SwitchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { switch, address, pipeline, changes, error, .. } = self;
        write!(f, "{switch} ({address}): ")?;
        if let Some(error) = error {
            return write!(f, "unreachable: {error}");
        }
        if self.is_empty() {
            return f.write_str("no changes");
        }
        if *pipeline != PipelineState::Same {
            write!(f, "push the pipeline (it runs: {pipeline}); ")?;
        }
        write!(f, "{} changes", changes.len())?;
        for change in changes {
            write!(f, "\n  {change}")?;
        }
        Ok(())
    }
}

/// What `apply` would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Plan {
    /// By name.
    pub switches: Vec<SwitchPlan>,
    /// What P4Runtime does not reach and a person has to do.
    pub manual_steps: Vec<String>,
    /// Of the fabric file.
    pub warnings: Vec<String>,
}

impl Plan {
    /// Whether `apply` would change nothing.
    pub fn is_empty(&self) -> bool {
        self.switches.iter().all(SwitchPlan::is_empty)
    }

    /// Whether every switch could be looked at.
    pub fn is_ok(&self) -> bool {
        self.switches.iter().all(|switch| switch.error.is_none())
    }
}

/// What is alike in one line. [`SwitchPlan`] has every entry.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        summary::write(f, self)
    }
}
