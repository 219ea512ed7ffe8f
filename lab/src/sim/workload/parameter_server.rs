// SPDX-License-Identifier: Apache-2.0
//! Parameter servers (MLT §6.2.1, BytePS), from a model's tensors and computation times.
//!
//! ```text
//!  worker   forward, backward ─► push of each tensor's parts ─┐             ┌─► next forward, when it has all parts
//!  server   of a part                                         └► all have it ┘ pull to every worker
//! ```

use super::{Begin, Demand};
use crate::espresso::Model;
use crate::sim::random::Random;

/// Bytes of a coordinate before anything compresses it.
const COORDINATE: u64 = 4;
/// Highest priority of a layer: one below control packets'.
const FRONT: u64 = 6;

/// Who is a server, and how tensors are divided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterServer {
    /// One host in so many is a server, the last of each group: 4 makes 3:1. Of no meaning where
    /// servers are colocated.
    pub group: u32,
    /// Every host is a worker and a server; what stays on a host is no flow.
    pub colocated: bool,
    /// Jobs that share the network, at least 1: each has every so manieth worker and server.
    pub jobs: u32,
    /// Parts that a tensor is divided into, at least 1, each for another server. 1 puts whole
    /// tensors on one server.
    pub shards: u32,
    /// Times that gradients are pushed and parameters pulled.
    pub iterations: u32,
    /// Tensors take so many times fewer bytes than in f32, at least 1.
    pub compression: f64,
    /// The next forward pass begins with the front layer as soon as its parameters are there, and
    /// goes on layer by layer (BytePS); otherwise it waits for all of them.
    pub by_layer: bool,
    /// Workers do not compute equally fast: each tensor's time is up to this share longer, drawn.
    pub jitter: f64,
}

/// Every worker pushes every part of a tensor to the server that owns it when the backward pass has
/// made it; a server sends a part to all workers when it has it from all; a worker that has all
/// parameters begins its next forward pass. Whole tensors go, in the order in which they are made,
/// to the server that has the fewest bytes, as BytePS places them; parts go round the servers from
/// there. Priorities are MLT's, ⌊iP/L⌋ (§4.2.2).
pub fn parameter_server(model: &Model, hosts: u32, how: &ParameterServer, seed: u64) -> Vec<Demand> {
    let mut demands = Vec::new();
    for job in 0..how.jobs.max(1) {
        let [workers, servers] = how.roles(hosts).map(|all| {
            all.into_iter().skip(job as usize).step_by(how.jobs.max(1) as usize).collect::<Vec<_>>()
        });
        let parts = parts(model, &servers, how);
        one_job(&mut demands, model, &workers, &parts, how, Random::new(seed, 0x75 + u64::from(job)));
    }
    demands
}

impl ParameterServer {
    /// Workers and servers of all jobs.
    fn roles(&self, hosts: u32) -> [Vec<u32>; 2] {
        if self.colocated {
            return [(0..hosts).collect(), (0..hosts).collect()];
        }
        let group = self.group.max(2);
        let is_server = |host: &u32| host % group == group - 1;
        [(0..hosts).filter(|host| !is_server(host)).collect(), (0..hosts).filter(is_server).collect()]
    }

    /// Flows and computations that a model makes at most.
    pub fn flows(&self, model: &Model, hosts: u32) -> u64 {
        let [workers, servers] = self.roles(hosts).map(|all| all.len() as u64);
        let parts = u64::from(self.shards).clamp(1, (servers / u64::from(self.jobs.max(1))).max(1));
        let tensors = model.tensors.len() as u64;
        // Each part meets at its server; each tensor's forward pass is a computation.
        tensors * (2 * parts * workers + parts + workers) * u64::from(self.iterations)
    }
}

/// A part of a tensor.
struct Part {
    tensor: usize,
    server: u32,
    bytes: u64,
    priority: u8,
}

fn parts(model: &Model, servers: &[u32], how: &ParameterServer) -> Vec<Part> {
    let mut loads = vec![0_u64; servers.len()];
    let mut parts = Vec::new();
    let tensors = model.tensors.len() as u64;
    for (number, tensor) in model.tensors.iter().enumerate() {
        // The server with the fewest bytes, the first of equals.
        let Some(first) = (0..loads.len()).min_by_key(|&at| loads[at]) else { return parts };
        let elements = tensor.elements.max(1) as u64;
        let count = u64::from(how.shards).clamp(1, servers.len() as u64).min(elements);
        for part in 0..count {
            let at = (first + part as usize) % servers.len();
            let elements = elements * (part + 1) / count - elements * part / count;
            loads[at] += elements * COORDINATE;
            let bytes = ((elements * COORDINATE) as f64 / how.compression.max(1.0)) as u64;
            // Tensors come in the order of the backward pass: the front layers' are the last.
            let priority = (number as u64 * (FRONT + 1) / tensors.max(1)).min(FRONT) as u8;
            parts.push(Part { tensor: number, server: servers[at], bytes: bytes.max(1), priority });
        }
    }
    parts
}

