// SPDX-License-Identifier: Apache-2.0
//! NetSenseML's and DC2's numbers by the one link of `scenarios`, Espresso's by its timeline: what
//! laws and plans do to the time of steps. Nothing is trained.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use trimwire_agent::planes::parse;
use trimwire_lab::espresso::{Baseline, Cluster, Crippled, Model, baseline, crippled, plan, scaling_factor};
use trimwire_lab::scenarios::{
    IMAGES, Job, Link, Network, Outcome, Profile, RANKS, RESNET18, RESNET50, Transfer, VGG16, profiles, run,
};

type Text = Result<String, Box<dyn Error>>;

/// All pages, by name.
pub(crate) fn all() -> Result<Vec<(&'static str, String)>, Box<dyn Error>> {
    Ok(vec![("papers-netsenseml", netsenseml()?), ("papers-dc2", dc2()?), ("papers-espresso", espresso()?)])
}

/// By seed of everything drawn.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

fn under(job: Job, law: &str, profile: &Profile, seed: u64) -> Result<Outcome, Box<dyn Error>> {
    // A millisecond without queues; a shallow buffer of 1 MB.
    let link = Link { line_bps: profile.line_bps(), propagation_ns: 1e6, buffer: 1e6, trims: false };
    Ok(run(job, link, profile, &mut parse(law)?, seed))
}

/// Median of five, and least and most where they are written differently.
fn spread(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let write = |at: usize| sorted.get(at).map_or_else(String::new, |value| format!("{value:.digits$}"));
    let (least, middle, most) = (write(0), write(sorted.len() / 2), write(sorted.len().saturating_sub(1)));
    if least == most { middle } else { format!("{middle} ({least} to {most})") }
}

const DENSE: Transfer = Transfer::AllReduce { ranks: RANKS };
const TOP_K: Transfer = Transfer::AllGather { ranks: RANKS, quantised_below: 0.0 };
/// tr_q: the paper gives none; this is ours.
const NETSENSE: Transfer = Transfer::AllGather { ranks: RANKS, quantised_below: 0.05 };

/// Who is compared: a law, and how its gradients are summed.
const CONTENDERS: [(&str, Transfer); 3] =
    [("netsense", NETSENSE), ("fixed:first=1", DENSE), ("fixed:first=0.1", TOP_K)];

/// Mbit/s, and images a second of a table: NetSenseML, AllReduce, TopK-0.1.
type Row = (f64, [f64; 3]);

const TABLES: [(Network, [Row; 3]); 2] = [
    (
        RESNET18,
        [
            (200.0, [642.90, 42.20, 65.31]),
            (500.0, [744.24, 179.85, 144.27]),
            (800.0, [824.56, 283.60, 234.77]),
        ],
    ),
    (
        VGG16,
        [
            (2_500.0, [172.80, 43.20, 96.32]),
            (5_000.0, [199.46, 91.58, 128.61]),
            (10_000.0, [340.35, 129.87, 148.61]),
        ],
    ),
];

/// Steps a second of the contenders, seed by seed.
fn rates(network: &Network, profile: &Profile) -> Result<[Vec<f64>; 3], Box<dyn Error>> {
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for seed in SEEDS {
        for (rates, (law, transfer)) in rates.iter_mut().zip(CONTENDERS) {
            rates.push(under(network.job(transfer, transfer != DENSE), law, profile, seed)?.throughput());
        }
    }
    Ok(rates)
}

