// SPDX-License-Identifier: Apache-2.0
//! Tofino 1's policy against a model of RFC 2698's meters, token by token: the configuration that
//! the controller writes, and a port behind it. The table of docs/how-to/tofino.md is its result.
//!
//! The port's line is shared by the trim queue, first and capped at three quarters, and the classes
//! in strict order. A class that is full deflects: the packet is trimmed deep, and joins the trim queue. What
//! the model has not: the chip's own rounding of rates, meters of several pipes, the time of
//! mirroring and recirculation, and senders that give way.

use trimwire_p4runtime::p4info::P4Info;
use trimwire_p4runtime::v1::MeterConfig;
use trimwire_p4runtime::v1::entity::Entity as Kind;

use super::*;
use crate::model::Target;
use crate::program::Artifacts;
use crate::target::tests::fabric;

const PACKET: f64 = 1500.0;
const RATE_BPS: u64 = 10_000_000_000;
/// Bytes in a nanosecond.
const LINE: f64 = RATE_BPS as f64 / 8e9;
const SECONDS: f64 = 0.05;

#[derive(Clone, Copy, PartialEq)]
enum Colour {
    Green,
    Yellow,
    Red,
}

/// RFC 2698, section 3, colour-blind.
struct Meter {
    config: MeterConfig,
    committed: f64,
    peak: f64,
    at_ns: f64,
}

impl Meter {
    fn new(config: MeterConfig) -> Self {
        let (committed, peak) = (config.cburst as f64, config.pburst as f64);
        Self { config, committed, peak, at_ns: 0.0 }
    }

    fn colour(&mut self, now_ns: f64, bytes: f64) -> Colour {
        let since = now_ns - std::mem::replace(&mut self.at_ns, now_ns);
        let filled =
            |bucket: f64, rate: i64, burst: i64| (bucket + since * rate as f64 / 1e9).min(burst as f64);
        self.committed = filled(self.committed, self.config.cir, self.config.cburst);
        self.peak = filled(self.peak, self.config.pir, self.config.pburst);
        if self.peak < bytes {
            return Colour::Red;
        }
        self.peak -= bytes;
        if self.committed < bytes {
            return Colour::Yellow;
        }
        self.committed -= bytes;
        Colour::Green
    }
}

/// Percentages of all packets, and the fullest that any class was, in percent of its limit.
#[derive(Debug, Default, Clone, Copy)]
struct Outcome {
    shallow: f64,
    deep: f64,
    deflected: f64,
    lost: f64,
    fullest: f64,
}

/// What the controller writes for one class of a port of 10 Gbit/s, with the sizes and the limits.
struct Port {
    config: MeterConfig,
    shallow: f64,
    deep: f64,
    trim_limit: f64,
    cap: f64,
}

fn port() -> Port {
    let fabric = fabric("stratum-tofino", "policy: { trim_cap: 75% }\n");
    let ports = fabric.switches["s1"].target.convert(&fabric.policies["s1"], &fabric.queues);
    let p4info = include_bytes!("../../../../p4/build/tofino/trimwire.p4info.txtpb");
    let artifacts = Artifacts::unchecked(P4Info::from_bytes(p4info).unwrap());
    let extras = Target::StratumTofino.extras("s1", &ports, &fabric.queues, artifacts.index()).unwrap();
    let config = extras.iter().find_map(|(entity, _)| match &entity.entity {
        Some(Kind::MeterEntry(meter)) if meter.index.as_ref()?.index == 4 * 8 + 5 => meter.config,
        _ => None,
    });
    let policy = &ports[&4];
    let [_, class] = policy.queues[&5];
    Port {
        config: config.unwrap(),
        shallow: class.shallow_size.into(),
        deep: class.deep_size.into(),
        trim_limit: policy.queues[&fabric.queues.trimmed][1].trim_drop_at.into(),
        cap: f64::from(policy.trim_cap.unwrap().share) / 1e6,
    }
}

