// SPDX-License-Identifier: Apache-2.0
//! The check behind a control packet of a job without a key: CRC-32 (ISO-HDLC, as in IEEE 802.3 and
//! zlib) of all bytes in front of it, big-endian.
//!
//! UDP's checksum does not see what damages a packet before the sum is made or mended: memory of a
//! card, a middlebox. A control packet that says too much ends a job, so it is checked as DATA's
//! header is. In a sealed job a tag does that.

use flate2::Crc;

/// Bytes that [`checked`] appends.
pub const CHECK_LEN: usize = 4;

fn check_of(content: &[u8]) -> [u8; CHECK_LEN] {
    let mut crc = Crc::new();
    crc.update(content);
    crc.sum().to_be_bytes()
}

/// A control packet, from its prefix on, with the check behind it.
pub fn checked(mut content: Vec<u8>) -> Vec<u8> {
    content.extend(check_of(&content));
    content
}

/// What stands in front of a right check; `None` where there is none.
pub fn content_of(payload: &[u8]) -> Option<&[u8]> {
    let (content, check) = payload.split_last_chunk()?;
    (*check == check_of(content)).then_some(content)
}
