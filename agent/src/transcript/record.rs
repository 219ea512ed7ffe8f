// SPDX-License-Identifier: Apache-2.0
//! What a transcript says (docs/reference/transcript.md).

use crate::collective::{Options, Outcome, Replicas};
use crate::outcome::TransferStats;
use crate::wire::trim_map::MAX_PACKETS;
use serde::{Deserialize, Serialize};
use trimwire_encoder::{Codec, Decoding, Layout, LayoutError, Reach, StreamId, Tensor};

/// Bytes of a record's JSON: more than a message of 2^24 packets takes, whatever arrived of them.
pub const MAX_BODY: usize = 128 << 20;

/// Coordinates of a message: with the usual packets twice as many as 2^24 of them hold.
const MAX_COORDINATES: usize = 1 << 33;

/// Whose transcript it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Option<i32>", try_from = "Option<i32>")]
pub enum Held {
    /// Nothing.
    Missing,
    /// The first so many bytes of its planes, neither header nor tags counted; 0: its header.
    Part(u16),
    /// Everything that was sent of it.
    Whole,
}

impl From<Held> for Option<i32> {
    fn from(held: Held) -> Self {
        match held {
            Held::Missing => None,
            Held::Part(bytes) => Some(bytes.into()),
            Held::Whole => Some(-1),
        }
    }
}

impl TryFrom<Option<i32>> for Held {
    type Error = std::num::TryFromIntError;

    fn try_from(value: Option<i32>) -> Result<Self, Self::Error> {
        match value {
            None => Ok(Self::Missing),
            Some(-1) => Ok(Self::Whole),
            Some(bytes) => u16::try_from(bytes).map(Self::Part),
        }
    }
}

/// How a message is divided and encoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Its codec.
    #[serde(with = "codec_name")]
    pub codec: Codec,
    /// Planes that were sent of each packet.
    pub planes: u8,
    /// Most coordinates of a packet.
    pub coordinates_per_packet: usize,
    /// Rows have at most 2^this coordinates.
    pub row_log2: u8,
    /// What it is made of.
    #[serde(with = "tensor_pairs")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageRecord {
    /// Its sender.
    pub from: u16,
    /// Its id: of a collective, a [`crate::collective::MessageId`].
    pub message: u32,
    /// How it was divided and encoded.
    pub shape: Shape,
    /// Whether it was delivered; of one that was given up, rows that were not there yet count as
    /// missing.
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

    /// How far each packet reached, in order: whole planes, and coordinates of the next one; `None`
    /// where nothing of it was there. A simulation trims to it.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRecord {
    /// The receiver.
    pub to: u16,
    /// The message.
    pub message: u32,
    /// Whole planes of each packet; [`crate::wire::trim_map::FULL`]: all that were sent.
    pub planes: Vec<u8>,
}

/// An operation that is over at the recording rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Its number.
    pub number: u32,
    /// What it does.
    pub name: String,
    /// Coordinates of its tensor.
    pub coordinates: u64,
    /// Planes that are sent.
    pub planes: u8,
    /// How trimmed packets are decoded.
    #[serde(with = "DecodingName")]
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
    #[serde(with = "digest_hex")]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

impl Record {
    /// Packets that it tells of.
    pub fn packets(&self) -> usize {
        match self {
            Self::Message(message) => message.held.len(),
            Self::Map(map) => map.planes.len(),
            Self::Operation(_) | Self::Gap(_) => 0,
        }
    }

    /// Reads a record's JSON; the error says why it is none.
    pub(super) fn parse(json: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        record.check().map_or(Ok(record), |wrong| Err(wrong.to_owned()))
    }

    /// What cannot be in it, though it has the right form.
    fn check(&self) -> Option<&'static str> {
        let rank = match self {
            Self::Message(message) => message.from,
            Self::Map(map) => map.to,
            Self::Operation(_) | Self::Gap(_) => 0,
        };
        if rank > StreamId::MAX_RANK {
            return Some("a rank above 1,023");
        }
        if self.packets() > MAX_PACKETS as usize {
            return Some("more packets than a message may have");
        }
        match self {
            Self::Message(message) if message.shape.coordinates() > MAX_COORDINATES => {
                Some("more coordinates than a message may have")
            }
            _ => None,
        }
    }
}

/// Names of [`Decoding`]s.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Decoding", rename_all = "lowercase")]
enum DecodingName {
    Unbiased,
    Mmse,
    Paper,
}

/// Codecs by name.
mod codec_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use trimwire_encoder::Codec;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
    pub(super) fn serialize<S: Serializer>(codec: &Codec, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(codec)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Codec, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Tensors as pairs of coordinates and layer class.
mod tensor_pairs {
    use serde::{Deserialize, Deserializer, Serializer};
    use trimwire_encoder::Tensor;

    pub(super) fn serialize<S: Serializer>(tensors: &[Tensor], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(tensors.iter().map(|tensor| (tensor.coordinates, tensor.layer_class)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Tensor>, D::Error> {
        let pairs = Vec::<(usize, u8)>::deserialize(from)?.into_iter();
        Ok(pairs.map(|(coordinates, layer_class)| Tensor { coordinates, layer_class }).collect())
    }
}

/// A SHA-256 in hexadecimal.
mod digest_hex {
    use super::hex;
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    #[expect(clippy::ref_option, reason = "serde gives a reference to the field")]
    pub(super) fn serialize<S: Serializer>(digest: &Option<[u8; 32]>, to: S) -> Result<S::Ok, S::Error> {
        digest.as_ref().map(hex).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<[u8; 32]>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let byte = |at: usize| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok();
        let bytes: Option<Vec<u8>> = (0..text.len().div_ceil(2)).map(byte).collect();
        let digest = bytes.and_then(|bytes| bytes.try_into().ok());
        digest.map(Some).ok_or_else(|| D::Error::custom("a digest is 64 hexadecimal digits"))
    }
}

/// A digest as it is printed.
pub fn hex(digest: &[u8; 32]) -> String {
    digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
