// SPDX-License-Identifier: Apache-2.0
//! From words to what is simulated: every value is checked, and the first that makes no sense is
//! named with its line.

use super::file::{File, IncastWords, Run, TopologyWords, TraceWords, WorkloadWords};
use super::locate::{Wrong, line_of, wrong};
use super::training::Training;
use super::transports::{rule, transport};
use super::words::P4Words;
use super::{Files, Programmed, ScenarioError, check, dcqcn};
use crate::espresso::Model;
use crate::sim::discipline::Rule;
use crate::sim::packet::HEAD;
use crate::sim::program::Programs;
use crate::sim::setup::{LinkChange, Setup};
use crate::sim::topology::{Shape, Topology};
use crate::sim::transport::{WHOLE, bits, bytes_of};
use crate::sim::workload::{
    Background, Demand, Incasts, ParameterServer, Sizes, all_reduce, all_to_all, distribution, incast,
    parameter_server, permutation, trace,
};

/// The demands of one scenario at most: a flow takes some hundred bytes before it begins.
const MOST_FLOWS: usize = 4_000_000;
const MOST_HOSTS: u32 = 16_384;
/// A forward pass at most: a thousand seconds.
const MOST_FORWARD_MS: f64 = 1e6;

/// One run, ready.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Its name.
    pub name: String,
    /// What is simulated.
    pub setup: Setup,
    /// Time that the busiest host's link takes for the payload of the foreground, s: nothing that
    /// carries all of it is faster.
    pub ideal_s: f64,
    /// What is trained with it, step by step.
    pub training: Option<Training>,
}

impl File {
    /// One of its runs, ready, with a seed. `text` and `name` are those that the file was read
    /// from, for messages.
    pub fn prepare_run(
        &self,
        number: usize,
        seed: u64,
        text: &str,
        name: &str,
        files: &mut impl Files,
    ) -> Result<Prepared, ScenarioError> {
        let refuse = |line, reason| ScenarioError::Value { file: name.to_owned(), line, reason };
        let Some(run) = self.runs.get(number) else {
            return Err(refuse(line_of(text, &["runs"], None), format!("runs: there is no run {number}")));
        };
        prepare(self, run, seed, files).map_err(|(path, reason)| {
            // What a run says by itself stands there; the rest stands once, above.
            let inside: Vec<&str> = ["runs"].into_iter().chain(path.iter().copied()).collect();
            let own = match path.first() {
                Some(&"topology") => run.topology.is_some(),
                Some(&"workload") => run.workload.is_some(),
                Some(&"payload") => run.payload.is_some(),
                Some(&"links" | &"training") => false,
                _ => true,
            };
            let tuned = run.tune.as_ref().filter(|_| run.settings.is_some());
            let line = match tuned.and_then(|tune| tune.key_of(&path)) {
                Some(key) => line_of(text, &["runs", "tune", key], Some(run.item)),
                None if own => line_of(text, &inside, Some(run.item)),
                None => line_of(text, &path, None),
            };
            refuse(line, format!("{reason} (run '{}')", run.name))
        })
    }

    /// Its runs, ready, with the file's seed.
    pub fn prepare(
        &self,
        text: &str,
        name: &str,
        files: &mut impl Files,
    ) -> Result<Vec<Prepared>, ScenarioError> {
        (0..self.runs.len()).map(|number| self.prepare_run(number, self.seed, text, name, files)).collect()
    }
}

