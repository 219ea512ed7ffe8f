// SPDX-License-Identifier: Apache-2.0
//! Operations of one size after the other, measured and checked.

use super::args::OnFailure;
use super::{Bench, LINGER_NS, LOOK_NS, QUIET_NS, Row, coordinates, cpu_seconds, operation, options};
use crate::operation::Operation;
use crate::transcript::{ended, hash, notice, over};
use crate::{Failure, failed};
use anyhow::anyhow;
use sha2::{Digest, Sha256};
use trimwire_agent::collective::{Collective, Memory, Outcome, OutcomeStats, StartError, shard_range};
use trimwire_agent::driver::Link;
use trimwire_agent::serve::{Notice, PushPull};
use trimwire_agent::transcript::Filtered;
use trimwire_encoder::nmse;

impl<L: Link> Bench<'_, L> {
    /// Which of the tensor is this rank's.
    pub(super) fn own(&self, coordinates: usize) -> std::ops::Range<usize> {
        let config = self.communicator.config();
        shard_range(coordinates, config.world, config.rank)
    }

    /// What this rank is to have after the operation, exactly; `None` where it is to have nothing.
    pub(super) fn expected(&mut self, coordinates: usize) -> Result<Option<Vec<f32>>, Failure> {
        let args = self.args;
        let range = match args.operation {
            Operation::ReduceScatter => self.own(coordinates),
            Operation::Reduce if self.sums.rank != args.root => return Ok(None),
            _ => 0..coordinates,
        };
        if let Some(exact) = &self.exact {
            return Ok(exact.get(range).map(<[f32]>::to_vec));
        }
        let sums = self.sums.clone();
        self.meanwhile(|| sums.gathered(coordinates)).map(Some)
    }

    /// Other ranks sum than before.
    pub(super) fn reckon(&mut self) -> Result<(), Failure> {
        let (sums, most) = (self.sums.clone(), self.gradient.len());
        self.exact = self.meanwhile(|| sums.sum(most))?;
        Ok(())
    }

    /// Computes something on another thread while this one looks after the network: others may not
    /// have heard yet that they are done.
    pub(super) fn meanwhile<R: Send>(&mut self, compute: impl FnOnce() -> R + Send) -> Result<R, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(compute);
            while !thread.is_finished() {
                let until_ns = self.driver.now_ns().saturating_add(LOOK_NS);
                if let Some(ended) = self.drive(until_ns)? {
                    self.note(&ended)?;
                }
            }
            thread.join().map_err(|_| failed(anyhow!("the thread that works out what is right panicked")))
        })
    }

    pub(super) fn collective(&self, gradient: &[f32]) -> Collective {
        let args = self.args;
        let own = self.own(gradient.len());
        // A root that has died ends the job before this.
        let root = self.communicator.epoch().place(args.root).unwrap_or(u16::MAX);
        let tensor = Memory::from_vec(gradient.to_vec());
        match args.operation {
            Operation::AllReduce => Collective::AllReduce { tensor },
            Operation::ReduceScatter => Collective::ReduceScatter {
                input: tensor,
                output: Memory::from_vec(vec![0.0_f32; own.len()]),
            },
            Operation::AllGather => Collective::AllGather {
                input: Memory::from_vec(gradient.get(own).unwrap_or_default().to_vec()),
                output: Memory::from_vec(vec![0.0_f32; gradient.len()]),
            },
            Operation::Broadcast => Collective::Broadcast { tensor, root },
            Operation::Reduce => Collective::Reduce { tensor, root },
            Operation::PushPull => {
                let (length, servers) = (tensor.len(), args.servers.clone());
                Collective::PushPull { tensor: Some(tensor), length, servers }
            }
        }
    }

    pub(super) fn measure(&mut self, bytes: u64) -> Result<Row, Failure> {
        let args = self.args;
        let coordinates = coordinates(bytes);
        let mut results = Sha256::new();
        let mut exact = self.expected(coordinates)?;
        let mut total = OutcomeStats::default();
        let mut error = 0.0;
        let mut durations_ns = Vec::new();
        let mut cpu = 0.0;
        let mut iteration = 0;
        while iteration < args.warmup_iters + args.iters {
            let collective = self.collective(self.gradient.get(..coordinates).unwrap_or_default());
            // The copy of the gradient that is summed in place is the measurement's, not the
            // operation's.
            let cpu_before = cpu_seconds();
            let Some((outcome, told)) = self.one(collective, coordinates, &mut results)? else {
                self.reckon()?;
                exact = self.expected(coordinates)?;
                continue;
            };
            iteration += 1;
            if let (Some(steering), Some(told)) = (&mut self.steering, told) {
                let law = steering.law();
                self.publisher.operations().steered(law.law(), law.ratio(), law.planes(), law.pace());
                steering.take(told, None)?;
            }
            if iteration <= args.warmup_iters {
                continue;
            }
            cpu += cpu_seconds() - cpu_before;
            durations_ns.push(outcome.duration_ns);
            total.packets += outcome.stats.packets;
            total.trimmed += outcome.stats.trimmed;
            total.missing += outcome.stats.missing;
            total.repaired += outcome.stats.repaired;
            if let Some((result, exact)) = outcome.into_f32().zip(exact.as_ref()) {
                let err = self.meanwhile(|| nmse(&result, exact))?;
                error += err;
                let taken = self.steering.as_mut().and_then(|steering| steering.taken.last_mut());
                taken.into_iter().for_each(|taken| taken.nmse = Some(err));
            }
        }
        let iters = f64::from(args.iters);
        let seconds_each = durations_ns.iter().map(|&ns| ns as f64 / 1e9).collect();
        durations_ns.sort_unstable();
        let seconds = durations_ns.iter().sum::<u64>() as f64 / 1e9 / iters;
        // Nearest rank, as nccl-tests' users expect of few samples.
        let quantile = |q: f64| {
            let at =
                ((durations_ns.len() as f64 * q).ceil() as usize).clamp(1, durations_ns.len().max(1)) - 1;
            durations_ns.get(at).map_or(0.0, |&ns| ns as f64 / 1e9)
        };
        let algbw = (coordinates * 4) as f64 / seconds.max(1e-9);
        let share = |count: u64| count as f64 / (total.packets.max(1)) as f64;
        Ok(Row {
            bytes: coordinates as u64 * 4,
            coordinates,
            iters: args.iters,
            planes: if args.exact { 1 } else { args.planes },
            seconds,
            seconds_p50: quantile(0.5),
            seconds_p99: quantile(0.99),
            seconds_each,
            cpu_seconds: cpu / iters,
            algbw,
            busbw: algbw * args.operation.bus_factor(self.sums.members.len() as u16),
            packets: total.packets,
            trimmed_share: share(total.trimmed),
            missing_share: share(total.missing),
            repaired: total.repaired,
            nmse: error / iters,
            adaptive: self.steering.as_mut().map(|steering| std::mem::take(&mut steering.taken)),
            sha256: self.filter.is_used().then(|| hash(results)),
        })
    }

    /// One operation, and what ranks have told each other of it; `None` where it failed and the
    /// ranks that are left go on without it.
    pub(super) fn one(
        &mut self,
        collective: Collective,
        coordinates: usize,
        results: &mut Sha256,
    ) -> Result<Option<(Outcome, Option<Outcome>)>, Failure> {
        let options = options(self.args);
        let options = match &self.steering {
            Some(steering) => steering.apply(&options),
            None => options,
        };
        if let Collective::PushPull { length, .. } = &collective {
            self.tell(&Notice::PushPull(PushPull { length: *length, options: options.clone() }))?;
        }
        let number = self.number;
        self.number += 1;
        let now_ns = self.driver.now_ns();
        let shrinks = self.args.on_failure == OnFailure::Shrink;
        let begun = self.communicator.start(now_ns, number, collective, options, self.driver.endpoint());
        match begun {
            // What else keeps an operation from beginning is here, and here to stay.
            Err(error @ (StartError::Epoch { .. } | StartError::Send { .. } | StartError::Expect { .. }))
                if shrinks =>
            {
                return self.recover(&error.to_string()).map(|()| None);
            }
            begun => begun.map_err(failed)?,
        }
        let mut outcome = self.finish(number)?;
        if self.filter.is_used() {
            let now_ns = self.driver.now_ns();
            let record = over(operation(self.args, number, coordinates), now_ns, &outcome, results);
            self.filter.on_operation(now_ns, record).map_err(failed)?;
        }
        let operations = self.publisher.operations();
        match outcome.result {
            Ok(()) => operations.took(self.args.operation.name(), outcome.duration_ns),
            Err(_) => operations.failed(self.args.operation.name()),
        }
        match std::mem::replace(&mut outcome.result, Ok(())) {
            Err(error) if shrinks => return self.recover(&error.to_string()).map(|()| None),
            result => result.map_err(failed)?,
        }
        self.done += 1;
        let idle_ns = if self.ended_ns == 0 { 0 } else { now_ns.saturating_sub(self.ended_ns) };
        let told = self.exchange(&outcome, idle_ns)?;
        self.ended_ns = self.driver.now_ns();
        Ok(Some((outcome, told)))
    }

    /// Has all ranks hear what each counted of an operation, where an algorithm wants to know.
    pub(super) fn exchange(&mut self, outcome: &Outcome, idle_ns: u64) -> Result<Option<Outcome>, Failure> {
        let Some((collective, options)) =
            self.steering.as_ref().map(|steering| steering.exchange(outcome, idle_ns))
        else {
            return Ok(None);
        };
        let number = self.number;
        self.number += 1;
        let now_ns = self.driver.now_ns();
        let begun = self.communicator.start(now_ns, number, collective, options, self.driver.endpoint());
        begun.map_err(failed)?;
        self.finish(number).map(Some)
    }

    /// Begins to tell servers something.
    pub(super) fn tell(&mut self, notice: &Notice) -> Result<(), Failure> {
        let Self { args, communicator, driver, number, .. } = self;
        let now_ns = driver.now_ns();
        notice
            .tell(now_ns, *number, &args.servers, communicator.communicator(), driver.endpoint())
            .map_err(failed)?;
        *number += 1;
        Ok(())
    }

    /// Runs until an operation has ended. Others, which tell servers, may end well meanwhile; one
    /// that does not is what is wrong with this one.
    pub(super) fn finish(&mut self, wanted: u32) -> Result<Outcome, Failure> {
        loop {
            let outcome = self.drive(u64::MAX).inspect_err(|_| {
                // The others are told, rather than left to wait.
                let now_ns = self.driver.now_ns();
                self.communicator.cancel(now_ns, wanted, self.driver.endpoint());
                let _ = self.driver.linger(QUIET_NS, LINGER_NS);
            })?;
            let outcome = outcome.ok_or_else(|| failed(anyhow!("operation {wanted} did not end")))?;
            if outcome.number == wanted || outcome.result.is_err() {
                return Ok(outcome);
            }
            self.note(&outcome)?;
        }
    }

    /// Looks after the network until an operation has ended, or that time has come.
    pub(super) fn drive(&mut self, until_ns: u64) -> Result<Option<Outcome>, Failure> {
        let Self { communicator, driver, publisher, filter, .. } = self;
        let mut filtered = Filtered { application: communicator, filter };
        publisher.run(driver, until_ns, &mut filtered)?.transpose().map_err(failed)
    }

    /// Takes note of an operation that has told servers something.
    pub(super) fn note(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let now_ns = self.driver.now_ns();
        self.filter.on_operation(now_ns, ended(notice(outcome), now_ns, outcome)).map_err(failed)?;
        outcome.result.map_err(failed)
    }

    /// Tells servers that nothing more comes.
    pub(super) fn leave(&mut self) -> Result<(), Failure> {
        if self.args.on_failure == OnFailure::Shrink {
            self.part();
        }
        if self.args.servers.is_empty() {
            return Ok(());
        }
        self.tell(&Notice::Leave)?;
        // Earlier notices may be on their way still, to workers who had no need of them.
        loop {
            let next = self.communicator.active().next();
            let Some(number) = next else { return Ok(()) };
            let outcome = self.finish(number)?;
            self.note(&outcome)?;
        }
    }
}
