// SPDX-License-Identifier: Apache-2.0
//! What client and server say to each other before and after a test, over TCP: a line of JSON each.

use super::flow::Flow;
use crate::talk::{self, ANSWER, Line};
use crate::{Failure, failed};
use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;
use trimwire_encoder::wire::TAG_LEN;
use trimwire_encoder::{Layout, SealKey, Sealer};

/// Of this exchange. Ends of another one say so and part.
const VERSION: u32 = 2;
/// What a client is going to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) coordinates: usize,
    /// `None`: until it says [`Word::Over`].
    pub(crate) messages: Option<u32>,
    /// Of the rotations, and of the coordinates where they are made.
    pub(crate) seed: u64,
    /// The coordinates are made from the seed: the server can compare.
    pub(crate) made: bool,
    pub(crate) job: u8,
    pub(crate) planes: u8,
    pub(crate) layer_class: u8,
    pub(crate) row_log2: u8,
    pub(crate) coordinates_per_packet: usize,
    /// Share of packets that may be missing; `None`: nothing may be missing or trimmed.
    pub(crate) loss: Option<f32>,
    /// Of a sealed job: proof of the key.
    pub(crate) proof: Option<[u8; TAG_LEN]>,
}

impl Offer {
    pub(crate) fn layout(&self) -> anyhow::Result<Layout> {
        let layout = Layout::new(self.coordinates, self.coordinates_per_packet)?;
        Ok(layout.with_row_log2(self.row_log2)?.with_layer_class(self.layer_class)?)
    }

    /// Whether the server can take it: `job` is what other clients of the test have.
    pub(crate) fn check(&self, job: Option<u8>, proof: Option<[u8; TAG_LEN]>) -> anyhow::Result<()> {
        if let Some(job) = job.filter(|&job| job != self.job) {
            bail!("the client has --job {}, another client of this test has --job {job}", self.job);
        }
        match (self.proof, proof) {
            (Some(theirs), Some(ours)) if theirs != ours => bail!("--seal-key: the two sides' keys differ"),
            (Some(_), None) => bail!("--seal-key: the client has one, the server has none"),
            (None, Some(_)) => bail!("--seal-key: the server has one, the client has none"),
            _ => {}
        }
        if !(1..=10).contains(&self.planes) || !self.loss.is_none_or(|loss| (0.0..1.0).contains(&loss)) {
            bail!("planes {} and loss {:?} (valid: 1 to 10; 0 to below 1)", self.planes, self.loss);
        }
        if self.messages == Some(0) {
            bail!("no message");
        }
        self.layout().map(drop)
    }
}

/// What shows that one has the key, and is of no use for anything else: no packet begins so.
pub(super) fn proof(key: &SealKey, nonce: u32) -> [u8; TAG_LEN] {
    let mut text = b"\xfftrimwire perf transfer".to_vec();
    let content = text.len();
    text.resize(content + TAG_LEN, 0);
    Sealer::new(key, nonce).seal(&mut text, &[content]);
    text.last_chunk().copied().unwrap_or_default()
}

/// A line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(super) enum Word {
    Hello {
        version: u32,
        nonce: u32,
    },
    Offer(Offer),
    Welcome {
        rank: u16,
        world: u16,
    },
    Ready {
        port: u16,
    },
    Go,
    /// So many messages were sent, and no more are.
    Over {
        messages: u32,
    },
    Result(Flow),
    Refused {
        why: String,
    },
}

/// Connects to a server and takes its greeting. Gives its nonce, too.
pub(super) fn call(to: SocketAddr, own: Option<IpAddr>, patience: Duration) -> Result<(Line, u32), Failure> {
    let mut line = talk::call(to, own, patience, "perf transfer --server")?;
    match line.hear(Some(ANSWER)).map_err(failed)? {
        Word::Hello { version: VERSION, nonce } => Ok((line, nonce)),
        Word::Hello { version, .. } => {
            Err(failed(anyhow!("{to} speaks version {version} of `perf transfer`, this is {VERSION}")))
        }
        other => Err(failed(anyhow!("{to} begins with {other:?}"))),
    }
}

/// Waits for a client and asks what it is going to send. `Err`: it is none, or has gone.
pub(super) fn answer(listener: &TcpListener, nonce: u32) -> anyhow::Result<(Line, Offer)> {
    let mut line = Line::accept(listener)?;
    let address = line.address;
    line.say(&Word::Hello { version: VERSION, nonce })?;
    match line.hear(Some(ANSWER))? {
        Word::Offer(offer) => Ok((line, offer)),
        other => bail!("{address} begins with {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer {
            coordinates: 1_000,
            messages: Some(1),
            seed: 0,
            made: true,
            job: 0,
            planes: 10,
            layer_class: 0,
            row_log2: 15,
            coordinates_per_packet: 448,
            loss: Some(0.01),
            proof: None,
        }
    }

    fn refusal(offer: &Offer, job: Option<u8>, proof: Option<[u8; TAG_LEN]>) -> String {
        offer.check(job, proof).expect_err("refused").to_string()
    }

    #[test]
    fn what_cannot_be_agreed_is_named() {
        let key = |byte| SealKey::from_bytes(&[byte; 32]).expect("a key");
        let sealed = |byte| Offer { proof: Some(proof(&key(byte), 7)), ..offer() };
        assert!(offer().check(None, None).is_ok() && offer().check(Some(0), None).is_ok());
        assert!(sealed(1).check(None, Some(proof(&key(1), 7))).is_ok());
        assert!(
            refusal(&offer(), Some(3), None).contains("--job 0, another client of this test has --job 3")
        );
        assert!(refusal(&sealed(1), None, Some(proof(&key(2), 7))).contains("keys differ"));
        assert!(
            refusal(&sealed(1), None, Some(proof(&key(1), 8))).contains("keys differ"),
            "a nonce of before"
        );
        assert!(refusal(&sealed(1), None, None).contains("the server has none"));
        assert!(refusal(&offer(), None, Some(proof(&key(1), 7))).contains("the client has none"));
        assert!(refusal(&Offer { coordinates_per_packet: 33, ..offer() }, None, None).contains("33"));
        assert!(refusal(&Offer { planes: 11, ..offer() }, None, None).contains("11"));
    }

    #[test]
    fn a_word_is_one_line_and_back() {
        for word in [
            Word::Hello { version: 1, nonce: 5 },
            Word::Offer(Offer { loss: None, messages: None, proof: Some([9; TAG_LEN]), ..offer() }),
            Word::Welcome { rank: 1, world: 2 },
            Word::Go,
            Word::Over { messages: 3 },
            Word::Refused { why: "a \"reason\"\nof two lines".to_owned() },
        ] {
            let text = serde_json::to_string(&word).expect("JSON");
            assert!(!text.contains('\n') && (text.len() as u64) < talk::LONGEST, "{text}");
            assert_eq!(serde_json::from_str::<Word>(&text).expect("parses"), word);
        }
    }
}
