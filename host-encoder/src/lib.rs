//! Trimmable gradient packets: codec and packet format.
//!
//! A gradient is rotated, quantised with an embedded quantiser and laid out in bit-planes, so that **every prefix of a packet
//! decodes**: a switch may cut a packet anywhere behind its header, and the receiver uses what arrived (DESIGN §3, §4).
//!
//! ```text
//!  &[f32] ─► rotation ─► quantiser ─► planes ─► Message: packets ══ network cuts, drops, duplicates ══►
//!            H·D/√d      sign + 7     MSB first                                                        │
//!            per row     bits + 24                 &mut [f32] ◄─ λ ◄─ rotationᵀ ◄─ centroids ◄─ Decoder ┘
//! ```
//!
//! [`packet`] is the wire header, [`codec`] the encoder and decoder, [`nmse`] the closed forms of the error that they promise.
//!
//! What this crate does not do: it owns no socket, clock, thread or global random generator, and knows nothing of networks.
//! Everything is a pure function of bytes and seeds; same input, same bytes, on every machine.
#![forbid(unsafe_code)]

pub mod codec;
pub mod nmse;
pub mod packet;

pub use codec::{
    Decoder, Decoding, EncodeError, Encoder, Envelope, Layout, LayoutError, Message, Receipt, RotationKey,
    Stats,
};
pub use nmse::{expected_nmse, nmse};
pub use packet::{Codec, HEADER_LEN, Header, Kind, PLANES, PacketError, PacketView, Prefix, StreamId};
