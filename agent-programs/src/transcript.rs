// SPDX-License-Identifier: Apache-2.0
//! What `--record`, `--replay` and `--set faults` of `trimwire-agent perf` and `serve` mean.

use crate::operation::Operation;
use crate::{Failure, bad_input};
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use trimwire_agent::collective::{Memory, Options, Outcome};
use trimwire_agent::driver::misbehaving::Faults;
use trimwire_agent::serve::PushPull;
use trimwire_agent::transcript::{Filter, Header, OperationRecord, Reader, Replay, Writer, Written, hex};

#[derive(Args)]
pub(crate) struct TranscriptArgs {
    /// Record what arrived of every packet, in one file a rank. {rank} in the name is replaced, or
    /// `.RANK` is appended. Existing files are overwritten. A server's jobs after a failed one
    /// append `.2` and so on.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Repeat a recorded run bit for bit: trim arriving packets to what this rank's file says. Keep
    /// all other options. Exits with 1 where a result differs. All ranks but servers need
    /// --reliable.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// Files that are written and read, by the names that were given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files<'a> {
    record: Option<&'a Path>,
    replay: Option<&'a Path>,
    /// Which job of the process it is, from 1 on.
    nth: u32,
}

impl TranscriptArgs {
    /// `nth`: which job of the process it is, from 1 on.
    pub(crate) fn files(&self, nth: u32) -> Files<'_> {
        Files { record: self.record.as_deref(), replay: self.replay.as_deref(), nth }
    }

    /// Whether nothing is written or repeated.
    pub(crate) fn is_empty(&self) -> bool {
        self.record.is_none() && self.replay.is_none()
    }
}

/// Shares of what arrives.
#[derive(Clone, Copy)]
pub(crate) struct FaultShares(pub(crate) Faults);

impl FromStr for FaultShares {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut faults = Faults::default();
        for part in text.split(',') {
            let (kind, share) = part.split_once('=').ok_or_else(|| format!("'{part}' is not KIND=SHARE"))?;
            let value: f64 = share.parse().map_err(|_| format!("'{share}' is no number"))?;
            if !(0.0..1.0).contains(&value) {
                return Err(format!("'{share}' is not in [0, 1)"));
            }
            *match kind {
                "drop" => &mut faults.drop,
                "truncate" => &mut faults.truncate,
                "trim" => &mut faults.trim,
                "duplicate" => &mut faults.duplicate,
                "reorder" => &mut faults.reorder,
                _ => return Err(format!("'{kind}' is none of drop, truncate, trim, duplicate, reorder")),
            } = value;
        }
        Ok(Self(faults))
    }
}

/// The file of a rank.
fn of_rank(path: &Path, rank: u16) -> PathBuf {
    let text = path.to_string_lossy();
    if text.contains("{rank}") {
        return PathBuf::from(text.replace("{rank}", &rank.to_string()));
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{rank}"));
    PathBuf::from(name)
}

impl Files<'_> {
    fn recorded(&self, rank: u16) -> Option<PathBuf> {
        let mut name = of_rank(self.record?, rank).into_os_string();
        if self.nth > 1 {
            name.push(format!(".{}", self.nth));
        }
        Some(PathBuf::from(name))
    }

    fn replayed(&self, rank: u16) -> Option<PathBuf> {
        self.replay.map(|path| of_rank(path, rank))
    }

    /// Whether a run is repeated.
    pub(crate) fn replays(&self) -> bool {
        self.replay.is_some()
    }

    /// Opens what is recorded and what is replayed; of the latter it is checked that it is this
    /// rank's.
    pub(crate) fn filter(&self, header: &Header) -> Result<Filter, Failure> {
        let (replay, record) = (self.replayed(header.rank), self.recorded(header.rank));
        if let (Some(replay), Some(record)) = (&replay, &record)
            && (replay == record
                || std::fs::canonicalize(record)
                    .is_ok_and(|r| std::fs::canonicalize(replay).is_ok_and(|p| p == r)))
        {
            return Err(bad_input(anyhow!("--record and --replay are the same file, {}", record.display())));
        }
        let open = |path: PathBuf| -> anyhow::Result<Replay<BufReader<File>>> {
            let replay = Replay::open(BufReader::new(File::open(&path)?))?;
            replay.check(header)?;
            Ok(replay)
        };
        let replay = replay.map(|path| {
            let name = path.display().to_string();
            open(path).with_context(|| name)
        });
        let replay = replay.transpose().map_err(bad_input)?;
        let create = |path: PathBuf| {
            Writer::create(&path, header).with_context(|| format!("cannot record to {}", path.display()))
        };
        let writer = record.map(create).transpose().map_err(bad_input)?;
        Ok(Filter::new(writer, replay))
    }

    /// Whether the file can be written that [`Self::filter`] will make, before anybody is met for
    /// it.
    pub(crate) fn check_writable(&self, rank: u16) -> Result<(), Failure> {
        let Some(path) = self.recorded(rank) else { return Ok(()) };
        let opened = File::options().append(true).create(true).open(&path);
        opened.map(drop).with_context(|| format!("cannot record to {}", path.display())).map_err(bad_input)
    }

    /// Of the run that is to be repeated.
    pub(crate) fn repeated(&self, rank: u16) -> Result<Option<Header>, Failure> {
        let Some(path) = self.replayed(rank) else { return Ok(None) };
        let open =
            || -> anyhow::Result<Header> { Ok(*Reader::new(BufReader::new(File::open(&path)?))?.header()) };
        open().with_context(|| path.display().to_string()).map(Some).map_err(bad_input)
    }
}

