// SPDX-License-Identifier: Apache-2.0
//! What an endpoint can be told.
#![forbid(unsafe_code)]

use crate::rate::{DctcpConfig, RateConfig};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use trimwire_encoder::{HeaderMask, SealKey};

/// Bytes of the longest IP packet that an interface has to carry: every host has to take IPv4
/// packets of this size (RFC 791 §3.1).
pub const MTU_LEAST: u16 = 576;
/// Of the longest that is sent; jumbo frames of any switch carry it.
pub const MTU_MOST: u16 = 9_216;

/// How much of a message has to arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reliability {
    /// A trimmed packet counts as delivered, and up to this share of a message's packets, in [0,
    /// 1), may be missing altogether (MLT §4.2.3's p). Missing packets are repaired until the bound
    /// holds.
    Bounded {
        /// The share.
        loss: f32,
    },
    /// Every plane of every packet arrives: what did not is sent again. This is the "drop +
    /// retransmit" that trimming is compared with: selective repeat with exact bitmaps, losses
    /// found by order (RACK, RFC 8985) one round trip after the last packet, time-outs from
    /// measured round trips.
    Full,
}

/// What switches may do with DATA under congestion (ARCHITECTURE.md, data flow).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// Trim it.
    Trimmable,
    /// Drop it: MLT's plain packets, and conventional transports.
    Droppable,
}

/// DSCP values (6 bits), by the words of UEC and SONiC. The defaults are of RFC 2474 §6 pool 2
/// (xxxx11, local use).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DscpPlan {
    /// Data that may be trimmed, by class; class 0 (front layers) is served first.
    pub trimmable: [u8; 4],
    /// Data that may only be dropped, by class.
    pub droppable: [u8; 4],
    /// What a switch writes on the packets it trimmed.
    pub trimmed: u8,
    /// The same, written by the switch that the receiver is attached to (UEC's TRIMMED_LASTHOP):
    /// what is congested there is the receiver's own link, which no other path avoids.
    pub trimmed_last_hop: u8,
    /// Control packets.
    pub control: u8,
}

impl Default for DscpPlan {
    fn default() -> Self {
        Self {
            trimmable: [3, 7, 11, 15],
            droppable: [19, 23, 27, 31],
            trimmed: 35,
            trimmed_last_hop: 43,
            control: 39,
        }
    }
}

/// Time-outs of a transfer, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeoutConfig {
    /// Wait for an answer before any round trip was measured.
    pub initial_ns: u64,
    /// Wait for an answer at least so long (RFC 6298 §2.4's minimum RTO). Default 1 ms: what data
    /// centres tune TCP to (Vasudevan et al., SIGCOMM'09), against Linux's 200 ms. It bounds the
    /// wait for *control* packets only; lost data is found without it.
    pub min_ns: u64,
    /// Waits double up to this, or up to the round trip where that takes longer.
    pub max_ns: u64,
    /// A packet counts as lost at least so long after it was sent, where no later packet's arrival
    /// shows it.
    pub min_loss_delay_ns: u64,
    /// Data that has arrived is acknowledged at the latest after this time.
    pub ack_delay_ns: u64,
    /// A peer of whose messages nothing has come for so long is asked for a sign of life.
    pub keep_alive_ns: u64,
    /// A transfer fails when the peer has answered nothing for so long although it was asked.
    pub give_up_ns: u64,
    /// A transfer fails after this time if the peer answers, but its application never asks for the
    /// message or never sends the expected one. So it does if a peer never comes up. Longer than
    /// the longest pause of a healthy rank: ranks write checkpoints.
    pub patience_ns: u64,
}

impl Default for TimeoutConfig {
    fn default() -> Self {
        Self {
            initial_ns: 1_000_000,
            min_ns: 1_000_000,
            max_ns: 100_000_000,
            min_loss_delay_ns: 20_000,
            ack_delay_ns: 25_000,
            keep_alive_ns: 1_000_000_000,
            give_up_ns: 10_000_000_000,
            patience_ns: 1_800_000_000_000,
        }
    }
}

