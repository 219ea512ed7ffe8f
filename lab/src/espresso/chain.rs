// SPDX-License-Identifier: Apache-2.0
//! An option's operations on a tensor: which resource each needs, and for how long.

use super::cluster::{Cluster, Congestion, Trimming};
use super::collective::{Affine, lines};
use super::task::{CompressionOption, Device, Payload, Routine, Scope, Task};

/// What operations wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Resource {
    /// A GPU, which computes gradients, too.
    Gpu,
    /// A machine's processors.
    Cpu,
    /// Links inside machines.
    Intra,
    /// Links between machines.
    Inter,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gpu, Self::Cpu, Self::Intra, Self::Inter];
}

/// A task of an option on a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// What it needs, alone.
    pub resource: Resource,
    /// For how long, ns.
    pub time: f64,
}

/// Longest chain: compression, communication and decompression in both steps inside machines and in
/// both between.
const LONGEST: usize = 12;

/// What is done to a tensor, one after the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chain {
    operations: [Operation; LONGEST],
    length: u8,
}

impl Chain {
    const EMPTY: Self =
        Self { operations: [Operation { resource: Resource::Gpu, time: 0.0 }; LONGEST], length: 0 };

    /// Its operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations[..usize::from(self.length)]
    }

    /// Those that are more than there is room for are left out: no path of the tree has as many.
    fn push(&mut self, resource: Resource, time: f64) {
        if let Some(slot) = self.operations.get_mut(usize::from(self.length)) {
            *slot = Operation { resource, time };
            self.length += 1;
        }
    }

    /// Time on each resource, ns, in the order of [`Resource::ALL`].
    pub fn totals(&self) -> [f64; 4] {
        let mut totals = [0.0; 4];
        for operation in self.operations() {
            totals[operation.resource as usize] += operation.time;
        }
        totals
    }

    /// The same with compression and decompression for nothing.
    #[must_use]
    pub fn free(&self) -> Self {
        let mut free = *self;
        for operation in &mut free.operations {
            if matches!(operation.resource, Resource::Gpu | Resource::Cpu) {
                operation.time = 0.0;
            }
        }
        free
    }
}

/// What an operation takes, by the tensor's elements: the lesser of two lines, or that of two
/// others where it is greater.
#[derive(Debug, Clone, Copy)]
struct Cost {
    resource: Resource,
    lesser: [Affine; 2],
    least: [Affine; 2],
}

impl Cost {
    fn at(&self, elements: f64) -> f64 {
        let lesser = |lines: [Affine; 2]| lines[0].at(elements).min(lines[1].at(elements));
        lesser(self.lesser).max(lesser(self.least))
    }
}

/// An option's operations on tensors of any size, while the network is in a state: what [`chain`]
/// says, worked out once for all sizes.
#[derive(Debug, Clone, Default)]
pub(super) struct Pattern(Vec<Cost>);

impl Pattern {
    /// On a tensor of so many elements.
    pub(super) fn at(&self, elements: f64) -> Chain {
        let mut chain = Chain::EMPTY;
        for cost in &self.0 {
            chain.push(cost.resource, cost.at(elements));
        }
        chain
    }

    fn push(&mut self, resource: Resource, lines: [Affine; 2]) {
        self.0.push(Cost { resource, lesser: lines, least: lines });
    }
}

/// What a rank holds between tasks, of each of the tensor's elements.
struct Held {
    /// Share of the elements in the region that it works on.
    length: f64,
    /// Copies of them that wait for being added up.
    copies: f64,
    payload: Payload,
    /// Ranks of a machine that hold different regions, and so share its processors and its link.
    active: f64,
}

impl Held {
    fn bytes(&self, cluster: &Cluster) -> f64 {
        let share = match self.payload {
            Payload::Plain => 1.0,
            Payload::Compressed => cluster.compressor.share,
            Payload::Trimmed { planes } => Trimming::share(planes),
        };
        self.copies * self.length * 4.0 * share
    }
}

/// The operations of an option on a tensor of `elements`, while the network between machines is in
/// `state`.
///
/// A GPU's compression takes what its own region takes; a machine's processors work for all of its
/// GPUs. A machine's link is shared by the GPUs that use it at once: rings cross it once,
/// all-to-all and gather as often as there are GPUs. A flat collective is booked on the links
/// between machines, where there are several: what it does inside them overlaps with that.
pub fn chain(option: &CompressionOption, elements: f64, cluster: &Cluster, state: Congestion) -> Chain {
    pattern(option, cluster, state).at(elements)
}