/// Prepares one run.
fn prepare(file: &File, run: &Run, seed: u64, files: &mut dyn Files) -> Result<Prepared, Wrong> {
    let topology = topology(run.topology.as_ref().unwrap_or(&file.topology), files)?;
    if !(2..=MOST_HOSTS).contains(&topology.hosts) {
        return wrong(&["topology"], format!("{} hosts; valid are 2 to {MOST_HOSTS}", topology.hosts));
    }
    let payload = run.payload.unwrap_or(file.payload);
    if !(24..=8_976).contains(&payload) || !payload.is_multiple_of(24) {
        return wrong(
            &["payload"],
            format!("payload: {payload}; valid are multiples of 24 up to 8976, of ten planes of whole bytes"),
        );
    }
    let words = run.workload.as_ref().unwrap_or(&file.workload);
    let rate_bps = topology.cards().first().map_or(1, |(_, link, _)| link.rate_bps);
    let fastest_bps = topology.cards().iter().map(|(_, link, _)| link.rate_bps).max().unwrap_or(rate_bps);
    check::transport(&run.transport, fastest_bps)?;
    let transport = transport(&run.transport, rate_bps, &topology, words)?;
    let planes = run.transport.trimwire.as_ref().and_then(|words| words.planes);
    let compression = match (planes, run.compression) {
        (Some(_), Some(_)) => {
            return wrong(&["compression"], "compression: planes say what a coordinate takes".to_owned());
        }
        // Of f32.
        (Some(planes), None) => 32.0 / f64::from(bits(planes)),
        (None, given) => given.unwrap_or(1.0),
    };
    let training = match &file.training {
        Some(training) => {
            Some(Training::new(training, words, &topology, payload, compression, &transport, files)?)
        }
        None => None,
    };
    let demands = demands(words, training.as_ref(), &topology, rate_bps, compression, seed, files)?;
    let frame = u64::from(payload + HEAD);
    let rule = rule(run.switch.as_ref(), &run.transport, rate_bps, payload, frame)?;
    dcqcn::check(&rule, &topology)?;
    let name = run.topology.as_ref().unwrap_or(&file.topology).fabric.as_deref();
    let programs = programs(run, name, &topology, rule, payload, files)?;
    let changes = changes(file, &topology)?;
    let reroute_ns = file.reroute.map(|time| time.0);
    if reroute_ns.is_some() && programs.is_some() {
        let reason = "p4: the program's tables stay as they were written; valid without reroute";
        return wrong(&["switch", "p4"], reason.to_owned());
    }
    let ideal_s = ideal_s(&demands, &topology);
    let limit_ns = file.limit.map_or(10_000_000_000, |limit| limit.0);
    let setup = Setup {
        topology,
        demands,
        // As many coordinates as with all planes.
        payload: planes.map_or(payload, |planes| bytes_of(planes, payload, WHOLE)),
        transport,
        rule,
        programs,
        changes,
        reroute_ns,
        seed,
        limit_ns,
        keep_planes: training.is_some(),
    };
    Ok(Prepared { name: run.name.clone(), setup, ideal_s, training })
}

fn topology(words: &TopologyWords, files: &mut dyn Files) -> Result<Topology, Wrong> {
    let Some(name) = &words.fabric else { return Ok(shape(words)?.topology()) };
    if words.star.is_some()
        || words.dumbbell.is_some()
        || words.leaf_spine.is_some()
        || words.fat_tree.is_some()
    {
        return wrong(&["topology"], "topology: give either fabric or a shape".into());
    }
    files.fabric(name).map_err(|reason| (vec!["topology", "fabric"], reason))
}

