// SPDX-License-Identifier: Apache-2.0
//! Promises of operations whose rows are coded elsewhere, by a device that is slow and works in any
//! order; of the codec it has the host's, so results are the host's to the bit.

use crate::group::Group;
use crate::network::{Faults, Random};
use proptest::prelude::*;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use trimwire_agent::collective::{
    Algorithm, Collective, Device, Done, ElementType, Memory, Offloaded, OperationError, Options, Outcome,
    Replicas, StartError, shard_range,
};
use trimwire_agent::endpoint::Reliability;
use trimwire_encoder::{
    Codec, Decoding, Encoder, Envelope, Importance, Job, PLANES, RowChoice, RowMemory, RowReceiver, StreamId,
    nmse,
};

const SECOND: u64 = 1_000_000_000;

type Places = Arc<Mutex<BTreeSet<(u16, u16, usize, usize)>>>;

/// A device's memory at one rank.
#[derive(Debug, Default)]
struct Gpu {
    input: Mutex<Option<Vec<f32>>>,
    output: Mutex<Vec<f32>>,
    /// Rows that are received into: shard, rank, first byte, length.
    lent: Places,
}

#[derive(Debug)]
struct Place {
    bytes: Vec<u8>,
    key: (u16, u16, usize, usize),
    home: Places,
}

impl AsRef<[u8]> for Place {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Place {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl RowMemory for Place {}

impl Drop for Place {
    fn drop(&mut self) {
        self.home.lock().expect("no panic").remove(&self.key);
    }
}

impl Device for Gpu {
    fn place(&self, shard: u16, from: u16, offset: usize, length: usize) -> Box<dyn RowMemory> {
        let key = (shard, from, offset, length);
        let mut lent = self.lent.lock().expect("no panic");
        let overlaps = |&(s, f, at, bytes): &(u16, u16, usize, usize)| {
            (s, f) == (shard, from) && at < offset + length && offset < at + bytes
        };
        assert!(!lent.iter().any(overlaps), "{key:?} is lent already: {lent:?}");
        lent.insert(key);
        Box::new(Place { bytes: vec![0xEE; length], key, home: Arc::clone(&self.lent) })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Does what is asked for, with the host's codec.
fn work(rank: u16, offloaded: Offloaded) -> Done {
    let device = Arc::clone(offloaded.device());
    let device = device.as_any().downcast_ref::<Gpu>().expect("the test's");
    let own = offloaded.own().map(|range| {
        let input = device.input.lock().expect("no panic");
        let output = device.output.lock().expect("no panic");
        input.as_ref().unwrap_or(&output)[range].to_vec()
    });
    let row = offloaded.row();
    let received: Vec<(u16, RowReceiver)> =
        offloaded.contributions().map(|(from, row)| (from, row.clone())).collect();
    assert!(received.iter().all(|(_, row)| row.kept().is_some()), "their packets are kept");
    let write = |range: Option<Range<usize>>, values: &[f32]| {
        if let Some(range) = range {
            device.output.lock().expect("no panic")[range].copy_from_slice(values);
        }
    };
    let length = own.as_ref().map(Vec::len).or(offloaded.write().map(|range| range.len()));
    let mut parts: BTreeMap<u16, Vec<f32>> = own.into_iter().map(|own| (rank, own)).collect();
    for (from, row) in &received {
        let mut values = vec![0.0; length.expect("known")];
        row.decode_into(&mut values).expect("the row's length");
        parts.insert(*from, values);
    }
    let mut sum: Option<Vec<f32>> = None;
    for part in parts.into_values() {
        sum = Some(match sum {
            None => part,
            Some(sum) => sum.iter().zip(part).map(|(a, b)| a + b).collect(),
        });
    }
    let mut sum = sum.expect("at least one part");
    if let Some(scale) = offloaded.scale() {
        sum.iter_mut().for_each(|value| *value *= scale);
    }
    if offloaded.positive_zeros() {
        sum.iter_mut().for_each(|value| *value += 0.0);
    }
    let Some(encode) = offloaded.encode() else {
        write(offloaded.write(), &sum);
        return offloaded.finish(None);
    };
    let layout = offloaded.layout().expect("of the message").clone();
    let envelope = Envelope { stream: StreamId::new(0, rank).expect("fits"), message: encode.message };
    let encoder = Encoder::new(layout.clone(), Job::new(7));
    let mut packets = vec![0; encoder.row_len(row, encode.planes)];
    let choice = RowChoice { planes: encode.planes, importance: Importance::AtLeast(encode.important_from) };
    let encoded = encoder.encode_row(row, &sum, envelope, choice, &mut packets).expect("the row's shape");
    if encode.keeps {
        let mut receiver = RowReceiver::new(&layout, row, Job::new(7), envelope, Decoding::Unbiased)
            .with_planes(encode.planes);
        let mut rest = &packets[..];
        for (_, place) in layout.row_places(row) {
            let (packet, tail) = rest.split_at(Codec::Rht.packet_len(encode.planes, place.len(), false));
            receiver.receive(packet).expect("its own");
            rest = tail;
        }
        receiver.decode_into(&mut sum).expect("the row's length");
        write(offloaded.write(), &sum);
    }
    offloaded.finish(Some((Box::new(packets), encoded.figure)))
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    AllReduce,
    ReduceScatter,
    AllGather,
}

/// An operation at all ranks, at some of them elsewhere.
struct Run<'a> {
    group: &'a mut Group,
    devices: Vec<Option<Arc<Gpu>>>,
    random: Random,
}

impl<'a> Run<'a> {
    fn new(group: &'a mut Group, elsewhere: &[bool], seed: u64) -> Self {
        let devices =
            elsewhere.iter().map(|&elsewhere| elsewhere.then(|| Arc::new(Gpu::default()))).collect();
        Self { group, devices, random: Random(seed) }
    }

