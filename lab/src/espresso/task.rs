// SPDX-License-Identifier: Apache-2.0
//! The action tasks of table 3, and an option: a path through the tree.

use std::fmt;

/// What compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Device {
    /// The GPU, which computes gradients meanwhile or waits.
    Gpu,
    /// The machine's processors, which all of its GPUs share.
    Cpu,
}

/// Who takes part in a communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// All GPUs of all machines.
    Flat,
    /// Those of a machine, before machines talk.
    IntraFirst,
    /// GPUs of the same place in all machines.
    Inter,
    /// Those of a machine, after machines have talked.
    IntraSecond,
}

/// Collective routines of table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "MPI's names")]
pub enum Routine {
    AllReduce,
    ReduceScatter,
    Reduce,
    AllGather,
    Broadcast,
    AllToAll,
    Gather,
}

/// What travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Payload {
    /// f32.
    Plain,
    /// What the cluster's compressor makes.
    Compressed,
    /// Packets of so many planes, which switches may trim.
    Trimmed {
        /// 1 to 10.
        planes: u8,
    },
}

/// An action task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// Comp.
    Compress(Device, Payload),
    /// Decomp, with the aggregation of what was gathered.
    Decompress(Device),
    /// Comm, Comm1, Comm2 and their compressed kinds.
    Communicate(Scope, Routine, Payload),
}

/// A compression option: what is done to a tensor, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CompressionOption(pub(super) Vec<Task>);

impl CompressionOption {
    /// Its tasks, in order.
    pub fn tasks(&self) -> &[Task] {
        &self.0
    }

    /// Whether anything is compressed.
    pub fn compresses(&self) -> bool {
        self.0.iter().any(|task| matches!(task, Task::Compress(..)))
    }

    /// Whether a device compresses or decompresses.
    pub fn uses(&self, device: Device) -> bool {
        self.0.iter().any(|task| matches!(task, Task::Compress(d, _) | Task::Decompress(d) if *d == device))
    }

    /// Whether machines are one level of two.
    pub fn is_hierarchical(&self) -> bool {
        self.0.iter().any(|task| matches!(task, Task::Communicate(Scope::Inter, ..)))
    }

    /// The planes of packets that switches may trim.
    pub fn trimmed(&self) -> Option<u8> {
        self.0.iter().find_map(|task| match task {
            Task::Communicate(_, _, Payload::Trimmed { planes }) => Some(*planes),
            _ => None,
        })
    }

    /// The same with everything that is compressed or decompressed done by `device`.
    #[must_use]
    pub fn on(&self, device: Device) -> Self {
        let moved = |task: &Task| match *task {
            Task::Compress(_, payload) => Task::Compress(device, payload),
            Task::Decompress(_) => Task::Decompress(device),
            task @ Task::Communicate(..) => task,
        };
        Self(self.0.iter().map(moved).collect())
    }
}

impl fmt::Display for CompressionOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, task) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{task}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compress(device, Payload::Trimmed { planes }) => {
                write!(f, "{device} encode {planes} planes")
            }
            Self::Compress(device, _) => write!(f, "{device} compress"),
            Self::Decompress(device) => write!(f, "{device} decompress"),
            Self::Communicate(scope, routine, payload) => {
                let scope = match scope {
                    Scope::Flat => "flat",
                    Scope::IntraFirst | Scope::IntraSecond => "intra",
                    Scope::Inter => "inter",
                };
                let routine = match routine {
                    Routine::AllReduce => "all-reduce",
                    Routine::ReduceScatter => "reduce-scatter",
                    Routine::Reduce => "reduce",
                    Routine::AllGather => "all-gather",
                    Routine::Broadcast => "broadcast",
                    Routine::AllToAll => "all-to-all",
                    Routine::Gather => "gather",
                };
                let mark = match payload {
                    Payload::Plain => "",
                    Payload::Compressed => "*",
                    Payload::Trimmed { .. } => "~",
                };
                write!(f, "{scope} {routine}{mark}")
            }
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
        })
    }
}
