// SPDX-License-Identifier: Apache-2.0
//! Corpora of fuzz targets: inputs that reach together whatever a long search has found, in `tests/it/__fuzz__/TARGET/corpus`, with which every run of
//! a target begins.

use bolero::TypeGenerator;
use bolero::generator::bolero_generator::driver;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;
use trimwire_encoder::rotate::philox::philox4x32;

/// What an input reaches: outcomes by name, and what led to them.
pub(crate) type Reached = BTreeSet<String>;

/// A fuzz target, and what its corpus is there for.
pub(crate) struct Target {
    /// Its corpus's folder.
    pub(crate) name: String,
    /// What an input reaches: outcomes, and behind some, in brackets, what led to them.
    pub(crate) reach: fn(&[u8]) -> Reached,
    /// Inputs that a search begins with, and how many it makes of them.
    pub(crate) first: Vec<Vec<u8>>,
    pub(crate) tries: usize,
    /// Outcomes that the corpus has to reach.
    pub(crate) outcomes: &'static [&'static str],
}

/// The folder in which bolero looks for a test's corpus: the function's path below the crate.
pub(crate) fn name<T>(_: T) -> String {
    let path = std::any::type_name::<T>();
    path.split_once("::").map_or(path, |(_, below)| below).replace("::", "__")
}

/// What a target makes of an input's bytes, as bolero has it when it reads a file.
pub(crate) fn generated<T: TypeGenerator>(bytes: &[u8]) -> T {
    let options = driver::Options::default();
    T::generate(&mut driver::bytes::Driver::new(bytes, &options)).expect("zeros follow behind the last byte")
}

/// The name of an enum's variant: of an error, what kind it is.
pub(crate) fn variant(value: &impl Debug) -> String {
    let shown = format!("{value:?}");
    shown.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/__fuzz__").join(target).join("corpus")
}

/// Holds corpora against what they are there for: an input that reached something may reach nothing once targets or formats change.
pub(crate) fn check(targets: &[Target]) {
    for Target { name, reach, outcomes, .. } in targets {
        let folder = folder(name);
        let files =
            std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let reached: Reached =
            files.flat_map(|file| reach(&std::fs::read(file.unwrap().path()).unwrap())).collect();
        for outcome in *outcomes {
            let found = reached.iter().any(|reached| reached.split(" (").next() == Some(outcome));
            assert!(
                found,
                "{} reaches no {outcome}: tests/it/__fuzz__/README.md says how to make it anew",
                folder.display()
            );
        }
    }
}

/// Searches for inputs, and writes some that reach together what all do.
///
/// Inputs are changed at random, or made of two, and kept where they reach something for the first time. In the end the one that reaches most is taken,
/// as short and as zero as it can be without losing any of that, then the one that reaches most of the rest. The same every time.
pub(crate) fn make(targets: &[Target]) {
    for target in targets {
        let inputs = searched(target);
        let folder = folder(&target.name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for (number, input) in inputs.iter().enumerate() {
            std::fs::write(folder.join(format!("{number:02}")), input).unwrap();
        }
        println!("{}: {} inputs of {} bytes", target.name, inputs.len(), inputs.concat().len());
    }
}

fn searched(Target { name, reach, first, tries, .. }: &Target) -> Vec<Vec<u8>> {
    let mut random = Random { seed: name.len() as u32, drawn: 0 };
    let (mut kept, mut seen): (Vec<Vec<u8>>, _) = (Vec::new(), Reached::new());
    for attempt in 0..first.len() + tries {
        let input = first.get(attempt).cloned().unwrap_or_else(|| random.input(&kept));
        let reached = reach(&input);
        if !reached.is_subset(&seen) {
            seen.extend(reached);
            kept.push(input);
        }
    }
    let mut reaches: Vec<Reached> = kept.iter().map(|input| reach(input)).collect();
    let mut chosen: Vec<Vec<u8>> = Vec::new();
    while !seen.is_empty() {
        reaches.iter_mut().for_each(|reached| reached.retain(|outcome| seen.contains(outcome)));
        let most = (0..kept.len()).max_by_key(|i| reaches[*i].len()).expect("something was kept");
        let input = reduced(kept[most].clone(), |input| reach(input).is_superset(&reaches[most]));
        let reached = reach(&input);
        seen.retain(|outcome| !reached.contains(outcome));
        chosen.push(input);
    }
    chosen
}

/// An input without whatever it can do without, runs of bytes first, with zeros for the others that do not matter.
fn reduced(mut input: Vec<u8>, good: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut length = input.len();
    while length > 0 {
        let mut at = 0;
        while at < input.len() {
            let mut shorter = input.clone();
            shorter.drain(at..(at + length).min(input.len()));
            if good(&shorter) {
                input = shorter;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    for at in 0..input.len() {
        let byte = std::mem::take(&mut input[at]);
        if !good(&input) {
            input[at] = byte;
        }
    }
    input
}

/// Inputs from a counter.
struct Random {
    seed: u32,
    drawn: u32,
}

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        philox4x32([self.drawn, 0, 0, 0], [self.seed, 7])[0] as usize % bound
    }

    /// Small numbers are flags and lengths, so they come more often.
    fn bytes(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| if self.below(3) == 0 { self.below(3) } else { self.below(256) } as u8).collect()
    }

    fn input(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        if kept.is_empty() || self.below(4) == 0 {
            return self.bytes(1_000);
        }
        let mut input = kept[self.below(kept.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(input.len() + 1);
            match self.below(4) {
                0 => drop(input.splice(at..at, self.bytes(50))),
                1 => input.truncate(at),
                2 => {
                    let other = &kept[self.below(kept.len())];
                    let from = self.below(other.len() + 1);
                    input.truncate(at);
                    input.extend(&other[from..]);
                }
                _ => {
                    if let Some(byte) = input.get_mut(at) {
                        *byte = self.below(256) as u8;
                    }
                }
            }
        }
        input.truncate(1_000);
        input
    }
}
