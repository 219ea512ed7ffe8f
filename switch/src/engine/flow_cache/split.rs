// SPDX-License-Identifier: Apache-2.0
//! Where ingress stops following from the packet alone: found once, when the program is loaded.
//!
//! [`Insn::Remember`] is put in front of each instruction at which that may be: the first on its
//! path that reads or writes what outlives the packet, knows the time, or asks something of the
//! switch.

use super::super::calculation::{Calculation, Checksum};
use super::super::code::{Code, Insn};
use super::super::intrinsic::Intrinsics;
use super::super::layout::{Layout, Slot};
use super::super::state::InitialState;
use super::super::table::Table;
use super::graph::{Graph, OUTSIDE, Place, TableUse};
use std::collections::{BTreeMap, BTreeSet};

/// Most places that are looked at, an action's instructions once for each place that it goes back
/// to.
const MOST_PLACES: usize = 1 << 16;
/// Most instructions in front of which ingress stops following from the packet.
const MOST_ENDS: usize = 256;
/// Most words of sets of limbs, one for each instruction.
const MOST_WORDS: usize = 1 << 21;
/// Rounds in which what is read later has to be known everywhere.
const MOST_ROUNDS: usize = 64;

/// What is known of ingress whatever packet comes.
#[derive(Debug)]
pub(crate) struct Split {
    /// In front of what ingress stops following from the packet, in words.
    ends: Vec<String>,
    /// Names of the tables with keys in front of it.
    tables: Vec<String>,
    /// Places behind [`Insn::Remember`], in order. Of each, by limb of what packets change: whether
    /// it may be read from there on.
    pub(super) ends_at: Vec<(u32, Vec<bool>)>,
    /// By limb of headers and metadata: whether it may differ from 0 before ingress, beside those
    /// of extracted headers.
    pub(super) given: Vec<bool>,
    /// By table.
    pub(super) uses: Vec<TableUse>,
    /// Tables in front of the split keep counters or times of hits.
    pub(super) notes_packets: bool,
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tables, ends) = (self.tables.join(", "), self.ends.join(", "));
        write!(f, "what {tables} say is remembered for each flow, up to: {ends}")
    }
}

/// What a split is made of beside the code.
pub(crate) struct Source<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) calculations: &'a [Calculation],
    pub(crate) checksums: &'a [Checksum],
    pub(crate) intrinsics: &'a Intrinsics,
    pub(crate) state: &'a InitialState,
    /// Fields that survive, or are told to the controller.
    pub(crate) lists: Vec<Slot>,
}

impl Source<'_> {
    /// What each table may do to any packet.
    fn uses(&self) -> Vec<TableUse> {
        let InitialState { tables, profiles, .. } = self.state;
        tables.iter().map(|table| TableUse::of(table, profiles, self.layout)).collect()
    }

    /// The limbs that the switch itself reads: headers, intrinsic metadata, and lists of fields.
    fn kept(&self) -> Vec<bool> {
        let mut kept = vec![false; self.layout.size];
        let slots = self.intrinsics.slots().chain(self.lists.iter().copied());
        slots.for_each(|slot| kept[slot.all_limbs()].fill(true));
        let headers = self.layout.headers.iter().filter(|header| !header.metadata);
        headers.for_each(|header| kept[header.limbs.clone()].fill(true));
        kept
    }

    /// What an instruction is that ends what is remembered.
    fn describe(&self, insn: Insn) -> String {
        let InitialState { tables, arrays, meters, .. } = self.state;
        let (counters, registers) = (&arrays.counters, &arrays.registers);
        match insn {
            Insn::Count { counter, .. } => format!("counter {}", counters[counter as usize].name),
            Insn::ReadRegister { register, .. }
            | Insn::WriteRegister { register, .. }
            | Insn::HasCell { register, .. }
            | Insn::ReadCell { register, .. }
            | Insn::WriteCell { register, .. } => format!("register {}", registers[register as usize].name),
            Insn::Meter { meter, .. } => format!("meter {}", meters[meter as usize].name),
            Insn::Apply { table } => format!("table {}", tables[table as usize].info.name),
            Insn::Random { .. } => "a random number".into(),
            Insn::Clone { .. } => "a clone".into(),
            Insn::Resubmit { .. } => "a resubmission".into(),
            Insn::Recirculate { .. } => "a recirculation".into(),
            Insn::Digest { .. } => "a digest".into(),
            Insn::Truncate { .. } => "a truncation".into(),
            Insn::Exit | Insn::Fail { .. } => "an exit".into(),
            Insn::Log { .. } => "a message to the log".into(),
            Insn::Loop { .. } => "a loop".into(),
            Insn::Hash { .. } => "a hash of the payload".into(),
            Insn::End => "the end of ingress".into(),
            insn if insn.effect().reads_all => "a header that is found at run time".into(),
            _ => "the time of arrival".into(),
        }
    }
}