fn netsenseml() -> Text {
    let mut text = String::from(
        "Tables 1 and 2. Seconds of a step, and throughput over all-reduce's: theirs, ours (median of five seeds, least to most). Ours is one link of the given rate for each of eight \
         ranks, an all-reduce in a ring, an all-gather of values and places. Two numbers of each table fix what computation and compression take: all-reduce and NetSenseML on the fastest link.\n\n\
         | network | Mbit/s | all-reduce, s | NetSenseML, s | top-k 0.1, s | NetSenseML over all-reduce | top-k over all-reduce |\n|---|---|---|---|---|---|---|\n",
    );
    for (network, rows) in &TABLES {
        for (mbps, [netsense, all_reduce, top_k]) in *rows {
            let profile =
                Profile { name: "constrained", pieces: vec![(0, mbps * 1e6)], end_ns: 120_000_000_000 };
            let [a, b, c] = rates(network, &profile)?;
            let step = |images: f64, rates: &[f64]| {
                let times: Vec<f64> = rates.iter().map(|rate| 1.0 / rate).collect();
                format!("{:.2}; {}", IMAGES / images, spread(&times, 2))
            };
            let over =
                |rates: &[f64]| -> Vec<f64> { rates.iter().zip(&b).map(|(rate, all)| rate / all).collect() };
            let _ = writeln!(
                text,
                "| {} | {mbps} | {} | {} | {} | {:.1}; {} | {:.2}; {} |",
                network.name,
                step(all_reduce, &b),
                step(netsense, &a),
                step(top_k, &c),
                netsense / all_reduce,
                spread(&over(&a), 1),
                top_k / all_reduce,
                spread(&over(&c), 2)
            );
        }
    }
    text += "\nFigures 7 and 8, ResNet18: steps a second while the link changes, and the share of the gradient that NetSenseML sends (seed 1; the fluctuating link is drawn).\n\n| scenario | NetSenseML | all-reduce | top-k 0.1 | NetSenseML sends |\n|---|---|---|---|---|\n";
    for name in ["degrading", "fluctuating"] {
        let (mut rates, mut sends) = ([Vec::new(), Vec::new(), Vec::new()], Vec::new());
        for seed in SEEDS {
            let all = profiles(seed);
            let profile = all.iter().find(|profile| profile.name == name).ok_or("no such scenario")?;
            for (rates, (law, transfer)) in rates.iter_mut().zip(CONTENDERS) {
                let outcome = under(RESNET18.job(transfer, transfer != DENSE), law, profile, seed)?;
                rates.push(outcome.throughput());
                if law == "netsense" {
                    sends.push(outcome.sent());
                }
            }
        }
        let [a, b, c] = rates.map(|rates| spread(&rates, 2));
        let _ = writeln!(text, "| {name} | {a} | {b} | {c} | {} |", spread(&sends, 4));
    }
    text += "\nAs it degrades, by the link's Mbit/s (figure 7, seed 1):\n\n| link | NetSenseML | all-reduce | top-k 0.1 |\n|---|---|---|---|\n";
    let all = profiles(1);
    let degrading = all.iter().find(|profile| profile.name == "degrading").ok_or("no such scenario")?;
    let [a, b, c] =
        CONTENDERS.map(|(law, transfer)| under(RESNET18.job(transfer, transfer != DENSE), law, degrading, 1));
    let outcomes = [a?, b?, c?];
    for (i, (from, rate)) in degrading.pieces.iter().enumerate() {
        let until = degrading.pieces.get(i + 1).map_or(degrading.end_ns, |(from, _)| *from);
        let rates = outcomes.iter().map(|outcome| {
            let steps =
                outcome.samples.iter().filter(|sample| (*from..until).contains(&sample.at_ns)).count();
            format!("{:.2}", steps as f64 * 1e9 / (until - from) as f64)
        });
        let _ = writeln!(text, "| {:.0} | {} |", rate / 1e6, rates.collect::<Vec<_>>().join(" | "));
    }
    Ok(text)
}

