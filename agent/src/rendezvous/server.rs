// SPDX-License-Identifier: Apache-2.0
//! Rank 0's sockets, in one loop: reads what callers say, lets those wait who have made an offer, and
//! tells them the verdict.
//!
//! A caller that has made no offer costs a descriptor and a few KB. Where there are too many, or it
//! takes too long, the oldest one goes: who is silent cannot keep others away.
#![forbid(unsafe_code)]

use super::error::RendezvousError;
use super::meeting::{Admission, Meeting};
use super::message::{Agreed, OFFER_MOST, Offer, Word, WordError, end_of_line};
use super::proof::{Prover, Side};
use super::random;
use super::refusal::Refusal;
use crate::driver::Clock;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;
use trimwire_encoder::SealKey;

/// Callers that have made no offer.
const CALLERS: usize = 1_024;
/// An offer may take this long.
const OFFERING_NS: u64 = 5_000_000_000;
/// Ranks that come after it went wrong are told so for this long.
const AFTER_NS: u64 = 5_000_000_000;
/// Ranks have this long to take the verdict.
const TELLING_NS: u64 = 5_000_000_000;
/// For as many callers and waiting ranks as there may be, and the process's own.
const DESCRIPTORS: u64 = 4_096;
/// Where the system accepts no connection, this long passes before it is asked again.
const PAUSE: Duration = Duration::from_millis(20);

/// Who has connected.
#[derive(Debug)]
struct Caller {
    tcp: TcpStream,
    source: SocketAddr,
    since_ns: u64,
    heard: Vec<u8>,
    /// Once both have said hello, in a job with a key.
    prover: Option<Prover>,
    greeted: bool,
    /// Once it has made its offer: it waits for the verdict, and has nothing more to say.
    rank: Option<u16>,
}

/// What a caller's socket gave.
enum Heard {
    Nothing,
    Line(Vec<u8>),
    Gone,
    Long,
}

impl Caller {
    /// Reads what is there, without waiting.
    fn hear(&mut self) -> Heard {
        let mut part = [0; 4_096];
        loop {
            match self.tcp.read(&mut part) {
                Ok(0) => return Heard::Gone,
                Ok(count) => self.heard.extend_from_slice(&part[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Heard::Gone,
            }
            if self.heard.len() > OFFER_MOST {
                return Heard::Long;
            }
        }
        match self.heard.iter().position(|&byte| byte == b'\n') {
            Some(end) => Heard::Line(self.heard.drain(..=end).collect()),
            None => Heard::Nothing,
        }
    }

    /// Says something that fits into the system's buffer.
    fn say(&mut self, word: &Word) {
        let text = word.json();
        let line = text.clone() + &end_of_line(&text, Side::Server, self.prover.as_ref());
        let _ = self.tcp.write_all(line.as_bytes());
    }
}

/// Rank 0's meeting, on sockets.
pub(super) struct Server {
    listeners: Vec<TcpListener>,
    key: Option<SealKey>,
    clock: Clock,
    /// In the order in which they came.
    callers: Vec<Caller>,
    meeting: Meeting,
}

/// Asks for descriptors for everyone, as far as the system lets a process have them: the usual 1,024
/// are too few for as many ranks.
fn allow_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(DESCRIPTORS)
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(DESCRIPTORS), hard);
    }
}

impl Server {
    /// Of sockets that listen.
    pub(super) fn new(
        listeners: Vec<TcpListener>,
        key: Option<SealKey>,
        meeting: Meeting,
        clock: Clock,
    ) -> Result<Self, RendezvousError> {
        for listener in &listeners {
            listener
                .set_nonblocking(true)
                .map_err(|source| RendezvousError::Io { what: "listen without waiting", source })?;
        }
        allow_descriptors();
        Ok(Self { listeners, key, clock, callers: Vec::new(), meeting })
    }

