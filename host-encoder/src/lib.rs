//! Trimmable gradient packets: the packet format and the codecs.
//!
//! ```text
//! gradient ─► rows of 2^15 ─► rotate (Philox signs, Hadamard) ─► quantise ─► planes ─► packets      Encoder
//! gradient ◄─ rows         ◄─ rotate back ◄─ λ · centroids ◄─ words ◄─ planes ◄─ any prefix of any  Decoder
//! ```
//!
//! Everything is a pure function of bytes and seeds, the same on every machine and instruction set. The crate knows nothing
//! of sockets, switches or collectives. The wire format is specified in `docs/wire-format.md`.
//!
//! `unsafe` code is confined to `simd`, where vectors are loaded and instructions chosen.
#![deny(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "kernels take on the target features of the function that runs them, which only inlined code does"
)]

mod codec;
mod decode_row;
mod decoder;
mod dequantise;
mod dither;
mod element;
mod encode_row;
mod encoder;
mod error;
mod finish;
mod hadamard;
mod head;
mod held;
mod layout;
mod message;
mod moments;
pub mod packet;
mod peak;
pub mod philox;
mod priority;
mod quantise;
pub mod quantiser;
mod rotated_sum;
pub mod rotation;
mod scale;
mod scratch;
mod signs;
#[allow(unsafe_code)]
mod simd;
mod weights;
/// Packets.
pub mod wire {
    pub mod seal;
}
mod words;

pub use codec::{Codec, MAX_PLANES, UnknownCodec};
pub use decoder::{Decoder, Decoding, Receipt, Stats};
pub use element::Element;
pub use encoder::{EncodeError, Encoder, Envelope};
pub use error::{expected_nmse, nmse};
pub use layout::{DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, Layout, LayoutError};
pub use message::Message;
pub use packet::{HEADER_LEN, Header, Kind, PLANES, PacketError, PacketView, Prefix, StreamId};
pub use priority::layer_class;
pub use rotated_sum::{RotatedSum, RotatedSumError};
pub use rotation::RotationKey;
pub use simd::{Isa, UnavailableIsa};

pub use half::{bf16, f16};