/// One rank's transport.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// This rank, below `world`.
    pub rank: u16,
    /// The job, 0 to 63. Datagrams of other jobs are ignored.
    pub job: u8,
    /// Ranks of the job, at most 1,024.
    pub world: u16,
    /// A number, not 0, that no endpoint had before under this rank: drawn at random, or given by
    /// whoever starts the job. It tells packets from
    /// before a restart.
    pub incarnation: u32,
    /// Where the other ranks listen. A rank that is not among them is where its first answer to our
    /// HELLO comes from.
    pub peers: BTreeMap<u16, SocketAddr>,
    /// Incarnations of other ranks, if a rendezvous has agreed on them. Such a rank is believed
    /// under its own incarnation only, and knows this rank from the first HELLO on.
    pub incarnations: BTreeMap<u16, u32>,
    /// Key of a sealed job: DATA is believed only with its tags, control packets only with theirs.
    pub seal: Option<SealKey>,
    /// Speed of the network card, bit/s; all datagrams together stay below it.
    pub line_rate_bps: u64,
    /// Hold data back that would leave faster than the card's speed. In virtual time the card is
    /// ours; a real one, and the system's queue in front of it, hold back what is too fast by
    /// themselves, and keep the wire busy while this thread is not.
    pub pace_at_line: bool,
    /// Rate algorithm, one instance per peer.
    pub rate: RateConfig,
    /// How much has to arrive.
    pub reliability: Reliability,
    /// What may happen to it on the way.
    pub traffic: Traffic,
    /// UDP source ports over which DATA is sprayed, at most 256: the entropy that makes switches
    /// choose a path.
    pub source_ports: Vec<u16>,
    /// All addresses of this rank if it has several interfaces: at most 8, of one family. Path p
    /// leaves from address p modulo their number and goes to the peer's of the same index, which a
    /// HELLO tells. Empty for one interface.
    pub addresses: Vec<IpAddr>,
    /// The address that this rank listens on first, as errors tell it; `None`: the system chooses.
    /// A driver fills it in.
    pub own: Option<IpAddr>,
    /// Packets that take one path before another is chosen: what leaves from one socket costs one
    /// system call.
    pub packets_per_path: u32,
    /// DSCP values.
    pub dscp: DscpPlan,
    /// Seed of the spraying.
    pub seed: u64,
    /// Time-outs.
    pub timeouts: TimeoutConfig,
    /// One ACK per so many data packets (MLT §4.2.3: ten).
    pub ack_every: u32,
    /// Bytes of DATA that may be on their way to all peers together, and as many from all peers:
    /// each has an equal part, [`Self::window_bytes`], and, of messages that it has asked for, at
    /// least what its path holds. What arrives before the application expects it is kept up to
    /// twice that part.
    pub window: u64,
    /// Bytes that wait in a rank's sockets at most: no more are on their way to all peers together.
    /// A driver fills in what its link was granted, and takes the other ranks' to be alike.
    pub sockets_hold: u64,
    /// Time of a burst at the peer's rate, ns; a burst has at least one packet. A queue that is
    /// about to trim still has room for it. Up to four times as long, at most 40 µs, on paths that
    /// have been calm ([`Pacer::heard`](crate::pacing::Pacer::heard)).
    pub burst_wire_ns: u64,
    /// Time of a queue that switches are about to trim: the ladder's `shallow_at` over the link's
    /// rate.
    pub trim_delay_ns: u64,
    /// What the host adds to a round trip: timers, scheduler. 0 in virtual time.
    pub host_jitter_ns: u64,
    /// Time for which a late caller may catch up by sending faster, ns. 0 in virtual time; a socket
    /// driver sets it to the granularity of its timers.
    pub burst_ns: u64,
    /// Bytes of the longest IP packet that this rank's interfaces carry, 576 to 9,216: paths are
    /// asked whether they carry as much, and DATA that is too long for one goes in pieces. `None`:
    /// paths are taken to carry whatever is sent, as in virtual time. A driver fills in what its
    /// link says.
    pub mtu: Option<u16>,
    /// Bytes that a payload grows by on its way to the wire, for pacing: Ethernet 14, IPv4 20, UDP
    /// 8.
    pub overhead_bytes: u16,
}