fn dc2() -> Text {
    // §V-D: mean ratios of DA2 to DA5 with figure 3's dynamic profile.
    let paper = [("da2", 0.034), ("da3", 0.145), ("da4", 0.071), ("da5", 0.072)];
    let mut text = String::from(
        "Mean ratios (§V-D, figure 9), and steps a second and slowest hundredth over those of everything (figures 4 to 6 and 10). Median of five seeds, least to most: the links are drawn. Eight \
         ranks; everything is an all-reduce, the others an all-gather of values and places.\n\n\
         | algorithm | ratio, paper | dynamic, ours | static, ours | speed-up, dynamic | static | slowest, dynamic | static |\n|---|---|---|---|---|---|---|---|\n",
    );
    let rows = paper.iter().map(|(law, ratio)| (*law, Some(*ratio)));
    for (law, ratio) in rows.chain([("fixed:first=0.1", None), ("fixed:first=0.001", None)]) {
        let mut columns: [Vec<f64>; 6] = Default::default();
        for seed in SEEDS {
            let all = profiles(seed);
            for (at, name) in ["DC2, dynamic", "DC2, static"].into_iter().enumerate() {
                let profile = all.iter().find(|profile| profile.name == name).ok_or("no such scenario")?;
                let whole = under(RESNET50.job(DENSE, false), "fixed:first=1", profile, seed)?;
                let got = under(RESNET50.job(TOP_K, true), law, profile, seed)?;
                columns[at].push(got.sent());
                columns[2 + at].push(got.throughput() / whole.throughput());
                columns[4 + at].push(got.slowest() as f64 / whole.slowest() as f64);
            }
        }
        let ratio = ratio.map_or("fixed".to_owned(), |ratio: f64| format!("{ratio:.3}"));
        let cells: Vec<String> = columns
            .iter()
            .enumerate()
            .map(|(at, values)| spread(values, if at < 2 { 3 } else { 2 }))
            .collect();
        let _ = writeln!(text, "| {law} | {ratio} | {} |", cells.join(" | "));
    }
    Ok(text)
}

/// What the paper says of a network with 64 GPUs.
struct Claim {
    cluster: &'static str,
    network: &'static str,
    /// FP32's scaling factor (table 1; §5.2.3).
    factor: Option<f64>,
    /// Espresso over FP32 (§5.2, §5.4).
    over_fp32: Option<f64>,
    /// Espresso over BytePS-Compress, HiTopKComm, HiPress (§5.2).
    over: [Option<f64>; 3],
}

const CLAIMS: [Claim; 6] = [
    Claim {
        cluster: "nvlink-100g",
        network: "bert-base",
        factor: Some(0.51),
        over_fp32: Some(1.55),
        over: [Some(1.31), Some(1.54), Some(1.40)],
    },
    Claim {
        cluster: "nvlink-100g",
        network: "gpt-2",
        factor: Some(0.58),
        over_fp32: None,
        over: [Some(1.42), None, Some(1.33)],
    },
    Claim {
        cluster: "nvlink-100g",
        network: "ugatit",
        factor: None,
        over_fp32: Some(2.49),
        over: [Some(3.05), Some(1.50), Some(1.35)],
    },
    Claim {
        cluster: "pcie-25g",
        network: "vgg16",
        factor: None,
        over_fp32: Some(3.69),
        over: [Some(4.57), None, Some(1.55)],
    },
    Claim {
        cluster: "pcie-25g",
        network: "lstm",
        factor: Some(0.46),
        over_fp32: None,
        over: [Some(2.01), Some(1.73), Some(1.77)],
    },
    Claim {
        cluster: "pcie-25g",
        network: "resnet101",
        factor: Some(0.70),
        over_fp32: Some(1.20),
        over: [Some(1.18), None, Some(1.24)],
    },
];

fn file(name: &str) -> Result<(String, String), Box<dyn Error>> {
    let file = format!("{}/../examples/plans/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
    Ok((std::fs::read_to_string(&file)?, file))
}

fn read(name: &str) -> Result<Cluster, Box<dyn Error>> {
    let (text, file) = file(name)?;
    Ok(Cluster::from_yaml(&text, &file)?)
}

fn paper_or_none(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.2}"))
}

impl Claim {
    /// The network, with its authors' times.
    fn model(&self) -> Result<Model, Box<dyn Error>> {
        let (text, file) = file(self.network)?;
        Ok(Model::from_yaml(&text, &file)?)
    }
}

