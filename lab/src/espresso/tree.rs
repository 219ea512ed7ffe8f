// SPDX-License-Identifier: Apache-2.0
//! The decision tree of §4.2: every path from start to end is an option.
//!
//! Figure 7 is a picture; its text gives three pruning rules, five sub-trees and a number, 4,341.
//! The tree below follows the rules:
//!
//! 1. what follows a task is a valid connection (what is compressed is sent or decompressed, what
//!    is not is sent or compressed),
//! 2. communication tasks match their step,
//! 3. first and second steps pair: reduce-scatter or all-to-all with all-gather, reduce or gather
//!    with broadcast;
//!
//! and §4.2.1: intra-machine communication is always divisible, inter-machine and flat
//! communication may be either; compressed tensors "can be decompressed after any communication
//! operation" or sent on as they are (footnote 2). The sub-trees' sizes are then, each
//! (de)compression counting twice: T1 = 5, T2 = 2, T5 = 29, T4 = 152, T3 = 367; hierarchical 2 T3 +
//! 4 (2 T3 + T4) = 4,278, flat 63. The sum is the paper's 4,341.

use super::task::{CompressionOption, Device, Payload, Routine, Scope, Task};

/// Which devices may compress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// GPUs alone: C_gpu of algorithm 1.
    Gpu,
    /// Both: C.
    Both,
}

impl Devices {
    fn all(self) -> &'static [Device] {
        match self {
            Self::Gpu => &[Device::Gpu],
            Self::Both => &[Device::Gpu, Device::Cpu],
        }
    }
}

/// The first step of a divisible scheme, with what its second step is.
type Pair = (Routine, Routine);
const PLAIN: [Pair; 2] =
    [(Routine::ReduceScatter, Routine::AllGather), (Routine::Reduce, Routine::Broadcast)];
const COMPRESSED: [Pair; 2] =
    [(Routine::AllToAll, Routine::AllGather), (Routine::Gather, Routine::Broadcast)];

/// Every option of a tensor; those without compression come first.
pub fn options(devices: Devices) -> Vec<CompressionOption> {
    let tree = Tree { devices: devices.all() };
    let mut paths = tree.whole(Scope::Flat, false, &|tree, is_compressed| tree.end(is_compressed));
    for (first, second) in PLAIN {
        let head = vec![Task::Communicate(Scope::IntraFirst, first, Payload::Plain)];
        paths.extend(prefixed(&head, tree.t3(second)));
    }
    for device in tree.devices {
        for (first, second) in COMPRESSED {
            let head = vec![
                Task::Compress(*device, Payload::Compressed),
                Task::Communicate(Scope::IntraFirst, first, Payload::Compressed),
            ];
            paths.extend(prefixed(&head, tree.decompressed(&tree.t3(second))));
            paths.extend(prefixed(&head, tree.t4(second)));
        }
    }
    paths.sort_by_key(|path| path.iter().any(|task| matches!(task, Task::Compress(..))));
    paths.into_iter().map(CompressionOption).collect()
}

/// Options beyond the paper's tree: an all-reduce of packets of `planes` planes that switches may
/// trim, flat or between machines. Its owner decodes, sums and encodes once more in the middle, as
/// the agent's direct algorithm does.
pub fn trimmed_options(devices: Devices, planes: u8) -> Vec<CompressionOption> {
    let payload = Payload::Trimmed { planes };
    let mut paths = Vec::new();
    for device in devices.all() {
        let around = |scope| {
            vec![
                Task::Compress(*device, payload),
                Task::Communicate(scope, Routine::AllToAll, payload),
                Task::Decompress(*device),
                Task::Compress(*device, payload),
                Task::Communicate(scope, Routine::AllGather, payload),
                Task::Decompress(*device),
            ]
        };
        paths.push(around(Scope::Flat));
        let (first, second) = PLAIN[0];
        let mut path = vec![Task::Communicate(Scope::IntraFirst, first, Payload::Plain)];
        path.extend(around(Scope::Inter));
        path.push(Task::Communicate(Scope::IntraSecond, second, Payload::Plain));
        paths.push(path);
    }
    paths.into_iter().map(CompressionOption).collect()
}

type Path = Vec<Task>;

struct Tree<'t> {
    devices: &'t [Device],
}

fn prefixed(head: &[Task], tails: Vec<Path>) -> Vec<Path> {
    tails.into_iter().map(|tail| head.iter().copied().chain(tail).collect()).collect()
}

