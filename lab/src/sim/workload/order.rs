// SPDX-License-Identifier: Apache-2.0
//! An order in which everything stands behind what it waits for: others' files name later parts,
//! [`Demand::after`](super::Demand::after) only earlier ones.

/// All numbers, each behind those that it waits for; or one that waits for itself in the end.
pub(super) fn order(waits: &[Vec<usize>]) -> Result<Vec<usize>, usize> {
    let mut open: Vec<usize> = waits.iter().map(Vec::len).collect();
    let mut later = vec![Vec::new(); waits.len()];
    for (number, before) in waits.iter().enumerate() {
        before.iter().for_each(|&before| later[before].push(number));
    }
    let mut found: Vec<usize> = (0..waits.len()).filter(|&number| open[number] == 0).collect();
    let mut at = 0;
    while let Some(&number) = found.get(at) {
        at += 1;
        for &waiting in &later[number] {
            open[waiting] -= 1;
            if open[waiting] == 0 {
                found.push(waiting);
            }
        }
    }
    open.iter().position(|&waits| waits > 0).map_or(Ok(found), Err)
}