    /// Until all are there and know it, or something is wrong, or time is up.
    pub(super) fn run(mut self, timeout: Duration) -> Result<Agreed, RendezvousError> {
        let deadline_ns = self.clock.now_ns().saturating_add(timeout.as_nanos() as u64);
        let verdict = loop {
            if let Some(verdict) = self.meeting.verdict() {
                break verdict.clone();
            }
            if self.clock.now_ns() >= deadline_ns {
                self.meeting.expire(timeout.as_secs());
            } else {
                self.turn(deadline_ns)?;
            }
        };
        self.tell(&verdict);
        let until_ns = deadline_ns.min(self.clock.now_ns().saturating_add(AFTER_NS));
        while matches!(verdict, Word::Refused(_))
            && !self.meeting.all_seen()
            && self.clock.now_ns() < until_ns
        {
            self.turn(until_ns)?;
            self.tell(&verdict);
        }
        match verdict {
            Word::Agreed(agreed) => Ok(agreed),
            Word::Refused(refusal) => Err(RendezvousError::Refused(refusal)),
            Word::Hello(_) | Word::Offer(_) => Err(RendezvousError::Offer("nothing was decided".to_owned())),
        }
    }

    /// Waits for something to happen, until a time at most, and deals with it.
    fn turn(&mut self, until_ns: u64) -> Result<(), RendezvousError> {
        let late = |caller: &&Caller| caller.rank.is_none();
        let oldest = self.callers.iter().find(late).map(|caller| caller.since_ns + OFFERING_NS);
        let now_ns = self.clock.now_ns();
        let wait_ns = until_ns.min(oldest.unwrap_or(u64::MAX)).saturating_sub(now_ns);
        let mut sockets: Vec<PollFd<'_>> = (self.listeners.iter().map(|listener| listener.as_fd()))
            .chain(self.callers.iter().map(|caller| caller.tcp.as_fd()))
            .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
            .collect();
        let millis = i32::try_from(wait_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        let polled = poll(&mut sockets, PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO));
        let ready: Vec<bool> = sockets.iter().map(|socket| socket.any().unwrap_or(false)).collect();
        drop(sockets);
        match polled {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(RendezvousError::Io { what: "wait", source: errno.into() }),
        }
        let ready = ready.get(self.listeners.len()..).unwrap_or_default();
        // Those that waited first: a rank that comes again has gone before.
        let (now_ns, callers) = (self.clock.now_ns(), std::mem::take(&mut self.callers));
        for (mut caller, &ready) in callers.into_iter().zip(ready) {
            if !ready {
                if caller.rank.is_some() || now_ns < caller.since_ns + OFFERING_NS {
                    self.callers.push(caller);
                } else {
                    self.turn_away(&caller, "says nothing");
                }
                continue;
            }
            match (caller.hear(), caller.rank) {
                (Heard::Nothing, _) => self.callers.push(caller),
                (Heard::Line(line), None) => self.take(caller, &line),
                (_, Some(rank)) => {
                    tracing::info!("rank {rank} has hung up before all were there");
                    self.meeting.leave(rank);
                }
                (Heard::Gone, None) => self.turn_away(&caller, "hung up"),
                (Heard::Long, None) => self.turn_away(&caller, &WordError::Long(OFFER_MOST).to_string()),
            }
        }
        self.accept();
        Ok(())
    }

    /// Nobody hears why, but rank 0's log, and everybody if ranks are missing in the end.
    fn turn_away(&mut self, caller: &Caller, why: &str) {
        tracing::warn!("a connection from {} came to nothing: it {why}", caller.source);
        self.meeting.turned_away(format!("{} {why}", caller.source.ip()));
    }

    fn refuse(&mut self, mut caller: Caller, refusal: Refusal, why: &str) {
        self.turn_away(&caller, why);
        caller.say(&Word::Refused(refusal));
        let _ = caller.tcp.shutdown(Shutdown::Write);
    }

    /// Takes a line of a caller that has made no offer.
    fn take(&mut self, mut caller: Caller, line: &[u8]) {
        let side = Side::Client;
        if !caller.greeted {
            let Ok(Word::Hello(client)) = Word::read(line, side, None) else {
                return self.turn_away(&caller, &WordError::Unknown.to_string());
            };
            // The next one gets other numbers, or this one none.
            let Ok(server) = random() else { return self.turn_away(&caller, "gets no nonce") };
            caller.say(&Word::Hello(server));
            caller.greeted = true;
            caller.prover = self.key.clone().map(|key| Prover { key, client, server });
            return self.callers.push(caller);
        }
        let source_address = caller.source;
        match Word::read(line, side, caller.prover.as_ref()) {
            Ok(Word::Offer(offer)) => self.join(caller, offer),
            Err(error @ WordError::Unproven) => {
                caller.prover = None;
                self.refuse(caller, Refusal::Unproven { source_address }, &error.to_string());
            }
            Err(error @ WordError::Keyed) => {
                self.refuse(caller, Refusal::Keyed { source_address }, &error.to_string());
            }
            Ok(_) | Err(_) => {
                let reason = WordError::Unknown.to_string();
                self.refuse(caller, Refusal::Invalid { reason: reason.clone() }, &reason);
            }
        }
    }

