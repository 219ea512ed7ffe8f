// SPDX-License-Identifier: Apache-2.0
//! Real training on a simulated network: every step's packets fare as the network has them fare.
//!
//! ```text
//!  replicas ─► gradients ─► shards ─► packets, of which what arrived is decoded ─► sums ─► packets … ─► replicas
//!                                        ▲ planes of each packet, and the step's time: trimwire_lab::sim
//! ```

use super::page::Curves;
use super::watch::Watch;
use crate::output::table;
use crate::training::digits::{CLASSES, Digits, PIXELS};
use crate::training::job::{Hyper, Job, exact_sum, relative_error};
use crate::training::mlp::Mlp;
use anyhow::Context as _;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Job as Seeds, Layout, Message, StreamId, f16,
};
use trimwire_lab::sim::report::{RunReport, TrainingReport, quantile, report};
use trimwire_lab::sim::run::{Outcome, run as simulate};
use trimwire_lab::sim::scenario::{Coding, Prepared, Training};

/// The network that is trained.
pub(super) fn network(hidden: u32) -> Mlp {
    let hidden = hidden as usize;
    Mlp::new(&[PIXELS, hidden, hidden, CLASSES])
}

/// Simulates step after step, and trains with what arrived.
pub(super) fn run(
    prepared: &Prepared,
    training: &Training,
    threads: usize,
    watch: &mut Watch,
) -> anyhow::Result<(RunReport, Curves)> {
    let hosts = prepared.setup.topology.hosts as usize;
    let hyper = Hyper {
        hidden: training.hidden as usize,
        batch: training.batch as usize,
        rate: training.learning_rate,
        momentum: training.momentum,
    };
    let mut job = Job::new(hyper, Digits::load()?, hosts, prepared.setup.seed);
    let mut wire = Wire::new(training, prepared.setup.payload, hosts, prepared.setup.seed)?;
    let (mut total, mut now_ns, mut nmse) = (Outcome::default(), 0, 0.0);
    let (mut times, mut curve): (Vec<u64>, Vec<(f64, f64)>) = (Vec::new(), vec![(0.0, job.accuracy())]);
    let whole_job = training.job(&prepared.setup);
    for step in 0..training.steps {
        let setup = training.step(&whole_job, step, now_ns);
        watch.name(format!("{}, step {} of {}", prepared.name, step + 1, training.steps));
        let mut outcome = simulate(&setup, threads, |progress| watch.tell(progress));
        // What others sent is not the job's, and differs from step to step.
        outcome.flows.retain(|flow| setup.demands[flow.demand].foreground);
        total.add(&outcome);
        if outcome.unfinished > 0 {
            // Nobody has the sum: the job hangs here.
            break;
        }
        let ends = outcome.flows.iter().map(|flow| flow.began_ns + flow.duration_ns);
        let began_ns = now_ns;
        now_ns = ends.max().unwrap_or(began_ns);
        times.push(now_ns - began_ns);
        let gradients = job.gradients();
        let sums = wire.all_reduce(step, &gradients, &outcome)?;
        nmse += relative_error(&sums[0], &exact_sum(&gradients));
        for (worker, sum) in sums.iter().enumerate() {
            job.apply(worker, sum);
        }
        if (step + 1).is_multiple_of(training.every) || step + 1 == training.steps {
            curve.push((now_ns as f64 / 1e9, job.accuracy()));
        }
    }
    let steps = times.len() as u32;
    let mut whole = report(prepared, &total, watch.finish());
    whole.flows *= u64::from(training.steps);
    whole.ideal_s *= f64::from(training.steps);
    let mut curves = Curves::new(prepared, &total);
    times.sort_unstable();
    whole.training = Some(TrainingReport {
        workers: hosts as u32,
        steps,
        target: training.target,
        seconds_to_target: curve.iter().find(|(_, right)| *right >= training.target).map(|(at, _)| *at),
        accuracy: curve.last().map_or(0.0, |(_, right)| *right),
        step_p50_s: quantile(&times, 0.5) as f64 / 1e9,
        step_p99_s: quantile(&times, 0.99) as f64 / 1e9,
        nmse: nmse / f64::from(steps.max(1)),
        drift: job.drift(),
    });
    curves.accuracy = curve;
    Ok((whole, curves))
}

