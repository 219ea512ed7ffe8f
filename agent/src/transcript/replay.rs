// SPDX-License-Identifier: Apache-2.0
//! Makes a run in which everything arrives into one in which as much arrives as a transcript says.

use super::file::{ReadError, Reader};
use super::record::{Header, Held, MapRecord, MessageRecord, OperationRecord, Record, Shape, hex};
use crate::collective::MessageId;
use crate::interface::Event;
use crate::wire::trim_map::TrimMap;
use std::collections::BTreeMap;
use std::io::{BufRead, Seek};
use trimwire_encoder::RowReceiver;

/// Why a run cannot be what a transcript says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is another run's.
    #[error("the transcript is of {what} {recorded}, this run of {what} {here}")]
    Other {
        /// What differs.
        what: &'static str,
        /// In the transcript.
        recorded: String,
        /// Here.
        here: String,
    },
    /// An operation differs.
    #[error("operation {number} had {what} {recorded} in the recorded run, and has {here} in this one")]
    OtherOperation {
        /// Its number.
        number: u32,
        /// What differs.
        what: &'static str,
        /// In the transcript.
        recorded: String,
        /// Here.
        here: String,
    },
    /// The transcript says nothing of it.
    #[error("the transcript lacks {what} of operation {number}{}", gap(*.lost, *.ended_early))]
    Missing {
        /// What is not there.
        what: String,
        /// The operation.
        number: u32,
        /// Records that it says are not there.
        lost: u64,
        /// It ends in the middle of a record.
        ended_early: bool,
    },
    /// The recorded run failed there.
    #[error("operation {number} failed in the recorded run: {reason}")]
    Failed {
        /// Its number.
        number: u32,
        /// Why.
        reason: String,
    },
    /// This run is no reliable one.
    #[error(
        "packet {packet} of {what} of operation {number} did not arrive whole: a transcript is replayed over a reliable run"
    )]
    NotWhole {
        /// The packet.
        packet: usize,
        /// The message.
        what: String,
        /// The operation.
        number: u32,
    },
    /// The results differ, though as much arrived.
    #[error("operation {number} gives SHA-256 {here}, the recorded run {recorded}: its inputs were others")]
    Result {
        /// Its number.
        number: u32,
        /// In the transcript.
        recorded: String,
        /// Here.
        here: String,
    },
}

fn gap(lost: u64, ended_early: bool) -> String {
    match (lost, ended_early) {
        (0, false) => String::new(),
        (0, true) => "; it ends in the middle of a record".to_owned(),
        _ => format!("; {lost} records were lost while it was written"),
    }
}

fn message_name(from: u16, id: MessageId) -> String {
    format!("shard {} of rank {from} in the {}", id.shard, id.phase)
}

fn map_name(to: u16, id: MessageId) -> String {
    format!("what rank {to} had of shard {}", id.shard)
}

/// A kind of record, the rank and the id that it is found by.
type Key = (u8, u16, u32);

const MESSAGE: u8 = 0;
const MAP: u8 = 1;
const OPERATION: u8 = 2;

/// Where a record is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Key,
    at: u64,
    /// Numbers come again after two million operations: each is used once.
    used: bool,
}

/// Trims what arrives in a reliable run to what a transcript says. Sans-IO but for its file: show
/// it each event before whoever takes it. It keeps an index of the file, 24 bytes a record, and the
/// messages under way.
#[derive(Debug)]
pub struct Replay<R> {
    reader: Reader<R>,
    index: Vec<Entry>,
    messages: BTreeMap<(u16, u32), MessageRecord>,
    lost: u64,
    ended_early: bool,
}

