// SPDX-License-Identifier: Apache-2.0
//! Rank 0's sockets: hears everyone out for a while, lets those wait who have made an offer, and tells them what came of it.
//!
//! A connection is heard out on a thread of its own, until it has shown what it has to show and made its offer; after that it costs a descriptor. Who is silent cannot keep others
//! away: where too many are heard out at once, the one that has taken longest makes room.
#![forbid(unsafe_code)]

use super::channel::{Channel, ChannelError};
use super::error::RendezvousError;
use super::frame::{self, FrameError, Kind};
use super::meeting::{Admission, Meeting};
use super::message::{Agreed, Answer, Offer};
use super::proof::{Side, is_proven, prove};
use super::refusal::Refusal;
use crate::driver::{Clock, Wake};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ServerConfig;
use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use trimwire_encoder::SealKey;

/// Connections that are heard out at once.
const HEARD: usize = 128;
/// One of these may take so long.
const HEARING_NS: u64 = 5_000_000_000;
/// And is sure of this much where others wait.
const SURE_NS: u64 = 500_000_000;
/// Ranks that come after it went wrong are told so for this long.
const AFTER_NS: u64 = 5_000_000_000;
/// To take the answer, a rank has this long.
const TELLING_NS: u64 = 5_000_000_000;
/// Two for each that is heard out, one for each rank that waits, and the process's own.
const DESCRIPTORS: u64 = 4_096;
/// Threads that tell.
const TELLERS: usize = 16;
/// Where the system accepts no connection, for want of descriptors mostly, this long passes before it is asked again.
const PAUSE_NS: u64 = 50_000_000;
/// Stack of a thread, bytes: TLS and JSON of a few KB.
const STACK: usize = 256 << 10;

/// A connection that is heard out.
#[derive(Debug)]
struct Hearing {
    since_ns: u64,
    /// To end it.
    socket: TcpStream,
    thread: JoinHandle<()>,
}

/// What came of one.
struct Heard {
    number: u64,
    source: SocketAddr,
    outcome: Result<(Channel, Offer), ChannelError>,
}

/// What whoever hears somebody out needs.
#[derive(Clone)]
struct Handshake {
    tls: Option<Arc<ServerConfig>>,
    key: Option<SealKey>,
    clock: Clock,
    heard: Sender<Heard>,
    wake: Arc<Wake>,
}

impl Handshake {
    fn hear(&self, tcp: TcpStream, source: SocketAddr) -> Result<(Channel, Offer), ChannelError> {
        let deadline_ns = self.clock.now_ns().saturating_add(HEARING_NS);
        let mut channel = Channel::accept(tcp, self.clock, deadline_ns)?;
        let refuse = |mut channel: Channel, refusal, why: FrameError| {
            let _ = channel.send(Kind::Answer, &json(&Answer::Refused(refusal)));
            channel.hang_up();
            Err(why.into())
        };
        let invalid = |error: &dyn std::fmt::Display| Refusal::Invalid { reason: error.to_string() };
        if let Some(tls) = &self.tls {
            if frame::begins(channel.first()?) {
                return refuse(channel, Refusal::Plain { source_address: source }, FrameError::Plain);
            }
            channel = channel.secure(Arc::clone(tls))?;
        }
        if let Some(key) = &self.key {
            let proof = match channel.receive(&[Kind::Proof]) {
                Ok((_, proof)) => proof,
                Err(ChannelError::Frame(why)) => {
                    return refuse(channel, Refusal::Unproven { source_address: source }, why);
                }
                Err(error) => return Err(error),
            };
            let binding = channel.binding().filter(|binding| is_proven(key, Side::Client, binding, &proof));
            let Some(binding) = binding else {
                return refuse(channel, Refusal::Unproven { source_address: source }, FrameError::Proof);
            };
            channel.send(Kind::Proof, &prove(key, Side::Server, &binding))?;
        }
        let offer = match channel.receive(&[Kind::Offer]) {
            Ok((_, offer)) => offer,
            Err(ChannelError::Frame(why)) => return refuse(channel, invalid(&why), why),
            Err(error) => return Err(error),
        };
        match serde_json::from_slice(&offer) {
            Ok(offer) => Ok((channel, offer)),
            Err(error) => refuse(channel, invalid(&error), FrameError::Body),
        }
    }
}

fn json(answer: &Answer) -> Vec<u8> {
    serde_json::to_vec(answer).expect("numbers, texts and addresses are JSON")
}

/// Rank 0's meeting, on sockets.
pub(super) struct Server {
    listeners: Vec<TcpListener>,
    handshake: Handshake,
    heard: Receiver<Heard>,
    hearings: BTreeMap<u64, Hearing>,
    next: u64,
    /// Nothing is accepted before.
    paused_until_ns: u64,
    waiting: Vec<(u16, Channel)>,
    meeting: Meeting,
}