/// Splits the ingress of a program, of which there is code without and with the notes of a trace,
/// or says why it cannot be.
pub(crate) fn split([code, traced]: &mut [Code; 2], source: &Source<'_>) -> Result<Split, String> {
    let Source { layout, calculations, checksums, intrinsics, state, .. } = *source;
    if layout.headers.len() > 64 {
        return Err("the program has more than 64 headers".into());
    }
    let calls = state.tables.iter().map(|table| table.calls(&state.profiles));
    if calls.sum::<usize>() > MOST_PLACES {
        return Err("its tables may call too many actions".into());
    }
    let uses = source.uses();
    let graph = Graph { code, layout, calculations, checksums, tables: &uses };
    let given = given(&graph, intrinsics)?;
    let (marked, ends, tables) = ends(&graph, intrinsics)?;
    let ends: BTreeSet<String> = ends.into_iter().map(|insn| source.describe(insn)).collect();
    let ends: Vec<String> = ends.into_iter().collect();
    let tables: Vec<&Table> = tables.iter().map(|table| &state.tables[*table as usize]).collect();
    let notes_packets = tables.iter().any(|table| table.notes_packets());
    let keyed = tables.iter().filter(|table| !table.keys.is_empty());
    let tables: Vec<String> = keyed.map(|table| table.info.name.clone()).collect();
    if tables.is_empty() {
        return Err(format!("no table is in front of {}", ends.join(", ")));
    }
    code.put_before(&marked, Insn::Remember);
    let graph = Graph { code, layout, calculations, checksums, tables: &uses };
    let kept = source.kept();
    let places: Vec<usize> =
        (0..code.insns.len()).filter(|place| code.insns[*place] == Insn::Remember).collect();
    if places.len() > MOST_ENDS {
        return Err(format!("ingress stops following from the packet at {} places", places.len()));
    }
    let known = live(&graph, &kept, &places)?;
    // A packet may meet the other code in egress, where somebody has begun to trace.
    let traced_graph = Graph { code: traced, ..graph };
    let traced = live(&traced_graph, &kept, &[traced.egress as usize])?;
    let either = |one: Vec<bool>| one.iter().zip(&traced[0]).map(|(one, other)| *one || *other).collect();
    let ends_at = places.iter().map(|place| *place as u32 + 1).zip(known.into_iter().map(either)).collect();
    Ok(Split { ends, tables, ends_at, given, uses, notes_packets })
}

/// By limb of headers and metadata: whether something behind ingress may read it, with the notes of
/// a trace or without. p4c's results of expressions are mostly not read.
pub(crate) fn behind_ingress(codes: &[Code; 2], source: &Source<'_>) -> Vec<bool> {
    let Source { layout, calculations, checksums, .. } = *source;
    let (uses, kept) = (source.uses(), source.kept());
    let known = |code: &Code| {
        let graph = Graph { code, layout, calculations, checksums, tables: &uses };
        live(&graph, &kept, &[code.egress as usize]).map(|mut known| known.remove(0))
    };
    let mut all = vec![true; layout.size];
    let [Ok(plain), Ok(traced)] = codes.each_ref().map(known) else { return all };
    let metadata =
        layout.headers.iter().filter(|header| header.metadata && header.name != "standard_metadata");
    for limb in metadata.flat_map(|header| &header.fields).flat_map(|field| field.slot.limbs()) {
        all[limb] = plain[limb] || traced[limb];
    }
    all
}

/// The limbs that the parser may write beside those of the headers that it extracts, and those that
/// the switch writes.
fn given(graph: &Graph<'_>, intrinsics: &Intrinsics) -> Result<Vec<bool>, String> {
    let mut given = vec![false; graph.layout.size];
    for place in graph.code.parse..graph.code.ingress {
        let insn = graph.insn(place);
        let effect = graph.effect(insn);
        if effect.reads_all || matches!(insn, Insn::AddHeader { .. } | Insn::RemoveHeader { .. }) {
            return Err("the parser works on headers that it finds at run time, or makes them valid".into());
        }
        for at in effect.writes.into_iter().flatten() {
            given.get_mut(at).into_iter().for_each(|given| *given = true);
        }
    }
    let unions = graph.layout.headers.iter().filter(|header| header.union.is_some());
    unions.for_each(|header| given[header.limbs.clone()].fill(true));
    let Intrinsics { ingress_port, packet_length, parser_error, checksum_error, .. } = intrinsics;
    let slots = [Some(*ingress_port), Some(*packet_length), *parser_error, *checksum_error];
    slots.into_iter().flatten().for_each(|slot| given[slot.all_limbs()].fill(true));
    Ok(given)
}

type Ends = (Vec<bool>, Vec<Insn>, Vec<u32>);