/// Gradients on their way: each host owns a shard, sums what arrives of it, and sends the sum to
/// all.
struct Wire {
    hosts: usize,
    shard: usize,
    payload: usize,
    coding: Coding,
    encoder: Encoder,
    decoder: Decoder,
    message: Message,
}

impl Wire {
    fn new(training: &Training, payload: u32, hosts: usize, seed: u64) -> anyhow::Result<Self> {
        // Where no packets are encoded, any layout does.
        let per_packet = training.coding.of_packet(payload).unwrap_or(training.shard);
        // A shard is one row, however long.
        let layout = Layout::new(training.shard, per_packet.min(8_160))
            .and_then(|layout| layout.with_row_log2(15))
            .context("a shard has no layout")?;
        let (seeds, nobody) = (Seeds::new(seed), envelope(0, 0)?);
        Ok(Self {
            hosts,
            shard: training.shard,
            payload: payload as usize,
            coding: training.coding,
            encoder: Encoder::new(layout.clone(), seeds),
            decoder: Decoder::new(layout, seeds, nobody, Decoding::Unbiased),
            message: Message::default(),
        })
    }

    /// What each worker has of the sum after a step in which packets fared so.
    fn all_reduce(
        &mut self,
        step: u32,
        gradients: &[Vec<f32>],
        outcome: &Outcome,
    ) -> anyhow::Result<Vec<Vec<f32>>> {
        let (hosts, shard) = (self.hosts, self.shard);
        let length = gradients.first().map_or(0, Vec::len);
        // By owner.
        let mut shards = vec![vec![0.0; shard]; hosts];
        let mut part = vec![0.0; shard];
        for (owner, sum) in shards.iter_mut().enumerate() {
            let from = (owner * shard).min(length);
            let there = from..(from + shard).min(length);
            // What the gradient lacks of the last shards is zeros.
            part[there.len()..].fill(0.0);
            for (worker, gradient) in gradients.iter().enumerate() {
                part[..there.len()].copy_from_slice(&gradient[there.clone()]);
                if worker == owner {
                    self.keep(&part, sum);
                } else {
                    let demand = Training::demand(hosts, false, worker, owner);
                    let planes = outcome.planes.get(&demand).map_or(&[][..], |planes| planes);
                    self.encode(&part, worker, message(step, false, owner, hosts))?;
                    self.send(&part, planes, sum)?;
                }
            }
        }
        let mut sums = vec![vec![0.0; hosts * shard]; hosts];
        for (owner, sum) in shards.iter().enumerate() {
            self.encode(sum, owner, message(step, true, owner, hosts))?;
            for (worker, whole) in sums.iter_mut().enumerate() {
                let place = &mut whole[owner * shard..(owner + 1) * shard];
                if worker == owner {
                    self.keep(sum, place);
                } else {
                    let demand = Training::demand(hosts, true, owner, worker);
                    let planes = outcome.planes.get(&demand).map_or(&[][..], |planes| planes);
                    self.send(sum, planes, place)?;
                }
            }
        }
        sums.iter_mut().for_each(|sum| sum.truncate(length));
        Ok(sums)
    }

