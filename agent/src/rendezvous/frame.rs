// SPDX-License-Identifier: Apache-2.0
//! Messages on a stream: a head of 12 bytes, then the body.
//!
//! ```text
//! 0-3 "TWRV"   4 version   5 kind: 1 proof, 2 offer, 3 answer   6-7 zero   8-11 bytes of the body, big-endian
//! ```
#![forbid(unsafe_code)]

/// Bytes of a head.
pub(super) const HEAD_LEN: usize = 12;

const MAGIC: [u8; 4] = *b"TWRV";
const VERSION: u8 = 1;
/// First byte of a TLS record that is an alert, or part of a handshake (RFC 8446 §5.1).
const TLS_RECORDS: [u8; 2] = [0x15, 0x16];

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// That its sender knows the job's key: 32 bytes.
    Proof = 1,
    /// A rank's offer.
    Offer = 2,
    /// Rank 0's answer.
    Answer = 3,
}

impl Kind {
    /// Most bytes of a body: 32 terms of twice 64 bytes, each byte escaped; 1,024 members of some 100 bytes each.
    pub(super) const fn most(self) -> usize {
        match self {
            Self::Proof => 32,
            Self::Offer => 32 << 10,
            Self::Answer => 256 << 10,
        }
    }
}

/// Why bytes are no head of the frame that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("speaks TLS, which takes a job key or certificates on both sides")]
    Tls,
    #[error("does not speak TLS, which this side does")]
    Plain,
    #[error("does not speak Trimwire's rendezvous")]
    Magic,
    #[error("speaks version {0} of the rendezvous, this side version {VERSION}")]
    Version(u8),
    #[error("says something else than what is due (a job key on one side only?)")]
    Kind,
    #[error("does not know the job key")]
    Proof,
    #[error("sends what cannot be read")]
    Body,
    #[error("sends {length} bytes where at most {most} may come")]
    Length { length: u32, most: usize },
}

/// Whether a stream that begins so is one of frames.
pub(super) fn begins(first: u8) -> bool {
    first == MAGIC[0]
}

/// The head of a frame with a body of `length` bytes.
pub(super) fn head(kind: Kind, length: usize) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&MAGIC);
    (head[4], head[5]) = (VERSION, kind as u8);
    // Callers have checked it against `Kind::most`.
    head[8..].copy_from_slice(&(length as u32).to_be_bytes());
    head
}

/// The kind, one of those that are due, and bytes of the body behind a head.
pub(super) fn parse(head: &[u8; HEAD_LEN], due: &[Kind]) -> Result<(Kind, usize), FrameError> {
    let [m0, m1, m2, m3, version, kind, _, _, length @ ..] = *head;
    if TLS_RECORDS.contains(&m0) && m1 == 3 {
        return Err(FrameError::Tls);
    }
    if [m0, m1, m2, m3] != MAGIC {
        return Err(FrameError::Magic);
    }
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let kind = due.iter().copied().find(|&due| due as u8 == kind).ok_or(FrameError::Kind)?;
    let (length, most) = (u32::from_be_bytes(length), kind.most());
    if length as usize <= most {
        Ok((kind, length as usize))
    } else {
        Err(FrameError::Length { length, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read_and_what_is_too_long_is_not() {
        for kind in [Kind::Proof, Kind::Offer, Kind::Answer] {
            let most = kind.most();
            assert_eq!(parse(&head(kind, most), &[Kind::Proof, kind]), Ok((kind, most)));
            let length = most as u32 + 1;
            assert_eq!(parse(&head(kind, most + 1), &[kind]), Err(FrameError::Length { length, most }));
        }
        let offer = [Kind::Offer];
        assert_eq!(parse(&head(Kind::Offer, 1), &[Kind::Proof]), Err(FrameError::Kind));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00", &offer), Err(FrameError::Tls));
        assert_eq!(parse(b"GET / HTTP/1", &offer), Err(FrameError::Magic));
    }

    proptest! {
        #[test]
        fn a_damaged_head_is_refused_or_names_a_bounded_body(at in 0..HEAD_LEN, xor in 1..=255_u8) {
            let mut bytes = head(Kind::Offer, 100);
            bytes[at] ^= xor;
            match parse(&bytes, &[Kind::Offer]) {
                Ok((_, length)) => prop_assert!(length <= Kind::Offer.most() && at >= 6),
                Err(_) => prop_assert!(!(6..8).contains(&at), "these two are ignored"),
            }
        }
    }
}
