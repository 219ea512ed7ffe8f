// SPDX-License-Identifier: Apache-2.0
//! Rows that are coded elsewhere: by a GPU, whose memory is not read here.
//!
//! A tensor that is [`Memory::elsewhere`] is summed by the same stages as any other, and its
//! [`Task`]s say what is to be done to a row instead of doing it ([`Task::offload`]):
//!
//! ```text
//!  packets of other ranks ─► bytes in the device's memory ─┐                                   ┌─► bytes of the sum's packets ─► sent from where they are
//!                                                        ├─► Offloaded: decode, add, encode ─┤
//!  the row, elsewhere ───────────────────────────────────┘   (whoever has the tensor)        └─► the row, elsewhere
//! ```
//!
//! Rows are leased as others are, so that no two pieces of work that are out touch the same ones.

use super::device::{Device, MessagePlaces};
use super::memory::Lease;
use super::task::{Done, Encoded, Encoding, Fold, Key, Kind, Own, Task, Work};
use crate::interface::RowPlaces;
use crate::row::Row;
use std::ops::Range;
use std::sync::Arc;
use trimwire_encoder::{EncodeError, EncodedRow, Header, Importance, Layout, RowMemory, RowReceiver};

#[cfg(doc)]
use super::Memory;

/// Work on a row that is elsewhere. Dropping it unfinished leaves its operation waiting for ever.
#[derive(Debug)]
pub struct Offloaded {
    key: Key,
    work: Work,
    device: Arc<dyn Device>,
}

/// How a row is to be encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Encode {
    /// The message's number.
    pub message: u32,
    /// Planes that are sent.
    pub planes: u8,
    /// The row is important if its energy per coordinate is at least this.
    pub important_from: f64,
    /// Whether the row becomes what its packets say: written where the sum would be. Otherwise
    /// later work says so, or nothing is written.
    pub keeps: bool,
}

impl Task {
    /// What is to be done to a row that is elsewhere.
    ///
    /// # Errors
    /// The task, where [`Self::run`] does it.
    pub fn offload(self) -> Result<Offloaded, Self> {
        match self.device() {
            Some(device) => Ok(Offloaded { device: Arc::clone(device), key: self.key, work: self.work }),
            None => Err(self),
        }
    }
}

impl Offloaded {
    /// The operation's device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The shard.
    pub fn shard(&self) -> u16 {
        self.key.shard
    }

    /// The row of the shard's messages.
    pub fn row(&self) -> usize {
        self.key.row
    }

    /// How the message is divided; `None` where nothing of it came or goes.
    pub fn layout(&self) -> Option<&Layout> {
        let encoding = self.fold().and_then(|fold| fold.encoding.as_deref());
        let received = || self.contributions().next().map(|(_, row)| row.layout());
        encoding.map(|encoding| encoding.encoder.layout()).or_else(received)
    }

    fn fold(&self) -> Option<&Fold> {
        if let Work::Fold(fold) = &self.work { Some(fold) } else { None }
    }

    /// This rank's part of the row, elements of the input, or of the tensor that is summed in
    /// place; `None`: it has none, or what is received is to be written as it is.
    pub fn own(&self) -> Option<Range<usize>> {
        let fold = self.fold()?;
        let lease = match &fold.own {
            Own::None => return None,
            Own::Apart(lease) => lease,
            Own::InPlace => fold.write.as_ref()?,
        };
        let start = lease.range().start;
        Some(start..start + fold.length)
    }

    /// Which elements of the output, or of the tensor that is summed in place, are written.
    pub fn write(&self) -> Option<Range<usize>> {
        match &self.work {
            Work::Fold(fold) => fold.write.as_ref().map(Lease::range),
            Work::Store(store) => Some(store.write.range()),
        }
    }

    /// What other ranks sent of the row, by rank, ascending: to be added in this order, this rank's
    /// part in its place among them, or to be written. All of them keep their packets
    /// ([`RowReceiver::kept`]).
    pub fn contributions(&self) -> impl Iterator<Item = (u16, &RowReceiver)> {
        let (folded, stored) = match &self.work {
            Work::Fold(fold) => (&fold.contributions[..], None),
            Work::Store(store) => (&[][..], Some((store.row.envelope().stream.rank(), &*store.row))),
        };
        folded.iter().map(|(rank, row)| (*rank, &**row)).chain(stored)
    }

