// SPDX-License-Identifier: Apache-2.0
//! What the tables say to a flow, asked once: Open vSwitch's exact-match cache (Pfaff et al., NSDI
//! 2015) inside a program.
//!
//! ```text
//!            ┌──────── the same for all packets that agree in some limbs ─────────┐
//!  parser ─► │ trust ─► load balance ─► route ─► classify ─► ACL ─► policy        │ Remember ─► …
//!            └── key: limbs that it reads ── results: limbs, where to go on ──────┘
//! ```
//!
//! `split` says at load time where ingress stops following from the packet alone. For each set of
//! headers that packets have, `plan` says when the first one comes which limbs decide, and which
//! are left. A packet whose key is here takes over the results and goes on behind
//! [`Insn::Remember`](super::code::Insn::Remember). Any other runs the code, and is remembered when
//! it comes there.
//!
//! Whatever the control plane writes that packets may see is a new generation, and what older ones
//! left is asked anew. Entries' counters and times of hits are kept for each packet. Entries are
//! four to a set. Those of a full set rarely make room, so that more flows than there is room for
//! cost hardly more than no cache does.

mod graph;
pub(super) mod packing;
mod plan;
pub(super) mod split;

use super::program::Program;
use super::table::Hit;
use graph::Graph;
use plan::Plan;
use split::Split;

/// Flows that are remembered at most, unless somebody says otherwise, and bytes that they take,
/// whatever somebody says.
pub(super) const MOST_FLOWS: usize = 1 << 17;
const MOST_BYTES: usize = 32 << 20;
/// Room at first; it doubles when one packet in [`CROWDED`] finds its set full.
const FIRST_FLOWS: usize = 256;
const CROWDED: usize = 128;
/// Entries of a set.
const WAYS: usize = 4;
/// One in so many flows takes an entry from another one.
const REPLACING: usize = 16;
/// Sets of headers for which there are plans.
const MOST_KINDS: usize = 16;
/// Hits that are kept for one packet, of tables with counters or ages.
const MOST_HITS: usize = 8;
/// Words in front of an entry's key: its kind, number of hits, end, and bytes of headers that it
/// gained; where to go on, and back.
const HEAD: usize = 2;
/// No entry.
const MISS: u32 = u32::MAX;

/// Packets with the same headers.
#[derive(Debug)]
struct Kind {
    /// By number.
    extracted: u64,
    plan: Option<Plan>,
}

/// Where a packet goes on, and where the action that it is in goes back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resume {
    pub(super) place: u32,
    pub(super) back: u32,
    /// Bytes of headers that it has gained, modulo 2^64.
    pub(super) gained: u64,
}

impl Resume {
    /// From the beginning of some code.
    pub(super) fn at(place: u32) -> Self {
        Self { place, back: 0, gained: 0 }
    }
}

/// What will be known of a packet when it comes to the end of what is remembered.
#[derive(Clone, Copy, Debug)]
struct Learning {
    kind: usize,
    set: usize,
    way: usize,
    tag: u32,
}

/// Flows, and what the tables said to them.
#[derive(Debug)]
pub(super) struct FlowCache {
    most: usize,
    /// Of what the control plane wrote, as it is remembered.
    generation: u64,
    kinds: Vec<Kind>,
    /// Words of an entry.
    stride: usize,
    /// By entry: 0, or some bits of its key's hash.
    tags: Vec<[u32; WAYS]>,
    /// Of each: head, key, results, hits.
    entries: Vec<u64>,
    /// The latest packet's.
    key: Vec<u64>,
    hits: Vec<u64>,
    learning: Option<Learning>,
    /// Packets since the room was last looked at, and those that found their set full.
    asked: usize,
    crowded: usize,
    turn: usize,
}

