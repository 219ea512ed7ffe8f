// SPDX-License-Identifier: Apache-2.0
//! What a transcript says (docs/reference/transcript.md).

use super::bytes::{Body, Malformed, put, put_bytes, put_option};
use super::series;
use crate::collective::{Options, Outcome, Replicas};
use crate::outcome::TransferStats;
use trimwire_encoder::{Codec, Decoding, Layout, LayoutError, Reach, StreamId, Tensor};

/// Bytes that the body of a record has at most: a message of 2^20 packets, no two of which are cut alike, takes less.
pub const MAX_BODY: usize = 8 << 20;
/// Bytes that a name or the text of an error has at most; the rest is left out.
pub const MAX_TEXT: usize = 1_024;

/// Coordinates of a message: 2^20 packets of less than 2^13 each.
const MAX_COORDINATES: usize = 1 << 33;

/// Whose transcript it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of the job.
    pub job: u8,
    /// The rank that recorded.
    pub rank: u16,
    /// Ranks of the job.
    pub world: u16,
    /// Seed of the job's rotations.
    pub seed: u64,
}

/// What was there of a packet when its row was decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// Nothing.
    Missing,
    /// The first so many bytes of its planes, neither header nor tags counted; 0: its header.
    Part(u16),
    /// Everything that was sent of it.
    Whole,
}

impl Held {
    fn to_value(self) -> u32 {
        match self {
            Self::Whole => 0,
            Self::Missing => 1,
            Self::Part(bytes) => 2 + u32::from(bytes),
        }
    }

    fn from_value(value: u32) -> Result<Self, Malformed> {
        match value {
            0 => Ok(Self::Whole),
            1 => Ok(Self::Missing),
            _ => u16::try_from(value - 2).map(Self::Part).map_err(|_| Malformed("a packet of 2^16 bytes")),
        }
    }
}

/// How a message is divided and encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Its codec.
    pub codec: Codec,
    /// Planes that were sent of each packet.
    pub planes: u8,
    /// Most coordinates of a packet.
    pub coordinates_per_packet: usize,
    /// Rows have at most 2^this coordinates.
    pub row_log2: u8,
    /// What it is made of.
    pub tensors: Vec<Tensor>,
}

impl Shape {
    /// Of a message of that layout.
    pub fn new(layout: &Layout, codec: Codec, planes: u8) -> Self {
        Self {
            codec,
            planes,
            coordinates_per_packet: layout.coordinates_per_packet(),
            row_log2: layout.row_log2(),
            tensors: layout.tensors().to_vec(),
        }
    }

    /// The layout.
    ///
    /// # Errors
    /// When there is none of these numbers: the file was not written by a recorder.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        Layout::of_tensors(&self.tensors, self.coordinates_per_packet)?.with_row_log2(self.row_log2)
    }

    /// Coordinates of the message.
    pub fn coordinates(&self) -> usize {
        self.tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.coordinates))
    }
}

/// A message that was received, or given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageRecord {
    /// Its sender.
    pub from: u16,
    /// Its id: of a collective, a [`crate::collective::MessageId`].
    pub message: u32,
    /// How it was divided and encoded.
    pub shape: Shape,
    /// Whether it was delivered; of one that was given up, rows that were not there yet count as missing.
    pub delivered: bool,
    /// When it was expected, ns of the recording rank's clock.
    pub started_ns: u64,
    /// From then until it was over, ns.
    pub duration_ns: u64,
    /// From then until the first and the last packet that brought something, ns.
    pub first_ns: Option<u64>,
    /// See [`Self::first_ns`].
    pub last_ns: Option<u64>,
    /// Datagrams that brought nothing.
    pub duplicates: u32,
    /// Probes seen.
    pub probes: u32,
    /// Packets that answers to probes named as wanting, each as often as it was named.
    pub asked: u32,
    /// What was there of each packet, in order.
    pub held: Vec<Held>,
}

impl MessageRecord {
    /// Takes over what a receiver counts.
    pub(super) fn set_stats(&mut self, now_ns: u64, stats: &TransferStats) {
        self.started_ns = now_ns.saturating_sub(stats.duration_ns);
        self.duration_ns = stats.duration_ns;
        (self.first_ns, self.last_ns) = (stats.first_ns, stats.last_ns);
        (self.duplicates, self.probes, self.asked) = (stats.duplicates, stats.probes, stats.asked);
    }

