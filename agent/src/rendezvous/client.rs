// SPDX-License-Identifier: Apache-2.0
//! A rank's way to rank 0: tries until somebody listens there, makes its offer, and waits for the
//! answer.
#![forbid(unsafe_code)]

use super::message::{ANSWER_MOST, Agreed, Offer, Word, WordError, end_of_line};
use super::proof::{Prover, Side};
use super::{Config, RendezvousError, random};
use crate::driver::Clock;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// A connection that is not there after this time is tried again.
const CONNECTING_NS: u64 = 3_000_000_000;
/// Rank 0 answers a hello in this time.
const HELLO_NS: u64 = 10_000_000_000;
/// Rank 0 may have begun to wait this much later, and takes this long to tell everyone.
const AFTER_NS: u64 = 15_000_000_000;
/// Between attempts, doubling.
const PAUSE_LEAST_NS: u64 = 20_000_000;
const PAUSE_MOST_NS: u64 = 500_000_000;

/// What an attempt came to.
pub(super) enum Attempt {
    /// Another one may go better.
    Again(String),
    /// No other one would.
    Final(RendezvousError),
}

/// Tries until `config.timeout` is over.
pub(super) fn join(offer: &Offer, config: &Config, clock: Clock) -> Result<Agreed, RendezvousError> {
    let timeout_ns = config.timeout.as_nanos() as u64;
    let deadline_ns = clock.now_ns().saturating_add(timeout_ns);
    let waiting_ns = timeout_ns.saturating_add(AFTER_NS);
    let mut pause_ns = PAUSE_LEAST_NS;
    loop {
        // Each time anew: names come up, and change, as hosts do.
        let last = match config.master.resolve() {
            Ok(addresses) => {
                let mut last = String::new();
                for address in addresses {
                    match attempt(offer, config, address, clock, deadline_ns, waiting_ns) {
                        Ok(agreed) => return Ok(agreed),
                        Err(Attempt::Final(error)) => return Err(error),
                        Err(Attempt::Again(why)) => last = why,
                    }
                }
                last
            }
            Err(error) => error.to_string(),
        };
        let left_ns = deadline_ns.saturating_sub(clock.now_ns());
        if left_ns == 0 {
            let (master, seconds) = (config.master.to_string(), config.timeout.as_secs());
            return Err(RendezvousError::Unanswered { master, seconds, last });
        }
        tracing::debug!("rank {}: {last}; trying again", offer.rank);
        std::thread::sleep(Duration::from_nanos(pause_ns.min(left_ns)));
        pause_ns = (pause_ns * 2).min(PAUSE_MOST_NS);
    }
}

