// SPDX-License-Identifier: Apache-2.0
//! What workers tell parameter servers, which know nothing of the tensors that come.
//!
//! Operations of a job with servers go in pairs: an exact broadcast of the lowest worker, which
//! says what comes ([`Notice`]), and the push-pull itself. Workers begin both at once; a server
//! begins the second when it has the first. [`Server`] does so, for as long as workers have
//! something for it.
#![forbid(unsafe_code)]

use crate::collective::{
    Algorithm, Collective, Communicator, Memory, OperationError, Options, Outcome, Replicas, StartError,
};
use crate::endpoint::{Endpoint, Reliability};
use crate::pacing::Pace;
use std::collections::BTreeMap;
use trimwire_encoder::Decoding;

/// Words of a notice.
const WORDS: usize = 16;
const MAGIC: u32 = 0x5457_5056;
const LEAVE: u32 = 0;
const PUSH_PULL: u32 = 1;
/// Of [`Reliability::Full`], among loss bounds.
const FULL: u32 = u32::MAX;
/// Of no deadline.
const NEVER: u64 = u64::MAX;

/// What the lowest worker says.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A push-pull follows.
    PushPull(PushPull),
    /// The workers have nothing more: servers may end.
    Leave,
}

/// What servers have to know of a push-pull.
#[derive(Debug, Clone, PartialEq)]
pub struct PushPull {
    /// Coordinates of the tensor.
    pub length: usize,
    /// How it is done, the same at all workers. `reliability` is always told, `algorithm` never:
    /// there is one.
    pub options: Options,
}

/// Why a notice is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no notice of an operation: word {word} is {value:#x}; do all ranks name the same servers?")]
pub struct NoticeError {
    /// Which word.
    pub word: usize,
    /// What it is.
    pub value: u32,
}

impl Notice {
    fn to_words(&self) -> [u32; WORDS] {
        let mut words = [0; WORDS];
        words[0] = MAGIC;
        let Self::PushPull(PushPull { length, options }) = self else { return words };
        let length = *length as u64;
        words[1] = PUSH_PULL;
        (words[2], words[3]) = ((length >> 32) as u32, length as u32);
        words[4] = u32::from(options.planes);
        words[5] = u32::from(options.exact) | u32::from(options.average) << 1;
        words[6] = match options.decoding {
            Decoding::Unbiased => 0,
            Decoding::Mmse => 1,
            Decoding::Paper => 2,
        };
        words[7] = u32::from(options.replicas == Replicas::Consistent);
        words[8] = match options.reliability {
            Some(Reliability::Bounded { loss }) => loss.to_bits(),
            Some(Reliability::Full) | None => FULL,
        };
        words[9] = u32::from(options.layer_class);
        words[10] = options.tag;
        words[11] = options.coordinates_per_packet.map_or(0, |count| count as u32);
        let deadline_ns = options.deadline_ns.unwrap_or(NEVER);
        (words[12], words[13]) = ((deadline_ns >> 32) as u32, deadline_ns as u32);
        words
    }

    fn from_words(words: &[u32]) -> Result<Self, NoticeError> {
        let at = |word: usize| words.get(word).copied().unwrap_or(0);
        let wrong = |word| Err(NoticeError { word, value: at(word) });
        match (at(0), at(1)) {
            (MAGIC, LEAVE) => return Ok(Self::Leave),
            (MAGIC, PUSH_PULL) => {}
            (MAGIC, _) => return wrong(1),
            _ => return wrong(0),
        }
        let decoding = match at(6) {
            0 => Decoding::Unbiased,
            1 => Decoding::Mmse,
            2 => Decoding::Paper,
            _ => return wrong(6),
        };
        let loss = f32::from_bits(at(8));
        let reliability = match at(8) {
            FULL => Reliability::Full,
            _ if (0.0..1.0).contains(&loss) => Reliability::Bounded { loss },
            _ => return wrong(8),
        };
        let Ok(length) = usize::try_from(u64::from(at(2)) << 32 | u64::from(at(3))) else { return wrong(2) };
        let deadline_ns = u64::from(at(12)) << 32 | u64::from(at(13));
        // Numbers out of range are the layout's to refuse.
        let options = Options {
            planes: at(4).min(255) as u8,
            exact: at(5) & 1 != 0,
            average: at(5) & 2 != 0,
            decoding,
            replicas: if at(7) == 1 { Replicas::Consistent } else { Replicas::Free },
            reliability: Some(reliability),
            layer_class: at(9).min(255) as u8,
            tag: at(10),
            coordinates_per_packet: (at(11) != 0).then_some(at(11) as usize),
            deadline_ns: (deadline_ns != NEVER).then_some(deadline_ns),
            // Of push-pulls there is one.
            algorithm: Algorithm::default(),
            // A rank's own business.
            pace: Pace::LINE,
        };
        Ok(Self::PushPull(PushPull { length, options }))
    }

    /// The operation that carries it.
    fn broadcast(words: [u32; WORDS], root: u16) -> (Collective, Options) {
        let tensor = Memory::from_vec(words.map(f32::from_bits).to_vec());
        (
            Collective::Broadcast { tensor, root },
            Options { exact: true, algorithm: Algorithm::Direct, ..Options::default() },
        )
    }

    /// Tells it, as a worker: begins operation `number`. All workers do, and the lowest one's is
    /// what servers hear.
    ///
    /// # Errors
    /// As [`Communicator::start`].
    pub fn tell(
        &self,
        now_ns: u64,
        number: u32,
        servers: &[u16],
        communicator: &mut Communicator,
        endpoint: &mut Endpoint,
    ) -> Result<(), StartError> {
        let root = lowest_worker(communicator.config().world, servers);
        let (collective, options) = Self::broadcast(self.to_words(), root.unwrap_or(0));
        communicator.start(now_ns, number, collective, options, endpoint)
    }