    /// Adds what never travels: an owner's own part, in the precision of everybody's.
    fn keep(&self, values: &[f32], sum: &mut [f32]) {
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum += self.rounded(*value);
        }
    }

    fn encode(&mut self, values: &[f32], source: usize, number: u32) -> anyhow::Result<()> {
        if let Coding::Planes(planes) = self.coding {
            let envelope = envelope(source, number)?;
            self.encoder.encode(values, envelope, planes, &mut self.message).context("a gradient")?;
            self.decoder.reset(envelope);
        }
        Ok(())
    }

    /// Adds what arrived of values that were encoded last, of each packet so many planes; no list
    /// means all of all.
    fn send(&mut self, values: &[f32], planes: &[u8], sum: &mut [f32]) -> anyhow::Result<()> {
        match self.coding {
            Coding::Planes(_) => {
                let Self { encoder, decoder, message, .. } = self;
                let layout = encoder.layout();
                anyhow::ensure!(
                    planes.len() == layout.packets(),
                    "a shard has {} packets in the network and {} in the codec",
                    planes.len(),
                    layout.packets()
                );
                decoder.reset(decoder.envelope());
                for (index, &planes) in planes.iter().enumerate().filter(|(_, planes)| **planes > 0) {
                    let held = layout.packet_len(Codec::Rht, index, planes);
                    decoder.receive(&message.packet(index)[..held]).context("a trimmed packet")?;
                }
                decoder.add_into(sum).context("a shard")?;
            }
            Coding::Floats(bytes) => {
                let per_packet = (self.payload / usize::from(bytes)).max(1);
                for (index, (value, sum)) in values.iter().zip(sum).enumerate() {
                    let lost = planes.get(index / per_packet).is_some_and(|planes| *planes == 0);
                    if !lost {
                        *sum += self.rounded(*value);
                    }
                }
            }
        }
        Ok(())
    }

    fn rounded(&self, value: f32) -> f32 {
        if self.coding == Coding::Floats(2) { f16::from_f32(value).to_f32() } else { value }
    }
}

/// No two messages of a worker have the same number.
fn message(step: u32, gathered: bool, owner: usize, hosts: usize) -> u32 {
    (2 * step + u32::from(gathered)) * hosts as u32 + owner as u32
}

fn envelope(rank: usize, message: u32) -> anyhow::Result<Envelope> {
    let stream = StreamId::new(0, rank as u16).context("more workers than ranks")?;
    Ok(Envelope { stream, message })
}

const TITLES: [&str; 9] =
    ["run", "workers", "steps", "to target", "accuracy", "step p50", "p99", "NMSE of sums", "drift"];