/// One connection, which has to be there by `deadline_ns`; the answer to the offer may take
/// `waiting_ns`.
pub(super) fn attempt(
    offer: &Offer,
    config: &Config,
    address: SocketAddr,
    clock: Clock,
    deadline_ns: u64,
    waiting_ns: u64,
) -> Result<Agreed, Attempt> {
    let left_ns = deadline_ns.saturating_sub(clock.now_ns()).clamp(1_000_000, CONNECTING_NS);
    let tcp =
        TcpStream::connect_timeout(&address, Duration::from_nanos(left_ns)).map_err(|error| again(&error))?;
    // Where nobody listens, the system may give an outgoing connection the very port that it looks
    // for.
    if tcp.local_addr().is_ok_and(|own| own == address) {
        return Err(Attempt::Again("nobody listens".to_owned()));
    }
    let _ = tcp.set_nodelay(true);
    let stranger = |reason: String| Attempt::Final(RendezvousError::Stranger { address, reason });
    let mut line = Line::new(tcp, clock);
    let own = random().map_err(Attempt::Final)?;
    line.say(&Word::Hello(own), None)?;
    line.deadline(clock.now_ns().saturating_add(HELLO_NS));
    let hello = line.hear().map_err(|error| error.of(stranger))?;
    let nonce = match Word::read(&hello, Side::Server, None) {
        Ok(Word::Hello(nonce)) => nonce,
        Ok(_) => return Err(stranger(WordError::Unknown.to_string())),
        Err(error) => return Err(stranger(error.to_string())),
    };
    let prover = config.key.clone().map(|key| Prover { key, client: own, server: nonce });
    line.say(&Word::Offer(offer.clone()), prover.as_ref())?;
    line.deadline(clock.now_ns().saturating_add(waiting_ns));
    let answer = line.hear().map_err(|error| error.of(stranger))?;
    let read = Word::read(&answer, Side::Server, prover.as_ref()).or_else(|error| {
        // Who does not have this rank's key cannot prove why it refuses. It gets nothing else from
        // this rank.
        let text = answer.split(|&byte| byte == b'\t').next().unwrap_or_default();
        match Word::read(text, Side::Server, None) {
            Ok(refused @ Word::Refused(_)) => Ok(refused),
            _ => Err(error),
        }
    });
    match read {
        Ok(Word::Agreed(agreed)) => match agreed.flaw(offer) {
            None => Ok(agreed),
            Some(flaw) => Err(stranger(format!("has agreed on something else: {flaw}"))),
        },
        Ok(Word::Refused(refusal)) => Err(Attempt::Final(RendezvousError::Refused(refusal))),
        Ok(_) => Err(stranger(WordError::Unknown.to_string())),
        Err(error) => Err(stranger(error.to_string())),
    }
}

/// What is wrong with the connection may be better next time.
fn again(error: &io::Error) -> Attempt {
    Attempt::Again(match error.kind() {
        io::ErrorKind::UnexpectedEof => "it hung up".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "it said nothing in time".to_owned(),
        _ => error.to_string(),
    })
}

/// Why no line came.
enum Unheard {
    Io(io::Error),
    Long,
}

impl Unheard {
    fn of(self, stranger: impl Fn(String) -> Attempt) -> Attempt {
        match self {
            Self::Io(error) => again(&error),
            Self::Long => stranger(WordError::Long(ANSWER_MOST).to_string()),
        }
    }
}

/// A connection whose every read ends at a deadline, however slowly bytes come.
struct Timed {
    tcp: TcpStream,
    clock: Clock,
    deadline_ns: u64,
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left_ns = self.deadline_ns.saturating_sub(self.clock.now_ns());
        if left_ns == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // The system takes a time-out of less than a microsecond for none.
        self.tcp.set_read_timeout(Some(Duration::from_nanos(left_ns.max(1_000))))?;
        self.tcp.read(bytes)
    }
}

struct Line(BufReader<Timed>);

impl Line {
    fn new(tcp: TcpStream, clock: Clock) -> Self {
        Self(BufReader::new(Timed { tcp, clock, deadline_ns: 0 }))
    }

    /// What is heard has to be there by then.
    fn deadline(&mut self, deadline_ns: u64) {
        self.0.get_mut().deadline_ns = deadline_ns;
    }

    /// So little fits into the system's buffer.
    fn say(&mut self, word: &Word, prover: Option<&Prover>) -> Result<(), Attempt> {
        let text = word.json();
        let line = text.clone() + &end_of_line(&text, Side::Client, prover);
        self.0.get_mut().tcp.write_all(line.as_bytes()).map_err(|error| again(&error))
    }

    fn hear(&mut self) -> Result<Vec<u8>, Unheard> {
        let mut line = Vec::new();
        let read = self.0.by_ref().take(ANSWER_MOST as u64).read_until(b'\n', &mut line);
        read.map_err(Unheard::Io)?;
        match line.last() {
            Some(b'\n') => Ok(line),
            _ if line.len() >= ANSWER_MOST => Err(Unheard::Long),
            _ => Err(Unheard::Io(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.0.get_ref().tcp.shutdown(Shutdown::Both);
    }
}
