// SPDX-License-Identifier: Apache-2.0
//! Datagrams whose fate tells what the way does to them.

use crate::gradient::gaussian;
use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;
use trimwire_agent::burst::{Burst, Origin};
use trimwire_agent::driver::{Clock, Link as _, UdpLink};
use trimwire_agent::endpoint::DscpPlan;
use trimwire_encoder::wire::{Header, StreamId};
use trimwire_encoder::{DEFAULT_COORDINATES_PER_PACKET, Encoder, Envelope, Job, Layout, Message, PLANES};

const MAGIC: &[u8; 8] = b"twdoctor";
const LENGTH: usize = MAGIC.len() + 4;
/// So many of each small datagram: one may be lost.
const TIMES: u32 = 3;
/// IP packets that are tried, bytes, up to what the interface takes.
const SIZES: [u32; 7] = [576, 1_280, 1_400, 1_450, 1_500, 4_000, 9_000];
/// Coordinates of the burst: 2,048 packets, 2.8 MB.
const COORDINATES: usize = 28 << 15;
const MESSAGE: u32 = 0x00d0_c704;
/// Packets on one path, before another source port is taken.
const TOGETHER: usize = 16;
/// Between two that are not to meet in any queue.
const PAUSE_NS: u64 = 2_000_000;
/// All is sent, and nothing has come for so long: that was all. What was sent first arrives about
/// as early as the word that says so.
const QUIET_NS: u64 = 300_000_000;
/// Longest that an end counts, whatever comes and whatever is said: senders that vanish do not say
/// that they have sent.
const LONGEST_NS: u64 = 30_000_000_000;
/// Longest that a round trip may take.
const TRIP_NS: u64 = 100_000_000;
/// After so many lost round trips no more are tried: the path is known to be broken.
const LOST_MOST: usize = 20;

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Probe {
    /// Small datagrams of every DSCP of the plan.
    Dscp,
    /// Datagrams of several sizes.
    Sizes,
    /// Trimmable DATA, at the card's rate.
    Burst,
}

/// What came.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// What a small datagram says of itself (its DSCP, its size) → DSCPs that it came with.
    pub(super) small: BTreeMap<u32, Vec<u8>>,
    /// DATA that came whole, trimmed, and of the latter with a DSCP that says so.
    pub(super) whole: u64,
    pub(super) trimmed: u64,
    pub(super) marked: u64,
    /// Lost in this host's own receive buffer.
    pub(super) overflowed: u64,
}

/// What probes are sent from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Card {
    /// Longest IP packet, bytes.
    pub(super) mtu: u32,
    /// Bit/s of a burst.
    pub(super) rate_bps: u64,
}

/// DATA as ranks send it, the same at both ends.
pub(super) struct Packets {
    message: Message,
}

impl Packets {
    pub(super) fn new() -> anyhow::Result<Self> {
        let layout = Layout::new(COORDINATES, DEFAULT_COORDINATES_PER_PACKET)?;
        // A job of its own: an agent that hears of it counts it as foreign.
        let stream = StreamId::new(StreamId::MAX_JOB, StreamId::MAX_RANK).context("the last rank")?;
        let mut message = Message::default();
        let envelope = Envelope { stream, message: MESSAGE };
        let values = gaussian(COORDINATES, 1, 0, 0);
        Encoder::new(layout, Job::new(1)).encode(&values, envelope, PLANES, &mut message)?;
        Ok(Self { message })
    }

    pub(super) fn count(&self) -> u64 {
        self.message.packets() as u64
    }
}

fn small(value: u32, length: usize) -> Bytes {
    let mut payload = BytesMut::with_capacity(length.max(LENGTH));
    payload.put_slice(MAGIC);
    payload.put_u32(value);
    payload.resize(length.max(LENGTH), 0);
    payload.freeze()
}

/// All DSCPs of a plan that hosts send.
pub(super) fn plan() -> Vec<u8> {
    let DscpPlan { trimmable, droppable, control, .. } = DscpPlan::default();
    trimmable.into_iter().chain(droppable).chain([control]).collect()
}

/// Sizes of IP packets that are tried where an interface takes so many bytes.
pub(super) fn sizes(mtu: u32) -> Vec<u32> {
    SIZES.into_iter().filter(|&size| size <= mtu).collect()
}

