// SPDX-License-Identifier: Apache-2.0
//! Tables that pipelines of one program have in common for as long as nobody writes to them: the
//! switches of a fabric classify alike, and eighty copies of one table are eighty times in the
//! caches.

use std::sync::Arc;

use super::Pipeline;
use super::program::Program;
use super::shared::Shared;
use super::table::Table;

/// Tables that were found in pipelines of one program, for [`Pipeline::share_tables`].
#[derive(Debug, Default)]
pub struct TablePool {
    program: Option<Arc<Program>>,
    /// By table, those that differ.
    seen: Vec<Vec<Shared<Table>>>,
}

impl Pipeline {
    /// Puts tables of the pool in place of its own where they hold the same, and its own into the
    /// pool where they do not. Nothing else tells that they are shared: a write, to whichever
    /// pipeline, is that pipeline's alone. A pool that was another program's is emptied first.
    pub fn share_tables(&mut self, pool: &mut TablePool) {
        if !pool.program.as_ref().is_some_and(|program| Arc::ptr_eq(program, &self.program)) {
            pool.program = Some(Arc::clone(&self.program));
            pool.seen = vec![Vec::new(); self.control.tables.len()];
        }
        for (own, seen) in self.control.tables.iter_mut().zip(&mut pool.seen) {
            match seen.iter().find(|other| other.holds_what(own)) {
                Some(other) => *own = other.clone(),
                None => seen.push(own.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::{ActionCall, ActionSpec, MatchValue, TableEntry};
    use super::*;

    const CLASSIFY: &str = "Ingress.classify";

    fn entry(dscp: u8, queue: u8) -> TableEntry {
        let call = ActionCall { action: "Ingress.set_trimmable".into(), params: vec![vec![queue]] };
        TableEntry {
            matches: vec![MatchValue::Exact(vec![dscp])],
            priority: 0,
            action: ActionSpec::Direct(call),
            metadata: Vec::new(),
        }
    }

    /// A copy of `blank` with entries of its own.
    fn with(blank: &Pipeline, entries: &[(u8, u8)]) -> Pipeline {
        let mut pipeline = blank.clone();
        for &(dscp, queue) in entries {
            pipeline.control().table_insert(CLASSIFY, &entry(dscp, queue)).unwrap();
        }
        pipeline
    }

    fn classify(pipeline: &Pipeline) -> &Arc<Table> {
        let table = pipeline.control.tables.iter().find(|table| table.info.name == CLASSIFY);
        table.unwrap().as_arc()
    }

    fn entries(pipeline: &mut Pipeline) -> Vec<TableEntry> {
        let mut entries: Vec<TableEntry> =
            classify(pipeline).entries.iter().flatten().map(|entry| entry.entry.clone()).collect();
        entries.sort_by(|a, b| format!("{:?}", a.matches).cmp(&format!("{:?}", b.matches)));
        entries
    }

    fn program() -> Pipeline {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
        Pipeline::load(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn equal_tables_are_one_until_somebody_writes_and_others_stay_apart() {
        let (blank, mut pool) = (program(), TablePool::default());
        let mut switches = [
            with(&blank, &[(3, 5), (4, 6)]),
            with(&blank, &[(3, 5), (4, 6)]),
            with(&blank, &[(3, 5), (4, 7)]),
            with(&blank, &[(3, 5)]),
        ];
        switches.iter_mut().for_each(|switch| switch.share_tables(&mut pool));
        let [a, b, c, d] = &mut switches;
        assert!(Arc::ptr_eq(classify(a), classify(b)));
        assert!(!Arc::ptr_eq(classify(a), classify(c)) && !Arc::ptr_eq(classify(a), classify(d)));
        b.control().table_insert(CLASSIFY, &entry(9, 1)).unwrap();
        assert_eq!(entries(a), [entry(3, 5), entry(4, 6)]);
        assert_eq!(entries(b), [entry(3, 5), entry(4, 6), entry(9, 1)]);
        assert_eq!((entries(c)[1].clone(), entries(d)), (entry(4, 7), vec![entry(3, 5)]));
    }

    #[test]
    fn another_programs_pool_is_not_taken_from() {
        let mut pool = TablePool::default();
        let [mut a, mut b] = [program(), program()].map(|blank| with(&blank, &[(3, 5)]));
        a.share_tables(&mut pool);
        b.share_tables(&mut pool);
        assert!(!Arc::ptr_eq(classify(&a), classify(&b)));
    }
}