    /// How far each packet reached, in order: whole planes, and coordinates of the next one; `None` where nothing of it was there. What simulated cutting needs to cut likewise.
    ///
    /// # Errors
    /// As [`Shape::layout`].
    pub fn planes(&self) -> Result<Vec<Option<Reach>>, LayoutError> {
        let (layout, codec) = (self.shape.layout()?, self.shape.codec);
        let packets = self.held.iter().enumerate().take(layout.packets());
        Ok(packets
            .map(|(index, held)| {
                let coordinates = layout.packet_range(index).len();
                match held {
                    Held::Missing => None,
                    Held::Part(bytes) => {
                        let bytes = usize::from(*bytes).min(codec.body_len(coordinates));
                        Some(codec.reach(bytes, coordinates))
                    }
                    Held::Whole => Some(Reach { planes: self.shape.planes, more: 0 }),
                }
            })
            .collect())
    }
}

/// What the receiver of a sent message said that it had, where replicas agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapRecord {
    /// The receiver.
    pub to: u16,
    /// The message.
    pub message: u32,
    /// Whole planes of each packet; [`crate::wire::cut_map::FULL`]: all that were sent.
    pub planes: Vec<u8>,
}

/// An operation that is over at the recording rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationRecord {
    /// Its number.
    pub number: u32,
    /// What it does.
    pub name: String,
    /// Coordinates of its tensor.
    pub coordinates: u64,
    /// Planes that are sent.
    pub planes: u8,
    /// How cut packets are decoded.
    pub decoding: Decoding,
    /// Every bit as it is.
    pub exact: bool,
    /// Replicas agree on what they decode.
    pub consistent: bool,
    /// When it began, ns of the recording rank's clock.
    pub started_ns: u64,
    /// From then to this rank's result, ns.
    pub duration_ns: u64,
    /// Repairs that this rank sent.
    pub repaired: u64,
    /// SHA-256 of this rank's result as it lies in memory, little-endian.
    pub digest: Option<[u8; 32]>,
    /// Why it failed.
    pub failure: Option<String>,
}

impl OperationRecord {
    /// Of an operation of so many coordinates that has not begun.
    pub fn new(number: u32, name: &str, coordinates: usize, options: &Options) -> Self {
        Self {
            number,
            name: name.to_owned(),
            coordinates: coordinates as u64,
            planes: options.planes,
            decoding: options.decoding,
            exact: options.exact,
            consistent: options.replicas == Replicas::Consistent,
            started_ns: 0,
            duration_ns: 0,
            repaired: 0,
            digest: None,
            failure: None,
        }
    }

    /// Of the same that began then and is over, but for its result.
    pub fn ended(self, started_ns: u64, outcome: &Outcome) -> Self {
        Self {
            started_ns,
            duration_ns: outcome.duration_ns,
            repaired: outcome.stats.repaired,
            failure: outcome.result.as_ref().err().map(ToString::to_string),
            ..self
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Record {
    /// A message was received.
    Message(MessageRecord),
    /// A receiver told what it had of a message.
    Map(MapRecord),
    /// An operation ended.
    Operation(OperationRecord),
    /// So many records are not here: the disk was slower than the network.
    Gap(u64),
}

const MESSAGE: u8 = 1;
const MAP: u8 = 2;
const OPERATION: u8 = 3;
const GAP: u8 = 4;

impl Record {
    /// Packets that it tells of.
    pub fn packets(&self) -> usize {
        match self {
            Self::Message(message) => message.held.len(),
            Self::Map(map) => map.planes.len(),
            Self::Operation(_) | Self::Gap(_) => 0,
        }
    }

    /// The body of the record, as it is in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Message(message) => message.put(&mut out),
            Self::Map(MapRecord { to, message, planes }) => {
                out.push(MAP);
                put(&mut out, (*to).into());
                put(&mut out, (*message).into());
                // The commonest value of a series comes for nothing, whatever it is.
                let values: Vec<u32> = planes.iter().map(|&planes| planes.into()).collect();
                series::encode(&values, &mut out);
            }
            Self::Operation(operation) => operation.put(&mut out),
            Self::Gap(records) => {
                out.push(GAP);
                put(&mut out, *records);
            }
        }
        out
    }

    /// Reads a body; `None` for a kind that this version does not know.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut body = Body(bytes);
        let record = match body.byte()? {
            MESSAGE => Self::Message(MessageRecord::parse(&mut body)?),
            MAP => {
                let (to, message) = (rank(&mut body)?, body.fits("a message's id")?);
                let planes = series::decode(&mut body)?;
                let planes = planes.into_iter().map(u8::try_from).collect::<Result<_, _>>();
                let planes = planes.map_err(|_| Malformed("more planes than there are"))?;
                Self::Map(MapRecord { to, message, planes })
            }
            OPERATION => Self::Operation(OperationRecord::parse(&mut body)?),
            GAP => Self::Gap(body.number()?),
            _ => return Ok(None),
        };
        body.end()?;
        Ok(Some(record))
    }
}

fn rank(body: &mut Body<'_>) -> Result<u16, Malformed> {
    let rank = body.fits("a rank")?;
    if rank > StreamId::MAX_RANK { Err(Malformed("a rank above 1,023")) } else { Ok(rank) }
}