    fn join(&mut self, mut caller: Caller, offer: Offer) {
        let rank = offer.rank;
        // Whoever has gone since this turn began has gone before this one came.
        let meeting = &mut self.meeting;
        self.callers.retain_mut(|other| {
            let gone = other.rank == Some(rank) && !matches!(other.hear(), Heard::Nothing);
            if gone {
                meeting.leave(rank);
            }
            !gone
        });
        match self.meeting.join(caller.source, offer) {
            Admission::Waits => {
                caller.rank = Some(rank);
                self.callers.push(caller);
            }
            Admission::Refused(refusal) => {
                let why = refusal.to_string();
                self.refuse(caller, refusal, &why);
            }
        }
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            loop {
                let accepted = listener.accept().and_then(|(tcp, source)| {
                    tcp.set_nonblocking(true)?;
                    let _ = tcp.set_nodelay(true);
                    Ok((tcp, source))
                });
                let full = match accepted {
                    Ok((tcp, source)) => {
                        let (since_ns, heard) = (self.clock.now_ns(), Vec::new());
                        let (prover, greeted, rank) = (None, false, None);
                        self.callers.push(Caller { tcp, source, since_ns, heard, prover, greeted, rank });
                        self.callers.iter().filter(|caller| caller.rank.is_none()).count() > CALLERS
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // For want of descriptors, mostly.
                        tracing::warn!("a connection could not be accepted: {error}");
                        std::thread::sleep(PAUSE);
                        true
                    }
                };
                if full && let Some(at) = self.callers.iter().position(|caller| caller.rank.is_none()) {
                    self.callers.remove(at);
                } else if full {
                    break;
                }
            }
        }
    }

    /// Tells those who wait, all at a time: one that takes nothing keeps no other waiting.
    fn tell(&mut self, verdict: &Word) {
        let text = verdict.json();
        let callers = std::mem::take(&mut self.callers).into_iter();
        let (waiting, others): (Vec<_>, _) = callers.partition(|caller| caller.rank.is_some());
        self.callers = others;
        let end = |caller: &Caller| end_of_line(&text, Side::Server, caller.prover.as_ref());
        let mut untold: Vec<(Caller, String, usize)> = waiting
            .into_iter()
            .map(|caller| (end(&caller), caller))
            .map(|(end, caller)| (caller, end, 0))
            .collect();
        let until_ns = self.clock.now_ns().saturating_add(TELLING_NS);
        while !untold.is_empty() {
            let left_ns = until_ns.saturating_sub(self.clock.now_ns());
            if left_ns == 0 {
                tracing::warn!("{} ranks could not be told", untold.len());
                return;
            }
            let mut sockets: Vec<PollFd<'_>> = untold
                .iter()
                .map(|(caller, ..)| PollFd::new(caller.tcp.as_fd(), PollFlags::POLLOUT))
                .collect();
            let millis = u16::try_from(left_ns.div_ceil(1_000_000)).unwrap_or(u16::MAX);
            let _ = poll(&mut sockets, millis);
            drop(sockets);
            untold.retain_mut(|(caller, end, told)| {
                let rest = text.as_bytes().get(*told..).filter(|rest| !rest.is_empty());
                let rest = rest.unwrap_or_else(|| &end.as_bytes()[*told - text.len()..]);
                match caller.tcp.write(rest) {
                    Ok(count) => *told += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                    Err(error) => {
                        tracing::warn!("rank {:?} could not be told: {error}", caller.rank);
                        return false;
                    }
                }
                let over = *told == text.len() + end.len();
                if over {
                    let _ = caller.tcp.shutdown(Shutdown::Write);
                }
                !over
            });
        }
    }
}