fn shape(words: &TopologyWords) -> Result<Shape, Wrong> {
    let mut shapes = Vec::new();
    if let Some(star) = &words.star {
        shapes.push(Shape::Star { hosts: star.hosts, rate_bps: star.rate.0, delay_ns: star.delay.0 });
    }
    if let Some(bell) = &words.dumbbell {
        let (rate_bps, delay_ns) = (bell.rate.0, bell.delay.0);
        shapes.push(Shape::Dumbbell {
            hosts: bell.hosts,
            rate_bps,
            bottleneck_bps: bell.bottleneck.0,
            delay_ns,
        });
    }
    if let Some(tree) = &words.leaf_spine {
        shapes.push(Shape::LeafSpine {
            leaves: tree.leaves,
            spines: tree.spines,
            hosts_per_leaf: tree.hosts_per_leaf,
            rate_bps: tree.rate.0,
            uplink_bps: tree.uplink.unwrap_or(tree.rate).0,
            delay_ns: tree.delay.0,
        });
        if [tree.leaves, tree.spines, tree.hosts_per_leaf].iter().any(|&n| !(1..=1_024).contains(&n)) {
            return wrong(
                &["topology", "leaf_spine"],
                "leaves, spines, hosts_per_leaf: valid are 1 to 1024".into(),
            );
        }
    }
    if let Some(tree) = &words.fat_tree {
        if tree.k % 2 == 1 || !(2..=40).contains(&tree.k) {
            return wrong(
                &["topology", "fat_tree", "k"],
                format!("k: {}; valid are even numbers from 2 to 40", tree.k),
            );
        }
        shapes.push(Shape::FatTree { k: tree.k, rate_bps: tree.rate.0, delay_ns: tree.delay.0 });
    }
    match shapes[..] {
        [shape] => Ok(shape),
        _ => {
            wrong(&["topology"], "topology: give one of star, dumbbell, leaf_spine, fat_tree, fabric".into())
        }
    }
}

fn demands(
    words: &WorkloadWords,
    training: Option<&Training>,
    topology: &Topology,
    rate_bps: u64,
    compression: f64,
    seed: u64,
    files: &mut dyn Files,
) -> Result<Vec<Demand>, Wrong> {
    if !(1.0..=1e6).contains(&compression) {
        return wrong(&["compression"], format!("compression: {compression}; valid are 1 to 1000000 times"));
    }
    let hosts = topology.hosts;
    let less = |bytes: u64| ((bytes as f64 / compression) as u64).max(1);
    let mut made: Vec<Demand> = Vec::new();
    // Waits are by number, so each part is moved behind the one before.
    let mut add = |part: Vec<Demand>| {
        let before = made.len() as u32;
        made.extend(part.into_iter().map(|mut demand| {
            demand.after.iter_mut().for_each(|after| *after += before);
            demand
        }));
    };
    if let Some(training) = training {
        // First, so that a step's flows have the same numbers whatever is in the background.
        add(all_reduce(hosts, &training.all_reduce(), seed));
    }
    if let Some(cast) = &words.incast {
        if !(1..hosts).contains(&cast.senders) {
            let reason =
                format!("senders: {}; the topology has {hosts} hosts, one of which receives", cast.senders);
            return wrong(&["workload", "incast", "senders"], reason);
        }
        check::bytes("incast", cast.bytes)?;
        add(incasts(cast, less(cast.bytes.0), hosts, seed)?);
    }
    if let Some(all) = &words.permutation {
        check::bytes("permutation", all.bytes)?;
        add(permutation(hosts, less(all.bytes.0), all.jitter.map_or(0, |jitter| jitter.0), seed));
    }
    if let Some(all) = &words.all_to_all {
        if u64::from(hosts) * u64::from(hosts) > MOST_FLOWS as u64 {
            return wrong(
                &["workload", "all_to_all"],
                format!("all_to_all: {hosts} hosts have more than {MOST_FLOWS} pairs"),
            );
        }
        check::bytes("all_to_all", all.bytes)?;
        add(all_to_all(hosts, less(all.bytes.0), all.jitter.map_or(0, |jitter| jitter.0), seed));
    }
    if let Some(servers) = &words.parameter_server {
        let model = files
            .model(&servers.model)
            .map_err(|reason| (vec!["workload", "parameter_server", "model"], reason))?;
        let how = ParameterServer {
            group: servers.group,
            colocated: servers.colocated,
            jobs: servers.jobs,
            shards: servers.shards,
            iterations: servers.iterations,
            compression,
            by_layer: servers.by_layer,
            jitter: servers.jitter,
        };
        check_servers(&how, &model, hosts)?;
        add(parameter_server(&model, hosts, &how, seed));
    }
    if let Some(TraceWords { file, format }) = &words.trace {
        let at = |reason| (vec!["workload", "trace", "file"], reason);
        let text = files.trace(file).map_err(at)?;
        add(trace(*format, &text, hosts, compression).map_err(|error| at(format!("{file}, {error}")))?);
    }
    if let Some(background) = background(words, files)? {
        // By itself it is what the run is about.
        let alone = !words.has_patterns() && training.is_none();
        add(background.demands(hosts, rate_bps, alone, MOST_FLOWS + 1, seed));
    }
    if made.is_empty() || made.len() > MOST_FLOWS {
        let valid = format!("valid are 1 to {MOST_FLOWS}");
        return wrong(&["workload"], format!("workload: {} flows; {valid}", made.len()));
    }
    if let Some(long) = made.iter().map(|demand| demand.bytes).find(|&bytes| bytes > check::MOST_BYTES) {
        let reason = format!("workload: a flow of {long} bytes; valid are up to {}", check::MOST_BYTES);
        return wrong(&["workload"], reason);
    }
    Ok(made)
}

