//! What `trimwire-agent perf --record`, `--replay` and `--faults` mean.

use crate::args::PerfArgs;
use crate::{Failure, bad_input};
use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use trimwire_agent::collective::Outcome;
use trimwire_agent::driver::misbehaving::Faults;
use trimwire_agent::transcript::{Header, OperationRecord, Replay, Tap, Writer, Written, hex};
use trimwire_encoder::Decoding;

#[derive(Args)]
pub(crate) struct TranscriptArgs {
    /// Write down what arrived of every packet, in a file for each rank: {rank} in the name is replaced, else `.RANK` is appended. A file that is there is overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Repeat a recorded run bit for bit: everything arrives, and is cut to what the file of this rank says, named as for --record. Everything else must be as it was. Exits with 1 where a result differs.
    #[arg(long, value_name = "FILE", requires = "reliable")]
    pub(crate) replay: Option<PathBuf>,
    /// Lose, cut, duplicate and reorder such shares of what arrives, on purpose, for trying things out: drop=0.01,cut=0.1,duplicate=0.01,reorder=0.05.
    #[arg(long, value_name = "KIND=SHARE,…")]
    pub(crate) faults: Option<FaultShares>,
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
                "cut" => &mut faults.cut,
                "duplicate" => &mut faults.duplicate,
                "reorder" => &mut faults.reorder,
                _ => return Err(format!("'{kind}' is none of drop, cut, duplicate, reorder")),
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

/// Opens what is recorded and what is replayed; of the latter it is checked that it is this rank's.
pub(crate) fn tap(args: &PerfArgs, header: &Header) -> Result<Tap, Failure> {
    let files = &args.transcript;
    let replay = files.replay.as_ref().map(|path| of_rank(path, header.rank));
    let record = files.record.as_ref().map(|path| of_rank(path, header.rank));
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
    Ok(Tap::new(writer, replay))
}

/// Of the run that is to be repeated.
pub(crate) fn repeated(args: &PerfArgs, rank: u16) -> Result<Option<Header>, Failure> {
    let Some(path) = &args.transcript.replay else { return Ok(None) };
    let path = of_rank(path, rank);
    let open =
        || -> anyhow::Result<Header> { Ok(*Replay::open(BufReader::new(File::open(&path)?))?.header()) };
    open().with_context(|| path.display().to_string()).map(Some).map_err(bad_input)
}

/// What a transcript says of an operation that has not begun.
pub(crate) fn operation(args: &PerfArgs, number: u32, coordinates: usize) -> OperationRecord {
    OperationRecord {
        number,
        name: args.operation.name().to_owned(),
        coordinates: coordinates as u64,
        planes: args.codec.planes,
        decoding: Decoding::from(args.decoding),
        exact: args.exact,
        consistent: args.way.consistent,
        started_ns: 0,
        duration_ns: 0,
        repaired: 0,
        digest: None,
        failure: None,
    }
}

/// And of one that is over. Its result is hashed into `all`, too.
pub(crate) fn over(
    operation: OperationRecord,
    started_ns: u64,
    outcome: &Outcome,
    all: &mut Sha256,
) -> OperationRecord {
    let failure = outcome.result.as_ref().err().map(ToString::to_string);
    let output = outcome.output.as_ref().filter(|_| failure.is_none());
    let digest = output.map(|memory| {
        let mut one = Sha256::new();
        for value in memory.to_f32() {
            one.update(value.to_le_bytes());
        }
        one.finalize()
    });
    all.update(digest.unwrap_or_default());
    OperationRecord {
        started_ns,
        duration_ns: outcome.duration_ns,
        repaired: outcome.stats.repaired,
        digest: digest.map(Into::into),
        failure,
        ..operation
    }
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
    pub(crate) fn new(args: &PerfArgs, rank: u16, written: Written) -> Option<Self> {
        let file = of_rank(args.transcript.record.as_ref()?, rank).display().to_string();
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
        let got = faults("drop=0.01,cut=0.2").expect("shares");
        assert_eq!((got.drop, got.cut, got.reorder), (0.01, 0.2, 0.0));
        assert!(faults("drop").is_err_and(|error| error.contains("KIND=SHARE")));
        assert!(faults("drip=0.1").is_err_and(|error| error.contains("drop, cut, duplicate, reorder")));
        assert!(faults("drop=1").is_err_and(|error| error.contains("[0, 1)")));
    }
}
