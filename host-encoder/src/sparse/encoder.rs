// SPDX-License-Identifier: Apache-2.0
//! Gradient or entries in, packets out.

use super::Entry;
use super::code::{Plan, plan, write};
use super::header::{MOST_ENTRIES, SPARSE_CODEC_ID, SPARSE_HEAD_LEN, SparseHeader};
use super::layout::{Run, SparseLayout};
use super::level::{MOST_FRACTION_BITS, level, value};
use super::message::SparseMessage;
use crate::element::Element;
use crate::wire::{Envelope, Kind, MAX_INDEX, Prefix};

/// Fraction bits unless the caller wants otherwise: magnitudes are off by at most 1/32. More entries of the same bytes are worth more than more bits.
pub const DEFAULT_FRACTION_BITS: u8 = 4;
/// Bytes of a packet at most: what an MTU of 1500 bytes leaves behind the headers of IPv6 and UDP.
pub const DEFAULT_PACKET_BYTES: usize = 1452;
/// Packets that a caller may choose have so many bytes at least: there is room for an entry.
const LEAST_PACKET_BYTES: usize = 64;
/// And at most: UDP's largest payload over IPv4.
const MOST_PACKET_BYTES: usize = 65_507;

/// Why nothing can be encoded. The message is left empty.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SparseEncodeError {
    /// More fraction bits than an f32 has.
    #[error("{0} fraction bits (valid: 0 to {MOST_FRACTION_BITS})")]
    FractionBits(u8),
    /// Packets that are too short for an entry, or too long for UDP.
    #[error("packets of {0} bytes (valid: {LEAST_PACKET_BYTES} to {MOST_PACKET_BYTES})")]
    PacketBytes(usize),
    /// Another length than the layout's.
    #[error("a gradient of {got} coordinates for a layout of {expected}")]
    Length {
        /// Coordinates given.
        got: usize,
        /// Coordinates of the layout.
        expected: usize,
    },
    /// None, or more than there are.
    #[error("k is {k} (valid: 1 to {coordinates}, the message's coordinates)")]
    K {
        /// Entries asked for.
        k: usize,
        /// Coordinates of the message.
        coordinates: usize,
    },
    /// A coordinate that the message does not have.
    #[error("entry {position} is of coordinate {index} of a message of {coordinates}")]
    NoSuchCoordinate {
        /// Where it stands among the entries.
        position: usize,
        /// Its coordinate.
        index: u32,
        /// Coordinates of the message.
        coordinates: usize,
    },
    /// Entries that do not ascend: one comes twice, or too late.
    #[error("entry {position} is of coordinate {index}, behind one of coordinate {before}")]
    NotAscending {
        /// Where it stands among the entries.
        position: usize,
        /// Its coordinate.
        index: u32,
        /// The coordinate of the one in front of it.
        before: u32,
    },
    /// NaN or infinity, in strict mode.
    #[error("coordinate {index} is {value}: strict encoding takes finite values only")]
    NotFinite {
        /// Where the first one stands in the message.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// The header's index has 20 bits.
    #[error("the entries do not fit the {} packets of a message", MAX_INDEX + 1)]
    TooManyPackets,
}

/// Encodes the messages of one layout.
#[derive(Debug, Clone)]
pub struct SparseEncoder {
    layout: SparseLayout,
    fraction_bits: u8,
    packet_bytes: usize,
    important: bool,
    strict: bool,
}

impl SparseEncoder {
    /// An encoder of [`DEFAULT_FRACTION_BITS`] and [`DEFAULT_PACKET_BYTES`] whose packets are important.
    pub fn new(layout: SparseLayout) -> Self {
        let (fraction_bits, packet_bytes) = (DEFAULT_FRACTION_BITS, DEFAULT_PACKET_BYTES);
        Self { layout, fraction_bits, packet_bytes, important: true, strict: false }
    }

    /// With magnitudes of another precision: of b fraction bits they are off by at most 2^−(b+1), rounded to nearest. 7 are bf16, 10 hold every f16, 23 every f32.
    pub fn with_fraction_bits(self, fraction_bits: u8) -> Result<Self, SparseEncodeError> {
        if fraction_bits > MOST_FRACTION_BITS {
            return Err(SparseEncodeError::FractionBits(fraction_bits));
        }
        Ok(Self { fraction_bits, ..self })
    }

    /// With packets of at most so many bytes (UDP payload), 64 to 65,507.
    pub fn with_packet_bytes(self, packet_bytes: usize) -> Result<Self, SparseEncodeError> {
        if !(LEAST_PACKET_BYTES..=MOST_PACKET_BYTES).contains(&packet_bytes) {
            return Err(SparseEncodeError::PacketBytes(packet_bytes));
        }
        Ok(Self { packet_bytes, ..self })
    }

    /// Whether switches cut and drop others first (docs/reference/wire-format.md §7).
    pub fn important(self, important: bool) -> Self {
        Self { important, ..self }
    }

    /// Refuses NaN and infinities. Otherwise a message that would send one decodes to NaN in all coordinates, as rows do.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// The messages' layout.
    pub fn layout(&self) -> &SparseLayout {
        &self.layout
    }

