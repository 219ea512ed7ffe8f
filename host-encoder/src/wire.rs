// SPDX-License-Identifier: Apache-2.0
//! What goes over the wire (docs/reference/wire-format.md §1, §2): sizes, codecs and their planes,
//! prefix and header, layout, and the tags of sealed packets (§12).

mod check;
mod codec;
mod error;
mod header;
mod identity;
mod layout;
mod mask;
mod prefix;
mod repair;
pub mod seal;
mod sizes;
pub(crate) mod zeros;

pub use codec::{BIT_PLANES, Codec, MAX_PLANES, Reach, Tagged, UnknownCodec};
pub use error::{PacketError, f32bits};
pub(crate) use header::SIGMA_UNSENT;
pub use header::{Header, NOT_FINITE, PacketView};
pub use identity::{Envelope, Kind, StreamId};
pub use layout::{DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, Layout, LayoutError, Tensor};
pub use mask::HeaderMask;
pub use prefix::Prefix;
pub use repair::repair;
pub use sizes::{BLOCK, HEADER_LEN, MAX_INDEX, PREFIX_LEN, TAG_LEN, VERSION};

/// All planes of the default codec: eight of bits, two of bytes.
pub const PLANES: u8 = Codec::Rht.planes();

/// Offset of a plane of the default codec in a body that begins with plane 0, bytes; of plane 10,
/// the length of a whole body.
pub const fn plane_offset(plane: u8, coordinates: usize) -> usize {
    Codec::Rht.plane_offset(plane, coordinates)
}