    fn start(&mut self, number: u32, kind: Kind, parts: &[Vec<f32>], options: &Options) {
        let world = parts.len() as u16;
        for (rank, part) in parts.iter().enumerate() {
            let length = part.len();
            let shard = shard_range(length, world, rank as u16);
            let (input, output) = match kind {
                Kind::AllReduce => (None, part.clone()),
                Kind::ReduceScatter => (Some(part.clone()), vec![7.0; shard.len()]),
                Kind::AllGather => (Some(part[shard].to_vec()), vec![7.0; length]),
            };
            let memory = |values: &Vec<f32>| match &self.devices[rank] {
                Some(device) => Memory::elsewhere(values.len(), ElementType::F32, device.clone()),
                None => Memory::from_vec(values.clone()),
            };
            let collective = match (kind, &input) {
                (Kind::ReduceScatter, Some(input)) => {
                    Collective::ReduceScatter { input: memory(input), output: memory(&output) }
                }
                (Kind::AllGather, Some(input)) => {
                    Collective::AllGather { input: memory(input), output: memory(&output) }
                }
                _ => Collective::AllReduce { tensor: memory(&output) },
            };
            if let Some(device) = &self.devices[rank] {
                *device.input.lock().expect("no panic") = input;
                *device.output.lock().expect("no panic") = output;
            }
            self.group.start(rank, number, collective, options).expect("a valid operation");
        }
    }

    fn finish(&mut self, mut work: impl FnMut(u16, Offloaded) -> Done) -> Vec<(usize, Outcome)> {
        let until_ns = self.group.network.now_ns + 300 * SECOND;
        let mut queues: Vec<Vec<Offloaded>> = self.devices.iter().map(|_| Vec::new()).collect();
        let random = &mut self.random;
        let mut outcomes = self.group.run_offloading(until_ns, |rank, task| {
            let queue = &mut queues[rank];
            if let Some(task) = task {
                queue.push(task);
                return None;
            }
            // Whatever it has finished first.
            let at = (!queue.is_empty()).then(|| random.below(queue.len() as u64) as usize)?;
            Some(work(rank as u16, queue.swap_remove(at)))
        });
        outcomes.sort_by_key(|(rank, _)| *rank);
        outcomes
    }