fn check_servers(how: &ParameterServer, model: &Model, hosts: u32) -> Result<(), Wrong> {
    let at = |key: &'static str, reason: String| wrong(&["workload", "parameter_server", key], reason);
    if !how.colocated && !(2..=hosts).contains(&how.group) {
        return at("group", format!("group: {}; valid are 2 to the number of hosts, {hosts}", how.group));
    }
    let (name, servers) = if how.colocated { ("hosts", hosts) } else { ("servers", hosts / how.group) };
    // A job of colocated servers needs two hosts, so that something travels.
    let most = if how.colocated { servers / 2 } else { servers };
    if !(1..=most).contains(&how.jobs) {
        return at("jobs", format!("jobs: {}; with {servers} {name}, valid are 1 to {most}", how.jobs));
    }
    if how.shards == 0 {
        return at("shards", "shards: 0; valid are 1 to the number of servers of a job".to_owned());
    }
    if !(0.0..=10.0).contains(&how.jitter) {
        return at("jitter", format!("jitter: {}; valid are 0 to 10 times", how.jitter));
    }
    if model.forward_ms > MOST_FORWARD_MS {
        return at("model", format!("forward_ms: {}; valid are up to {MOST_FORWARD_MS}", model.forward_ms));
    }
    let flows = how.flows(model, hosts);
    if flows > MOST_FLOWS as u64 {
        let reason = format!("parameter_server: about {flows} flows; valid are up to {MOST_FLOWS}");
        return wrong(&["workload", "parameter_server"], reason);
    }
    Ok(())
}

/// One incast, or those of a Poisson process.
fn incasts(words: &IncastWords, bytes: u64, hosts: u32, seed: u64) -> Result<Vec<Demand>, Wrong> {
    let jitter_ns = words.jitter.map_or(0, |jitter| jitter.0);
    match (words.every, words.until) {
        (None, None) => Ok(incast(words.senders, bytes, jitter_ns, seed)),
        (Some(every), Some(until)) if every.0 > 0 => {
            let (every_ns, until_ns) = (every.0, until.0);
            let incasts = Incasts { senders: words.senders, bytes, jitter_ns, every_ns, until_ns };
            Ok(incasts.demands(hosts, MOST_FLOWS + 1, seed))
        }
        _ => wrong(&["workload", "incast", "every"], "every: valid is a time above 0, with until".into()),
    }
}

/// What others send.
pub(super) fn background(words: &WorkloadWords, files: &mut dyn Files) -> Result<Option<Background>, Wrong> {
    let Some(others) = &words.background else { return Ok(None) };
    let at = |key: &'static str, reason| (vec!["workload", "background", key], reason);
    if !(0.0..1.0).contains(&others.load) {
        return Err(at("load", format!("load: {}; valid are 0 to below 1", others.load)));
    }
    let sizes = match others.file() {
        None if others.sizes == "web-search" => Sizes::web_search(),
        None => Sizes::data_mining(),
        Some(name) => {
            let valid = "valid are web-search, data-mining and files";
            let text =
                files.trace(name).map_err(|reason| at("sizes", format!("sizes: {reason}; {valid}")))?;
            distribution(&text).map_err(|error| at("sizes", format!("{name}, {error}")))?
        }
    };
    Ok(Some(Background { sizes, load: others.load, until_ns: others.until.0 }))
}

