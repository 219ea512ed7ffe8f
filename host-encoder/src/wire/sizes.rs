// SPDX-License-Identifier: Apache-2.0
//! The sizes that everything in a packet is counted in.

/// Version of the format that this crate speaks.
pub const VERSION: u8 = 5;
/// Bytes that packets of every kind begin with.
pub const PREFIX_LEN: usize = 8;
/// Bytes in front of a DATA packet's first plane.
pub const HEADER_LEN: usize = 20;
/// Bytes of a sealed packet's tags.
pub const TAG_LEN: usize = 8;
/// Coordinates come in blocks of this many.
pub const BLOCK: usize = 32;
/// Largest packet index.
pub const MAX_INDEX: u32 = (1 << 24) - 1;