impl<R: BufRead + Seek> Replay<R> {
    /// Reads a transcript through.
    ///
    /// # Errors
    /// [`ReplayError::Read`] where it is damaged; one that ends in the middle of a record is read
    /// as far as it goes.
    pub fn open(source: R) -> Result<Self, ReplayError> {
        let mut reader = Reader::new(source)?;
        let (mut index, mut lost, mut ended_early) = (Vec::new(), 0_u64, false);
        loop {
            let at = reader.position();
            let key = match reader.next_record() {
                Ok(Some(Record::Message(message))) => (MESSAGE, message.from, message.message),
                Ok(Some(Record::Map(map))) => (MAP, map.to, map.message),
                Ok(Some(Record::Operation(operation))) => (OPERATION, 0, operation.number),
                Ok(Some(Record::Gap(records))) => {
                    lost = lost.saturating_add(records);
                    continue;
                }
                Ok(None) => break,
                Err(ReadError::Truncated { .. }) => {
                    ended_early = true;
                    break;
                }
                Err(error) => return Err(error.into()),
            };
            index.push(Entry { key, at, used: false });
        }
        index.sort_unstable();
        Ok(Self { reader, index, messages: BTreeMap::new(), lost, ended_early })
    }

    /// Whose transcript it is.
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// Whether it is that of a rank of a job.
    ///
    /// # Errors
    /// [`ReplayError::Other`] names what differs.
    pub fn check(&self, here: &Header) -> Result<(), ReplayError> {
        let recorded = self.header();
        let pairs = [
            ("job", u64::from(recorded.job), u64::from(here.job)),
            ("rank", recorded.rank.into(), here.rank.into()),
            ("world size", recorded.world.into(), here.world.into()),
            ("seed", recorded.seed, here.seed),
        ];
        match pairs.into_iter().find(|(_, recorded, here)| recorded != here) {
            Some((what, recorded, here)) => {
                Err(ReplayError::Other { what, recorded: recorded.to_string(), here: here.to_string() })
            }
            None => Ok(()),
        }
    }

    /// Whether the recorded run had an operation like that, and it ended well; times, counts and
    /// result are not looked at.
    ///
    /// # Errors
    /// [`ReplayError`] names what differs.
    pub fn check_operation(&mut self, here: &OperationRecord) -> Result<(), ReplayError> {
        let recorded = self.operation(here.number, false)?;
        let number = here.number;
        if let Some(reason) = recorded.failure {
            return Err(ReplayError::Failed { number, reason });
        }
        let pairs = [
            ("the name", recorded.name, here.name.clone()),
            ("coordinates", recorded.coordinates.to_string(), here.coordinates.to_string()),
            ("planes", recorded.planes.to_string(), here.planes.to_string()),
            ("the decoding", format!("{:?}", recorded.decoding), format!("{:?}", here.decoding)),
            ("exactness", recorded.exact.to_string(), here.exact.to_string()),
            ("consistent replicas", recorded.consistent.to_string(), here.consistent.to_string()),
        ];
        match pairs.into_iter().find(|(_, recorded, here)| recorded != here) {
            Some((what, recorded, here)) => Err(ReplayError::OtherOperation { number, what, recorded, here }),
            None => Ok(()),
        }
    }

    /// Whether an operation that is over gave the recorded result, bit for bit; without a digest on
    /// either side nothing is compared.
    ///
    /// # Errors
    /// [`ReplayError::Result`]; [`ReplayError::Missing`] where there is a digest here, and no such
    /// operation there.
    pub fn check_result(&mut self, here: &OperationRecord) -> Result<(), ReplayError> {
        let recorded = match self.operation(here.number, true) {
            Err(ReplayError::Missing { .. }) if here.digest.is_none() => return Ok(()),
            recorded => recorded?,
        };
        match (recorded.digest, here.digest) {
            (Some(recorded), Some(here_digest)) if recorded != here_digest => Err(ReplayError::Result {
                number: here.number,
                recorded: hex(&recorded),
                here: hex(&here_digest),
            }),
            _ => Ok(()),
        }
    }

    fn operation(&mut self, number: u32, used: bool) -> Result<OperationRecord, ReplayError> {
        match self.find((OPERATION, 0, number), used)? {
            Some(Record::Operation(operation)) => Ok(operation),
            _ => Err(self.missing("the record".to_owned(), number)),
        }
    }

    fn missing(&self, what: String, number: u32) -> ReplayError {
        ReplayError::Missing { what, number, lost: self.lost, ended_early: self.ended_early }
    }

    /// The first record of a key that was not used.
    fn find(&mut self, key: Key, used: bool) -> Result<Option<Record>, ReplayError> {
        let first = self.index.partition_point(|entry| entry.key < key);
        let of_key = self.index[first..].iter_mut().take_while(|entry| entry.key == key);
        let Some(entry) = of_key.into_iter().find(|entry| !entry.used) else { return Ok(None) };
        entry.used = used;
        let at = entry.at;
        self.reader.seek(at)?;
        Ok(self.reader.next_record()?)
    }