fn espresso() -> Text {
    let mut text = String::from(
        "Figures 11 and 12, 64 GPUs, predicted from the authors' sizes and times. What FP32's factor allows at most is its inverse. Theirs; ours.\n\n\
         | cluster | network | backward, ms | FP32's factor | at most | Espresso over FP32 | over BytePS-Compress | over HiTopKComm | over HiPress | tensors compressed | on processors | planned over bound |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for claim in &CLAIMS {
        let (of_model, cluster) = (claim.model()?, read(claim.cluster)?);
        let (made, _) = plan(&of_model, &cluster, &mut || 0)?;
        let factor = scaling_factor(&of_model, &cluster);
        let count = |word: &str| made.strategy.iter().filter(|choice| choice.option.contains(word)).count();
        let frameworks = [Baseline::BytePsCompress, Baseline::HiTopKComm, Baseline::HiPress];
        let over: Vec<String> = claim
            .over
            .iter()
            .zip(frameworks)
            .map(|(paper, which)| {
                let ours = baseline(&of_model, &cluster, which) / made.iteration_seconds;
                format!("{}; {ours:.2}", paper_or_none(*paper))
            })
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {}; {factor:.2} | {:.2} | {}; {:.2} | {} | {} of {} | {} | {:.3} |",
            claim.cluster,
            claim.network,
            of_model.tensors.iter().map(|tensor| tensor.compute_us).sum::<f64>() / 1e3,
            paper_or_none(claim.factor),
            1.0 / factor,
            paper_or_none(claim.over_fp32),
            made.uncompressed_seconds / made.iteration_seconds,
            over.join(" | "),
            count("compress"),
            made.strategy.len(),
            count("cpu"),
            made.iteration_seconds / made.upper_bound_seconds
        );
    }
    text += "\nFigures 11 and 12 by the number of GPUs (eight a machine): planned over FP32.\n\n| cluster | network | 8 | 16 | 32 | 64 |\n|---|---|---|---|---|---|\n";
    for claim in &CLAIMS {
        let of_model = claim.model()?;
        let mut ratios = Vec::new();
        for machines in [1, 2, 4, 8] {
            let cluster = Cluster { machines, ..read(claim.cluster)? };
            let (made, _) = plan(&of_model, &cluster, &mut || 0)?;
            ratios.push(format!("{:.2}", made.uncompressed_seconds / made.iteration_seconds));
        }
        let _ = writeln!(text, "| {} | {} | {} |", claim.cluster, claim.network, ratios.join(" | "));
    }
    text += "\nFigure 14: an iteration that a search without one dimension plans, over the plan's; 64 GPUs, networks and clusters as above. The paper has VGG16 alone, as a picture; it says that the plan is always better.\n\n";
    let names: Vec<&str> = Crippled::ALL.iter().map(|which| which.name()).collect();
    let _ = writeln!(
        text,
        "| cluster | network | {} |\n|---|---{}|",
        names.join(" | "),
        "|---".repeat(names.len())
    );
    for claim in &CLAIMS {
        let (of_model, cluster) = (claim.model()?, read(claim.cluster)?);
        let (made, _) = plan(&of_model, &cluster, &mut || 0)?;
        let over =
            Crippled::ALL.iter().map(|which| crippled(&of_model, &cluster, *which) / made.iteration_seconds);
        let over: Vec<String> = over.map(|over| format!("{over:.2}")).collect();
        let _ = writeln!(text, "| {} | {} | {} |", claim.cluster, claim.network, over.join(" | "));
    }
    text += "\nTables 5 and 6, figure 10: tensors that selection and offloading look at, how many sizes they have, and the paper's times; ours are in what `trimwire-lab plan --json` prints.\n\n\
             | network | tensors | sizes | paper, selection | paper, offloading of |\n|---|---|---|---|---|\n";
    let times = [
        ("125 ms", "54: 2 ms"),
        ("99 ms", "34: 1 ms"),
        ("84 ms", "32: 1 ms"),
        ("7 ms", "11: 1 ms"),
        ("1 ms", "5: 1 ms"),
        ("179 ms", "42: 14 ms"),
    ];
    for (claim, (selection, offloading)) in CLAIMS.iter().zip(times) {
        let tensors = claim.model()?.tensors;
        let sizes: BTreeSet<i64> = tensors.iter().map(|tensor| tensor.elements).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {selection} | {offloading} |",
            claim.network,
            tensors.len(),
            sizes.len()
        );
    }
    Ok(text)
}
