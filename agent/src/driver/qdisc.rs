// SPDX-License-Identifier: Apache-2.0
//! Queueing disciplines of interfaces, as rtnetlink lists them, and which of them hold a packet
//! until it is to leave.
//!
//! A socket with SO_TXTIME gives each packet its departure (SCM_TXTIME). `fq` holds it until then,
//! on CLOCK_MONOTONIC (tc-fq(8); Linux 5.8 and later, which say how far ahead they do so). Most
//! others ignore it. `etf` holds packets, too, and drops everything that has no departure: ARP and
//! TCP.
#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Bytes of `struct tcmsg`.
const BODY: usize = 20;
// linux/rtnetlink.h and linux/pkt_sched.h.
const TCA_FQ_HORIZON: u16 = 14;
const TCA_HTB_INIT: u16 = 2;
const ROOT: u32 = 0xffff_ffff;
/// The kernel's longest part of an answer is 32 KiB.
const ANSWER: usize = 65_536;
/// Parts of an answer: hosts have thousands of interfaces, not millions.
const PARTS: usize = 4_096;
/// So often is a list asked for that changed while it was written.
const TRIES: usize = 4;
/// `fq` below `htb` below `mq`.
const DEPTH: usize = 4;
/// A burst's time, ns, up to which `fq` has to look ahead at least.
const HORIZON_LEAST_NS: u64 = 10_000_000;

/// A queueing discipline of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// Index of the interface.
    pub interface: u32,
    /// Its own handle, `major:0`; 0 of those that the system made by itself.
    pub handle: u32,
    /// The class that it serves, `major:minor`; all ones at the root.
    pub parent: u32,
    /// Its name.
    pub kind: String,
    /// `fq`: how far ahead of now a departure may be, ns; later packets are dropped.
    pub horizon_ns: Option<u64>,
    /// `htb`: the class, by its minor number, of packets that no filter assigns; 0: they pass all
    /// classes by.
    pub default_class: Option<u32>,
}

/// What an interface does with departures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Departures {
    /// It holds packets until then.
    Held,
    /// It does not; what there is instead, in words.
    Ignored(String),
}

/// Bytes that are no answer about queueing disciplines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("rtnetlink: byte {at} of an answer of {length}: a length that does not fit")]
pub struct Malformed {
    at: usize,
    length: usize,
}

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    word(bytes, at).map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    word(bytes, at).map(u32::from_ne_bytes)
}

/// The (type, value) pairs of attributes, up to one that does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        // Nested ones, and those in network order, are marked by the upper bits.
        let kind = u16_at(bytes, 2)? & 0x3fff;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A message of rtnetlink.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Message {
    Listed(Qdisc),
    /// Something happened to one of this interface.
    Removed(u32),
    /// The list has ended; `whole`: nothing changed while it was written.
    Done {
        whole: bool,
    },
    /// The system's reason not to answer.
    Refused(i32),
    Other,
}

fn qdisc(body: &[u8]) -> Option<Qdisc> {
    let mut found = Qdisc {
        interface: u32_at(body, 4)?,
        handle: u32_at(body, 8)?,
        parent: u32_at(body, 12)?,
        kind: String::new(),
        horizon_ns: None,
        default_class: None,
    };
    let mut options: &[u8] = &[];
    for (kind, value) in attributes(body.get(BODY..)?) {
        match kind {
            libc::TCA_KIND => {
                // Up to 15 characters; what is printed is printable.
                let name = value.iter().take(15).take_while(|byte| byte.is_ascii_graphic());
                found.kind = name.map(|&byte| char::from(byte)).collect();
            }
            libc::TCA_OPTIONS => options = value,
            _ => {}
        }
    }
    for (kind, value) in attributes(options) {
        match (found.kind.as_str(), kind) {
            // Microseconds.
            ("fq", TCA_FQ_HORIZON) => found.horizon_ns = u32_at(value, 0).map(|us| u64::from(us) * 1_000),
            // `struct tc_htb_glob`: version, rate2quantum, defcls, …
            ("htb", TCA_HTB_INIT) => found.default_class = u32_at(value, 8),
            _ => {}
        }
    }
    Some(found)
}

