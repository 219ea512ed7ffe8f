// SPDX-License-Identifier: Apache-2.0
//! One core, no sockets: the whole switch, and its stages.
//!
//! Stages are measured by leaving parts of the program out, so that no clock is read between them:
//! parser and deparser by a program without pipelines, actions by one whose tables have no keys and
//! whose default actions are the ones that the packets meet, matching by the difference to the
//! whole program. All of them take one batch in turn, and differences are those of batches that
//! followed each other, so that what else the machine does concerns both; the median of these is
//! told, be it negative.

#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use super::workload::{CLASS, THRESHOLDS, frames, install};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata};
use trimwire_switch::server::serve;
use trimwire_switch::traffic::TrafficManager;
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

/// Packets that one stage takes after another.
const BATCH: usize = 256;
const PORTS: u32 = 64;

/// Time per packet, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stages {
    /// Parser, checksum verification, and taking the frame in.
    pub(super) parse: f64,
    /// Table look-ups and action selectors.
    pub(super) matching: f64,
    /// Actions and control flow, counters and registers.
    pub(super) actions: f64,
    /// Checksums, deparser, and giving the frame out.
    pub(super) deparse: f64,
    /// Traffic manager.
    pub(super) tm: f64,
    /// Of the whole switch, measured by itself.
    pub(super) total: f64,
}

/// The packets that are measured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    /// Length of the frames.
    pub(super) packet_bytes: usize,
    /// Flows that they are of, in turn.
    pub(super) flows: u32,
    /// Whether they are trimmed, as behind a full queue.
    pub(super) trim: bool,
    /// Whether instructions are carried out one by one, though there may be machine code.
    pub(super) interpret: bool,
}

/// What was measured with one load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EngineResult {
    /// Which.
    pub(super) load: Load,
    /// As machine code or interpreted, in words.
    pub(super) runs_as: String,
    /// On one core.
    pub(super) packets_per_second: f64,
    /// Where the time goes.
    pub(super) stages: Stages,
}

/// Has the whole switch pass so many packets, without a clock: for counting instructions.
///
/// # Errors
/// A program without the tables that are filled.
pub(super) fn pass(load: Load, packets: usize) -> Result<(), String> {
    let mut frames = Frames { all: frames(load.packet_bytes, load.flows), next: 0 };
    let switch = filled(load)?;
    let mut switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
    let mut now_ns = 0;
    for _ in 0..packets.div_ceil(BATCH) {
        whole(&mut switch, &mut frames, &mut now_ns)?;
    }
    Ok(())
}

/// Frames of all flows in turn, from batch to batch.
struct Frames {
    all: Vec<Vec<u8>>,
    next: usize,
}

impl Frames {
    fn batch(&mut self) -> impl Iterator<Item = &Vec<u8>> {
        let start = self.next;
        self.next = (start + BATCH) % self.all.len();
        self.all.iter().cycle().skip(start).take(BATCH)
    }
}

