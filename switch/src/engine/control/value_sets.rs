// SPDX-License-Identifier: Apache-2.0
//! Members of parser value sets.

use super::super::bits::{bytes_from_limbs, limbs_from_bytes};
use super::super::entity::{Value, ValueSetInfo};
use super::super::error::{Code, ControlError};
use super::super::parser::ValueSet;
use super::{Control, Result, named};

/// A member in canonical form, or an error that names the set.
fn canonical(set: &ValueSet, member: &[u8]) -> Result<Value> {
    let limbs = limbs_from_bytes(member, set.width);
    limbs.map(|limbs| bytes_from_limbs(&limbs)).ok_or_else(|| {
        let (name, width) = (&set.name, set.width);
        ControlError::invalid(format!("a member does not fit value set `{name}` of {width} bits"))
    })
}

fn full(set: &ValueSet) -> ControlError {
    let message = format!("value set `{}` holds {} members", set.name, set.size);
    ControlError::new(Code::ResourceExhausted, message)
}

/// A member is one number: the fields of the `select` key, most significant first, without padding.
impl Control {
    fn value_set_index(&self, name: &str) -> Result<usize> {
        named(self.value_sets.iter(), "value set", name, |set| &set.name)
    }

    /// Every parser value set, in the program's order.
    pub fn value_sets(&self) -> Vec<ValueSetInfo> {
        let info = |set: &ValueSet| ValueSetInfo {
            name: set.name.clone(),
            widths: set.parts.iter().map(|&width| width as u16).collect(),
            size: set.size,
        };
        self.value_sets.iter().map(info).collect()
    }

    /// The members of a parser value set, sorted.
    pub fn value_set(&self, name: &str) -> Result<Vec<Value>> {
        Ok(self.value_sets[self.value_set_index(name)?].members.clone())
    }

    /// Replaces the members of a parser value set; duplicates count once.
    pub fn set_value_set(&mut self, name: &str, members: &[Value]) -> Result<()> {
        let number = self.value_set_index(name)?;
        self.note_value_set(number);
        let set = &mut self.value_sets[number];
        let mut members: Vec<Value> =
            members.iter().map(|member| canonical(set, member)).collect::<Result<_>>()?;
        members.sort_unstable();
        members.dedup();
        if members.len() > set.size {
            return Err(full(set));
        }
        set.fill(members);
        Ok(())
    }

    /// Adds a member to a parser value set.
    pub fn value_set_insert(&mut self, name: &str, member: &[u8]) -> Result<()> {
        let number = self.value_set_index(name)?;
        self.note_value_set(number);
        let set = &mut self.value_sets[number];
        let member = canonical(set, member)?;
        let Err(at) = set.members.binary_search(&member) else {
            let message = format!("value set `{name}` has this member already");
            return Err(ControlError::new(Code::AlreadyExists, message));
        };
        if set.members.len() >= set.size {
            return Err(full(set));
        }
        let mut members = set.members.clone();
        members.insert(at, member);
        set.fill(members);
        Ok(())
    }

    /// Removes a member from a parser value set.
    pub fn value_set_delete(&mut self, name: &str, member: &[u8]) -> Result<()> {
        let number = self.value_set_index(name)?;
        self.note_value_set(number);
        let set = &mut self.value_sets[number];
        let member = canonical(set, member)?;
        let Ok(at) = set.members.binary_search(&member) else {
            return Err(ControlError::not_found(format!("value set `{name}` has no such member")));
        };
        let mut members = set.members.clone();
        members.remove(at);
        set.fill(members);
        Ok(())
    }
}
