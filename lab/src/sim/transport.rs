// SPDX-License-Identifier: Apache-2.0
//! Transports as sans-IO cores: a sender and a receiver for each flow.
//!
//! A host calls `handle_packet` or `handle_timeout`, then asks `next_send_ns` and `poll_timeout`;
//! when its card is free and `next_send_ns` has come it takes one packet by `poll_transmit`.
//! Connections are open when a flow begins, and its sender knows the round trip of an idle path, as
//! a handshake's packets would have told it.

mod board;
mod dcqcn;
mod dctcp;
mod mlt;
mod ndp;
mod pfabric;
mod planes;
mod trimwire;

use super::packet::{HEAD, Packet};
pub use dcqcn::DcqcnConfig;
pub use mlt::MltConfig;
pub(crate) use planes::{WHOLE, bits, bytes_of, coordinates};
use std::collections::VecDeque;
pub use trimwire::Peers;
use trimwire_agent::rate::RateConfig;

/// One flow, as both ends know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) number: u32,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    /// Of payload, at least 1.
    pub(crate) bytes: u64,
    /// Payload of a whole packet.
    pub(crate) payload: u32,
    /// Round trip of a whole packet and its answer on an idle path.
    pub(crate) base_rtt_ns: u64,
    /// Slower of the two hosts' links.
    pub(crate) rate_bps: u64,
    /// Hosts of the network.
    pub(crate) hosts: u32,
    /// Whether it is what the run is about, and not its background.
    pub(crate) foreground: bool,
    /// Of its layer: 0 is served last, where a transport has queues by layer.
    pub(crate) priority: u8,
    pub(crate) seed: u64,
}

impl Flow {
    pub(crate) fn packets(&self) -> u32 {
        self.bytes.div_ceil(u64::from(self.payload)) as u32
    }

    /// Payload of a packet: the last one is shorter.
    pub(crate) fn payload_of(&self, number: u32) -> u32 {
        let before = u64::from(number) * u64::from(self.payload);
        self.bytes.saturating_sub(before).min(u64::from(self.payload)) as u32
    }

    /// Whole packets that fill the idle path.
    pub(crate) fn window(&self) -> u32 {
        let bytes = u128::from(self.rate_bps) * u128::from(self.base_rtt_ns) / 8_000_000_000;
        (bytes.div_ceil(u128::from(self.payload + HEAD)) as u32).max(1)
    }

    /// A DATA packet.
    pub(crate) fn data(&self, now_ns: u64, number: u32) -> Packet {
        Packet {
            source: self.source,
            destination: self.destination,
            sent_ns: now_ns,
            ..Packet::data(self.number, number, self.payload_of(number) + HEAD)
        }
    }
}

/// What a sender has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    /// Of these, again.
    pub(crate) repairs: u64,
    pub(crate) timeouts: u64,
}

/// The source's end of a flow.
pub(crate) trait Sender: std::fmt::Debug + Send {
    /// An answer has come.
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet);
    /// The time of `poll_timeout` has come.
    fn handle_timeout(&mut self, now_ns: u64);
    /// When the next packet may leave, if there is one: now or earlier, or when pacing allows it.
    fn next_send_ns(&self) -> Option<u64>;
    /// The packet that leaves now.
    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet>;
    /// Earliest timer, beside pacing.
    fn poll_timeout(&self) -> Option<u64>;
    /// Everything was acknowledged.
    fn is_done(&self) -> bool;
    /// Totals.
    fn sent(&self) -> Sent;
    /// The queue of its next packet, for cards that hold some.
    fn class(&self) -> u8 {
        0
    }
    /// Packets that the receiver does not have, for cards that serve the shortest flow first.
    fn left(&self) -> u32;
}

/// The destination's end of a flow.
pub(crate) trait Receiver: std::fmt::Debug + Send {
    /// A packet of the flow has come; answers are added to `out`.
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet, out: &mut VecDeque<Packet>);
    /// The time of `poll_timeout` has come.
    fn handle_timeout(&mut self, _now_ns: u64, _out: &mut VecDeque<Packet>) {}
    /// Earliest timer.
    fn poll_timeout(&self) -> Option<u64> {
        None
    }
    /// The application has what it asked for.
    fn is_complete(&self) -> bool;
    /// The share of the gradient's energy that arrived, 1 where all did.
    fn share_kept(&self) -> f64 {
        1.0
    }
    /// Planes that arrived, by packet; nothing where all of all did.
    fn planes(&self) -> &[u8] {
        &[]
    }
}

/// How much of a flow has to arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Delivery {
    /// Packets may be trimmed, and this share of them be lost, once the sender has asked (the
    /// agent's `Bounded`).
    Trim {
        /// The share.
        loss: f64,
    },
    /// All planes of all packets; packets may be trimmed, and the rest of them is sent again.
    RepairTrimmed,
    /// All packets; they are not trimmed.
    RepairDropped,
}

/// Which transport, with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// DCTCP, with PIAS's tags where there are thresholds.
    Dctcp(DctcpConfig),
    /// pFabric.
    PFabric(PFabricConfig),
    /// NDP.
    Ndp(NdpConfig),
    /// MLT.
    Mlt(MltConfig),
    /// DCQCN.
    Dcqcn(DcqcnConfig),
    /// Ours.
    Trimwire(TrimwireConfig),
    /// Ours, of ranks that know of each other what the runs before this one have told.
    Ranks(TrimwireConfig, Peers),
}

