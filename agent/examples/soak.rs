// SPDX-License-Identifier: Apache-2.0
//! Runs jobs drawn from seeds in virtual time, and says which did not keep what is promised:
//! `cargo run --release -p trimwire-agent --example soak -- --cases 10000 --seed 1`.

#[path = "../tests/it/group/mod.rs"]
mod group;
#[path = "../tests/it/job/mod.rs"]
mod job;
#[path = "../tests/it/network/mod.rs"]
mod network;

use clap::Parser;
use job::{Case, Size, Verdict, run};
use std::path::PathBuf;
use std::process::ExitCode;

/// Random jobs, each of which has to end with the right sums or the right error, within limits that
/// are computed from what it does.
#[derive(Parser)]
struct Args {
    /// The first case's; the next ones are counted up from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many.
    #[arg(long, default_value_t = 1)]
    cases: u64,
    /// No longer than so many seconds.
    #[arg(long, default_value_t = u64::MAX)]
    seconds: u64,
    /// As short as those of `cargo test`.
    #[arg(long)]
    short: bool,
    /// A file for each case that fails.
    #[arg(long)]
    failures: Option<PathBuf>,
    /// Wait so many times as long as a case may take: what is late then is said to be late, not to
    /// have no end.
    #[arg(long, default_value_t = 1.0)]
    patience: f64,
    /// Write every datagram that leaves, one a line.
    #[arg(long)]
    trace: bool,
    /// Tell of each case.
    #[arg(long)]
    verbose: bool,
}

fn text(seed: u64, case: &Case, verdict: &Verdict, short: bool) -> String {
    let wrong: Vec<String> = verdict.wrong.iter().map(|text| format!("  {text}\n")).collect();
    let wrong = wrong.concat();
    let short = if short { " --short" } else { "" };
    format!(
        "seed {seed} failed; `cargo run --release -p trimwire-agent --example soak -- --verbose --seed {seed}{short}` replays it\n{case}{wrong}"
    )
}

#[expect(clippy::disallowed_methods, reason = "it says how long it took")]
fn main() -> ExitCode {
    let args = Args::parse();
    let size = if args.short { Size::SHORT } else { Size::NIGHTLY };
    let begun = std::time::Instant::now();
    let (mut ran, mut failed, mut results, mut errors, mut packets) = (0_u64, Vec::new(), 0, 0, 0);
    // The nearest that anything came to what it may be.
    let mut nearest = [(0.0_f64, 0_u64); 3];
    for seed in args.seed..args.seed.saturating_add(args.cases) {
        if begun.elapsed().as_secs() >= args.seconds {
            break;
        }
        let case = Case::draw(seed, size);
        if args.verbose {
            print!("seed {seed}: {case}");
        }
        let one = std::time::Instant::now();
        let verdict = std::panic::catch_unwind(|| run(&case, args.patience, args.trace))
            .unwrap_or_else(|_| Verdict { wrong: vec!["it panicked".to_owned()], ..Verdict::default() });
        ran += 1;
        verdict.log.iter().for_each(|line| println!("{line}"));
        (results, errors, packets) =
            (results + verdict.results, errors + verdict.errors, packets + verdict.data_packets);
        let Verdict { took_ns, bound_ns, control, control_most, .. } = verdict;
        let shares = [
            took_ns as f64 / bound_ns.max(1) as f64,
            control.0 as f64 / control_most.0.max(1.0),
            control.1 as f64 / control_most.1.max(1.0),
        ];
        for (nearest, share) in nearest.iter_mut().zip(shares) {
            if share > nearest.0 {
                *nearest = (share, seed);
            }
        }
        if args.verbose {
            println!(
                "  {} data packets, {} of them again; {took_ns} ns of {bound_ns} (x {:.3}), control x {:.3} and {:.3}; {:.2} s",
                verdict.data_packets,
                verdict.repaired,
                shares[0],
                shares[1],
                shares[2],
                one.elapsed().as_secs_f64()
            );
        }
        if !verdict.wrong.is_empty() {
            let text = text(seed, &case, &verdict, args.short);
            println!("{text}");
            if let Some(folder) = &args.failures
                && let Err(error) = std::fs::write(folder.join(format!("failing-{seed}.txt")), &text)
            {
                eprintln!("{}: {error}", folder.display());
            }
            failed.push(seed);
        }
    }
    println!(
        "{ran} cases from seed {}: {} kept what is promised, {} did not {failed:?}; {results} results, {errors} of them errors that name the right rank; {packets} data packets; {:.0} s",
        args.seed,
        ran - failed.len() as u64,
        failed.len(),
        begun.elapsed().as_secs_f64()
    );
    let [time, packets, bytes] = nearest;
    println!(
        "nearest to their limits: time x {:.3} (seed {}), control packets x {:.3} (seed {}), bytes x {:.3} (seed {})",
        time.0, time.1, packets.0, packets.1, bytes.0, bytes.1
    );
    ExitCode::from(u8::from(!failed.is_empty()))
}