/// Measures for about `seconds`.
///
/// # Errors
/// A program without the tables that are filled.
pub(super) fn measure(load: Load, seconds: f64) -> Result<EngineResult, String> {
    let mut frames = Frames { all: frames(load.packet_bytes, load.flows), next: 0 };
    let switch = filled(load)?;
    let mut switch = switch.lock().unwrap_or_else(PoisonError::into_inner);
    let mut keyless = loaded(&without_keys(trimwire_p4::BMV2_JSON)?)?;
    let mut bare = loaded(&without_pipelines(trimwire_p4::BMV2_JSON)?)?;
    [&mut keyless, &mut bare].into_iter().for_each(|pipeline| pipeline.interpret(load.interpret));
    let mut traffic = TrafficManager::new(PortConfig::default());
    let (mut rounds, mut now_ns, start) = (Vec::new(), 0, Instant::now());
    while rounds.is_empty() || start.elapsed() < Duration::from_secs_f64(seconds) {
        let total = whole(&mut switch, &mut frames, &mut now_ns)?;
        let pipeline = switch.pipeline().ok_or("no program")?;
        let [ingress, tm, egress] = batch(pipeline, &mut traffic, &mut frames, &mut now_ns)?;
        let [keyless_ingress, _, keyless_egress] =
            batch(&mut keyless, &mut traffic, &mut frames, &mut now_ns)?;
        let [parse, _, deparse] = batch(&mut bare, &mut traffic, &mut frames, &mut now_ns)?;
        rounds.push(Stages {
            parse,
            matching: ingress + egress - keyless_ingress - keyless_egress,
            actions: keyless_ingress + keyless_egress - parse - deparse,
            deparse,
            tm,
            total,
        });
    }
    let median = |stage: fn(&Stages) -> f64| {
        let mut times: Vec<f64> = rounds.iter().map(stage).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    let stages = Stages {
        parse: median(|stages| stages.parse),
        matching: median(|stages| stages.matching),
        actions: median(|stages| stages.actions),
        deparse: median(|stages| stages.deparse),
        tm: median(|stages| stages.tm),
        total: median(|stages| stages.total),
    };
    let runs_as = switch.pipeline().ok_or("no program")?.runs_as();
    Ok(EngineResult { load, runs_as, packets_per_second: 1e9 / stages.total, stages })
}

fn loaded(json: &[u8]) -> Result<Pipeline, String> {
    Pipeline::load(json).map_err(|error| error.to_string())
}

/// A switch whose tables were filled over P4Runtime, as every other switch's are.
fn filled(load: Load) -> Result<SharedSwitch, String> {
    let switch = Arc::new(Mutex::new(Switch::new(SwitchConfig { device_id: 1, ..SwitchConfig::default() })));
    let server = serve(Arc::clone(&switch), ([127, 0, 0, 1], 0).into()).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(install(&server.local_addr().to_string(), 1, PORTS, load.trim))?;
    server.shutdown();
    let mut filled = switch.lock().unwrap_or_else(PoisonError::into_inner);
    filled.pipeline().ok_or("no program")?.interpret(load.interpret);
    drop(filled);
    Ok(switch)
}

fn per_packet(batch: Duration) -> f64 {
    batch.as_nanos() as f64 / BATCH as f64
}

/// Nanoseconds per packet of the whole switch: every frame has to leave.
fn whole(switch: &mut Switch, frames: &mut Frames, now_ns: &mut u64) -> Result<f64, String> {
    let (clock, mut sent) = (Instant::now(), 0);
    for frame in frames.batch() {
        *now_ns += 100;
        switch.handle_frame(*now_ns, 1, frame);
        while let Some(transmit) = switch.poll_transmit() {
            sent += 1;
            switch.recycle(transmit.frame);
        }
    }
    let batch = clock.elapsed();
    if sent != BATCH {
        return Err(format!("{sent} of {BATCH} frames left: the program drops what is measured"));
    }
    Ok(per_packet(batch))
}

/// Nanoseconds per packet of ingress, traffic manager and egress.
fn batch(
    pipeline: &mut Pipeline,
    traffic: &mut TrafficManager<Enqueue>,
    frames: &mut Frames,
    now_ns: &mut u64,
) -> Result<[f64; 3], String> {
    let (mut queue, mut out) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
    *now_ns += 100_000;
    let now_ns = *now_ns;
    let clock = Instant::now();
    for frame in frames.batch() {
        pipeline.ingress(now_ns, 1, frame, &mut queue);
    }
    let ingress = clock.elapsed();
    let clock = Instant::now();
    for packet in queue.drain(..) {
        let (port, number, length) = (packet.port, packet.queue, packet.length);
        let _ = traffic.enqueue(now_ns, port, number, length, packet);
        if let Some(dequeued) = traffic.dequeue(now_ns) {
            traffic.transmitted(dequeued.port, dequeued.start_ns, length as usize);
            out.push(dequeued.item);
        }
    }
    let tm = clock.elapsed();
    let (clock, mut sent) = (Instant::now(), 0);
    for packet in out.drain(..) {
        if let EgressOutcome::Transmit { frame, .. } =
            pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue)
        {
            sent += 1;
            pipeline.recycle(frame);
        }
    }
    let egress = clock.elapsed();
    if sent != BATCH {
        return Err(format!(
            "{sent} of {BATCH} frames left a part of the program: it drops what is measured"
        ));
    }
    Ok([ingress, tm, egress].map(per_packet))
}

/// The program with parser and deparser only.
fn without_pipelines(json: &[u8]) -> Result<Vec<u8>, String> {
    edited(json, |pipeline| pipeline["init_table"] = Value::Null)
}

/// The program without keys in its tables, each with the default action that the packets meet.
fn without_keys(json: &[u8]) -> Result<Vec<u8>, String> {
    edited(json, |pipeline| {
        for table in pipeline["tables"].as_array_mut().into_iter().flatten() {
            if table["key"].as_array().is_none_or(Vec::is_empty) {
                continue;
            }
            let (action, data) = match table["name"].as_str() {
                Some("Ingress.ipv4_route") => ("Ingress.forward", &[1, 0x0200_0000_0000][..]),
                Some("Ingress.classify") => ("Ingress.set_trimmable", &CLASS[..]),
                Some("Ingress.queue_policy.policy") => {
                    ("Ingress.queue_policy.set_thresholds", &THRESHOLDS[..])
                }
                // A table that no packet comes to.
                _ => continue,
            };
            let position =
                table["actions"].as_array().and_then(|all| all.iter().position(|name| name == action));
            let id = position.map_or(Value::Null, |position| table["action_ids"][position].clone());
            let data: Vec<_> = data.iter().map(|value| format!("{value:#x}")).collect();
            table["key"] = json!([]);
            table["match_type"] = json!("exact");
            table["type"] = json!("simple");
            table["default_entry"] = json!({
                "action_id": id, "action_const": false, "action_data": data, "action_entry_const": false,
            });
            // Without keys every look-up is a miss: it goes on where a hit would have.
            if !table["next_tables"]["__HIT__"].is_null() {
                table["next_tables"]["__MISS__"] = table["next_tables"]["__HIT__"].clone();
            }
            if let Some(table) = table.as_object_mut() {
                table.remove("action_profile");
            }
        }
    })
}

fn edited(json: &[u8], edit: impl Fn(&mut Value)) -> Result<Vec<u8>, String> {
    let mut program: Value = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    program["pipelines"].as_array_mut().into_iter().flatten().for_each(edit);
    serde_json::to_vec(&program).map_err(|error| error.to_string())
}