/// Asks for descriptors for everyone, as far as the system lets a process have them: the usual 1,024 are too few for as many ranks.
fn allow_descriptors() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard.min(DESCRIPTORS)
    {
        // Without, some ranks have to wait for others to be told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(DESCRIPTORS), hard);
    }
}

impl Server {
    /// Of sockets that listen.
    pub(super) fn new(
        listeners: Vec<TcpListener>,
        tls: Option<Arc<ServerConfig>>,
        key: Option<SealKey>,
        meeting: Meeting,
        clock: Clock,
    ) -> Result<Self, RendezvousError> {
        let refused = |what| move |source| RendezvousError::Io { what, source };
        for listener in &listeners {
            listener.set_nonblocking(true).map_err(refused("listen without waiting"))?;
        }
        let wake = Arc::new(Wake::new().map_err(refused("open an eventfd"))?);
        allow_descriptors();
        let (sender, heard) = channel();
        let handshake = Handshake { tls, key, clock, heard: sender, wake };
        let (hearings, waiting) = (BTreeMap::new(), Vec::new());
        Ok(Self { listeners, handshake, heard, hearings, next: 0, paused_until_ns: 0, waiting, meeting })
    }

    /// Until all are there and know it, or something is wrong, or time is up.
    pub(super) fn run(mut self, timeout: Duration) -> Result<Agreed, RendezvousError> {
        let clock = self.handshake.clock;
        let deadline_ns = clock.now_ns().saturating_add(timeout.as_nanos() as u64);
        while self.meeting.verdict().is_none() {
            let now_ns = clock.now_ns();
            if now_ns >= deadline_ns {
                self.meeting.expire(timeout.as_secs());
                break;
            }
            self.turn(deadline_ns - now_ns)?;
        }
        let verdict = self.meeting.verdict().cloned();
        let until_ns = deadline_ns.min(clock.now_ns().saturating_add(AFTER_NS));
        if let Some(verdict) = &verdict {
            self.tell(verdict);
            while matches!(verdict, Answer::Refused(_)) && !self.meeting.all_seen() {
                let now_ns = clock.now_ns();
                if now_ns >= until_ns {
                    break;
                }
                self.turn(until_ns - now_ns)?;
                self.tell(verdict);
            }
        }
        match verdict {
            Some(Answer::Agreed(agreed)) => Ok(agreed),
            Some(Answer::Refused(refusal)) => Err(RendezvousError::Refused(refusal)),
            None => Err(RendezvousError::Offer("nothing was decided".to_owned())),
        }
    }

