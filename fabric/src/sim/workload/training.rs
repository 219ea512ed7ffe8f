//! Data-parallel training, from a model's tensors and computation times.

use super::{Begin, Demand};
use crate::sim::random::Random;
use trimwire_planner::espresso::Model;

/// Bytes of a coordinate before anything compresses it.
const COORDINATE: u64 = 4;

/// Parameter servers beside workers on the same racks (MLT §6.2.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParameterServer {
    /// One host in so many is a server, the last of each group: 4 makes 3:1.
    pub group: u32,
    /// Times that gradients are pushed and parameters pulled.
    pub iterations: u32,
    /// Tensors take so many times fewer bytes than in f32, at least 1.
    pub compression: f64,
    /// Workers do not compute equally fast: each tensor's time is up to this share longer, drawn.
    pub jitter: f64,
}

/// Every worker pushes every tensor to the server that owns it when the backward pass has made it; a server sends a tensor to all workers when it has it from all; a worker
/// that has all parameters begins its next forward pass. Tensors go, in the order in which they are made, to the server that has the fewest bytes, as BytePS places them.
pub fn parameter_server(model: &Model, hosts: u32, how: &ParameterServer, seed: u64) -> Vec<Demand> {
    let group = how.group.max(2);
    let is_server = |host: &u32| host % group == group - 1;
    let servers: Vec<u32> = (0..hosts).filter(is_server).collect();
    let workers: Vec<u32> = (0..hosts).filter(|host| !is_server(host)).collect();
    let mut demands: Vec<Demand> = Vec::new();
    if servers.is_empty() {
        return demands;
    }
    let mut loads: Vec<(u64, u32)> = servers.iter().map(|&host| (0, host)).collect();
    let owners: Vec<u32> =
        model.tensors.iter().map(|tensor| place(&mut loads, compressed(tensor.elements, 1.0))).collect();
    // By worker: what it has to have before it goes on.
    let mut pulls: Vec<Vec<u32>> = vec![Vec::new(); workers.len()];
    let mut random = Random::new(seed, 0x75);
    for _ in 0..how.iterations {
        let mut pushes: Vec<Vec<u32>> = vec![Vec::new(); model.tensors.len()];
        for (worker, waits_for) in workers.iter().zip(&pulls) {
            let mut made_us = model.forward_ms * 1e3;
            for (at, tensor) in model.tensors.iter().enumerate() {
                made_us += tensor.compute_us * (1.0 + how.jitter * random.unit());
                let (source, destination) = (*worker, owners[at]);
                let bytes = compressed(tensor.elements, how.compression);
                let begin = Begin::Later((made_us * 1e3) as u64);
                pushes[at].push(demands.len() as u32);
                demands.push(Demand {
                    source,
                    destination,
                    bytes,
                    begin,
                    after: waits_for.clone(),
                    foreground: true,
                });
            }
        }
        pulls = vec![Vec::new(); workers.len()];
        for (at, tensor) in model.tensors.iter().enumerate() {
            for (worker, pulls) in workers.iter().zip(&mut pulls) {
                pulls.push(demands.len() as u32);
                demands.push(Demand {
                    source: owners[at],
                    destination: *worker,
                    bytes: compressed(tensor.elements, how.compression),
                    begin: Begin::Later(0),
                    after: pushes[at].clone(),
                    foreground: true,
                });
            }
        }
    }
    demands
}

/// A direct all-reduce: every host owns a shard of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllReduce {
    /// Of a shard.
    pub bytes: u64,
    /// What a host computes before it sends, ns.
    pub compute_ns: u64,
    /// Up to so much more, drawn for every host, ns.
    pub jitter_ns: u64,
}

/// Every host sends each other one its shard, and, when it has its own from all, its own to each: the agent's default algorithm. The first n (n − 1) demands are of the first half,
/// ordered by source, then by how far the destination is behind it; those of the second half are ordered in the same way.
pub fn all_reduce(hosts: u32, how: &AllReduce, seed: u64) -> Vec<Demand> {
    let (mut random, others) = (Random::new(seed, 0xa5), hosts.saturating_sub(1));
    let mut demands = Vec::with_capacity(2 * hosts as usize * others as usize);
    for source in 0..hosts {
        let late_ns = (random.unit() * how.jitter_ns as f64) as u64;
        let begin_ns = how.compute_ns.saturating_add(late_ns);
        demands
            .extend((1..hosts).map(|step| Demand::at(source, (source + step) % hosts, how.bytes, begin_ns)));
    }
    for source in 0..hosts {
        // Of the host that is so far before it.
        let to_it: Vec<u32> =
            (1..hosts).map(|step| (source + hosts - step) % hosts * others + step - 1).collect();
        demands.extend((1..hosts).map(|step| Demand {
            begin: Begin::Later(0),
            after: to_it.clone(),
            ..Demand::at(source, (source + step) % hosts, how.bytes, 0)
        }));
    }
    demands
}

