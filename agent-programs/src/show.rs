// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent transcript show`.

mod story;

use crate::report::table;
use crate::{Failure, bad_input, print};
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use story::{Link, Story};
use trimwire_agent::collective::MessageId;
use trimwire_agent::transcript::{Held, MessageRecord, OperationRecord, ReadError, Reader, Record, hex};

#[derive(Subcommand)]
pub(crate) enum TranscriptCommand {
    /// Print a line for each operation, or the story of one.
    Show(ShowArgs),
}

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// Transcripts of one run, of one rank or several.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Tell the story of this operation: when each message came, what was trimmed, to what, and
    /// where.
    #[arg(long, value_name = "OPERATION")]
    step: Option<u32>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
}

/// Packets of one or more messages, and what became of them.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Counts {
    packets: u64,
    trimmed: u64,
    missing: u64,
    /// Packets that answers to probes named as wanting.
    asked: u64,
    /// Bytes of the records.
    bytes: u64,
}

impl Counts {
    fn of(message: &MessageRecord, bytes: u64) -> Self {
        let count = |f: fn(&Held) -> bool| message.held.iter().filter(|held| f(held)).count() as u64;
        Self {
            packets: message.held.len() as u64,
            trimmed: count(|held| matches!(held, Held::Part(_))),
            missing: count(|held| *held == Held::Missing),
            asked: message.asked.into(),
            bytes,
        }
    }

    fn add(&mut self, other: &Self) {
        let Self { packets, trimmed, missing, asked, bytes } = other;
        self.packets += packets;
        self.trimmed += trimmed;
        self.missing += missing;
        self.asked = self.asked.saturating_add(*asked);
        self.bytes += bytes;
    }

    fn percent(self, count: u64) -> String {
        format!("{:.2}", 100.0 * count as f64 / self.packets.max(1) as f64)
    }

    fn bits_per_packet(self) -> f64 {
        self.bytes as f64 * 8.0 / self.packets.max(1) as f64
    }
}

/// The message that was over last.
#[derive(Debug, Clone, Copy, Serialize)]
struct Slowest {
    from: u16,
    to: u16,
    /// From the start of the operation until it was over, s.
    seconds: f64,
}

/// An operation, over all ranks whose transcripts were given.
#[derive(Debug, Default, Serialize)]
struct Operation {
    number: u32,
    name: Option<String>,
    coordinates: Option<u64>,
    /// The slowest rank's time, s, and the rank.
    seconds: Option<f64>,
    slowest_rank: Option<u16>,
    slowest_link: Option<Slowest>,
    #[serde(flatten)]
    counts: Counts,
    bits_per_packet: f64,
    /// SHA-256 of each rank's result.
    results: BTreeMap<u16, String>,
    /// Why it failed, by rank.
    failures: BTreeMap<u16, String>,
}

impl Operation {
    fn take_message(&mut self, rank: u16, message: &MessageRecord, counts: &Counts) {
        self.counts.add(counts);
        let seconds = message.duration_ns as f64 / 1e9;
        if self.slowest_link.is_none_or(|slowest| slowest.seconds < seconds) {
            self.slowest_link = Some(Slowest { from: message.from, to: rank, seconds });
        }
    }

    fn take_operation(&mut self, rank: u16, operation: &OperationRecord) {
        self.number = operation.number;
        self.name = Some(operation.name.clone());
        self.coordinates = Some(operation.coordinates);
        let seconds = operation.duration_ns as f64 / 1e9;
        if self.seconds.is_none_or(|slowest| slowest < seconds) {
            (self.seconds, self.slowest_rank) = (Some(seconds), Some(rank));
        }
        self.results.extend(operation.digest.as_ref().map(|digest| (rank, hex(digest))));
        self.failures.extend(operation.failure.clone().map(|failure| (rank, failure)));
    }
}

/// What is said of a file besides.
#[derive(Debug, Serialize)]
struct Source {
    file: String,
    rank: u16,
    records: u64,
    /// Records that were lost while it was written.
    lost: u64,
    /// Why it ends early.
    error: Option<String>,
    #[serde(skip)]
    damaged: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    job: u8,
    world: u16,
    seed: u64,
    files: Vec<Source>,
    operations: Vec<Operation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    story: Option<Story>,
}