    /// What the sum is multiplied by.
    pub fn scale(&self) -> Option<f32> {
        self.fold()?.scale
    }

    /// How the sum is to be encoded, where it is sent.
    pub fn encode(&self) -> Option<Encode> {
        let fold = self.fold()?;
        let encoding = fold.encoding.as_deref()?;
        Some(Encode {
            message: encoding.envelope.message,
            planes: encoding.planes,
            important_from: match encoding.importance {
                Importance::Always => f64::NEG_INFINITY,
                Importance::AtLeast(figure) => figure,
                Importance::Never => f64::INFINITY,
            },
            keeps: fold.write.is_some() && !encoding.undecided,
        })
    }

    /// Zeros are to be written as +0, of whatever sign they are decoded.
    pub fn positive_zeros(&self) -> bool {
        matches!(&self.work, Work::Store(store) if store.positive_zeros)
    }

    /// It is done. Of a row that is sent: `bare`, its packets without tags as
    /// [`trimwire_encoder::Encoder::encode_row`] writes them, and `figure`, its energy per
    /// coordinate (NaN where it is marked). They are sent from where they are, with their headers
    /// masked, unless tags have to go between them.
    pub fn finish(self, sent: Option<(Box<dyn RowMemory>, f64)>) -> Done {
        let Self { key, work, device } = self;
        let kind = match work {
            Work::Store(_) => Kind::Stored,
            Work::Fold(fold) => Kind::Folded(match (fold.encoding.as_deref(), sent) {
                (Some(encoding), Some((bare, figure))) => {
                    encoding.elsewhere(key, &device, bare, figure).map(Some)
                }
                (Some(encoding), None) => Err(EncodeError::Buffer {
                    got: 0,
                    expected: encoding.encoder.row_len(key.row, encoding.planes),
                }),
                (None, _) => Ok(None),
            }),
        };
        Done { key, kind, spent: Vec::new() }
    }

    /// It was not done: the operation fails.
    pub fn fail(self) -> Done {
        Done { key: self.key, kind: Kind::Failed, spent: Vec::new() }
    }
}

/// Packets that stay where they were encoded.
struct Elsewhere(Box<dyn RowMemory>);

impl AsRef<[u8]> for Elsewhere {
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref().as_ref()
    }
}

impl AsMut<[u8]> for Elsewhere {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut().as_mut()
    }
}

impl Encoding {
    /// A row that was encoded elsewhere.
    fn elsewhere(
        &self,
        key: Key,
        device: &Arc<dyn Device>,
        bare: Box<dyn RowMemory>,
        figure: f64,
    ) -> Result<Encoded, EncodeError> {
        let (row, planes, layout) = (key.row, self.planes, self.encoder.layout());
        let expected = layout.row_len(self.codec, row, planes, false);
        let bytes = bare.as_ref().as_ref();
        let header = Header::parse(bytes).ok().filter(|_| bytes.len() == expected);
        let header = header.ok_or(EncodeError::Buffer { got: bytes.len(), expected })?;
        let kept = self.undecided.then(|| {
            let (layout, shard) = (layout.clone(), key.shard);
            let from = self.envelope.stream.rank();
            let places = MessagePlaces { device: Arc::clone(device), shard, from, layout, planes };
            let bare_of = Self { sealer: None, ..self.clone() };
            Box::new(bare_of.receive_own(row, bytes, |own| own.keeping(places.place(row), planes)))
        });
        let important = header.prefix.important;
        let encoded = EncodedRow { planes, figure, important, twice: header.twice };
        let ready = if self.sealer.is_some() {
            let mut packets = self.buffers.take(self.encoder.row_len(row, planes));
            self.encoder.seal_row(row, planes, bytes, &mut packets)?;
            let packets = self.buffers.lend(packets);
            Row::new(self.codec, layout, row, &encoded, true, self.mask, packets)
        } else {
            Row::new(self.codec, layout, row, &encoded, false, self.mask, Elsewhere(bare))
        };
        Ok(Encoded { row: ready.ok(), figure, kept })
    }
}
