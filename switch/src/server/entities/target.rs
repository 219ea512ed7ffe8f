// SPDX-License-Identifier: Apache-2.0
//! What entities are written to and read from, and what of it.

use super::super::ledger::Ledger;
pub(super) use super::super::refusal::{Refusal, Result};
use crate::engine::Control;
use std::ops::Range;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1;
pub(super) use trimwire_p4runtime::v1::entity::Entity as Kind;

/// One program, and all that has been written for it.
pub(crate) struct Target<'a> {
    pub(crate) control: &'a mut Control,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) index: &'a Index,
    /// The switch's clock.
    pub(crate) now_ns: u64,
}

/// Part of what a filter asks for: cells of one array, places of one table or action profile, or
/// all there is of anything else.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(super) filter: Kind,
    pub(super) cells: Option<Range<u64>>,
}

impl Piece {
    /// Takes the first so many cells off it; all of it where it has none.
    pub(crate) fn take(&mut self, most: u64) -> Option<Self> {
        let Some(cells) = &mut self.cells else {
            self.cells = Some(0..0);
            return Some(Self { filter: self.filter.clone(), cells: None });
        };
        let part = cells.start..cells.start.saturating_add(most.max(1)).min(cells.end);
        cells.start = part.end;
        (!part.is_empty()).then(|| Self { filter: self.filter.clone(), cells: Some(part) })
    }

    /// How many cells it is about.
    pub(crate) fn len(&self) -> u64 {
        self.cells.as_ref().map_or(1, |cells| cells.end.saturating_sub(cells.start))
    }
}

/// The element that an update or filter names, or all of them.
fn elements(what: &str, name: &str, size: usize, index: Option<&v1::Index>) -> Result<Range<u64>> {
    let size = size as u64;
    let Some(v1::Index { index }) = index else { return Ok(0..size) };
    match u64::try_from(*index) {
        Ok(cell) if cell < size => Ok(cell..cell + 1),
        Ok(_) => Err(Refusal::new(
            tonic::Code::OutOfRange,
            format!("{what} {name} has no cell {index}; valid are 0 to {}", size.saturating_sub(1)),
        )),
        Err(_) => Err(Refusal::invalid(format!("{what} {name}: index {index} is negative"))),
    }
}

/// The arrays of a kind that a filter asks for (0: all), by id, and which of their cells.
pub(super) fn arrays<T: Named>(
    all: &[T],
    wanted: u32,
    index: Option<&v1::Index>,
    size: impl Fn(&str) -> Option<usize>,
) -> Result<Vec<(u32, Range<u64>)>> {
    let asked = all.iter().filter(|array| wanted == 0 || array.id() == wanted);
    asked.map(|array| Ok((array.id(), cells(T::KIND, array.name(), size(array.name()), index)?))).collect()
}

/// The cells of an array of that size that an update or filter names, or all of them.
pub(super) fn cells(
    kind: &str,
    name: &str,
    size: Option<usize>,
    index: Option<&v1::Index>,
) -> Result<Range<u64>> {
    let missing = || Refusal::new(tonic::Code::NotFound, format!("the program has no {kind} {name}"));
    elements(kind, name, size.ok_or_else(missing)?, index)
}
