//! Numbers of three papers next to ours: `cargo run --release -p trimwire-planner --example papers -- netsenseml|dc2|espresso docs/figures` writes `papers-NAME.md` there.
//!
//! NetSenseML's and DC2's by the one link of `scenarios`, Espresso's by its timeline: what laws and plans do to the time of steps. Nothing is trained.

use std::error::Error;
use std::fmt::Write as _;
use trimwire_planner::espresso::{Cluster, plan};
use trimwire_planner::models::{Device, model};
use trimwire_planner::scenarios::{Job, Link, Outcome, Profile, profiles, run};
use trimwire_planner::sensing::parse;

type Text = Result<String, Box<dyn Error>>;

fn main() -> Result<(), Box<dyn Error>> {
    let which = std::env::args().nth(1).ok_or("one of netsenseml, dc2, espresso is wanted")?;
    let folder = std::env::args().nth(2).unwrap_or_else(|| "docs/figures".to_owned());
    let text = match which.as_str() {
        "netsenseml" => netsenseml()?,
        "dc2" => dc2()?,
        "espresso" => espresso()?,
        other => return Err(format!("'{other}': one of netsenseml, dc2, espresso is wanted").into()),
    };
    std::fs::write(format!("{folder}/papers-{which}.md"), &text)?;
    print!("{text}");
    Ok(())
}

fn under(job: Job, law: &str, profile: &Profile) -> Result<Outcome, Box<dyn Error>> {
    // A millisecond without queues; a shallow buffer of 1 MB.
    let link = Link { line_bps: profile.line_bps(), propagation_ns: 1e6, buffer: 1e6, trims: false };
    Ok(run(job, link, profile, &mut parse(law)?, 1))
}

/// ResNet18's and VGG16's gradients (§5.3; Espresso's table 4); the papers do not say what a step computes, these are assumed.
const RESNET18: Job = Job { gradient: 46.2e6, compute_ns: 50_000_000 };
const VGG16: Job = Job { gradient: 553e6, compute_ns: 150_000_000 };
/// Name, job, Mbit/s, and samples a second of table 1 or 2: NetSenseML, AllReduce, TopK-0.1.
const TABLES: [(&str, Job, f64, [f64; 3]); 6] = [
    ("ResNet18", RESNET18, 200.0, [642.90, 42.20, 65.31]),
    ("ResNet18", RESNET18, 500.0, [744.24, 179.85, 144.27]),
    ("ResNet18", RESNET18, 800.0, [824.56, 283.60, 234.77]),
    ("VGG16", VGG16, 2_500.0, [172.80, 43.20, 96.32]),
    ("VGG16", VGG16, 5_000.0, [199.46, 91.58, 128.61]),
    ("VGG16", VGG16, 10_000.0, [340.35, 129.87, 148.61]),
];
const CONTENDERS: [&str; 3] = ["netsense", "fixed:first=1", "fixed:first=0.1"];

fn netsenseml() -> Text {
    let mut text = String::from(
        "Tables 1 and 2: throughput over all-reduce's on the same link.\n\n| model | link, Mbit/s | NetSenseML, paper | ours | top-k 0.1, paper | ours |\n|---|---|---|---|---|---|\n",
    );
    for (name, job, mbps, [netsense, all_reduce, top_k]) in TABLES {
        let profile = Profile { name: "constrained", pieces: vec![(0, mbps * 1e6)], end_ns: 120_000_000_000 };
        let [a, b, c] = CONTENDERS.map(|law| under(job, law, &profile).map(|outcome| outcome.throughput()));
        let (a, b, c) = (a?, b?, c?);
        let _ = writeln!(
            text,
            "| {name} | {mbps} | {:.1} | {:.1} | {:.2} | {:.2} |",
            netsense / all_reduce,
            a / b,
            top_k / all_reduce,
            c / b
        );
    }
    text += "\nFigures 7 and 8: steps a second while the link changes, and the share of the gradient that is sent.\n\n| scenario | NetSenseML | all-reduce | top-k 0.1 | NetSenseML sends |\n|---|---|---|---|---|\n";
    for profile in profiles(1).iter().filter(|profile| ["degrading", "fluctuating"].contains(&profile.name)) {
        let [a, b, c] = CONTENDERS.map(|law| under(RESNET18, law, profile));
        let (a, b, c) = (a?, b?, c?);
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.4} |",
            profile.name,
            a.throughput(),
            b.throughput(),
            c.throughput(),
            a.sent()
        );
    }
    text += "\nAs it degrades, by the link's Mbit/s (figure 7):\n\n| link | NetSenseML | all-reduce | top-k 0.1 |\n|---|---|---|---|\n";
    let all = profiles(1);
    let degrading = all.iter().find(|profile| profile.name == "degrading").ok_or("no such scenario")?;
    let [a, b, c] = CONTENDERS.map(|law| under(RESNET18, law, degrading));
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
        "Mean ratios (§V-D, figure 9), and steps a second and slowest hundredth over those of everything (figures 4 to 6 and 10).\n\n\
         | law | ratio, paper | dynamic, ours | static, ours | speed-up, dynamic | static | slowest, dynamic | static |\n|---|---|---|---|---|---|---|---|\n",
    );
    let all = profiles(1);
    let of = |name: &str| all.iter().find(|profile| profile.name == name).ok_or("no such scenario");
    let (dynamic, steady) = (of("DC2, dynamic")?, of("DC2, static")?);
    // ResNet50: 102 MB.
    let job = Job { gradient: 102e6, compute_ns: 150_000_000 };
    let whole = [under(job, "fixed:first=1", dynamic)?, under(job, "fixed:first=1", steady)?];
    let rows = paper.iter().map(|(law, ratio)| (*law, Some(*ratio)));
    for (law, ratio) in rows.chain([("fixed:first=0.1", None), ("fixed:first=0.001", None)]) {
        let got = [under(job, law, dynamic)?, under(job, law, steady)?];
        let ratio = ratio.map_or("fixed".to_owned(), |ratio: f64| format!("{ratio:.3}"));
        let up = |i: usize| got[i].throughput() / whole[i].throughput();
        let slow = |i: usize| got[i].slowest() as f64 / whole[i].slowest() as f64;
        let _ = writeln!(
            text,
            "| {law} | {ratio} | {:.3} | {:.3} | {:.2} | {:.2} | {:.2} | {:.2} |",
            got[0].sent(),
            got[1].sent(),
            up(0),
            up(1),
            slow(0),
            slow(1)
        );
    }
    Ok(text)
}