/// What a transcript says of what workers told servers.
pub(crate) fn notice(outcome: &Outcome) -> OperationRecord {
    let words = outcome.output.as_ref().map_or(0, Memory::len);
    let options = Options { exact: true, ..Options::default() };
    OperationRecord::new(outcome.number, "notice", words, &options)
}

/// What it says of a push-pull that a server has heard of. It has no result there.
pub(crate) fn served(number: u32, push_pull: &PushPull) -> OperationRecord {
    OperationRecord::new(number, Operation::PushPull.name(), push_pull.length, &push_pull.options)
}

/// Of an operation that ends now, but for its result.
pub(crate) fn ended(operation: OperationRecord, now_ns: u64, outcome: &Outcome) -> OperationRecord {
    operation.ended(now_ns.saturating_sub(outcome.duration_ns), outcome)
}

/// Of one that ends now. Its result is hashed into `all`, too.
pub(crate) fn over(
    operation: OperationRecord,
    now_ns: u64,
    outcome: &Outcome,
    all: &mut Sha256,
) -> OperationRecord {
    let output = outcome.output.as_ref().filter(|_| outcome.result.is_ok());
    let digest = output.map(|memory| {
        let mut one = Sha256::new();
        for value in memory.to_f32() {
            one.update(value.to_le_bytes());
        }
        one.finalize()
    });
    all.update(digest.unwrap_or_default());
    OperationRecord { digest: digest.map(Into::into), ..ended(operation, now_ns, outcome) }
}

/// A digest of digests, as it is printed.
pub(crate) fn hash(all: Sha256) -> String {
    hex(&all.finalize().into())
}

/// What was recorded.
#[derive(Debug, Serialize)]
pub(crate) struct Recorded {
    file: String,
    records: u64,
    bytes: u64,
    /// Bytes of the file a packet received.
    bytes_per_packet: f64,
    /// Records that are not in it.
    lost: u64,
    /// Why it ends early.
    error: Option<String>,
}

impl Recorded {
    pub(crate) fn new(files: Files<'_>, rank: u16, written: Written) -> Option<Self> {
        let file = files.recorded(rank)?.display().to_string();
        let Written { records, packets, bytes, lost, error } = written;
        let bytes_per_packet = bytes as f64 / packets.max(1) as f64;
        Some(Self { file, records, bytes, bytes_per_packet, lost, error })
    }

    pub(crate) fn text(&self) -> String {
        let Self { file, records, bytes, bytes_per_packet, lost, error } = self;
        let ends = error.as_ref().map_or_else(String::new, |error| format!("; ends early: {error}"));
        let gaps = if *lost > 0 { format!("; {lost} records were lost") } else { String::new() };
        format!("# {file}: {records} records, {bytes} bytes, {bytes_per_packet:.3} a packet{ends}{gaps}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_a_file_of_its_own() {
        assert_eq!(of_rank(Path::new("a/b"), 3), Path::new("a/b.3"));
        assert_eq!(of_rank(Path::new("a/{rank}/b"), 12), Path::new("a/12/b"));
    }

    #[test]
    fn shares_of_faults_are_named_and_below_one() {
        let faults = |text: &str| text.parse::<FaultShares>().map(|FaultShares(faults)| faults);
        let got = faults("drop=0.01,truncate=0.2").expect("shares");
        assert_eq!((got.drop, got.truncate, got.reorder), (0.01, 0.2, 0.0));
        assert!(faults("drop").is_err_and(|error| error.contains("KIND=SHARE")));
        assert!(
            faults("drip=0.1").is_err_and(|error| error.contains("drop, truncate, trim, duplicate, reorder"))
        );
        assert!(faults("drop=1").is_err_and(|error| error.contains("[0, 1)")));
    }
}