    /// Waits for something to happen, and deals with it.
    fn turn(&mut self, most_ns: u64) -> Result<(), RendezvousError> {
        let now_ns = self.handshake.clock.now_ns();
        let oldest = self.hearings.values().next().map_or(0, |hearing| hearing.since_ns);
        let full = self.hearings.len() >= HEARD;
        let sure_ns = oldest.saturating_add(SURE_NS).saturating_sub(now_ns);
        if full && sure_ns == 0 {
            // Its thread ends by that, and makes room.
            if let Some(hearing) = self.hearings.values().next() {
                let _ = hearing.socket.shutdown(Shutdown::Both);
            }
        }
        let most_ns = if full && sure_ns > 0 { most_ns.min(sure_ns) } else { most_ns };
        let paused_ns = self.paused_until_ns.saturating_sub(now_ns);
        let most_ns = if paused_ns > 0 { most_ns.min(paused_ns) } else { most_ns };
        let listening = if full || paused_ns > 0 { &[][..] } else { &self.listeners[..] };
        let mut sockets: Vec<PollFd<'_>> = std::iter::once(self.handshake.wake.as_fd())
            .chain(listening.iter().map(AsFd::as_fd))
            .chain(self.waiting.iter().map(|(_, channel)| channel.as_fd()))
            .map(|socket| PollFd::new(socket, PollFlags::POLLIN))
            .collect();
        let millis = i32::try_from(most_ns.div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // Somebody has been heard since: only a look.
        let millis = if self.handshake.wake.prepare() { millis } else { 0 };
        let polled = poll(&mut sockets, PollTimeout::try_from(millis).unwrap_or(PollTimeout::ZERO));
        let ready: Vec<bool> = sockets.iter().map(|socket| socket.any().unwrap_or(false)).collect();
        drop(sockets);
        self.handshake.wake.clear();
        match polled {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(RendezvousError::Io { what: "wait", source: errno.into() }),
        }
        let gone = ready.len() - self.waiting.len();
        self.forget(&ready[gone..]);
        while let Ok(heard) = self.heard.try_recv() {
            self.take(heard);
        }
        if paused_ns == 0 {
            self.accept();
        }
        Ok(())
    }

    /// Who waits has nothing to say but that it goes: drops those whose sockets are `ready`.
    fn forget(&mut self, ready: &[bool]) {
        let mut ready = ready.iter().copied();
        let meeting = &mut self.meeting;
        self.waiting.retain(|&(rank, _)| {
            let gone = ready.next().unwrap_or(false);
            if gone {
                tracing::info!("rank {rank} has hung up before all were there");
                meeting.leave(rank);
            }
            !gone
        });
    }

    /// Likewise, just now: a rank that comes again has gone before.
    fn forget_gone(&mut self) {
        let ready: Vec<bool> = self.waiting.iter().map(|(_, channel)| is_over(channel)).collect();
        self.forget(&ready);
    }

    fn take(&mut self, heard: Heard) {
        let Heard { number, source, outcome } = heard;
        if let Some(hearing) = self.hearings.remove(&number) {
            // It has nothing left to do.
            let _ = hearing.thread.join();
        }
        let (mut channel, offer) = match outcome {
            Ok(heard) => heard,
            Err(error) => {
                tracing::warn!("a connection from {source} came to nothing: it {error}");
                self.meeting.turned_away(format!("{} {error}", source.ip()));
                return;
            }
        };
        let rank = offer.rank;
        // Threads end in any order: one that came before its successor may be heard after it.
        if is_over(&channel) {
            tracing::info!("rank {rank} has hung up before it was heard");
            return;
        }
        if self.waiting.iter().any(|&(waiting, _)| waiting == rank) {
            self.forget_gone();
        }
        match self.meeting.join(source, offer) {
            Admission::Waits => self.waiting.push((rank, channel)),
            Admission::Refused(refusal) => {
                tracing::warn!("who came from {source} was refused: {refusal}");
                channel.set_deadline(self.handshake.clock.now_ns().saturating_add(SURE_NS));
                if channel.send(Kind::Answer, &json(&Answer::Refused(refusal))).is_ok() {
                    channel.close();
                }
            }
        }
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            while self.hearings.len() < HEARD {
                let (tcp, source) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // Of one connection that has gone already, or for want of descriptors, which others will give back.
                        if self.paused_until_ns == 0 {
                            tracing::warn!(
                                "a connection could not be accepted: {error}; this is not reported again"
                            );
                        }
                        self.paused_until_ns = self.handshake.clock.now_ns().saturating_add(PAUSE_NS);
                        return;
                    }
                };
                let Ok(socket) = tcp.try_clone() else { continue };
                let (number, handshake) = (self.next, self.handshake.clone());
                self.next += 1;
                let thread = std::thread::Builder::new().name("rendezvous".to_owned()).stack_size(STACK);
                let thread = thread.spawn(move || {
                    let outcome = handshake.hear(tcp, source);
                    // Nobody listens where the meeting is over.
                    let _ = handshake.heard.send(Heard { number, source, outcome });
                    handshake.wake.wake();
                });
                if let Ok(thread) = thread {
                    let since_ns = self.handshake.clock.now_ns();
                    self.hearings.insert(number, Hearing { since_ns, socket, thread });
                }
            }
        }
    }

    /// Tells those who wait, several at a time: one that takes nothing keeps few others waiting.
    fn tell(&mut self, verdict: &Answer) {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return;
        }
        let (body, clock) = (json(verdict), self.handshake.clock);
        let each = waiting.len().div_ceil(TELLERS);
        let mut stripes: Vec<Vec<(u16, Channel)>> = Vec::new();
        for member in waiting {
            match stripes.last_mut() {
                Some(stripe) if stripe.len() < each => stripe.push(member),
                _ => stripes.push(vec![member]),
            }
        }
        std::thread::scope(|scope| {
            for stripe in stripes {
                let thread = std::thread::Builder::new().name("rendezvous".to_owned()).stack_size(STACK);
                let body = &body;
                let spawned = thread.spawn_scoped(scope, move || {
                    for (rank, mut channel) in stripe {
                        channel.set_deadline(clock.now_ns().saturating_add(TELLING_NS));
                        match channel.send(Kind::Answer, body) {
                            Ok(()) => channel.close(),
                            Err(error) => tracing::warn!("rank {rank} could not be told: it {error}"),
                        }
                    }
                });
                if let Err(error) = spawned {
                    tracing::warn!("some ranks could not be told: {error}");
                }
            }
        });
    }
}

/// Whether who has nothing more to say has said or ended something.
fn is_over(channel: &Channel) -> bool {
    let mut sockets = [PollFd::new(channel.as_fd(), PollFlags::POLLIN)];
    poll(&mut sockets, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

impl Drop for Server {
    fn drop(&mut self) {
        for (_, hearing) in std::mem::take(&mut self.hearings) {
            let _ = hearing.socket.shutdown(Shutdown::Both);
            let _ = hearing.thread.join();
        }
    }
}
