// SPDX-License-Identifier: Apache-2.0
//! Some planes of a packet as a packet of their own (docs/reference/wire-format.md §6).

use super::{HEADER_LEN, Header, HeaderMask};
use std::ops::Range;

/// A packet that carries just `planes` of `packet`, which begins with plane 0 and is not sealed,
/// under the same mask; `None` when it is no DATA packet or holds none of them.
pub fn repair(packet: &[u8], planes: Range<u8>, mask: HeaderMask) -> Option<Vec<u8>> {
    let header = Header::parse_masked(packet, mask).ok().filter(|header| header.first_plane == 0)?;
    let (codec, n) = (header.codec(), header.coordinates);
    let start = HEADER_LEN + codec.plane_offset(planes.start, n);
    let end = (HEADER_LEN + codec.plane_offset(planes.end, n)).min(packet.len());
    let body = packet.get(start..end).filter(|body| !body.is_empty())?;
    let mut repair = [&Header { first_plane: planes.start, ..header }.to_bytes(), body].concat();
    mask.apply(&mut repair);
    Some(repair)
}