/// Ring all-reduce of `bytes` (Patarasuk and Yuan 2009): 2 (n − 1) steps of an nth each, every one when the one before has come.
pub fn ring(hosts: u32, bytes: u64) -> Vec<Demand> {
    let (steps, part) = (2 * hosts.saturating_sub(1), bytes.div_ceil(u64::from(hosts.max(1))));
    let mut demands = Vec::with_capacity((steps * hosts) as usize);
    for step in 0..steps {
        for source in 0..hosts {
            // What it sends is what came from the host before it.
            let after =
                if step == 0 { Vec::new() } else { vec![(step - 1) * hosts + (source + hosts - 1) % hosts] };
            let (destination, begin) = ((source + 1) % hosts, Begin::Later(0));
            demands.push(Demand { source, destination, bytes: part, begin, after, foreground: true });
        }
    }
    demands
}

/// The server with the fewest bytes, the first of equals, has so many more.
fn place(loads: &mut [(u64, u32)], bytes: u64) -> u32 {
    let Some(least) = loads.iter_mut().min() else { return 0 };
    least.0 += bytes;
    least.1
}

fn compressed(elements: i64, compression: f64) -> u64 {
    let bytes = elements.max(1) as u64 * COORDINATE;
    ((bytes as f64 / compression.max(1.0)) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwire_planner::espresso::Tensor;

    fn model() -> Model {
        let tensor = |name: &str, elements| Tensor {
            name: name.into(),
            elements,
            compute_us: 10.0,
            after: Vec::new(),
        };
        Model { model: "two".into(), forward_ms: 0.1, tensors: vec![tensor("b", 1_000), tensor("a", 3_000)] }
    }

    #[test]
    fn every_worker_pushes_and_pulls_every_tensor_and_waits_end_where_flows_begin() {
        let how = ParameterServer { group: 4, iterations: 2, compression: 4.0, jitter: 0.0 };
        let demands = parameter_server(&model(), 8, &how, 1);
        // Six workers, two tensors, two ways, two iterations.
        assert_eq!(demands.len(), 6 * 2 * 2 * 2);
        for (number, demand) in demands.iter().enumerate() {
            for &before in &demand.after {
                assert!((before as usize) < number);
                assert_eq!(demands[before as usize].destination, demand.source);
            }
        }
        assert_eq!(demands[0].bytes, 1_000);
        assert_eq!(demands[0].begin, Begin::Later(110_000));
        let pull = &demands[12];
        assert_eq!((pull.source, pull.after.len()), (3, 6));
    }

    #[test]
    fn an_all_reduce_scatters_to_everybody_and_gathers_what_has_come_from_everybody() {
        let how = AllReduce { bytes: 500, compute_ns: 1_000, jitter_ns: 100 };
        let demands = all_reduce(5, &how, 1);
        let (scatter, gather) = demands.split_at(5 * 4);
        for (number, demand) in scatter.iter().enumerate() {
            let (source, step) = (number as u32 / 4, number as u32 % 4 + 1);
            assert_eq!((demand.source, demand.destination), (source, (source + step) % 5));
            assert!(matches!(demand.begin, Begin::At(at) if (1_000..=1_100).contains(&at)), "{demand:?}");
        }
        for demand in gather {
            let mut sources: Vec<u32> = demand.after.iter().map(|&at| scatter[at as usize].source).collect();
            assert!(demand.after.iter().all(|&at| scatter[at as usize].destination == demand.source));
            sources.sort_unstable();
            assert_eq!(sources, (0..5).filter(|host| *host != demand.source).collect::<Vec<_>>());
        }
        let pairs: std::collections::BTreeSet<_> = gather.iter().map(|d| (d.source, d.destination)).collect();
        assert_eq!(pairs.len(), 20);
    }

    #[test]
    fn a_ring_sends_two_times_n_minus_one_parts() {
        let demands = ring(4, 4_000);
        assert_eq!(demands.len(), 6 * 4);
        let sent: u64 = demands.iter().filter(|demand| demand.source == 2).map(|demand| demand.bytes).sum();
        assert_eq!(sent, 2 * 3 * 1_000);
        for demand in &demands {
            assert!(demand.after.iter().all(|&before| demands[before as usize].destination == demand.source));
        }
    }
}