/// Which instructions end what follows from the packet, what they are, and the tables in front of
/// them.
fn ends(graph: &Graph<'_>, intrinsics: &Intrinsics) -> Result<Ends, String> {
    let mut clock = vec![false; graph.code.frame.len()];
    intrinsics.ingress_timestamp.into_iter().for_each(|slot| clock[slot.all_limbs()].fill(true));
    let mut marked = vec![false; graph.code.insns.len()];
    let (mut ends, mut tables) = (Vec::new(), BTreeSet::new());
    let (mut seen, mut waiting) = (BTreeSet::new(), vec![(graph.code.ingress, OUTSIDE)]);
    while let Some(place) = waiting.pop() {
        if !seen.insert(place) {
            continue;
        }
        if seen.len() > MOST_PLACES {
            return Err("ingress is too large".into());
        }
        let insn = graph.insn(place.0);
        let effect = graph.effect(insn);
        let timed = effect.reads.iter().chain(&effect.writes).cloned().flatten().any(|at| clock[at]);
        if !effect.pure || timed {
            if let Some(marked) = marked.get_mut(place.0 as usize)
                && !std::mem::replace(marked, true)
            {
                ends.push(insn);
            }
            continue;
        }
        if let Insn::Apply { table } = insn {
            tables.insert(table);
        }
        graph.next(place, |next| waiting.push(next));
    }
    Ok((marked, ends, tables.into_iter().collect()))
}

/// For each of these places the limbs that may be read from there on before they are written: the
/// backward analysis of every compiler. `kept` are read by the switch itself.
fn live(graph: &Graph<'_>, kept: &[bool], places: &[usize]) -> Result<Vec<Vec<bool>>, String> {
    let code = graph.code;
    let words = code.constants.div_ceil(64);
    let count = code.insns.len();
    if count.saturating_mul(words) > MOST_WORDS {
        return Err("the program is too large".into());
    }
    let set = |bits: &mut [u64], at: usize, on: bool| {
        if let Some(word) = bits.get_mut(at / 64) {
            let bit = 1 << (at % 64);
            *word = if on { *word | bit } else { *word & !bit };
        }
    };
    let mut end = vec![0_u64; words];
    kept.iter().enumerate().filter(|(_, kept)| **kept).for_each(|(at, _)| set(&mut end, at, true));
    // By where an action begins: wherever it may go back to.
    let mut returns: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    let mut sources: Vec<Vec<Place>> = Vec::with_capacity(count);
    for place in 0..count as u32 {
        let mut next = Vec::new();
        graph.next((place, OUTSIDE), |to| next.push(to));
        for &(action, back) in next.iter().filter(|(_, back)| *back != OUTSIDE) {
            returns.entry(action).or_default().insert(back);
        }
        sources.push(next);
    }
    let effects: Vec<_> = code.insns.iter().map(|insn| graph.effect(*insn)).collect();
    let mut known = vec![0_u64; count * words];
    let mut bits = vec![0_u64; words];
    for _ in 0..MOST_ROUNDS {
        let mut changed = false;
        for place in (0..count).rev() {
            let insn = code.insns[place];
            bits.fill(0);
            let join = |bits: &mut [u64], from: u32| {
                let from = from as usize * words;
                if let Some(from) = known.get(from..from + words) {
                    bits.iter_mut().zip(from).for_each(|(bits, from)| *bits |= from);
                }
            };
            match insn {
                Insn::Return | Insn::ReturnUnlessExit => {
                    let own = returns.range(..=place as u32).next_back();
                    own.into_iter().flat_map(|(_, backs)| backs).for_each(|back| join(&mut bits, *back));
                }
                _ => sources[place].iter().for_each(|(to, _)| join(&mut bits, *to)),
            }
            if matches!(insn, Insn::End | Insn::EndIfExit | Insn::ReturnUnlessExit | Insn::Loop { .. }) {
                bits.iter_mut().zip(&end).for_each(|(bits, end)| *bits |= end);
                // What is run next; behind an action's exit, either.
                let next = match place as u32 {
                    place if place < code.ingress => &[code.ingress][..],
                    place if place < code.egress => &[code.egress],
                    place if place < code.deparse => &[code.deparse],
                    _ if insn == Insn::End => &[],
                    _ => &[code.egress, code.deparse],
                };
                next.iter().for_each(|start| join(&mut bits, *start));
            }
            let effect = &effects[place];
            // These may leave limbs as they are. A table gives an action all the arguments that
            // this reads.
            if !matches!(insn, Insn::AddHeader { .. } | Insn::RemoveHeader { .. }) {
                effect.writes.iter().cloned().flatten().for_each(|at| set(&mut bits, at, false));
            }
            effect.reads.iter().cloned().flatten().for_each(|at| set(&mut bits, at, true));
            if effect.reads_all {
                bits.fill(u64::MAX);
            }
            let own = &mut known[place * words..(place + 1) * words];
            changed |= *own != *bits;
            own.copy_from_slice(&bits);
        }
        if !changed {
            let is_live = |place: usize, at: usize| known[place * words + at / 64] >> (at % 64) & 1 != 0;
            let at = |place: &usize| (0..code.constants).map(|at| is_live(*place, at)).collect();
            return Ok(places.iter().map(at).collect());
        }
    }
    Err("the program runs to and fro".into())
}
