// SPDX-License-Identifier: Apache-2.0
//! Trimmable gradient packets: the packet format and the codecs.
//!
//! ```text
//! gradient ─► rows of 2^12 ─► rotate (Philox signs, Hadamard) ─► quantise ─► planes ─► packets      Encoder
//! gradient ◄─ rows         ◄─ rotate back ◄─ λ · centroids ◄─ words ◄─ planes ◄─ any prefix of any  Decoder
//!
//! message      Encoder, RowReceiver, Decoder, Message: what users hold; a message is a loop over rows
//! raw          exact messages: f32s as they are
//! papers       figures of other codecs: what a trim leaves of a gradient, as a pure function
//! encode       one row to packets                    decode       planes of one row to coordinates
//! rotate       keys, signs, transform                quantise     statistics, zones, cells
//! wire         header, planes, layout                simd         one source of every kernel
//! ```
//!
//! Each line uses the lines below it. Everything is a pure function of bytes and seeds, the same on
//! every machine and instruction set. The crate knows nothing of sockets, switches or collectives.
//! The wire format is specified in `docs/reference/wire-format.md`.
//!
//! ## Encode, trim, decode
//!
//! ```
//! use trimwire_encoder::*;
//!
//! let gradient: Vec<f32> = (0..100_000).map(|i| (i as f32 * 0.1).sin()).collect();
//! let layout = Layout::new(gradient.len(), DEFAULT_COORDINATES_PER_PACKET)?;
//! let job = Job::new(42); // the seed that all ranks share
//! let envelope = Envelope { stream: StreamId::new(0, 3).unwrap(), message: 1 };
//!
//! let mut message = Message::default();
//! Encoder::new(layout.clone(), job).encode(&gradient, envelope, PLANES, &mut message)?;
//!
//! // A switch trims every other packet to its header and sign plane.
//! let mut decoder = Decoder::new(layout.clone(), job, envelope, Decoding::Unbiased);
//! for index in 0..message.packets() {
//!     let packet = message.packet(index);
//!     let length = if index % 2 == 0 { layout.packet_len(Codec::Rht, index, 1) } else { packet.len() };
//!     decoder.receive(&packet[..length])?;
//! }
//! let mut out = vec![0.0; gradient.len()];
//! decoder.decode_into(&mut out)?;
//! let expected = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(1, 0.5)]); // 0.222
//! assert!((nmse(&out, &gradient) / expected - 1.0).abs() < 0.03);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`RowReceiver`] shows streaming and accumulation, row by row; [`RowFigures`] importance.
//!
//! `unsafe` code is confined to `simd`, where vectors are loaded and instructions chosen.
#![deny(unsafe_code)]
#![allow(
    clippy::inline_always,
    reason = "kernels take on the target features of the function that runs them, which only inlined code does"
)]

mod accuracy;
mod aligned;
mod decode;
mod element;
mod encode;
mod message;
pub mod papers;
mod quantise;
mod raw;
pub mod rotate;
mod scratch;
#[allow(unsafe_code)]
mod simd;
pub mod wire;

pub use accuracy::{expected_nmse, nmse};
pub use decode::decoding::Decoding;
pub use decode::kept::RowMemory;
pub use element::Element;
pub use encode::importance::Importance;
pub use message::{
    Decoder, EncodeError, EncodedRow, Encoder, Message, OutputError, Receipt, RowChoice, RowFigures, RowJob,
    RowReceiver, Stats, layer_class,
};
pub use quantise::quantiser;
pub use rotate::Job;
pub use simd::{Isa, UnavailableIsa};
pub use wire::seal::{SealKey, Sealer};
pub use wire::{
    BIT_PLANES, Codec, DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, Envelope, HEADER_LEN, Header,
    HeaderMask, Kind, Layout, LayoutError, MAX_PLANES, PLANES, PacketError, PacketView, Prefix, Reach,
    StreamId, Tensor, UnknownCodec,
};

pub use half::{bf16, f16};