/// Eight senders of each class, evenly paced and a little apart.
fn run(port: &Port, config: MeterConfig, classes: usize, load: f64) -> Outcome {
    const SENDERS: usize = 8;
    let limit = port.config.pburst as f64;
    let gap = PACKET * (SENDERS * classes) as f64 / (LINE * load);
    let mut next: Vec<f64> =
        (0..SENDERS * classes).map(|sender| gap * (sender * 7 % 10) as f64 / 10.0).collect();
    let gaps: Vec<f64> = (0..next.len()).map(|sender| gap * (1.0 + (sender as f64 - 3.5) * 1e-4)).collect();
    let mut meters: Vec<Meter> = (0..classes).map(|_| Meter::new(config)).collect();
    let mut queues = vec![0.0_f64; classes];
    let (mut trim, mut now, mut packets, mut outcome) = (0.0_f64, 0.0, 0.0, Outcome::default());
    while now < SECONDS * 1e9 {
        let sender = (0..next.len()).min_by(|a, b| next[*a].total_cmp(&next[*b])).unwrap();
        let since = next[sender] - std::mem::replace(&mut now, next[sender]);
        next[sender] += gaps[sender];
        // The trim queue has its share, and what the classes leave.
        let mut left = LINE * since;
        let mut serve = |queue: &mut f64, most: f64| {
            let served = queue.min(most).min(left);
            *queue -= served;
            left -= served;
        };
        serve(&mut trim, LINE * since * port.cap);
        queues.iter_mut().for_each(|queue| serve(queue, f64::MAX));

        let class = sender % classes;
        packets += 1.0;
        let size = match meters[class].colour(now, PACKET) {
            Colour::Green if queues[class] + PACKET <= limit => {
                queues[class] += PACKET;
                outcome.fullest = outcome.fullest.max(queues[class] / limit * 100.0);
                continue;
            }
            Colour::Green => {
                outcome.deflected += 1.0;
                port.deep
            }
            Colour::Yellow => {
                outcome.shallow += 1.0;
                port.shallow
            }
            Colour::Red => {
                outcome.deep += 1.0;
                port.deep
            }
        };
        if trim + size <= port.trim_limit {
            trim += size;
        } else {
            outcome.lost += 1.0;
        }
    }
    let share = |count: f64| count / packets * 100.0;
    Outcome {
        shallow: share(outcome.shallow),
        deep: share(outcome.deep),
        deflected: share(outcome.deflected),
        lost: share(outcome.lost),
        fullest: outcome.fullest,
    }
}

/// Both rates of a meter, as parts of the line.
fn rates(port: &Port, committed: f64, peak: f64) -> MeterConfig {
    let rate = |share: f64| (share * RATE_BPS as f64 / 8.0) as i64;
    MeterConfig { cir: rate(committed), pir: rate(peak), ..port.config }
}

const LOADS: [f64; 7] = [0.95, 0.97, 1.1, 1.5, 2.0, 3.0, 4.0];

fn words(of: &Outcome) -> String {
    format!("{:.1} | {:.1} | {:.1} | {:.0}", of.shallow, of.deep, of.deflected, of.fullest)
}

#[test]
fn nothing_is_trimmed_below_the_line_and_the_limit_holds_above_it() {
    let port = port();
    assert_eq!(
        port.config,
        rates(&port, COMMITTED.0 as f64 / COMMITTED.1 as f64, PEAK.0 as f64 / PEAK.1 as f64)
    );
    for classes in [1, 4] {
        for load in LOADS {
            let found = run(&port, port.config, classes, load);
            let trimmed = found.shallow + found.deep + found.deflected;
            assert_eq!(trimmed > 0.0, load > 0.98, "{classes} classes at {load}: {found:?}");
            assert!(found.lost <= 0.0, "the trim queue has room: {classes} classes at {load}: {found:?}");
            assert!(found.fullest <= 100.0, "{classes} classes at {load}: {found:?}");
        }
    }
}

/// What made meters alone the wrong policy: wherever nothing is trimmed at 0.97 of the line, some
/// load above it fills the queue.
#[test]
fn no_pair_of_rates_leaves_the_line_alone_and_holds_the_queue() {
    let port = port();
    for committed in [0.9, 0.98, 1.0] {
        for peak in [1.0, 1.25, 1.5, 2.0, 4.0] {
            if peak < committed {
                continue;
            }
            let config = rates(&port, committed, peak);
            let trims_below = {
                let found = run(&port, config, 1, 0.97);
                found.shallow + found.deep > 0.0
            };
            let overflows = LOADS.iter().skip(2).any(|load| run(&port, config, 1, *load).deflected > 0.0);
            assert!(trims_below || overflows, "CIR {committed} and PIR {peak} do both");
        }
    }
}

#[test]
fn the_page_has_the_table_of_this_model() {
    let port = port();
    let old = rates(&port, 0.9, 0.9);
    let rows = LOADS.map(|load| {
        let [before, one, four] = [(&old, 1), (&port.config, 1), (&port.config, 4)]
            .map(|(config, classes)| words(&run(&port, *config, classes, load)));
        format!("| {load} | {before} | {one} | {four} |\n")
    });
    let page = include_str!("../../../../docs/how-to/tofino.md");
    assert!(page.contains(&rows.concat()), "docs/how-to/tofino.md should have\n{}", rows.concat());
}
