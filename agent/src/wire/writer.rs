// SPDX-License-Identifier: Apache-2.0
//! Control packets as bytes.

use super::trim_map::{self, Detail};
use super::vote::Vote;
use super::{
    ADDRESSES_MAX, Abort, CONTROL_LEN_MAX, ECHO_PACKETS, Identity, PORTS_MAX, Path, Probe, Progress, Report,
    SENDERS_MAX, Stop, Wanted,
};
use std::net::IpAddr;
use trimwire_encoder::wire::{Kind, Prefix, StreamId};

/// A map to be written behind a control packet.
#[derive(Clone, Copy)]
pub struct MapSource<'a> {
    /// Planes held of a packet.
    pub planes: &'a dyn Fn(u32) -> u8,
    /// Packets to tell of end here.
    pub packets: u32,
    /// First packet to tell of.
    pub offset: u32,
    /// How exactly.
    pub detail: Detail,
}

impl std::fmt::Debug for MapSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapSource").field("packets", &self.packets).field("offset", &self.offset).finish()
    }
}

/// Writes control packets of one stream to one peer.
#[derive(Debug, Clone, Copy)]
pub struct Writer {
    /// The rank that sends, and its job.
    pub stream: StreamId,
    /// Incarnations of both ends.
    pub identity: Identity,
    /// Most bytes of a packet: maps go in parts. At most [`CONTROL_LEN_MAX`].
    pub room: usize,
}

pub(super) fn put(out: &mut Vec<u8>, words: &[u32]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

fn put_report(out: &mut Vec<u8>, report: &Report) {
    let senders = report.senders.map_or(0, |senders| u32::from(senders.get().min(SENDERS_MAX)));
    let (echo, hold_ns) = report.echo.map_or((0, 0), |echo| {
        (1 << 31 | u32::from(echo.trimmed) << 30 | (echo.packet & (ECHO_PACKETS - 1)), echo.hold_ns)
    });
    put(out, &[echo | senders << 20, hold_ns, report.received, report.trimmed, report.marked]);
}

impl Writer {
    fn begin(self, kind: Kind, message: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        let stream = self.stream;
        // ECN says "important" of every control packet; the header's own bits are about DATA.
        let prefix = Prefix { kind, codec: 0, important: true, layer_class: 0, last: false, stream, message };
        out.extend_from_slice(&prefix.to_bytes());
        put(&mut out, &[self.identity.from, self.identity.to]);
        out
    }

    /// An ACK, or a STATUS where it answers a PROBE, with as much of the map as fits
    /// (`progress.map` is not looked at). Returns the packet and one past the last packet told of.
    pub fn progress(
        self,
        message: u32,
        answer: bool,
        progress: &Progress<'_>,
        map: Option<&MapSource<'_>>,
    ) -> (Vec<u8>, u32) {
        let mut out = self.begin(if answer { Kind::Status } else { Kind::Ack }, message);
        put(&mut out, &[progress.sequence]);
        put_report(&mut out, &progress.report);
        let (every, may_miss) = match progress.wanted {
            Wanted::EveryPlane => (4, 0),
            Wanted::AllBut(packets) => (0, packets),
        };
        put(&mut out, &[progress.missing, may_miss]);
        let flags = u8::from(progress.expected) | u8::from(progress.bound_holds) << 1 | every;
        put(&mut out, &[u32::from(flags) << 24 | progress.low & 0x00ff_ffff]);
        let end = put_map(map, self.room, &mut out);
        (out, end)
    }

    /// A PROBE.
    pub fn probe(self, message: u32, probe: &Probe) -> Vec<u8> {
        let mut out = self.begin(Kind::Probe, message);
        put(&mut out, &[probe.sequence, probe.packets]);
        out.extend_from_slice(&[probe.planes, u8::from(probe.want_map) | u8::from(probe.finish) << 1]);
        out.extend_from_slice(&probe.shape.to_be_bytes());
        put(&mut out, &[probe.grace_ns, probe.map_offset]);
        out
    }

    /// A STOP with as much of the map as fits, as for [`Self::progress`].
    pub fn stop(self, message: u32, stop: &Stop<'_>, map: Option<&MapSource<'_>>) -> (Vec<u8>, u32) {
        let mut out = self.begin(Kind::Stop, message);
        put(&mut out, &[stop.sequence]);
        put_report(&mut out, &stop.report);
        put(&mut out, &[stop.missing, stop.agreed]);
        let end = put_map(map, self.room, &mut out);
        (out, end)
    }

    /// A FINAL with as much of the map as fits, likewise.
    pub fn agreed(self, message: u32, sequence: u32, map: &MapSource<'_>) -> (Vec<u8>, u32) {
        let mut out = self.begin(Kind::Final, message);
        put(&mut out, &[sequence, map.packets, 0]);
        let end = put_map(Some(map), self.room, &mut out);
        (out, end)
    }

    /// A FORWARD of a message of so many packets, likewise.
    pub fn forward(self, message: u32, packets: u32, map: &MapSource<'_>) -> (Vec<u8>, u32) {
        let mut out = self.begin(Kind::Forward, message);
        put(&mut out, &[packets]);
        let end = put_map(Some(map), self.room, &mut out);
        (out, end)
    }

    /// An ABORT.
    pub fn abort(self, message: u32, abort: Abort) -> Vec<u8> {
        let mut out = self.begin(Kind::Abort, message);
        let [high, low] = abort.culprit.to_be_bytes();
        out.extend_from_slice(&[abort.reason as u8, 0, high, low]);
        out
    }

    /// A VOTE.
    pub fn vote(self, vote: &Vote) -> Vec<u8> {
        let mut out = self.begin(Kind::Vote, 0);
        vote.write(&mut out);
        out
    }

    /// A HELLO with the source ports of this end's DATA, the first [`PORTS_MAX`] of them, and its
    /// addresses where it has several: those of the first one's family, up to [`ADDRESSES_MAX`].
    pub fn hello(self, answer: bool, ports: &[u16], addresses: &[IpAddr]) -> Vec<u8> {
        let mut out = self.begin(Kind::Hello, 0);
        let ports = &ports[..ports.len().min(PORTS_MAX)];
        let [high, low] = (ports.len() as u16).to_be_bytes();
        let v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
        let alike = || addresses.iter().filter(|address| address.is_ipv6() == v6).take(ADDRESSES_MAX);
        out.extend_from_slice(&[u8::from(answer) | u8::from(v6) << 1, alike().count() as u8, high, low]);
        for port in ports {
            out.extend_from_slice(&port.to_be_bytes());
        }
        for address in alike() {
            match address {
                IpAddr::V4(v4) => out.extend_from_slice(&v4.octets()),
                IpAddr::V6(v6) => out.extend_from_slice(&v6.octets()),
            }
        }
        out
    }
}

impl Writer {
    /// A PATH; a question is as long as it says.
    pub fn path(self, path: &Path) -> Vec<u8> {
        let mut out = self.begin(Kind::Path, 0);
        path.write(&mut out);
        out
    }
}

fn put_map(map: Option<&MapSource<'_>>, room: usize, out: &mut Vec<u8>) -> u32 {
    let Some(map) = map else { return 0 };
    let budget = room.min(CONTROL_LEN_MAX).saturating_sub(out.len());
    trim_map::write_part(map.planes, map.packets, map.offset, map.detail, budget, out)
}
