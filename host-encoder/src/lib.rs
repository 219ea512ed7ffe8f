//! Trimmable gradient packets: the packet format and the codec.
//!
//! ```text
//! gradient ─► rows of 2^15 ─► rotate (Philox signs, Hadamard) ─► quantise ─► planes ─► packets      Encoder
//! gradient ◄─ rows         ◄─ rotate back ◄─ λ · centroids    ◄─ planes   ◄─ any prefix of any      Decoder
//! ```
//!
//! Everything is a pure function of bytes and seeds. The crate knows nothing of sockets, switches or collectives.
//! The wire format is specified in `docs/wire-format.md`.
#![forbid(unsafe_code)]

mod block;
mod decoder;
mod dequantiser;
mod encoder;
mod error;
mod layout;
mod message;
pub mod packet;
pub mod philox;
pub mod quantiser;
pub mod rotation;
mod scale;

pub use decoder::{Decoder, Decoding, Receipt, Stats};
pub use encoder::{EncodeError, Encoder, Envelope};
pub use error::{expected_nmse, nmse};
pub use layout::{DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, Layout, LayoutError};
pub use message::Message;
pub use packet::{HEADER_LEN, Header, Kind, PLANES, PacketError, PacketView, Prefix, StreamId};
pub use rotation::RotationKey;