pub(crate) fn run(command: &TranscriptCommand) -> Result<bool, Failure> {
    let TranscriptCommand::Show(args) = command;
    let (mut files, mut operations, mut links) = (Vec::new(), BTreeMap::new(), Vec::new());
    let mut job: Option<(&Path, (u8, u16, u64))> = None;
    for path in &args.files {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name).map_err(bad_input)?;
        let mut reader = Reader::new(BufReader::new(file)).with_context(name).map_err(bad_input)?;
        let header = *reader.header();
        let identity = (header.job, header.world, header.seed);
        let (first, expected) = *job.get_or_insert((path, identity));
        if identity != expected {
            let words =
                |(job, world, seed): (u8, u16, u64)| format!("job {job} of {world} ranks with seed {seed}");
            let (this, first) = (path.display(), first.display());
            return Err(bad_input(anyhow!(
                "{this} is of {}, {first} of {}: transcripts of one run belong together",
                words(identity),
                words(expected)
            )));
        }
        if let Some(other) = files.iter().find(|other: &&Source| other.rank == header.rank) {
            let (this, other) = (path.display(), &other.file);
            return Err(bad_input(anyhow!("{this} and {other} are both of rank {}", header.rank)));
        }
        let mut source =
            Source { file: name(), rank: header.rank, records: 0, lost: 0, error: None, damaged: false };
        read(&mut reader, &mut source, args.step, &mut operations, &mut links);
        files.push(source);
    }
    let (_, (job, world, seed)) = job.ok_or_else(|| bad_input(anyhow!("no files")))?;
    let mut operations: Vec<Operation> = operations.into_values().collect();
    for operation in &mut operations {
        operation.bits_per_packet = operation.counts.bits_per_packet();
    }
    let story = match args.step {
        None => None,
        Some(step) => {
            let at = operations.iter().position(|operation| operation.number == step);
            let at = at.ok_or_else(|| {
                let (first, last) = (operations.first(), operations.last());
                let range = first.zip(last).map(|(a, b)| format!("{} to {}", a.number, b.number));
                let range = range.unwrap_or_else(|| "none".to_owned());
                bad_input(anyhow!("there is no operation {step}; there are {range}"))
            })?;
            operations.swap(0, at);
            operations.truncate(1);
            Some(Story::new(links))
        }
    };
    let whole = files.iter().all(|file| !file.damaged);
    let report = Report { job, world, seed, files, operations, story };
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(bad_input)?;
        print(&text)?;
    } else {
        print(&text(&report))?;
    }
    Ok(whole)
}

/// Takes in one file, as far as it can be read. Of messages no more is kept than their counts, but
/// for those of the operation whose story is told.
fn read(
    reader: &mut Reader<BufReader<File>>,
    source: &mut Source,
    step: Option<u32>,
    operations: &mut BTreeMap<u32, Operation>,
    links: &mut Vec<Link>,
) {
    let rank = source.rank;
    loop {
        let at = reader.position();
        match reader.next_record() {
            Ok(None) => return,
            Ok(Some(Record::Message(message))) => {
                let number = MessageId::from_u32(message.message).number;
                let counts = Counts::of(&message, reader.position() - at);
                let operation = operations.entry(number).or_default();
                operation.take_message(rank, &message, &counts);
                if operation.name.is_none() {
                    operation.number = number;
                }
                if step.map(MessageId::number_key) == Some(number) {
                    links.push(Link::new(rank, &message, counts));
                }
            }
            Ok(Some(Record::Operation(operation))) => {
                let key = MessageId::number_key(operation.number);
                operations.entry(key).or_default().take_operation(rank, &operation);
            }
            Ok(Some(Record::Gap(records))) => source.lost = source.lost.saturating_add(records),
            Ok(Some(_)) => {}
            Err(error) => {
                source.damaged = !matches!(error, ReadError::Truncated { .. });
                source.error = Some(error.to_string());
                return;
            }
        }
        source.records += 1;
    }
}

fn micros(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1}", seconds * 1e6))
}

fn text(report: &Report) -> String {
    let Report { job, world, seed, files, operations, story } = report;
    let ranks: Vec<String> = files.iter().map(|file| file.rank.to_string()).collect();
    let ranks = ranks.join(", ");
    let mut lines = vec![format!("# transcripts of job {job}, seed {seed}: rank {ranks} of {world}")];
    for Source { file, lost, error, .. } in files {
        if *lost > 0 {
            lines.push(format!("# {file}: {lost} records were lost while it was written"));
        }
        lines.extend(error.iter().map(|error| format!("# {file}: {error}")));
    }
    let headings = [
        "operation",
        "name",
        "count",
        "time (us)",
        "slowest rank",
        "slowest link",
        "over (us)",
        "packets",
        "trimmed %",
        "missing %",
        "asked",
        "bits/packet",
    ];
    let row = |operation: &Operation| {
        let counts = operation.counts;
        let dash = || "-".to_owned();
        let slowest = operation.slowest_link;
        vec![
            operation.number.to_string(),
            operation.name.clone().unwrap_or_else(dash),
            operation.coordinates.map_or_else(dash, |count| count.to_string()),
            micros(operation.seconds),
            operation.slowest_rank.map_or_else(dash, |rank| rank.to_string()),
            slowest.map_or_else(dash, |slowest| format!("{} > {}", slowest.from, slowest.to)),
            micros(slowest.map(|slowest| slowest.seconds)),
            counts.packets.to_string(),
            counts.percent(counts.trimmed),
            counts.percent(counts.missing),
            counts.asked.to_string(),
            format!("{:.2}", operation.bits_per_packet),
        ]
    };
    lines.push(table(&headings, &operations.iter().map(row).collect::<Vec<_>>()));
    for operation in operations {
        for (rank, failure) in &operation.failures {
            lines.push(format!("# operation {} failed at rank {rank}: {failure}", operation.number));
        }
    }
    lines.extend(story.iter().map(Story::text));
    lines.join("\n")
}