/// DCTCP (SIGCOMM 2010; RFC 8257) over NewReno (RFC 6582) without delayed acknowledgements.
#[derive(Debug, Clone, PartialEq)]
pub struct DctcpConfig {
    /// First window, packets.
    pub initial_window: u32,
    /// Least retransmission time-out.
    pub rto_min_ns: u64,
    /// Duplicates that make a loss.
    pub duplicates: u32,
    /// Weight of the newest window in the estimate of the marked share.
    pub gain: f64,
    /// PIAS (NSDI 2015, §3.2): after so many bytes, ascending, a flow goes one queue down; empty is
    /// DCTCP.
    pub demote_after: Vec<u64>,
    /// Paths are chosen per packet instead of per flow.
    pub spray: bool,
}

impl Default for DctcpConfig {
    fn default() -> Self {
        Self {
            initial_window: 10,
            rto_min_ns: 10_000_000,
            duplicates: 3,
            gain: 1.0 / 16.0,
            demote_after: Vec::new(),
            spray: false,
        }
    }
}

/// pFabric's minimal rate control (SIGCOMM 2013, §4.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PFabricConfig {
    /// Time-out in round trips of the idle path (§5.1: about three).
    pub rto_round_trips: f64,
    /// Least time-out, ns.
    pub rto_min_ns: u64,
    /// Time-outs in a row after which only probes are sent.
    pub probe_after: u32,
}

impl Default for PFabricConfig {
    fn default() -> Self {
        Self { rto_round_trips: 3.0, rto_min_ns: 0, probe_after: 5 }
    }
}

/// NDP (SIGCOMM 2017, §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NdpConfig {
    /// Packets that leave before the first pull; none is what fills the idle path.
    pub initial_window: Option<u32>,
    /// Time after which a packet of which nothing was heard is sent again; none is 1 ms (§3.2.4:
    /// rarely of use).
    pub rto_ns: Option<u64>,
}

/// Our transport, modelled around the agent's own rate laws, pacing, spraying and round-trip
/// estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrimwireConfig {
    /// How much has to arrive.
    pub delivery: Delivery,
    /// How fast packets leave: one of the agent's algorithms, as it is.
    pub law: RateConfig,
    /// The ladder's `shallow_at` over the line rate, as the law is told, ns.
    pub trim_delay_ns: u64,
    /// Share of the packets that is more important, ECT; the others are not.
    pub important: f64,
    /// Bytes on their way to all peers together, of which each flow has the part that an agent's
    /// peer has.
    pub window: u64,
    /// Source ports that are sprayed over; 1 keeps a flow on one path.
    pub paths: u16,
    /// Planes of a whole packet, 1 to 10.
    pub planes: u8,
}

impl TrimwireConfig {
    /// With the numbers that scenarios have where they give none.
    pub fn new(delivery: Delivery, law: RateConfig) -> Self {
        Self {
            delivery,
            law,
            trim_delay_ns: 20_000,
            important: 0.5,
            window: 8 << 20,
            paths: 64,
            planes: planes::WHOLE,
        }
    }
}

impl Transport {
    /// The same, with ranks that go on from run to run as an agent's do, where it is ours.
    pub fn of_a_job(&self, hosts: u32) -> Self {
        match self {
            Self::Trimwire(config) => Self::Ranks(*config, Peers::new(hosts)),
            other => other.clone(),
        }
    }

    /// The two ends of a flow.
    pub(crate) fn sender(&self, flow: Flow, now_ns: u64) -> Box<dyn Sender> {
        match self {
            Self::Dctcp(config) => Box::new(dctcp::DctcpSender::new(flow, config.clone())),
            Self::PFabric(config) => Box::new(pfabric::PFabricSender::new(flow, *config)),
            Self::Ndp(config) => Box::new(ndp::NdpSender::new(flow, *config)),
            Self::Mlt(config) => Box::new(mlt::MltSender::new(flow, *config)),
            Self::Dcqcn(config) => Box::new(dcqcn::DcqcnSender::new(flow, *config)),
            Self::Trimwire(config) => Box::new(trimwire::TrimwireSender::new(flow, *config, now_ns, None)),
            Self::Ranks(config, peers) => {
                Box::new(trimwire::TrimwireSender::new(flow, *config, now_ns, Some(peers)))
            }
        }
    }

    pub(crate) fn receiver(&self, flow: Flow) -> Box<dyn Receiver> {
        match self {
            Self::Dctcp(_) => Box::new(dctcp::DctcpReceiver::new(&flow)),
            Self::PFabric(_) => Box::new(board::EachReceiver::new(&flow)),
            Self::Ndp(config) => Box::new(ndp::NdpReceiver::new(&flow, config)),
            Self::Mlt(config) => Box::new(mlt::MltReceiver::new(&flow, config)),
            Self::Dcqcn(config) => Box::new(dcqcn::DcqcnReceiver::new(&flow, config)),
            Self::Trimwire(config) | Self::Ranks(config, _) => {
                Box::new(trimwire::TrimwireReceiver::new(flow, config))
            }
        }
    }

    /// Whether hosts serve the flow with the fewest packets left first.
    pub(crate) fn shortest_first(&self) -> bool {
        matches!(self, Self::PFabric(_))
    }
}