impl FlowCache {
    /// For so many flows at most, or a few more; none turns it off.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most: if most == 0 { 0 } else { most.clamp(WAYS, MOST_BYTES).next_power_of_two() },
            generation: 0,
            kinds: Vec::new(),
            stride: HEAD,
            tags: Vec::new(),
            entries: Vec::new(),
            key: Vec::new(),
            hits: Vec::with_capacity(MOST_HITS),
            learning: None,
            asked: 0,
            crowded: 0,
            turn: 0,
        }
    }

    /// Flows that are remembered at most.
    pub(super) fn most(&self) -> usize {
        let entries = MOST_BYTES / (size_of::<u32>() + self.stride * size_of::<u64>());
        self.most.min(1 << entries.ilog2())
    }

    /// Puts into `phv` what is remembered of the packet's flow; the entries that it hits are in
    /// [`hit`](Self::hit). `None`: the packet runs the code from its beginning, until
    /// [`forget`](Self::forget).
    pub(super) fn resume(
        &mut self,
        program: &Program,
        generation: u64,
        extracted: u64,
        phv: &mut [u64],
        interpreted: bool,
    ) -> Option<Resume> {
        self.hits.clear();
        let split = program.split.as_ref().ok().filter(|_| self.most > 0)?;
        let kind = match self.kinds.iter().position(|kind| kind.extracted == extracted) {
            Some(kind) => kind,
            None => self.plan(program, split, extracted)?,
        };
        let plan = self.kinds[kind].plan.as_ref()?;
        self.key.resize(plan.key.words(), 0);
        let native = plan.native.as_ref().filter(|_| !interpreted);
        let fits = match native {
            Some(native) => native.take(phv, &mut self.key),
            None => plan.key.take(phv, &mut self.key),
        };
        if !fits {
            return None;
        }
        self.asked += 1;
        // Multilinear hashing (Lemire and Kaser, The Computer Journal, 2014): no step waits for the
        // one before.
        let products = self.key.iter().zip(&plan.factors).map(|(word, factor)| word.wrapping_mul(*factor));
        let mut hash = products.fold(kind as u64, u64::wrapping_add);
        hash ^= hash >> 32;
        let (tag, set) = (hash as u32 | 1, (hash >> 32) as usize & (self.tags.len() - 1));
        if self.generation != generation {
            self.tags.fill([0; WAYS]);
            self.generation = generation;
        }
        let tags = self.tags[set];
        for way in (0..WAYS).filter(|way| tags[*way] == tag) {
            let entry = &self.entries[(set * WAYS + way) * self.stride..][..self.stride];
            let (head, rest) = entry.split_at(HEAD);
            let (key, rest) = rest.split_at(self.key.len());
            if usize::from(head[0] as u8) == kind && *key == self.key[..] {
                let end = usize::from((head[0] >> 16) as u16);
                let result = &plan.results[end];
                let (words, hits) = rest.split_at(result.words());
                match native {
                    Some(native) => native.put(end, words, phv),
                    None => result.put(words, phv),
                }
                self.hits.extend_from_slice(&hits[..usize::from((head[0] >> 8) as u8)]);
                let (place, back) = (head[1] as u32, (head[1] >> 32) as u32);
                let gained = ((head[0] >> 32) as i32).into();
                return Some(Resume { place, back, gained: i64::cast_unsigned(gained) });
            }
        }
        self.learning = self.free(&tags).map(|way| Learning { kind, set, way, tag });
        None
    }

    /// Where in a set a flow may be put, if at all.
    fn free(&mut self, tags: &[u32; WAYS]) -> Option<usize> {
        if let Some(way) = tags.iter().position(|tag| *tag == 0) {
            return Some(way);
        }
        self.crowded += 1;
        let room = self.tags.len() * WAYS;
        if self.asked >= room {
            if self.crowded * CROWDED > self.asked && room < self.most() {
                self.make_room(room * 2);
                return None;
            }
            (self.asked, self.crowded) = (0, 0);
        }
        self.turn = self.turn.wrapping_add(1);
        self.turn.is_multiple_of(REPLACING).then_some(self.turn / REPLACING % WAYS)
    }

    /// The packet is at the end of what is remembered.
    #[inline(never)]
    pub(super) fn remember(&mut self, program: &Program, at: Resume, phv: &[u64]) {
        let Some(Learning { kind, set, way, tag }) = self.learning.take() else { return };
        let (Some(plan), Ok(split)) = (&self.kinds[kind].plan, &program.split) else { return };
        let Ok(end) = split.ends_at.binary_search_by_key(&at.place, |(place, _)| *place) else { return };
        let result = &plan.results[end];
        let entry = &mut self.entries[(set * WAYS + way) * self.stride..][..self.stride];
        let (head, rest) = entry.split_at_mut(HEAD);
        let (key, rest) = rest.split_at_mut(self.key.len());
        let (words, hits) = rest.split_at_mut(result.words());
        let gained = i32::try_from(at.gained.cast_signed());
        let fits = result.take(phv, words) && gained.is_ok();
        self.tags[set][way] = if fits { tag } else { 0 };
        let what = kind as u64 | (self.hits.len() as u64) << 8 | (end as u64) << 16;
        let gained = u64::from(gained.unwrap_or(0).cast_unsigned()) << 32;
        head.copy_from_slice(&[what | gained, u64::from(at.place) | u64::from(at.back) << 32]);
        key.copy_from_slice(&self.key);
        hits[..self.hits.len()].copy_from_slice(&self.hits);
    }

    /// The packet has run the code, or its end.
    pub(super) fn forget(&mut self) {
        self.learning = None;
    }

    /// A table that keeps something of each packet was asked.
    pub(super) fn note(&mut self, table: usize, hit: Hit) {
        if self.learning.is_some() {
            if self.hits.len() == MOST_HITS {
                self.learning = None;
            } else {
                self.hits.push((table as u64) << 32 | u64::from(hit.unwrap_or(MISS)));
            }
        }
    }

    /// A table that the flow of [`resume`](Self::resume) meets, and the entry that it hits, for
    /// tables that keep something of each packet.
    pub(super) fn hit(&self, number: usize) -> Option<(usize, Hit)> {
        let hit = *self.hits.get(number)?;
        Some(((hit >> 32) as usize, Some(hit as u32).filter(|handle| *handle != MISS)))
    }

    /// Works out what decides for packets with these headers, which are the first of their kind.
    #[cold]
    fn plan(&mut self, program: &Program, split: &Split, extracted: u64) -> Option<usize> {
        if self.kinds.len() == MOST_KINDS {
            return None;
        }
        let code = program.code(false);
        let Program { layout, calculations, checksums, .. } = program;
        let graph = Graph { code, layout, calculations, checksums, tables: &split.uses };
        let plan = plan::plan(graph, split, extracted);
        let hits = if split.notes_packets { MOST_HITS } else { 0 };
        let words = plan.as_ref().map_or(0, |plan| HEAD + plan.key.words() + plan.most_results() + hits);
        self.kinds.push(Kind { extracted, plan });
        if words > self.stride || self.tags.is_empty() {
            self.stride = words;
            self.make_room(self.tags.len() * WAYS);
        }
        Some(self.kinds.len() - 1)
    }

    /// Room for so many flows, and none in it.
    fn make_room(&mut self, flows: usize) {
        let sets = flows.max(FIRST_FLOWS).min(self.most()) / WAYS;
        self.tags = vec![[0; WAYS]; sets];
        self.entries = vec![0; sets * WAYS * self.stride];
        (self.asked, self.crowded) = (0, 0);
    }
}

#[cfg(test)]
mod tests;