    /// Makes of an event what it was in the recorded run: rows are trimmed, and what receivers say
    /// that they have is what they had.
    ///
    /// # Errors
    /// [`ReplayError`] when the transcript does not say it, or this run is another one. The event
    /// is of no use then.
    pub fn on_event(&mut self, event: &mut Event) -> Result<(), ReplayError> {
        match event {
            Event::Row { from, message, row } => self.trim(*from, *message, row),
            Event::Received { from, message, .. } => {
                self.messages.remove(&(*from, *message));
                Ok(())
            }
            Event::Sent { to, message, map: Some(map), .. } => {
                let id = MessageId::from_u32(*message);
                let Some(Record::Map(MapRecord { planes, .. })) = self.find((MAP, *to, *message), true)?
                else {
                    return Err(self.missing(map_name(*to, id), id.number));
                };
                let (recorded, here) = (planes.len(), map.packets() as usize);
                if recorded != here {
                    return Err(other(id.number, "packets", recorded, here));
                }
                *map = TrimMap::from_planes(planes);
                Ok(())
            }
            Event::Sent { .. }
            | Event::Passed { .. }
            | Event::Agreed { .. }
            | Event::Failed { .. }
            | Event::Epoch(_) => Ok(()),
        }
    }

    fn trim(&mut self, from: u16, message: u32, row: &mut RowReceiver) -> Result<(), ReplayError> {
        let id = MessageId::from_u32(message);
        let number = id.number;
        if !self.messages.contains_key(&(from, message)) {
            let Some(Record::Message(record)) = self.find((MESSAGE, from, message), true)? else {
                return Err(self.missing(message_name(from, id), number));
            };
            check_shape(number, &record, row)?;
            self.messages.insert((from, message), record);
        }
        let Some(record) = self.messages.get(&(from, message)) else { return Ok(()) };
        if !record.delivered {
            let reason = format!("{} was given up", message_name(from, id));
            return Err(ReplayError::Failed { number, reason });
        }
        let (packets, planes) = (row.layout().row_packets(row.row()), row.planes());
        for packet in packets {
            if row.coverage(packet) < planes {
                return Err(ReplayError::NotWhole { packet, what: message_name(from, id), number });
            }
            match record.held.get(packet) {
                Some(Held::Whole) => {}
                Some(&Held::Part(bytes)) => row.cut_to(packet, Some(bytes.into())),
                Some(Held::Missing) | None => row.cut_to(packet, None),
            }
        }
        Ok(())
    }
}

fn other(number: u32, what: &'static str, recorded: usize, here: usize) -> ReplayError {
    ReplayError::OtherOperation { number, what, recorded: recorded.to_string(), here: here.to_string() }
}

/// Whether a record is of a message like that of a row.
fn check_shape(number: u32, record: &MessageRecord, row: &RowReceiver) -> Result<(), ReplayError> {
    let (recorded, here) = (&record.shape, Shape::new(row.layout(), row.codec(), row.planes()));
    if *recorded != here {
        let pairs = [
            ("the codec", recorded.codec.to_string(), here.codec.to_string()),
            ("planes", recorded.planes.to_string(), here.planes.to_string()),
            (
                "coordinates a packet",
                recorded.coordinates_per_packet.to_string(),
                here.coordinates_per_packet.to_string(),
            ),
            ("row_log2", recorded.row_log2.to_string(), here.row_log2.to_string()),
            ("coordinates in a shard", recorded.coordinates().to_string(), here.coordinates().to_string()),
        ];
        let differs = pairs.into_iter().find(|(_, recorded, here)| recorded != here);
        let (what, recorded, here) = differs
            .unwrap_or_else(|| ("tensors", format!("{:?}", recorded.tensors), format!("{:?}", here.tensors)));
        return Err(ReplayError::OtherOperation { number, what, recorded, here });
    }
    let (recorded, here) = (record.held.len(), row.layout().packets());
    if recorded == here { Ok(()) } else { Err(other(number, "packets", recorded, here)) }
}