/// A table of what was trained, if anything was.
pub(super) fn human(runs: &[RunReport]) -> Option<String> {
    let row = |run: &RunReport| {
        let trained = run.training.as_ref()?;
        Some(vec![
            run.name.clone(),
            trained.workers.to_string(),
            trained.steps.to_string(),
            trained.seconds_to_target.map_or_else(|| "never".to_owned(), super::time),
            format!("{:.1} %", trained.accuracy * 100.0),
            super::time(trained.step_p50_s),
            super::time(trained.step_p99_s),
            format!("{:.1e}", trained.nmse),
            format!("{:.1e}", trained.drift),
        ])
    };
    let rows: Vec<Vec<String>> = runs.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| table(&TITLES, &rows, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimwire_encoder::{PLANES, expected_nmse};
    use trimwire_lab::sim::scenario::File;

    const HOSTS: usize = 4;

    /// A run of a file that trains on four hosts, with 8,192 coordinates a shard.
    fn prepared(run: &str) -> Prepared {
        let text = format!(
            "scenario: t\ntopology: {{ star: {{ hosts: {HOSTS}, rate: 10Gbps, delay: 1us }} }}\n\
             training: {{ hidden: 140, compute: 1us }}\nruns: [{{ name: r, {run} }}]\n"
        );
        let file = File::from_yaml(&text, "t.yaml", &[]).unwrap();
        let nowhere = std::path::Path::new("nowhere/t.yaml");
        file.prepare(
            &text,
            "t.yaml",
            &mut super::super::Beside { path: nowhere, made: &super::super::Made::default() },
        )
        .unwrap()
        .remove(0)
    }

    fn wire(run: &str) -> Wire {
        let prepared = prepared(run);
        Wire::new(prepared.training.as_ref().unwrap(), prepared.setup.payload, HOSTS, 1).unwrap()
    }

    fn gradients(length: usize) -> Vec<Vec<f32>> {
        let value =
            |worker: usize, i: usize| ((i * 2_654_435_761 + worker * 40_503) % 1_000) as f32 / 500.0 - 1.0;
        (0..HOSTS).map(|worker| (0..length).map(|i| value(worker, i)).collect()).collect()
    }

    /// All flows, with these planes of every packet.
    fn arrived(packets: usize, planes: impl Fn(usize) -> u8) -> Outcome {
        let of_flow: Box<[u8]> = (0..packets).map(planes).collect();
        let planes = (0..2 * HOSTS * (HOSTS - 1)).map(|demand| (demand, of_flow.clone())).collect();
        Outcome { planes, ..Outcome::default() }
    }

    #[test]
    fn where_everything_arrives_all_workers_have_the_exact_sum() {
        let gradients = gradients(30_000);
        let exact = exact_sum(&gradients);
        // 8,192 coordinates are 19 packets of 448.
        let cases = [
            ("transport: { dctcp: {} }", Outcome::default(), 1e-13),
            ("transport: { dctcp: {} }, compression: 2", Outcome::default(), 1e-6),
            ("transport: { trimwire: {} }", arrived(19, |_| PLANES), 1e-11),
            // Two bytes a coordinate, as many to a packet.
            ("transport: { trimwire: { planes: 9 } }", arrived(19, |_| 9), 1e-5),
        ];
        for (run, outcome, bound) in cases {
            for sum in wire(run).all_reduce(3, &gradients, &outcome).unwrap() {
                assert_eq!(sum.len(), exact.len());
                let error = relative_error(&sum, &exact);
                assert!(error < bound, "{run}: {error:e}");
            }
        }
    }

    #[test]
    fn sums_of_trimmed_packets_err_as_the_closed_form_says() {
        let gradients = gradients(32_000);
        let exact = exact_sum(&gradients);
        let planes = 3;
        let once = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(planes, 1.0)]);
        let sums =
            wire("transport: { trimwire: {} }").all_reduce(0, &gradients, &arrived(19, |_| planes)).unwrap();
        let energy = |values: &[f32]| values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
        for (worker, sum) in sums.iter().enumerate() {
            // In an owner's shard the parts of the three others err; of what comes from others the
            // sum errs again.
            let mut expected = 0.0;
            for owner in 0..HOSTS {
                let place = owner * 8_192..((owner + 1) * 8_192).min(exact.len());
                let parts = gradients.iter().enumerate().filter(|(other, _)| *other != owner);
                let scattered =
                    once * parts.map(|(_, gradient)| energy(&gradient[place.clone()])).sum::<f64>();
                let gathered = once * (energy(&exact[place]) + scattered);
                expected += scattered + if worker == owner { 0.0 } else { gathered };
            }
            let ratio = relative_error(sum, &exact) * energy(&exact) / expected;
            assert!((0.9..1.1).contains(&ratio), "worker {worker}: {ratio}");
        }
    }

    #[test]
    fn floats_that_are_lost_count_as_zero() {
        let gradients = gradients(30_000);
        // Packets of 336 floats, the third of which is lost, of everybody's part and of every sum.
        let outcome = arrived(25, |packet| if packet == 2 { 0 } else { PLANES });
        let sums = wire("transport: { mlt: {} }").all_reduce(0, &gradients, &outcome).unwrap();
        let exact = exact_sum(&gradients);
        for (worker, sum) in sums.iter().enumerate() {
            for (i, (got, exact)) in sum.iter().zip(&exact).enumerate() {
                let lost = (672..1_008).contains(&(i % 8_192));
                // An owner has its own part.
                let expected = if !lost {
                    *exact
                } else if i / 8_192 == worker {
                    gradients[worker][i]
                } else {
                    0.0
                };
                assert!((got - expected).abs() <= 1e-5, "worker {worker}, {i}: {got} for {expected}");
            }
        }
    }
}
