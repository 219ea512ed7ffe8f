// SPDX-License-Identifier: Apache-2.0
//! From the file's text to a fabric in which everything fits together, or every mistake in it.

mod policy;

use crate::model::Fabric;
use crate::spec::{self, Draft};
use crate::target;
use crate::topology::Topology;
use crate::yaml::problem::{Problems, SpecError};

impl Fabric {
    /// Reads a fabric file. `file` is its name, for messages.
    ///
    /// Nothing behind this has to check the user's input again: a mistake comes out here with file,
    /// line and key, all of them at once.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, SpecError> {
        let (mut problems, mut warnings) = (Problems::default(), Problems::default());
        let Some(draft) = spec::read(text, file, &mut problems, &mut warnings) else {
            return Err(problems.into_error(file));
        };
        let Draft { mut fabric, policy, rtt_given, switch_lines, link_lines } = draft;
        target::check_ports(&fabric, &link_lines, &mut problems);
        fabric.policies = policy::resolve(&fabric, &policy, rtt_given, &mut problems, &mut warnings);
        if !problems.is_empty() {
            return Err(problems.into_error(file));
        }
        target::doubts(&fabric, &switch_lines, &mut warnings);
        fabric.warnings = if warnings.is_empty() {
            Vec::new()
        } else {
            warnings.into_error(file).to_string().lines().map(str::to_owned).collect()
        };
        let topology = Topology::of(&fabric);
        fabric.warnings.extend(topology.unreachable().into_iter().chain(topology.uneven()));
        Ok(fabric)
    }
}