fn one_job(
    demands: &mut Vec<Demand>,
    model: &Model,
    workers: &[u32],
    parts: &[Part],
    how: &ParameterServer,
    mut random: Random,
) {
    let flow = |part: &Part, source, destination, begin, after| Demand {
        source,
        destination,
        bytes: part.bytes,
        begin,
        after,
        foreground: true,
        priority: part.priority,
    };
    // By worker: what it has to have before it goes on, with the tensors.
    let mut pulls: Vec<Vec<(usize, u32)>> = vec![Vec::new(); workers.len()];
    let backward_us: f64 = model.tensors.iter().map(|tensor| tensor.compute_us).sum();
    for _ in 0..how.iterations {
        let mut pushes: Vec<Vec<u32>> = vec![Vec::new(); parts.len()];
        for (&worker, pulls) in workers.iter().zip(&pulls) {
            let (waits_for, mut made_us) = if how.by_layer && !pulls.is_empty() {
                (vec![forward(demands, model, worker, pulls, backward_us)], 0.0)
            } else if pulls.is_empty() {
                (Vec::new(), model.forward_ms * 1e3)
            } else {
                let all = pulls.iter().map(|(_, number)| *number).collect();
                demands.push(Demand::computation(worker, 0, all));
                (vec![demands.len() as u32 - 1], model.forward_ms * 1e3)
            };
            let made_us: Vec<f64> = model
                .tensors
                .iter()
                .map(|tensor| {
                    made_us += tensor.compute_us * (1.0 + how.jitter * random.unit());
                    made_us
                })
                .collect();
            for (part, pushes) in parts.iter().zip(&mut pushes).filter(|(part, _)| part.server != worker) {
                let begin = Begin::Later((made_us[part.tensor] * 1e3) as u64);
                pushes.push(demands.len() as u32);
                demands.push(flow(part, worker, part.server, begin, waits_for.clone()));
            }
        }
        pulls = vec![Vec::new(); workers.len()];
        for (part, pushes) in parts.iter().zip(pushes) {
            // One that all pulls wait for, instead of as many lists of all pushes.
            let summed = demands.len() as u32;
            demands.push(Demand::computation(part.server, 0, pushes));
            for (&worker, pulls) in workers.iter().zip(&mut pulls) {
                if worker == part.server {
                    pulls.push((part.tensor, summed));
                } else {
                    pulls.push((part.tensor, demands.len() as u32));
                    demands.push(flow(part, part.server, worker, Begin::Later(0), vec![summed]));
                }
            }
        }
    }
}