    /// Encodes the `k` coordinates of largest magnitude of `gradient` (shape: `layout.coordinates()`; of equal magnitudes those that come first) into
    /// `out`, whose former content is replaced. Zeros, and what rounds to zero, are not sent.
    pub fn encode_top<E: Element>(
        &self,
        gradient: &[E],
        k: usize,
        envelope: Envelope,
        out: &mut SparseMessage,
    ) -> Result<(), SparseEncodeError> {
        out.clear();
        let coordinates = self.layout.coordinates();
        if gradient.len() != coordinates {
            return Err(SparseEncodeError::Length { got: gradient.len(), expected: coordinates });
        }
        if k == 0 || k > coordinates {
            return Err(SparseEncodeError::K { k, coordinates });
        }
        let mut wide = std::mem::take(&mut out.wide);
        let values = E::widen(gradient, &mut wide);
        let chosen = out.selection.largest(values, k);
        out.entries.extend(chosen.iter().map(|&index| Entry { index, value: values[index as usize] }));
        out.wide = wide;
        self.encode(envelope, out)
    }

    /// Encodes entries that someone else chose, in ascending order of coordinates, none twice; otherwise as [`Self::encode_top`].
    pub fn encode_entries(
        &self,
        entries: &[Entry],
        envelope: Envelope,
        out: &mut SparseMessage,
    ) -> Result<(), SparseEncodeError> {
        out.clear();
        let (coordinates, mut before) = (self.layout.coordinates(), None);
        for (position, &Entry { index, .. }) in entries.iter().enumerate() {
            if index as usize >= coordinates {
                return Err(SparseEncodeError::NoSuchCoordinate { position, index, coordinates });
            }
            if let Some(before) = before.replace(index)
                && before >= index
            {
                return Err(SparseEncodeError::NotAscending { position, index, before });
            }
        }
        out.entries.extend_from_slice(entries);
        self.encode(envelope, out)
    }

    /// Encodes what is in `out.entries`, and leaves there what is sent.
    fn encode(&self, envelope: Envelope, out: &mut SparseMessage) -> Result<(), SparseEncodeError> {
        let done = self.write_packets(envelope, out);
        match done {
            Ok(()) => out.coordinates = self.layout.coordinates(),
            Err(_) => out.clear(),
        }
        done
    }

    fn write_packets(&self, envelope: Envelope, out: &mut SparseMessage) -> Result<(), SparseEncodeError> {
        if let Some(entry) = out.entries.iter().find(|entry| !entry.value.is_finite()) {
            if self.strict {
                let Entry { index, value } = *entry;
                return Err(SparseEncodeError::NotFinite { index: index as usize, value });
            }
            out.entries.clear();
            self.put_without_entries(f32::NAN, envelope, out);
        } else {
            out.entries.retain_mut(|entry| {
                let level = level(entry.value, self.fraction_bits);
                entry.value = value(level, entry.value.is_sign_negative(), self.fraction_bits);
                level > 0
            });
            self.share_out(envelope, out);
            if out.headers.is_empty() {
                self.put_without_entries(0.0, envelope, out);
            }
        }
        // Only the last packet knows how many there are.
        let packets = out.headers.len() as u32;
        if packets > MAX_INDEX + 1 {
            return Err(SparseEncodeError::TooManyPackets);
        }
        for (index, header) in (0..).zip(&mut out.headers) {
            (header.index, header.packets, header.prefix.last) = (index, packets, index + 1 == packets);
            let start = out.starts[index as usize];
            out.bytes[start..start + SPARSE_HEAD_LEN].copy_from_slice(&header.to_bytes());
        }
        Ok(())
    }

    /// Fills packets with entries, run by run.
    fn share_out(&self, envelope: Envelope, out: &mut SparseMessage) {
        let room = self.packet_bytes - SPARSE_HEAD_LEN;
        let mut guess = self.packet_bytes / 2;
        let mut from = 0;
        for run in self.layout.runs() {
            let end =
                out.entries.partition_point(|entry| u64::from(entry.index) < run.coordinates.end).max(from);
            while from < end && out.headers.len() <= MAX_INDEX as usize + 1 {
                let mut count = guess.clamp(1, MOST_ENTRIES).min(end - from);
                let plan = loop {
                    let entries = &out.entries[from..from + count];
                    let Some(plan) = plan(entries, self.fraction_bits, &mut out.gaps) else { return };
                    // A single entry takes two bits.
                    if plan.len <= room || count == 1 {
                        break plan;
                    }
                    // A little less than what should just fit, so that it nearly always does.
                    count = (63 * count * room / (64 * plan.len)).max(1);
                };
                guess = count * room / plan.len;
                let Plan { first, last, sigma, order, .. } = plan;
                let header = SparseHeader {
                    entries: count,
                    first,
                    last,
                    sigma,
                    order,
                    ..self.header_without_entries(run, sigma, envelope)
                };
                out.put_head(header);
                write(&out.gaps, order, &mut out.bytes);
                from += count;
            }
        }
    }

    fn put_without_entries(&self, sigma: f32, envelope: Envelope, out: &mut SparseMessage) {
        // A layout has at least one run.
        if let Some(run) = self.layout.runs().first() {
            out.put_head(self.header_without_entries(run, sigma, envelope));
        }
    }

    fn header_without_entries(&self, run: &Run, sigma: f32, envelope: Envelope) -> SparseHeader {
        let prefix = Prefix {
            kind: Kind::Data,
            codec: SPARSE_CODEC_ID,
            important: self.important,
            layer_class: run.layer_class,
            last: false,
            stream: envelope.stream,
            message: envelope.message,
        };
        SparseHeader {
            prefix,
            index: 0,
            packets: 1,
            entries: 0,
            sigma,
            fraction_bits: self.fraction_bits,
            first: 0,
            last: 0,
            order: 0,
        }
    }
}
