// SPDX-License-Identifier: Apache-2.0
//! Sparse messages (docs/reference/wire-format.md §13): the coordinates of largest magnitude, each with its place. A packet that switches cut is a smaller k.
//!
//! ```text
//! gradient ─► k largest ─► levels ─► packets, each a range of coordinates, by magnitude   SparseEncoder
//! gradient ◄─────────────── scatter ◄─ entries ◄─ any prefix of any packet                SparseReceiver
//!
//! receiver, encoder, message     what users hold
//! select                         the k largest, the same on every machine
//! code                           entries to bits and back
//! header, level, layout, error   what a packet says
//! ```
//!
//! Both ends know the tensors; how many entries there are, and how many packets, is the sender's choice from message to message, and every packet says
//! it. Nothing is rotated, and nothing scaled up for what is missing: top-k is biased, and belongs with error feedback
//! ([`SparseMessage::subtract_from`]).
//!
//! There are no repairs of parts of packets (a repair is the whole packet again), and no sealed form.
//!
//! ```
//! use trimwire_encoder::sparse::*;
//! use trimwire_encoder::{Envelope, StreamId};
//!
//! let gradient: Vec<f32> = (1..100_000).map(|i| (i as f32).sin() / (i as f32).sqrt()).collect();
//! let layout = SparseLayout::new(gradient.len())?;
//! let envelope = Envelope { stream: StreamId::new(0, 3).unwrap(), message: 1 };
//!
//! let mut message = SparseMessage::default();
//! SparseEncoder::new(layout.clone()).encode_top(&gradient, 2_000, envelope, &mut message)?;
//!
//! // What is not sent is kept for the next step.
//! let mut residual = gradient.clone();
//! message.subtract_from(&mut residual)?;
//!
//! // A switch cuts every other packet to 200 bytes: its largest entries are left.
//! let mut receiver = SparseReceiver::new(layout, envelope);
//! for index in 0..message.packets() {
//!     let packet = message.packet(index);
//!     let cut = if index % 2 == 0 { packet.len().min(200) } else { packet.len() };
//!     receiver.receive(&packet[..cut])?;
//! }
//! let mut out = vec![0.0; gradient.len()];
//! receiver.decode_into(&mut out)?;
//! for (out, sent) in out.iter().zip(&gradient) {
//!     assert!(*out == 0.0 || (out / sent - 1.0).abs() <= 1.0 / 32.0);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod code;
mod encoder;
mod error;
mod header;
mod layout;
mod level;
mod message;
mod receiver;
mod select;

pub use encoder::{DEFAULT_FRACTION_BITS, DEFAULT_PACKET_BYTES, SparseEncodeError, SparseEncoder};
pub use error::SparsePacketError;
pub use header::{SPARSE_CODEC_ID, SPARSE_HEAD_LEN, SparseHeader};
pub use layout::{SparseLayout, SparseLayoutError};
pub use message::SparseMessage;
pub use receiver::{SparseReceipt, SparseReceiver, SparseStats};

/// A coordinate and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// Which coordinate of the message.
    pub index: u32,
    /// Its value.
    pub value: f32,
}