/// A worker's forward pass, the front layer's tensor first, each when its parameters are there: the
/// last computation. The pass's time is divided as the backward pass's is.
fn forward(
    demands: &mut Vec<Demand>,
    model: &Model,
    worker: u32,
    pulls: &[(usize, u32)],
    backward_us: f64,
) -> u32 {
    let mut before = None;
    for (number, tensor) in model.tensors.iter().enumerate().rev() {
        let share = if backward_us > 0.0 { tensor.compute_us / backward_us } else { 0.0 };
        let takes_ns = (model.forward_ms * 1e6 * share) as u64;
        let of_it = pulls.iter().filter(|(tensor, _)| *tensor == number).map(|(_, pull)| *pull);
        let after = of_it.chain(before).collect();
        before = Some(demands.len() as u32);
        demands.push(Demand::computation(worker, takes_ns, after));
    }
    before.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::espresso::Tensor;
    use std::collections::BTreeSet;

    fn model() -> Model {
        let tensor = |name: &str, elements| Tensor {
            name: name.into(),
            elements,
            compute_us: 10.0,
            after: Vec::new(),
        };
        Model { model: "two".into(), forward_ms: 0.1, tensors: vec![tensor("b", 1_000), tensor("a", 3_000)] }
    }

    const WHOLE: ParameterServer = ParameterServer {
        group: 4,
        colocated: false,
        jobs: 1,
        shards: 1,
        iterations: 1,
        compression: 1.0,
        by_layer: false,
        jitter: 0.0,
    };

    /// Those that are sent, with their numbers.
    fn flows(demands: &[Demand]) -> Vec<(usize, &Demand)> {
        demands.iter().enumerate().filter(|(_, demand)| !demand.computes()).collect()
    }

    fn check_waits(demands: &[Demand]) {
        for (number, demand) in demands.iter().enumerate() {
            for &before in &demand.after {
                assert!((before as usize) < number);
                assert_eq!(demands[before as usize].destination, demand.source);
            }
        }
    }

    #[test]
    fn every_worker_pushes_and_pulls_every_tensor_and_waits_end_where_flows_begin() {
        let how = ParameterServer { iterations: 2, compression: 4.0, ..WHOLE };
        let demands = parameter_server(&model(), 8, &how, 1);
        // Six workers, two tensors, two ways, two iterations.
        assert_eq!(flows(&demands).len(), 6 * 2 * 2 * 2);
        assert!(demands.len() as u64 <= how.flows(&model(), 8));
        check_waits(&demands);
        assert_eq!(demands[0].bytes, 1_000);
        assert_eq!(demands[0].begin, Begin::Later(110_000));
        let (_, pull) = flows(&demands)[12];
        let summed = &demands[pull.after[0] as usize];
        assert_eq!((pull.source, pull.after.len(), summed.after.len()), (3, 1, 6));
        // The front layer's tensor comes last, and has the higher priority.
        assert!(demands[1].priority > demands[0].priority);
    }

    #[test]
    fn shards_go_to_as_many_servers_and_have_all_of_a_tensors_bytes() {
        let how = ParameterServer { shards: 2, ..WHOLE };
        let demands = parameter_server(&model(), 8, &how, 1);
        assert_eq!(flows(&demands).len(), 6 * 4 * 2);
        check_waits(&demands);
        let pushed = |server| -> u64 {
            let to = demands.iter().filter(|demand| demand.source == 0 && demand.destination == server);
            to.map(|demand| demand.bytes).sum()
        };
        assert_eq!((pushed(3), pushed(7)), (8_000, 8_000));
        // More parts than servers are as many as there are.
        let more = parameter_server(&model(), 8, &ParameterServer { shards: 9, ..how }, 1);
        assert_eq!(flows(&more).len(), 48);
    }

    #[test]
    fn a_pass_by_layer_computes_the_front_layer_when_its_parameters_are_there_and_pushes_after_the_last() {
        let how = ParameterServer { iterations: 2, by_layer: true, ..WHOLE };
        let demands = parameter_server(&model(), 8, &how, 1);
        check_waits(&demands);
        assert!(demands.len() as u64 <= how.flows(&model(), 8));
        // Both layers take half of the pass, as they do of the backward pass.
        let passes: Vec<(usize, &Demand)> =
            demands.iter().enumerate().filter(|(_, one)| one.begin == Begin::Later(50_000)).collect();
        assert_eq!(passes.len(), 6 * 2);
        let [(front, first), (back, second)] = passes[..2] else { panic!("two layers") };
        // Tensor 1 is the front layer's: its one part has another server than tensor 0's.
        assert_eq!((first.after.len(), second.after.len()), (1, 2));
        assert!(second.after.contains(&(front as u32)));
        let push = demands.iter().find(|one| !one.computes() && one.after == [back as u32]).unwrap();
        assert_eq!((push.source, push.begin), (first.source, Begin::Later(10_000)));
    }

    #[test]
    fn jobs_share_no_host() {
        let how = ParameterServer { jobs: 2, ..WHOLE };
        let demands = parameter_server(&model(), 8, &how, 1);
        check_waits(&demands);
        let servers: BTreeSet<(u32, u32)> = flows(&demands)
            .iter()
            .filter(|(_, d)| d.source % 4 != 3)
            .map(|(_, d)| (d.source, d.destination))
            .collect();
        // Workers 0, 2, 5 have server 3; workers 1, 4, 6 have server 7.
        assert_eq!(servers, [(0, 3), (2, 3), (5, 3), (1, 7), (4, 7), (6, 7)].into());
    }

    #[test]
    fn where_servers_are_colocated_what_stays_on_a_host_is_no_flow() {
        let how = ParameterServer { colocated: true, shards: 4, ..WHOLE };
        let demands = parameter_server(&model(), 4, &how, 1);
        check_waits(&demands);
        // Two tensors of four parts, each of which three workers push and pull.
        assert_eq!(flows(&demands).len(), 2 * 4 * 3 * 2);
        let sums = demands.iter().filter(|demand| demand.computes());
        assert!(sums.clone().count() == 8 && sums.into_iter().all(|sum| sum.after.len() == 3));
    }
}