/// The same for any number of elements.
pub(super) fn pattern(option: &CompressionOption, cluster: &Cluster, state: Congestion) -> Pattern {
    let (machines, gpus) = (f64::from(cluster.machines), f64::from(cluster.gpus));
    let mut held = Held { length: 1.0, copies: 1.0, payload: Payload::Plain, active: gpus };
    let mut chain = Pattern::default();
    for task in option.tasks() {
        match *task {
            Task::Compress(device, payload) => {
                let cost = cluster.device(device, matches!(payload, Payload::Trimmed { .. })).compress;
                let (resource, ranks) = shared(device, held.active);
                chain.push(resource, [cost.line(held.length * ranks); 2]);
                (held.payload, held.copies) = (payload, 1.0);
            }
            Task::Decompress(device) => {
                let cost = cluster.device(device, matches!(held.payload, Payload::Trimmed { .. })).decompress;
                let (resource, ranks) = shared(device, held.active);
                chain.push(resource, [cost.line(held.length * held.copies * ranks); 2]);
                (held.payload, held.copies) = (Payload::Plain, 1.0);
            }
            Task::Communicate(scope, routine, _) => {
                let bytes = held.bytes(cluster);
                let (link, resource, ranks, crossing) = match scope {
                    Scope::Flat if cluster.machines > 1 => {
                        (cluster.inter, Resource::Inter, machines * gpus, gpus)
                    }
                    Scope::Flat | Scope::IntraFirst | Scope::IntraSecond => {
                        (cluster.intra, Resource::Intra, gpus, 1.0)
                    }
                    Scope::Inter => (cluster.inter, Resource::Inter, machines, held.active),
                };
                // Rings of a flat collective cross each machine's link once; those between machines
                // once a rank.
                let through = match (scope, routine) {
                    (Scope::Flat, Routine::AllToAll) | (Scope::Inter, _) => crossing * bytes,
                    _ => bytes,
                };
                let left = if resource == Resource::Inter { state.bandwidth } else { 1.0 };
                // 8 bit/s are a byte in 10^9 ns.
                let speed = |share: f64| link.gbps / 8.0 * share;
                let of = |bytes: f64, speed: f64| {
                    let lines = lines(routine, ranks, link.latency_us * 1e3, speed);
                    lines.map(|line| Affine { slope: line.slope * bytes, ..line })
                };
                let (lesser, least) = match (held.payload, &cluster.trimming) {
                    (Payload::Trimmed { planes }, Some(trimming)) => {
                        // What is trimmed takes no longer; heads have to get through.
                        let floor =
                            Trimming::share(trimming.floor_planes.min(planes)) / Trimming::share(planes);
                        (of(through, speed(1.0)), of(through * floor, speed(left)))
                    }
                    _ => (of(through, speed(left)), of(through, speed(left))),
                };
                chain.0.push(Cost { resource, lesser, least });
                match routine {
                    Routine::AllReduce | Routine::Broadcast | Routine::Reduce => {}
                    Routine::ReduceScatter => held.length /= ranks,
                    Routine::AllToAll => {
                        held.length /= ranks;
                        held.copies *= ranks;
                    }
                    Routine::AllGather if opened(option, *task) => held.length *= ranks,
                    // Everybody's whole tensor.
                    Routine::AllGather | Routine::Gather => held.copies *= ranks,
                }
                // One root of a machine goes on alone; roots of machines are one of each place.
                if scope != Scope::Inter && matches!(routine, Routine::Reduce | Routine::Gather) {
                    held.active = 1.0;
                }
                if matches!(scope, Scope::Flat | Scope::IntraSecond)
                    && matches!(routine, Routine::AllGather | Routine::Broadcast)
                {
                    held.active = gpus;
                }
            }
        }
    }
    chain
}

/// Whether an all-gather is the second step of its scope's divisible scheme, so that regions come
/// together.
fn opened(option: &CompressionOption, task: Task) -> bool {
    let Task::Communicate(scope, ..) = task else { return false };
    if scope == Scope::IntraSecond {
        return true;
    }
    let of_scope = |other: &&Task| matches!(other, Task::Communicate(of, ..) if *of == scope);
    option.tasks().iter().filter(of_scope).count() > 1
}

fn shared(device: Device, active: f64) -> (Resource, f64) {
    match device {
        Device::Gpu => (Resource::Gpu, 1.0),
        Device::Cpu => (Resource::Cpu, active),
    }
}