/// Switches that run the P4 program instead of the rule that stands for it. `fabric` is the file
/// that the topology is from.
fn programs(
    run: &Run,
    fabric: Option<&str>,
    topology: &Topology,
    rule: Rule,
    payload: u32,
    files: &mut dyn Files,
) -> Result<Option<Programs>, Wrong> {
    let Some(words) = run.switch.as_ref().filter(|words| words.p4.is_some()) else { return Ok(None) };
    let wrong = |reason: &str| wrong(&["switch", "p4"], format!("p4: {reason}"));
    let Rule::Ladder(rungs) = rule else {
        return wrong("the program is run with transport trimwire; valid for others are plain switches");
    };
    let made = match (&words.p4, fabric) {
        (Some(P4Words::Some(_)), Some(_)) => {
            return wrong(
                "with a fabric file all switches run the program, with the file's policy; valid is all",
            );
        }
        (_, Some(_)) if words.thresholds().next().is_some() => {
            return wrong("thresholds are the fabric file's; valid beside p4 is nothing");
        }
        (_, Some(name)) => files.programs(&Programmed::Fabric { name }),
        (words, None) => {
            let switches = match words {
                Some(P4Words::Some(switches)) => switches.clone(),
                _ => (0..topology.switches).collect(),
            };
            if let Some(switch) = switches.iter().find(|&&switch| switch >= topology.switches) {
                return wrong(&format!("switch {switch}; the topology has {}, from 0", topology.switches));
            }
            files.programs(&Programmed::Generated { topology, rungs: &rungs, payload, switches: &switches })
        }
    };
    made.map(Some).map_err(|reason| (vec!["switch", "p4"], reason))
}

fn changes(file: &File, topology: &Topology) -> Result<Vec<LinkChange>, Wrong> {
    let mut made = Vec::new();
    for change in &file.links {
        if !(0.0..=1.0).contains(&change.loss) {
            return wrong(&["links"], format!("loss: {}; valid are 0 to 1", change.loss));
        }
        let links: Vec<usize> = match (change.link, change.switch) {
            (Some(link), None) if link < topology.links.len() => vec![link],
            (Some(link), None) => {
                let reason = format!("link: {link}; the topology has {}, from 0", topology.links.len());
                return wrong(&["links"], reason);
            }
            // A switch that fails is all of its links at once: what waits in it is lost, too.
            (None, Some(switch)) if switch < topology.switches => topology.links_of(switch),
            (None, Some(switch)) => {
                let reason = format!("switch: {switch}; the topology has {}, from 0", topology.switches);
                return wrong(&["links"], reason);
            }
            _ => return wrong(&["links"], "links: give either link or switch".into()),
        };
        let (at_ns, up, loss) = (change.at.0, change.up, change.loss);
        made.extend(links.into_iter().map(|link| LinkChange { at_ns, link, up, loss }));
    }
    Ok(made)
}

fn ideal_s(demands: &[Demand], topology: &Topology) -> f64 {
    let mut bytes = vec![(0_u64, 0_u64); topology.hosts as usize];
    for demand in demands.iter().filter(|demand| demand.foreground) {
        bytes[demand.source as usize].0 += demand.bytes;
        bytes[demand.destination as usize].1 += demand.bytes;
    }
    let cards = topology.cards();
    let times = bytes
        .iter()
        .zip(&cards)
        .map(|(&(out, into), (_, link, _))| out.max(into) as f64 * 8.0 / link.rate_bps as f64);
    times.fold(0.0, f64::max)
}