    fn results(&mut self, number: u32, kind: Kind, parts: &[Vec<f32>], options: &Options) -> Vec<Vec<f32>> {
        self.start(number, kind, parts, options);
        let outcomes = self.finish(work);
        assert!(outcomes.iter().map(|(rank, _)| *rank).eq(0..parts.len()), "every rank once: {outcomes:?}");
        assert!(self.group.is_quiet(), "something goes on");
        let devices = &self.devices;
        let results = outcomes.into_iter().map(|(rank, outcome)| {
            outcome.result.expect("it succeeds");
            let memory = outcome.output.expect("it has one");
            match &devices[rank] {
                Some(device) => {
                    drop(memory);
                    assert!(device.lent.lock().expect("no panic").is_empty(), "all memory is back");
                    device.output.lock().expect("no panic").clone()
                }
                None => memory.to_f32(),
            }
        });
        results.collect()
    }
}

fn parts(world: u16, length: usize, seed: u64) -> Vec<Vec<f32>> {
    (0..world).map(|rank| Random(seed ^ u64::from(rank) << 40).gradient(length)).collect()
}

fn bits(results: &[Vec<f32>]) -> Vec<Vec<u32>> {
    results.iter().map(|result| result.iter().map(|value| value.to_bits()).collect()).collect()
}

fn group(world: u16, faults: Faults, seed: u64, sealed: bool, reliability: Reliability) -> Group {
    if sealed { Group::sealed(world, faults, seed) } else { Group::new(world, faults, seed, reliability, 10) }
}

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::AllReduce), Just(Kind::ReduceScatter), Just(Kind::AllGather)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Of what is sent again until it is whole nothing depends on the network, or on who codes it
    /// where.
    #[test]
    fn ranks_that_code_elsewhere_and_ranks_that_do_not_have_the_bits_of_those_that_all_do_it_themselves(
        faults in Faults::ADVERSARY.any_up_to(), elsewhere in prop::collection::vec(any::<bool>(), 1..6), length in 1_usize..5_000, seed: u64,
        kind in kinds(), average: bool, consistent: bool, sealed: bool, planes in 1_u8..=PLANES, twice: bool,
    ) {
        let world = elsewhere.len() as u16;
        let replicas = if consistent { Replicas::Consistent } else { Replicas::Free };
        let options = Options { average, planes, replicas, reliability: Some(Reliability::Full), tag: 3, ..Options::default() };
        let mut got = group(world, faults, seed, sealed, Reliability::Full);
        let mut expected = group(world, faults, seed, sealed, Reliability::Full);
        let mut elsewhere = Run::new(&mut got, &elsewhere, seed);
        let mut here = Run::new(&mut expected, &vec![false; usize::from(world)], seed);
        // The second time rows have figures of importance, and memory is used again.
        for step in 0..=u32::from(twice) {
            let parts = parts(world, length, seed ^ u64::from(step));
            let got = elsewhere.results(step, kind, &parts, &options);
            let expected = here.results(step, kind, &parts, &options);
            prop_assert_eq!(bits(&got), bits(&expected), "step {}", step);
        }
    }