/// Takes a datagram of rtnetlink apart.
fn messages(bytes: &[u8]) -> Result<Vec<Message>, Malformed> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = bytes.get(at..).unwrap_or_default();
        let malformed = Malformed { at, length: bytes.len() };
        let length = u32_at(rest, 0).ok_or(malformed)? as usize;
        let kind = u16_at(rest, 4).ok_or(malformed)?;
        let flags = i32::from(u16_at(rest, 6).ok_or(malformed)?);
        let body = rest.get(HEADER..length).ok_or(malformed)?;
        found.push(match kind {
            libc::RTM_NEWQDISC => Message::Listed(qdisc(body).ok_or(malformed)?),
            libc::RTM_DELQDISC => Message::Removed(u32_at(body, 4).ok_or(malformed)?),
            _ if i32::from(kind) == libc::NLMSG_DONE => {
                Message::Done { whole: flags & libc::NLM_F_DUMP_INTR == 0 }
            }
            _ if i32::from(kind) == libc::NLMSG_ERROR => {
                Message::Refused(word(body, 0).map(i32::from_ne_bytes).ok_or(malformed)?.saturating_neg())
            }
            _ => Message::Other,
        });
        at = at.saturating_add(length.next_multiple_of(4));
    }
    Ok(found)
}

/// `tc qdisc show invisible`.
fn request() -> [u8; HEADER + BODY + 4] {
    let mut bytes = [0; HEADER + BODY + 4];
    bytes[..4].copy_from_slice(&((HEADER + BODY + 4) as u32).to_ne_bytes());
    bytes[4..6].copy_from_slice(&libc::RTM_GETQDISC.to_ne_bytes());
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
    // Also what the system made by itself: an attribute without a value.
    bytes[HEADER + BODY..HEADER + BODY + 2].copy_from_slice(&4_u16.to_ne_bytes());
    bytes[HEADER + BODY + 2..].copy_from_slice(&libc::TCA_DUMP_INVISIBLE.to_ne_bytes());
    bytes
}

/// A socket of rtnetlink that hears these multicast groups, and does not block.
fn open(groups: u32) -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
    Ok(fd)
}

/// All queueing disciplines of all interfaces of this network namespace.
///
/// # Errors
/// The system's reason not to list them; or what it said was no list.
pub fn qdiscs() -> io::Result<Vec<Qdisc>> {
    for _ in 0..TRIES {
        if let Some(found) = list(|_| ())? {
            return Ok(found);
        }
    }
    Err(io::Error::other("rtnetlink: queueing disciplines change faster than they can be listed"))
}

/// `None`: they changed meanwhile. `see` is shown each part of the answer.
fn list(mut see: impl FnMut(&[u8])) -> io::Result<Option<Vec<Qdisc>>> {
    let fd = open(0)?;
    send(fd.as_raw_fd(), &request(), MsgFlags::empty())?;
    let mut buffer = vec![0; ANSWER];
    let mut found = Vec::new();
    for _ in 0..PARTS {
        // The kernel writes each part when it is asked for.
        let length = match recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            Err(Errno::EINTR) => continue,
            outcome => outcome?,
        };
        let part = buffer.get(..length).unwrap_or_default();
        see(part);
        for message in messages(part).map_err(io::Error::other)? {
            match message {
                Message::Listed(qdisc) => found.push(qdisc),
                Message::Done { whole } => return Ok(whole.then_some(found)),
                Message::Refused(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Message::Removed(_) | Message::Other => {}
            }
        }
    }
    Err(io::Error::other("rtnetlink: a list of queueing disciplines without an end"))
}

/// Hears of changes, for any number of threads.
#[derive(Debug)]
pub(super) struct Watch {
    socket: OwnedFd,
    heard: Mutex<Heard>,
}