impl Probe {
    /// Sends it.
    pub(super) fn send(
        self,
        link: &mut UdpLink,
        to: SocketAddr,
        packets: &Packets,
        Card { mtu, rate_bps }: Card,
    ) -> anyhow::Result<()> {
        let one = |tos: u8, payload: Bytes| Burst {
            to,
            origin: Origin::Path(0),
            tos,
            segment: payload.len(),
            payload,
        };
        let headers = if to.is_ipv4() { 28 } else { 48 };
        let dscp = DscpPlan::default();
        let mut batch = VecDeque::new();
        match self {
            Self::Dscp => {
                for dscp in plan() {
                    batch.extend((0..TIMES).map(|_| one(dscp << 2, small(dscp.into(), LENGTH))));
                }
            }
            Self::Sizes => {
                for size in sizes(mtu) {
                    let payload = small(size, (size - headers) as usize);
                    batch.extend((0..TIMES).map(|_| one(dscp.control << 2, payload.clone())));
                }
            }
            Self::Burst => {
                for index in 0..packets.message.packets() {
                    let payload = Bytes::copy_from_slice(packets.message.packet(index));
                    let origin = Origin::Path((index / TOGETHER) as u16);
                    batch.push_back(Burst { origin, ..one(dscp.trimmable[0] << 2, payload) });
                }
            }
        }
        let clock = Clock::start();
        let mut due_ns = 0;
        for burst in batch {
            // A card holds back what is too fast for it; a software switch loses it before its
            // queues.
            while clock.now_ns() < due_ns {
                std::thread::sleep(Duration::from_nanos(due_ns - clock.now_ns().min(due_ns)));
            }
            due_ns += match self {
                Self::Burst => burst.payload.len() as u64 * 8_000_000_000 / rate_bps.max(1),
                Self::Dscp | Self::Sizes => PAUSE_NS,
            };
            all(link, &mut VecDeque::from([burst]))?;
        }
        Ok(())
    }
}

/// Sends all of a batch, however long that takes.
fn all(link: &mut UdpLink, batch: &mut VecDeque<Burst>) -> anyhow::Result<()> {
    while !batch.is_empty() {
        link.send(batch)?;
        if !batch.is_empty() {
            link.wait(1_000_000, true)?;
        }
    }
    Ok(())
}

/// Counts what comes until all is sent and nothing more comes; with `echo` small datagrams go back
/// where they came from.
///
/// `is_sent` says whether the sender has said that it is done: however late a busy sender begins,
/// it is waited for.
pub(super) fn tally(
    link: &mut UdpLink,
    packets: &Packets,
    echo: bool,
    mut is_sent: impl FnMut() -> bool,
) -> anyhow::Result<Tally> {
    let clock = Clock::start();
    let plan = DscpPlan::default();
    let overflowed = link.stats().overflowed;
    let (mut tally, mut until_ns) = (Tally::default(), None);
    loop {
        // Before what waits is taken: a reader that was held up takes it all before it ends.
        let now_ns = clock.now_ns();
        let mut back = VecDeque::new();
        let count = link.receive(&mut |arrived, payload| {
            let dscp = arrived.tos >> 2;
            if let Some(value) = payload.strip_prefix(MAGIC).and_then(<[u8]>::first_chunk) {
                let came = tally.small.entry(u32::from_be_bytes(*value)).or_default();
                if !came.contains(&dscp) {
                    came.push(dscp);
                }
                if echo {
                    let (payload, segment) = (Bytes::copy_from_slice(payload), payload.len());
                    let (to, origin) = (arrived.source, Origin::Listening(0));
                    back.push_back(Burst { to, origin, tos: plan.control << 2, payload, segment });
                }
                return;
            }
            let Ok(header) = Header::parse(payload) else { return };
            if header.prefix.message != MESSAGE {
                return;
            }
            let trimmed = payload.len() < packets.message.packet(header.index as usize).len();
            tally.whole += u64::from(!trimmed);
            tally.trimmed += u64::from(trimmed);
            tally.marked += u64::from(trimmed && [plan.trimmed, plan.trimmed_last_hop].contains(&dscp));
        })?;
        link.send(&mut back)?;
        if now_ns > LONGEST_NS {
            break;
        }
        if count > 0 {
            until_ns = None;
            continue;
        }
        if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
            break;
        }
        if until_ns.is_none() && is_sent() {
            until_ns = Some(clock.now_ns() + QUIET_NS);
        }
        link.wait(10_000_000, false)?;
    }
    tally.overflowed = link.stats().overflowed - overflowed;
    Ok(tally)
}

/// Round trips, ns, of so many datagrams, one after the other, and how many were tried; those that
/// took too long are none.
pub(super) fn round_trips(
    link: &mut UdpLink,
    to: SocketAddr,
    times: usize,
) -> anyhow::Result<(Vec<u64>, usize)> {
    let clock = Clock::start();
    let (mut trips, mut tried) = (Vec::new(), 0);
    while tried < times && tried - trips.len() < LOST_MOST {
        tried += 1;
        let sent_ns = clock.now_ns();
        let payload = small(0, LENGTH);
        let (tos, origin, segment) = (DscpPlan::default().control << 2, Origin::Listening(0), payload.len());
        link.send(&mut VecDeque::from([Burst { to, origin, tos, payload, segment }]))?;
        while clock.now_ns() < sent_ns + TRIP_NS {
            let mut back = false;
            link.receive(&mut |_, payload| back |= payload.starts_with(MAGIC))?;
            if back {
                trips.push(clock.now_ns() - sent_ns);
                break;
            }
            link.wait(5_000_000, false)?;
        }
    }
    Ok((trips, tried))
}