    /// Where packets stay trimmed and lost results depend on which; consistent replicas do not.
    #[test]
    fn consistent_replicas_are_one_where_packets_are_trimmed_and_lost_wherever_they_are_coded(
        faults in Faults::ADVERSARY.any_up_to(), elsewhere in prop::collection::vec(any::<bool>(), 2..6), length in 1_usize..5_000, seed: u64, sealed: bool,
        loss in 0.0_f32..0.3,
    ) {
        let world = elsewhere.len() as u16;
        let reliability = Some(Reliability::Bounded { loss });
        let options = Options { replicas: Replicas::Consistent, reliability, ..Options::default() };
        let mut group = group(world, faults, seed, sealed, Reliability::Full);
        let parts = parts(world, length, seed);
        let results = Run::new(&mut group, &elsewhere, seed).results(0, Kind::AllReduce, &parts, &options);
        let bits = bits(&results);
        prop_assert!(bits.iter().all(|other| *other == bits[0]));
    }
}

#[test]
fn sums_of_trimmed_packets_are_as_near_as_the_planes_that_are_left() {
    let faults = Faults { trim: 0.5, trim_to_at_least: 20 + 2 * 56, ..Faults::NONE };
    let parts = parts(4, 40_000, 5);
    let exact: Vec<f32> = (0..40_000).map(|i| parts.iter().map(|part| part[i]).sum()).collect();
    let options = Options { reliability: Some(Reliability::Bounded { loss: 0.0 }), ..Options::default() };
    let mut errors = Vec::new();
    for elsewhere in [[false; 4], [true; 4], [true, false, false, true]] {
        let mut group = Group::new(4, faults, 9, Reliability::Full, 10);
        let results = Run::new(&mut group, &elsewhere, 1).results(0, Kind::AllReduce, &parts, &options);
        errors.push(results.iter().map(|result| nmse(result, &exact)).sum::<f64>() / 4.0);
    }
    assert!(errors[0] > 1e-3, "something is trimmed: {errors:?}");
    assert!(errors.iter().all(|error| (error / errors[0] - 1.0).abs() < 0.3), "{errors:?}");
}

#[test]
fn an_operation_that_fails_elsewhere_fails_everywhere_by_name_and_the_next_one_goes_well() {
    let mut group = Group::new(3, Faults::ADVERSARY, 4, Reliability::Full, 10);
    let parts = parts(3, 20_000, 1);
    let options = Options { reliability: Some(Reliability::Full), ..Options::default() };
    let mut run = Run::new(&mut group, &[true; 3], 4);
    run.start(0, Kind::AllReduce, &parts, &options);
    let mut left = 9;
    let outcomes = run.finish(|rank, offloaded| {
        left -= usize::from(rank == 1 && left > 0);
        if rank == 1 && left == 0 { offloaded.fail() } else { work(rank, offloaded) }
    });
    assert_eq!(outcomes.len(), 3);
    for (rank, outcome) in outcomes {
        let error = outcome.result.expect_err("it fails").to_string();
        let expected =
            if rank == 1 { "a row is coded elsewhere, where that failed" } else { "because of rank 1" };
        assert!(error.contains(expected), "{rank}: {error}");
        drop(outcome.output);
        assert!(run.devices[rank].as_ref().expect("there").lent.lock().expect("no panic").is_empty());
    }
    run.results(1, Kind::AllReduce, &parts, &options);
}

#[test]
fn an_operation_that_is_cancelled_is_over_when_the_last_of_its_rows_is_back() {
    let mut group = Group::new(2, Faults::NONE, 4, Reliability::Full, 10);
    let parts = parts(2, 20_000, 1);
    let mut run = Run::new(&mut group, &[true; 2], 4);
    run.start(0, Kind::AllReduce, &parts, &Options::default());
    let now_ns = run.group.network.now_ns;
    let endpoint = &mut run.group.network.endpoints[0];
    let communicator = &mut run.group.communicators[0];
    let task = communicator.poll_task(endpoint).expect("rows that need nothing from others");
    let offloaded = task.offload().expect("it is done elsewhere");
    assert!(run.group.cancel(0, 0));
    let endpoint = &mut run.group.network.endpoints[0];
    let communicator = &mut run.group.communicators[0];
    assert!(
        communicator.poll_task(endpoint).is_none() && communicator.poll_outcome(now_ns, endpoint).is_none()
    );
    communicator.complete(now_ns, work(0, offloaded), endpoint);
    let outcome = communicator.poll_outcome(now_ns, endpoint).expect("it is over");
    assert_eq!(outcome.result, Err(OperationError::Cancelled { number: 0 }));
}

#[test]
fn a_row_beyond_f32_is_not_finite_on_any_rank_wherever_it_is_coded() {
    // Of rows that are full: padding would bring the root mean square back into f32.
    let mut parts = parts(2, 4_096, 1);
    parts[0].fill(f32::MAX);
    for elsewhere in [false, true] {
        let mut group = Group::new(2, Faults::NONE, 4, Reliability::Full, 10);
        let mut run = Run::new(&mut group, &[elsewhere; 2], 4);
        for result in run.results(0, Kind::AllReduce, &parts, &Options::default()) {
            assert!(result.iter().all(|sum| sum.is_nan()), "elsewhere: {elsewhere}");
        }
    }
}

#[test]
fn what_is_not_coded_elsewhere_is_refused_by_name() {
    let mut group = Group::new(4, Faults::NONE, 4, Reliability::Full, 10).on_hosts(&[0, 0, 1, 1]);
    let device = Arc::new(Gpu::default());
    let memory = |length| Memory::elsewhere(length, ElementType::F32, device.clone());
    let here = |length| Memory::from_vec(vec![0.0_f32; length]);
    let options = Options::default();
    let all_reduce = Collective::AllReduce { tensor: memory(9_000) };
    let error = group.start(0, 0, all_reduce, &options).expect_err("two levels").to_string();
    assert!(error.contains("need the direct algorithm, not two-level"), "{error}");
    let direct = Options { algorithm: Algorithm::Direct, ..options };
    let exact = Options { exact: true, ..direct.clone() };
    let other = Memory::elsewhere(3, ElementType::F32, Arc::new(Gpu::default()));
    for (collective, options) in [
        (Collective::AllReduce { tensor: memory(9_000) }, &exact),
        (Collective::Broadcast { tensor: memory(9), root: 0 }, &direct),
        (Collective::Reduce { tensor: memory(9), root: 0 }, &direct),
        (Collective::ReduceScatter { input: memory(12), output: here(3) }, &direct),
        (Collective::AllGather { input: here(3), output: memory(12) }, &direct),
        (Collective::ReduceScatter { input: memory(12), output: other }, &direct),
    ] {
        let error = group.start(0, 0, collective, options).expect_err("not elsewhere");
        assert_eq!(error, StartError::ElsewhereOperation { number: 0 });
    }
    // Who does not know what is elsewhere does nothing to it.
    let alone = Memory::elsewhere(8, ElementType::F16, device.clone());
    assert!(alone.to_f32().is_empty() && alone.into_vec::<f32>().is_err());
}
