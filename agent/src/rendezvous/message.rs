// SPDX-License-Identifier: Apache-2.0
//! What ranks tell each other when they meet: lines of JSON, and with a job key a tab and a proof in
//! hexadecimal digits behind it.
//!
//! Every text that comes from somebody else is bounded here, and escaped where it is shown.
#![forbid(unsafe_code)]

use super::proof::{PROOF_LEN, Prover, Side};
use super::refusal::Refusal;
use crate::cores::Cores;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use trimwire_encoder::StreamId;

/// Longest line of a rank, and of rank 0, bytes: 1,024 members take some 100 bytes each.
pub(super) const OFFER_MOST: usize = 8 << 10;
pub(super) const ANSWER_MOST: usize = 256 << 10;
/// Longest version of another package that is repeated to others.
const VERSION_MOST: usize = 64;

/// What a rank comes with. What is `None` it takes from rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// This rank, below `world`.
    pub rank: u16,
    /// Ranks of the job, 1 to 1,024.
    pub world: u16,
    /// Number of the job, 0 to 63; rank 0's own is 0 by default.
    pub job: Option<u8>,
    /// Seed of rotations and gradients; rank 0 draws one by default.
    pub seed: Option<u64>,
    /// Where this rank's endpoint listens, as others reach it.
    pub address: SocketAddr,
    /// Of its endpoint, not 0.
    pub incarnation: u32,
    /// Bytes of the longest IP packet that its interface sends.
    pub mtu: Option<u32>,
    /// Its processors, where it would have as many channels as they allow.
    pub cores: Option<Cores>,
    /// Of this package, the same on all ranks.
    pub version: String,
}

impl Offer {
    /// A rank with nothing else to say than where it is.
    pub fn new(rank: u16, world: u16, address: SocketAddr, incarnation: u32) -> Self {
        let (job, seed, mtu, cores) = (None, None, None, None);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { rank, world, job, seed, address, incarnation, mtu, cores, version }
    }

    /// What is wrong with it by itself.
    pub(super) fn flaw(&self) -> Option<String> {
        let Self { rank, world, address, incarnation, job, .. } = self;
        let most = StreamId::MAX_RANK + 1;
        if *world == 0 || *world > most {
            return Some(format!("{world} ranks (valid are 1 to {most})"));
        }
        if rank >= world {
            return Some(format!("rank {rank} of {world} ranks; valid are 0 to {}", world - 1));
        }
        if let Some(job) = job.filter(|&job| job > StreamId::MAX_JOB) {
            return Some(format!("job {job} (valid are 0 to {})", StreamId::MAX_JOB));
        }
        if address.ip().is_unspecified() || address.port() == 0 {
            return Some(format!("nobody can send to {address}"));
        }
        if *incarnation == 0 {
            return Some("incarnation 0".to_owned());
        }
        let length = self.version.len();
        (length > VERSION_MOST).then(|| format!("a version of {length} bytes (at most {VERSION_MOST})"))
    }
}

/// One rank, as all know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where its endpoint listens.
    pub address: SocketAddr,
    /// Its endpoint's incarnation.
    pub incarnation: u32,
}

/// What rank 0 tells everyone once all are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    pub(super) job: u8,
    pub(super) seed: u64,
    pub(super) mtu: Option<u32>,
    pub(super) channels: u16,
    /// Drawn by rank 0 for this meeting: the packets' key is derived from it and the job's.
    pub(super) fresh: [u8; 32],
    /// In order of rank.
    pub(super) members: Vec<Member>,
}

impl Agreed {
    /// What is wrong with it, to a rank that made this offer.
    pub(super) fn flaw(&self, offer: &Offer) -> Option<String> {
        if self.members.len() != usize::from(offer.world) {
            return Some(format!("{} members of {} ranks", self.members.len(), offer.world));
        }
        if self.job > StreamId::MAX_JOB {
            return Some(format!("job {}", self.job));
        }
        if self.channels == 0 {
            return Some("0 channels".to_owned());
        }
        let own = self.members.get(usize::from(offer.rank));
        let known =
            own.is_some_and(|own| (own.address, own.incarnation) == (offer.address, offer.incarnation));
        (!known).then(|| format!("rank {} is somebody else in it", offer.rank))
    }
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    Hello([u8; PROOF_LEN]),
    Offer(Offer),
    Agreed(Agreed),
    Refused(Refusal),
}