/// Changes are numbered from 1.
#[derive(Debug, Default)]
struct Heard {
    latest: u64,
    /// The latest change of each interface.
    of: BTreeMap<u32, u64>,
    /// The latest that may be any interface's.
    of_any: u64,
}

impl Heard {
    fn listen(&mut self, socket: &OwnedFd) {
        let mut buffer = [0; 8_192];
        for _ in 0..PARTS {
            let received = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty());
            if received == Err(Errno::EAGAIN) {
                return;
            }
            if received == Err(Errno::EINTR) {
                continue;
            }
            self.latest += 1;
            // What found no room, or is longer than that, may be anything.
            match received.ok().and_then(|length| messages(buffer.get(..length)?).ok()) {
                None => self.of_any = self.latest,
                Some(messages) => self.of.extend(messages.iter().filter_map(|message| match message {
                    Message::Listed(qdisc) => Some((qdisc.interface, self.latest)),
                    Message::Removed(interface) => Some((*interface, self.latest)),
                    _ => None,
                })),
            }
        }
        self.latest += 1;
        self.of_any = self.latest;
    }
}

impl Watch {
    pub(super) fn open() -> io::Result<Self> {
        let socket = open(libc::RTMGRP_TC as u32)?;
        Ok(Self { socket, heard: Mutex::default() })
    }

    /// Whether something may have happened to a queueing discipline of one of these interfaces
    /// behind change `seen`, which becomes the latest.
    pub(super) fn has_news(&self, interfaces: &[u32], seen: &mut u64) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.listen(&self.socket);
        let newest = interfaces.iter().filter_map(|interface| heard.of.get(interface));
        let newest = newest.copied().chain([heard.of_any]).max().unwrap_or(0);
        newest > std::mem::replace(seen, heard.latest)
    }
}

/// What an interface does with departures, by the list of all queueing disciplines.
pub fn departures(all: &[Qdisc], interface: u32) -> Departures {
    let own: Vec<&Qdisc> = all.iter().filter(|qdisc| qdisc.interface == interface).collect();
    let Some(root) = own.iter().find(|qdisc| qdisc.parent == ROOT) else {
        return Departures::Ignored("has no queueing discipline (is it up?)".to_owned());
    };
    holds(&own, root, DEPTH).map_or_else(Departures::Ignored, |()| Departures::Held)
}

/// Whether it holds packets; else why not.
fn holds(own: &[&Qdisc], qdisc: &Qdisc, depth: usize) -> Result<(), String> {
    let kind = qdisc.kind.as_str();
    match kind {
        "fq" => match qdisc.horizon_ns {
            Some(horizon_ns) if horizon_ns >= HORIZON_LEAST_NS => Ok(()),
            Some(horizon_ns) => Err(format!(
                "has fq with a horizon of {horizon_ns} ns, which drops what leaves later: 10 ms at least"
            )),
            None => Err("has an fq from before Linux 5.8".to_owned()),
        },
        "mq" | "mqprio" | "htb" if depth > 0 => {
            let major = qdisc.handle >> 16;
            let below = own.iter().filter(|child| {
                child.parent >> 16 == major && child.parent & 0xffff != 0 && child.parent != ROOT
            });
            let mut leaves = 0;
            for child in below.clone() {
                holds(own, child, depth - 1).map_err(|why| format!("{why} below {kind}"))?;
                leaves += 1;
            }
            let default = qdisc.default_class.map(|minor| qdisc.handle | minor & 0xffff);
            if kind == "htb" && !below.clone().any(|child| Some(child.parent) == default) {
                return Err("has htb that lets packets pass its classes by (`default` names none)".to_owned());
            }
            if leaves == 0 { Err(format!("has {kind} with nothing below it")) } else { Ok(()) }
        }
        "etf" => Err("has etf, which drops what has no departure: ARP and TCP".to_owned()),
        _ => Err(format!("has {kind}, which sends packets as they come")),
    }
}

#[cfg(test)]
#[path = "qdisc_tests.rs"]
mod tests;