impl MessageRecord {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(MESSAGE);
        put(out, self.from.into());
        put(out, self.message.into());
        let Shape { codec, planes, coordinates_per_packet, row_log2, tensors } = &self.shape;
        out.extend([*codec as u8, *planes, *row_log2, u8::from(self.delivered)]);
        put(out, *coordinates_per_packet as u64);
        put(out, tensors.len() as u64);
        for Tensor { coordinates, layer_class } in tensors {
            put(out, *coordinates as u64);
            out.push(*layer_class);
        }
        put(out, self.started_ns);
        put(out, self.duration_ns);
        put_option(out, self.first_ns);
        put_option(out, self.last_ns);
        for count in [self.duplicates, self.probes, self.asked] {
            put(out, count.into());
        }
        let values: Vec<u32> = self.held.iter().map(|held| held.to_value()).collect();
        series::encode(&values, out);
    }

    fn parse(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let (from, message) = (rank(body)?, body.fits("a message's id")?);
        let codec = Codec::from_id(body.byte()?).ok_or(Malformed("an unknown codec"))?;
        let (planes, row_log2) = (body.byte()?, body.byte()?);
        let delivered = body.byte()? == 1;
        let coordinates_per_packet = body.fits("a number of coordinates")?;
        let count: usize = body.fits("a number of tensors")?;
        let tensor = |_| -> Result<Tensor, Malformed> {
            Ok(Tensor { coordinates: body.fits("a number of coordinates")?, layer_class: body.byte()? })
        };
        // It ends with the body at the latest, whatever the count.
        let tensors = (0..count).map(tensor).collect::<Result<Vec<_>, _>>()?;
        let fits = |sum: usize, tensor: &Tensor| {
            sum.checked_add(tensor.coordinates).filter(|&sum| sum <= MAX_COORDINATES)
        };
        if tensors.iter().try_fold(0, fits).is_none() {
            return Err(Malformed("more coordinates than a message may have"));
        }
        let shape = Shape { codec, planes, coordinates_per_packet, row_log2, tensors };
        let (started_ns, duration_ns) = (body.number()?, body.number()?);
        let (first_ns, last_ns) = (body.option()?, body.option()?);
        let mut count = || body.fits("a count");
        let (duplicates, probes, asked) = (count()?, count()?, count()?);
        let held = series::decode(body)?.into_iter().map(Held::from_value).collect::<Result<_, _>>()?;
        Ok(Self {
            from,
            message,
            shape,
            delivered,
            started_ns,
            duration_ns,
            first_ns,
            last_ns,
            duplicates,
            probes,
            asked,
            held,
        })
    }
}

const EXACT: u8 = 1;
const CONSISTENT: u8 = 2;
const DIGEST: u8 = 4;
const FAILED: u8 = 8;

fn shortened(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl OperationRecord {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(OPERATION);
        put(out, self.number.into());
        put_bytes(out, shortened(&self.name).as_bytes());
        put(out, self.coordinates);
        let flag = |set, bit| if set { bit } else { 0 };
        let decoding = match self.decoding {
            Decoding::Unbiased => 0,
            Decoding::Mmse => 1,
            Decoding::Paper => 2,
        };
        let flags = flag(self.exact, EXACT)
            | flag(self.consistent, CONSISTENT)
            | flag(self.digest.is_some(), DIGEST)
            | flag(self.failure.is_some(), FAILED);
        out.extend([self.planes, decoding, flags]);
        for value in [self.started_ns, self.duration_ns, self.repaired] {
            put(out, value);
        }
        out.extend(self.digest.iter().flatten());
        if let Some(failure) = &self.failure {
            put_bytes(out, shortened(failure).as_bytes());
        }
    }

    fn parse(body: &mut Body<'_>) -> Result<Self, Malformed> {
        // Of a damaged one as much as can be read.
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (number, name) = (body.fits("a number")?, text(body.bytes()?));
        let (coordinates, planes) = (body.number()?, body.byte()?);
        let decoding = match body.byte()? {
            0 => Decoding::Unbiased,
            1 => Decoding::Mmse,
            2 => Decoding::Paper,
            _ => return Err(Malformed("an unknown decoding")),
        };
        let flags = body.byte()?;
        let (started_ns, duration_ns, repaired) = (body.number()?, body.number()?, body.number()?);
        let digest = match flags & DIGEST {
            0 => None,
            _ => body.take(32)?.first_chunk().copied(),
        };
        let failure = if flags & FAILED == 0 { None } else { Some(text(body.bytes()?)) };
        Ok(Self {
            number,
            name,
            coordinates,
            planes,
            decoding,
            exact: flags & EXACT != 0,
            consistent: flags & CONSISTENT != 0,
            started_ns,
            duration_ns,
            repaired,
            digest,
            failure,
        })
    }
}