impl EndpointConfig {
    /// A rank of a job of `world` ranks with everything else at its default: bounded loss of 1 %,
    /// trimmable data, the DCTCP-like algorithm, which hears of trims, marks and losses, and not of
    /// what hosts' schedulers add to delays.
    pub fn new(rank: u16, world: u16, line_rate_bps: u64) -> Self {
        Self {
            rank,
            job: 0,
            world,
            line_rate_bps,
            rate: RateConfig::Dctcp(DctcpConfig::default()),
            reliability: Reliability::Bounded { loss: 0.01 },
            traffic: Traffic::Trimmable,
            source_ports: (49_152..49_152 + 64).collect(),
            pace_at_line: true,
            addresses: Vec::new(),
            own: None,
            packets_per_path: 1,
            incarnation: u32::from(rank) + 1,
            peers: BTreeMap::new(),
            incarnations: BTreeMap::new(),
            seal: None,
            dscp: DscpPlan::default(),
            seed: 0,
            timeouts: TimeoutConfig::default(),
            ack_every: 10,
            window: 8 << 20,
            sockets_hold: u64::MAX,
            burst_wire_ns: 0,
            trim_delay_ns: 20_000,
            host_jitter_ns: 0,
            burst_ns: 0,
            mtu: None,
            overhead_bytes: 42,
        }
    }

    /// The configuration of channel `channel` of `channels`, each with an endpoint of its own. It
    /// has its part of the line and the window. Ports are higher by its number, and incarnations
    /// follow from those of the first channel, so that packets of one channel are foreign to the
    /// others.
    ///
    /// # Errors
    /// The rank whose port would be above 65,535.
    pub fn channel(mut self, channel: u16, channels: u16) -> Result<Self, u16> {
        let divisor = u64::from(channels.max(1));
        self.line_rate_bps = (self.line_rate_bps / divisor).max(1);
        self.window /= divisor;
        self.incarnation = channel_incarnation(self.incarnation, channel);
        for incarnation in self.incarnations.values_mut() {
            *incarnation = channel_incarnation(*incarnation, channel);
        }
        for (&rank, address) in &mut self.peers {
            *address = channel_address(*address, channel).ok_or(rank)?;
        }
        self.seed ^= u64::from(channel) << 48;
        Ok(self)
    }

    /// The mask over the headers of an incarnation's DATA. None in a sealed job, where tags tell
    /// the sender.
    pub fn mask_of(&self, incarnation: u32) -> HeaderMask {
        if self.seal.is_some() { HeaderMask::NONE } else { HeaderMask::of(incarnation) }
    }

    /// The own address that a path leaves from; `None`: the system chooses.
    pub fn own_of(&self, path: u16) -> Option<IpAddr> {
        let at = usize::from(path).checked_rem(self.addresses.len());
        at.and_then(|at| self.addresses.get(at)).copied().or(self.own)
    }

    fn part_of(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.world.saturating_sub(1).max(1))
    }

    /// The most that may be on its way to one peer.
    pub fn window_most(&self) -> u64 {
        self.window.min(self.part_of(self.sockets_hold)).max(self.window_bytes())
    }

    /// One peer's part of the window: at least what a handful of packets take.
    pub fn window_bytes(&self) -> u64 {
        self.part_of(self.window.min(self.sockets_hold)).max(24_000).max(4 * u64::from(self.mtu.unwrap_or(0)))
    }
}

/// The incarnation of a channel, from that of the rank's first channel. Keys of sealed packets, and
/// masks, depend on incarnations.
pub fn channel_incarnation(first: u32, channel: u16) -> u32 {
    // An odd factor: no two channels of a rank have one incarnation, unless it were 0.
    (first ^ u32::from(channel).wrapping_mul(0x9e37_79b1)).max(1)
}

/// Where a channel of the rank listens whose first channel listens there; `None` above 65,535.
pub fn channel_address(first: SocketAddr, channel: u16) -> Option<SocketAddr> {
    first.port().checked_add(channel).map(|port| SocketAddr::new(first.ip(), port))
}