/// Why a line is not what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WordError {
    #[error("does not speak Trimwire's rendezvous, or another version of it")]
    Unknown,
    #[error("does not know the job key")]
    Unproven,
    #[error("has a job key, this side has none")]
    Keyed,
    #[error("sends more than {0} bytes")]
    Long(usize),
}

impl Word {
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and addresses are JSON")
    }

    /// Reads a line. With a key, `side` has to have proven it; otherwise it has to have none.
    pub(super) fn read(line: &[u8], side: Side, prover: Option<&Prover>) -> Result<Self, WordError> {
        let mut parts = line.trim_ascii_end().splitn(2, |&byte| byte == b'\t');
        let (text, proof) = (parts.next().unwrap_or_default(), parts.next());
        let word = serde_json::from_slice(text).map_err(|_| WordError::Unknown)?;
        match (prover, proof) {
            (None, None) => Ok(word),
            (None, Some(_)) => Err(WordError::Keyed),
            (Some(prover), Some(proof)) if prover.is_proven(side, text, &unhex(proof)) => Ok(word),
            (Some(_), _) => Err(WordError::Unproven),
        }
    }
}

/// What stands behind the JSON of a line.
pub(super) fn end_of_line(text: &str, side: Side, prover: Option<&Prover>) -> String {
    let Some(prover) = prover else { return "\n".to_owned() };
    let proof = prover.prove(side, text.as_bytes());
    let digits = proof.iter().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
    format!("\t{digits}\n")
}

fn unhex(digits: &[u8]) -> Vec<u8> {
    let byte =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    digits.chunks(2).map_while(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimwire_encoder::SealKey;

    fn prover(key: u8) -> Prover {
        Prover { key: SealKey::from_bytes(&[key; 32]).expect("a key"), client: [1; 32], server: [2; 32] }
    }

    fn offer() -> Word {
        Word::Offer(Offer::new(1, 2, ([127, 0, 0, 1], 5).into(), 7))
    }

    fn line(word: &Word, prover: Option<&Prover>) -> Vec<u8> {
        let text = word.json();
        (text.clone() + &end_of_line(&text, Side::Client, prover)).into_bytes()
    }

    #[test]
    fn a_line_is_believed_where_both_have_the_same_key_or_none() {
        let (right, wrong) = (prover(7), prover(8));
        let read = |line: &[u8], prover| Word::read(line, Side::Client, prover);
        assert_eq!(read(&line(&offer(), None), None), Ok(offer()));
        assert_eq!(read(&line(&offer(), Some(&right)), Some(&right)), Ok(offer()));
        assert_eq!(read(&line(&offer(), Some(&wrong)), Some(&right)), Err(WordError::Unproven));
        assert_eq!(read(&line(&offer(), None), Some(&right)), Err(WordError::Unproven));
        assert_eq!(read(&line(&offer(), Some(&right)), None), Err(WordError::Keyed));
        assert_eq!(
            Word::read(&line(&offer(), Some(&right)), Side::Server, Some(&right)),
            Err(WordError::Unproven),
            "sent back to its owner"
        );
        assert_eq!(read(b"GET / HTTP/1.1\r\n", None), Err(WordError::Unknown));
    }

    proptest! {
        #[test]
        fn a_damaged_line_is_not_believed(at in any::<prop::sample::Index>(), to: u8) {
            let prover = prover(7);
            let mut bytes = line(&offer(), Some(&prover));
            // The end of the line, and the case of digits, say nothing.
            let at = at.index(bytes.len() - 1);
            prop_assume!(!bytes[at].eq_ignore_ascii_case(&to));
            bytes[at] = to;
            prop_assert!(Word::read(&bytes, Side::Client, Some(&prover)).is_err());
        }
    }
}