/// Cluster, model, and the paper's speed-up over FP32 with 64 GPUs, where its text has one.
const FIGURES: [(&str, &str, Option<f64>); 6] = [
    ("nvlink-100g", "bert-base", None),
    ("nvlink-100g", "gpt-2", None),
    ("nvlink-100g", "ugatit", Some(2.49)),
    ("pcie-25g", "vgg16", Some(3.69)),
    ("pcie-25g", "lstm", None),
    ("pcie-25g", "resnet101", Some(1.20)),
];

fn espresso() -> Text {
    let read = |name: &str| -> Result<Cluster, Box<dyn Error>> {
        let file = format!("{}/../examples/plans/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        Ok(Cluster::from_yaml(&std::fs::read_to_string(&file)?, &file)?)
    };
    let mut text = String::from(
        "Figures 11 and 12: planned over FP32, predicted, by the number of GPUs (eight a machine).\n\n| cluster | network | 8 | 16 | 32 | 64 | 64, paper |\n|---|---|---|---|---|---|---|\n",
    );
    let mut of_bound = Vec::new();
    for (cluster, name, paper) in FIGURES {
        let of_model = model(name, Device::default()).ok_or("no such model")?.check()?;
        let mut ratios = Vec::new();
        for machines in [1, 2, 4, 8] {
            let cluster = Cluster { machines, ..read(cluster)? };
            let (made, _) = plan(&of_model, &cluster, false, &mut || 0)?;
            ratios.push(format!("{:.2}", made.uncompressed_seconds / made.iteration_seconds));
            if machines == 8 {
                of_bound.push((name, made.iteration_seconds / made.upper_bound_seconds));
            }
        }
        let paper = paper.map_or("-".to_owned(), |paper| format!("{paper:.2}"));
        let _ = writeln!(text, "| {cluster} | {name} | {} | {paper} |", ratios.join(" | "));
    }
    text += "\nFigure 13: planned over the bound with 64 GPUs (the paper's: below 1.10 in all cases).\n\n| network | planned over bound |\n|---|---|\n";
    for (name, ratio) in of_bound {
        let _ = writeln!(text, "| {name} | {ratio:.3} |");
    }
    text += "\nTables 5 and 6: tensors that selection and offloading look at, and the paper's times; ours are what `--example strategies` prints.\n\n\
             | network | tensors | paper, selection | compressed, ours | paper, offloading of |\n|---|---|---|---|---|\n";
    let tables = [
        ("vgg16", "7 ms", "11: 1 ms"),
        ("resnet101", "179 ms", "42: 14 ms"),
        ("ugatit", "84 ms", "32: 1 ms"),
    ];
    let more =
        [("bert-base", "125 ms", "54: 2 ms"), ("gpt-2", "99 ms", "34: 1 ms"), ("lstm", "1 ms", "5: 1 ms")];
    for (name, selection, offloading) in tables.into_iter().chain(more) {
        let of_model = model(name, Device::default()).ok_or("no such model")?.check()?;
        let (made, _) = plan(&of_model, &read("nvlink-100g")?, false, &mut || 0)?;
        let compressed = made.strategy.iter().filter(|choice| choice.option.contains("compress")).count();
        let _ = writeln!(text, "| {name} | {} | {selection} | {compressed} | {offloading} |", made.tensors);
    }
    Ok(text)
}