    /// What was told, from the outcome of that operation.
    ///
    /// # Errors
    /// When it is none.
    pub fn heard(outcome: Outcome) -> Result<Self, NoticeError> {
        let words: Vec<u32> = outcome.into_f32().unwrap_or_default().into_iter().map(f32::to_bits).collect();
        Self::from_words(&words)
    }
}

/// Who speaks for the workers; `None` where there are none.
pub fn lowest_worker(world: u16, servers: &[u16]) -> Option<u16> {
    (0..world).find(|rank| !servers.contains(rank))
}

/// Why a server cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An operation cannot begin.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An operation was given up; it says because of whom.
    #[error(transparent)]
    Operation(#[from] OperationError),
    /// What the lowest worker says is no notice.
    #[error("operation {number}: {reason}")]
    Notice {
        /// The operation.
        number: u32,
        /// Why not.
        reason: NoticeError,
    },
}

/// A server's part: begins what workers announce. Its communicator is driven by the caller, who
/// hands it every outcome.
#[derive(Debug)]
pub struct Server {
    servers: Vec<u16>,
    root: u16,
    /// The notice that is waited for; `None` once the workers have left.
    awaited: Option<u32>,
    /// Push-pulls on their way, by number.
    serving: BTreeMap<u32, PushPull>,
}

impl Server {
    /// Waits for the first notice, which is operation `number`.
    ///
    /// # Errors
    /// As [`Communicator::start`].
    pub fn begin(
        now_ns: u64,
        number: u32,
        servers: Vec<u16>,
        communicator: &mut Communicator,
        endpoint: &mut Endpoint,
    ) -> Result<Self, StartError> {
        let root = lowest_worker(communicator.config().world, &servers).unwrap_or(0);
        let mut this = Self { servers, root, awaited: None, serving: BTreeMap::new() };
        this.await_notice(now_ns, number, communicator, endpoint)?;
        Ok(this)
    }

    fn await_notice(
        &mut self,
        now_ns: u64,
        number: u32,
        communicator: &mut Communicator,
        endpoint: &mut Endpoint,
    ) -> Result<(), StartError> {
        let (collective, options) = Notice::broadcast([0; WORDS], self.root);
        communicator.start(now_ns, number, collective, options, endpoint)?;
        self.awaited = Some(number);
        Ok(())
    }

    /// Whether the workers have left and have all they asked for.
    pub fn is_done(&self) -> bool {
        self.awaited.is_none() && self.serving.is_empty()
    }

    /// The push-pull on its way that has this number.
    pub fn push_pull(&self, number: u32) -> Option<&PushPull> {
        self.serving.get(&number)
    }

    /// Takes an outcome of the communicator. Gives that of a push-pull back: to be counted.
    ///
    /// # Errors
    /// When the job cannot go on; the workers hear of it where they have not said so themselves.
    pub fn on_outcome(
        &mut self,
        now_ns: u64,
        outcome: Outcome,
        communicator: &mut Communicator,
        endpoint: &mut Endpoint,
    ) -> Result<Option<Outcome>, ServeError> {
        if let Err(error) = outcome.result {
            return Err(error.into());
        }
        let number = outcome.number;
        if self.awaited != Some(number) {
            self.serving.remove(&number);
            return Ok(Some(outcome));
        }
        self.awaited = None;
        let notice = Notice::heard(outcome).map_err(|reason| ServeError::Notice { number, reason })?;
        let Notice::PushPull(push_pull) = notice else { return Ok(None) };
        let (length, options) = (push_pull.length, push_pull.options.clone());
        let operation = Collective::PushPull { tensor: None, length, servers: self.servers.clone() };
        let follows = number.wrapping_add(1);
        communicator.start(now_ns, follows, operation, options, endpoint)?;
        self.serving.insert(follows, push_pull);
        self.await_notice(now_ns, number.wrapping_add(2), communicator, endpoint)?;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_notice_is_told_and_heard() {
        let options = Options {
            planes: 9,
            average: true,
            decoding: Decoding::Mmse,
            replicas: Replicas::Consistent,
            reliability: Some(Reliability::Bounded { loss: 0.02 }),
            layer_class: 3,
            tag: 7,
            coordinates_per_packet: Some(448),
            deadline_ns: Some(5_000_000_000),
            ..Options::default()
        };
        for notice in [
            Notice::Leave,
            Notice::PushPull(PushPull { length: usize::MAX, options: options.clone() }),
            Notice::PushPull(PushPull {
                length: 0,
                options: Options { exact: true, reliability: Some(Reliability::Full), ..Options::default() },
            }),
        ] {
            assert_eq!(Notice::from_words(&notice.to_words()), Ok(notice));
        }
        assert_eq!(Notice::from_words(&[0; WORDS]), Err(NoticeError { word: 0, value: 0 }));
    }

    #[test]
    fn the_lowest_worker_is_no_server() {
        assert_eq!(lowest_worker(4, &[0, 1]), Some(2));
        assert_eq!(lowest_worker(2, &[0, 1]), None);
    }

    proptest! {
        #[test]
        fn any_words_are_a_notice_or_none(mut words: [u32; WORDS], whole: bool) {
            if whole {
                words[0] = MAGIC;
                words[1] %= 3;
            }
            let _ = Notice::from_words(&words);
            let _ = Notice::from_words(&words[..words[2] as usize % WORDS]);
        }
    }
}