impl Tree<'_> {
    fn compressed(&self, tails: &[Path]) -> Vec<Path> {
        let head =
            |device: &Device| prefixed(&[Task::Compress(*device, Payload::Compressed)], tails.to_vec());
        self.devices.iter().flat_map(head).collect()
    }

    fn decompressed(&self, tails: &[Path]) -> Vec<Path> {
        let head = |device: &Device| prefixed(&[Task::Decompress(*device)], tails.to_vec());
        self.devices.iter().flat_map(head).collect()
    }

    /// After the last communication.
    fn end(&self, is_compressed: bool) -> Vec<Path> {
        if is_compressed { self.decompressed(&[Path::new()]) } else { vec![Path::new()] }
    }

    /// A whole synchronisation in `scope` of a tensor that is not compressed, then what follows.
    fn whole(
        &self,
        scope: Scope,
        from_compressed: bool,
        then: &dyn Fn(&Self, bool) -> Vec<Path>,
    ) -> Vec<Path> {
        let mut paths = Vec::new();
        if from_compressed {
            let head = [Task::Communicate(scope, Routine::AllGather, Payload::Compressed)];
            paths.extend(prefixed(&head, then(self, true)));
            for (first, second) in COMPRESSED {
                let head = [Task::Communicate(scope, first, Payload::Compressed)];
                let skip = [Task::Communicate(scope, second, Payload::Compressed)];
                paths.extend(prefixed(&head, prefixed(&skip, then(self, true))));
                let middle = self.decompressed(&self.second(scope, second, then));
                paths.extend(prefixed(&head, middle));
            }
            return paths;
        }
        let head = [Task::Communicate(scope, Routine::AllReduce, Payload::Plain)];
        paths.extend(prefixed(&head, then(self, false)));
        for (first, second) in PLAIN {
            let head = [Task::Communicate(scope, first, Payload::Plain)];
            paths.extend(prefixed(&head, self.second(scope, second, then)));
        }
        paths.extend(self.compressed(&self.whole(scope, true, then)));
        paths
    }

    /// The second step of a divisible scheme of what is not compressed, then what follows: T5, in
    /// inter-machine scope.
    fn second(&self, scope: Scope, routine: Routine, then: &dyn Fn(&Self, bool) -> Vec<Path>) -> Vec<Path> {
        let plain = [Task::Communicate(scope, routine, Payload::Plain)];
        let compressed = [Task::Communicate(scope, routine, Payload::Compressed)];
        let mut paths = prefixed(&plain, then(self, false));
        paths.extend(self.compressed(&prefixed(&compressed, then(self, true))));
        paths
    }

    /// The second intra-machine step of a tensor that is not compressed.
    fn t1(&self, routine: Routine) -> Vec<Path> {
        self.second(Scope::IntraSecond, routine, &Self::end)
    }

    /// The same of a compressed one.
    fn t2(&self, routine: Routine) -> Vec<Path> {
        let head = [Task::Communicate(Scope::IntraSecond, routine, Payload::Compressed)];
        prefixed(&head, self.end(true))
    }

    /// What follows the communication between machines.
    fn after_inter(&self, routine: Routine, is_compressed: bool) -> Vec<Path> {
        if !is_compressed {
            return self.t1(routine);
        }
        let mut paths = self.t2(routine);
        paths.extend(self.decompressed(&self.t1(routine)));
        paths
    }

    /// Between machines, and the second intra-machine step, of a tensor that is not compressed.
    fn t3(&self, routine: Routine) -> Vec<Path> {
        self.whole(Scope::Inter, false, &|tree, is_compressed| tree.after_inter(routine, is_compressed))
    }

    /// The same of a compressed one.
    fn t4(&self, routine: Routine) -> Vec<Path> {
        self.whole(Scope::Inter, true, &|tree, is_compressed| tree.after_inter(routine, is_compressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_tree_has_the_papers_4341_options() {
        let tree = Tree { devices: Devices::Both.all() };
        let routine = Routine::AllGather;
        assert_eq!([tree.t1(routine).len(), tree.t2(routine).len()], [5, 2]);
        let after = |tree: &Tree<'_>, is_compressed: bool| tree.after_inter(routine, is_compressed);
        assert_eq!(tree.second(Scope::Inter, routine, &after).len(), 29);
        assert_eq!([tree.t3(routine).len(), tree.t4(routine).len()], [367, 152]);
        let all = options(Devices::Both);
        assert_eq!(all.iter().filter(|option| !option.is_hierarchical()).count(), 63);
        assert_eq!(all.len(), 4341);
        assert_eq!(all.iter().filter(|option| !option.compresses()).count(), 9);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 4341);
        assert_eq!(options(Devices::Gpu).len(), 174);
        assert!(options(Devices::Gpu).iter().all(|option| !option.uses(Device::Cpu)));
    }

    /// A reader of paths that knows the rules, and not the tree.
    #[test]
    fn every_path_synchronises_the_tensor_and_breaks_no_rule() {
        for option in options(Devices::Both) {
            let (mut is_compressed, mut pending) = (false, Vec::new());
            for task in option.tasks() {
                match *task {
                    Task::Compress(_, payload) => {
                        assert!(!is_compressed && payload == Payload::Compressed, "{option}");
                        is_compressed = true;
                    }
                    Task::Decompress(_) => {
                        assert!(is_compressed, "{option}");
                        is_compressed = false;
                    }
                    Task::Communicate(scope, routine, payload) => {
                        assert_eq!(payload == Payload::Compressed, is_compressed, "{option}");
                        let opens = |first| pending.last().is_none_or(|(open, _)| *open != scope) && first;
                        match routine {
                            Routine::AllReduce => assert!(!is_compressed, "{option}"),
                            Routine::ReduceScatter | Routine::Reduce if opens(true) => {
                                assert!(!is_compressed, "{option}");
                                pending.push((scope, routine));
                            }
                            Routine::AllToAll | Routine::Gather if opens(true) => {
                                assert!(is_compressed, "{option}");
                                pending.push((scope, routine));
                            }
                            // Closes the first step of its own scope, or is an indivisible
                            // all-gather of what is compressed.
                            Routine::AllGather | Routine::Broadcast => {
                                let open =
                                    if scope == Scope::IntraSecond { Scope::IntraFirst } else { scope };
                                match pending.last() {
                                    Some((first, opened)) if *first == open => {
                                        let wide =
                                            matches!(opened, Routine::ReduceScatter | Routine::AllToAll);
                                        assert_eq!(wide, routine == Routine::AllGather, "{option}");
                                        pending.pop();
                                    }
                                    _ => assert!(is_compressed && routine == Routine::AllGather, "{option}"),
                                }
                            }
                            _ => panic!("{option}"),
                        }
                    }
                }
            }
            assert!(!is_compressed && pending.is_empty(), "{option}");
        }
    }
}
