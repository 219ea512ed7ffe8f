// SPDX-License-Identifier: Apache-2.0
//! Transcripts (docs/reference/transcript.md) as numpy can hold them: what was there of each
//! packet, as one number.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use trimwire_agent::collective::{Collective, MessageId, Options, Phase};
use trimwire_agent::transcript::{MessageRecord, OperationRecord, ReadError, Reader, Record};
use trimwire_encoder::Reach;
use trimwire_encoder::papers::Scheme;

/// What is there of a packet, in the order of how much: 0 is nothing, `u32::MAX` all that was sent,
/// and between them 1 + (`planes` << 16 | `coordinates` of the next plane).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate(pub(crate) u32);

impl Fate {
    const MISSING: Self = Self(0);
    pub(crate) const WHOLE: Self = Self(u32::MAX);

    fn of(reach: Option<Reach>, sent: u8) -> Self {
        match reach {
            None => Self::MISSING,
            Some(reach) if reach.planes >= sent => Self::WHOLE,
            Some(Reach { planes, more }) => Self(1 + (u32::from(planes) << 16 | more.min(0xffff) as u32)),
        }
    }

    /// So many whole planes, of which none are nothing.
    pub(crate) fn of_planes(planes: u8, sent: u8) -> Self {
        Self::of((planes > 0).then_some(Reach { planes, more: 0 }), sent)
    }

    /// Bytes that are left of a packet of so many coordinates, of which `sent` planes were sent;
    /// `None`: lost.
    pub(crate) fn bytes(self, codec: Scheme, sent: u8, coordinates: usize) -> Option<usize> {
        let whole = codec.packet_len(sent, coordinates);
        match self {
            Self::MISSING => None,
            Self::WHOLE => Some(whole),
            Self(value) => {
                let (planes, more) = ((value - 1) >> 16, ((value - 1) & 0xffff) as usize);
                let planes = planes.min(sent.into()) as u8;
                let [before, behind] = [planes, planes + 1].map(|end| codec.packet_len(end, coordinates));
                let part = (more.min(coordinates) * (behind - before)).div_ceil(coordinates.max(1));
                Some((before + part).min(whole))
            }
        }
    }
}

/// The file of a rank: `{rank}` in the name is replaced, else `.RANK` appended.
pub(crate) fn of_rank(path: &str, rank: u16) -> PathBuf {
    if path.contains("{rank}") {
        return path.replace("{rank}", &rank.to_string()).into();
    }
    format!("{path}.{rank}").into()
}

/// What a transcript says of an operation that begins.
pub(crate) fn operation(number: u32, collective: &Collective, options: &Options) -> OperationRecord {
    let (name, coordinates) = match collective {
        Collective::AllReduce { tensor } => ("all-reduce", tensor.len()),
        Collective::ReduceScatter { input, .. } => ("reduce-scatter", input.len()),
        Collective::AllGather { output, .. } => ("all-gather", output.len()),
        Collective::Broadcast { tensor, .. } => ("broadcast", tensor.len()),
        Collective::Reduce { tensor, .. } => ("reduce", tensor.len()),
        Collective::AllToAll { input, .. } => ("all-to-all", input.len()),
        Collective::PushPull { length, .. } => ("push-pull", *length),
    };
    OperationRecord::new(number, name, coordinates, options)
}

/// Number, name, coordinates, whether it was exact, and why it failed.
type OperationRow = (u32, String, u64, bool, Option<String>);
/// Number of its operation, whether it goes to the shard's owner (0) or comes from there (1),
/// shard, sender, coordinates, fates.
type MessageRow = (u32, u8, u16, u16, usize, Py<PyBytes>);

/// A transcript that was read.
#[pyclass(frozen, get_all, module = "trimwire._native")]
pub(crate) struct RankTranscript {
    rank: u16,
    world: u16,
    seed: u64,
    /// In order.
    operations: Vec<OperationRow>,
    /// In the order in which they were over. Fates are u32 of this machine's byte order.
    messages: Vec<MessageRow>,
    /// Records that are missing.
    lost: u64,
}

fn row(py: Python<'_>, record: &MessageRecord) -> Result<MessageRow, String> {
    let MessageId { number, phase, shard } = MessageId::from_u32(record.message);
    let reaches = record.planes().map_err(|error| error.to_string())?;
    let fates = reaches.into_iter().flat_map(|reach| Fate::of(reach, record.shape.planes).0.to_ne_bytes());
    let fates = PyBytes::new(py, &fates.collect::<Vec<u8>>()).unbind();
    let phase = u8::from(phase == Phase::AllGather);
    Ok((number, phase, shard, record.from, record.shape.coordinates(), fates))
}

/// Reads the transcript of a rank. One that ends in the middle of a record is read as far as it
/// goes.
#[pyfunction]
pub(crate) fn read_transcript(py: Python<'_>, path: &str, rank: u16) -> PyResult<RankTranscript> {
    let path = of_rank(path, rank);
    let damaged =
        |error: &dyn std::fmt::Display| PyValueError::new_err(format!("{}: {error}", path.display()));
    let file = open(&path)?;
    let mut reader = Reader::new(BufReader::new(file)).map_err(|error| damaged(&error))?;
    let header = *reader.header();
    let (mut operations, mut messages, mut lost) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        match reader.next_record() {
            Ok(Some(Record::Operation(operation))) => {
                let OperationRecord { number, name, coordinates, exact, failure, .. } = operation;
                operations.push((number, name, coordinates, exact, failure));
            }
            Ok(Some(Record::Message(message))) => {
                messages.push(row(py, &message).map_err(|error| damaged(&error))?);
            }
            Ok(Some(Record::Gap(records))) => lost = lost.saturating_add(records),
            // What replicas agreed on, and what later versions say.
            Ok(Some(_)) => {}
            Ok(None) | Err(ReadError::Truncated { .. }) => break,
            Err(error) => return Err(damaged(&error)),
        }
        py.check_signals()?;
    }
    Ok(RankTranscript {
        rank: header.rank,
        world: header.world,
        seed: header.seed,
        operations,
        messages,
        lost,
    })
}

fn open(path: &Path) -> PyResult<File> {
    File::open(path).map_err(|error| PyOSError::new_err(format!("{}: {error}", path.display())))
}
