// SPDX-License-Identifier: Apache-2.0
//! What travels: the head of a frame, and its length. Bodies are not simulated; a trim changes the
//! length.

/// Bytes in front of what a DATA packet carries, the same for all transports so that they are
/// compared at equal payloads: Ethernet 14, IPv4 20, UDP 8, 20 of the transport
/// (docs/reference/wire-format.md's header; TCP's is as long as UDP's and 12 of that).
pub const HEAD: u32 = 62;
/// Bytes of a packet that carries nothing: acknowledgements, pulls, probes.
pub(crate) const CONTROL: u32 = 64;
/// The queue of control packets where a port has several; the highest is served first.
pub(crate) const CONTROL_CLASS: u8 = 7;
/// Queues of a port with strict priority.
pub(crate) const PRIORITIES: usize = 8;

/// What a packet is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Part of a flow.
    Data,
    /// What arrived.
    Ack,
    /// A packet arrived without its payload (NDP).
    Nack,
    /// A header that found no room, on its way back to its sender (NDP).
    Returned,
    /// The sender may send one more packet (NDP).
    Pull,
    /// Asks what arrived.
    Probe,
    /// Answers a probe.
    Status,
    /// The receiver has the flow.
    Final,
    /// Packets of the flow were marked (DCQCN's congestion notification).
    Cnp,
    /// Of a link and not of a flow: the other end holds a priority, or goes on (PFC).
    Pause,
}

/// RFC 3168's code points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable; with MLT §5.2, less important.
    NotEct,
    /// Capable.
    Ect,
    /// Congestion was experienced.
    Ce,
}

/// What switches may do to a packet besides forwarding, marking and dropping it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trimming {
    /// Nothing.
    Plain,
    /// Trim it.
    Trimmable,
    /// It was trimmed, and is not again.
    Trimmed,
}

/// What became of one DATA packet, as a receiver reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) number: u32,
    /// Planes that the receiver has of it.
    pub(crate) planes: u8,
    pub(crate) trimmed: bool,
    pub(crate) marked: bool,
    pub(crate) entropy: u16,
    /// How long the receiver has held the report back.
    pub(crate) held_ns: u32,
    /// When it left.
    pub(crate) sent_ns: u64,
}

/// The beginning of a frame, as switches with a program see it, and the port of the switch that it
/// is on its way to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) bytes: [u8; Self::BYTES],
    pub(crate) ingress: u16,
}

impl Head {
    pub(crate) const BYTES: usize = HEAD as usize;

    /// As much of it as a frame of so many bytes has.
    pub(crate) fn of(&self, length: u32) -> &[u8] {
        &self.bytes[..Self::BYTES.min(length as usize)]
    }
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// The flow, by its number in the run.
    pub flow: u32,
    /// DATA: its number in the flow. Answers: what they are about.
    pub number: u32,
    /// Bytes of the whole frame as it is now.
    pub length: u32,
    /// pFabric's priority, the packets that the flow has left (0 is served first); in repairs of
    /// trimmed packets, the payload's bytes that were left out; NDP: how often the packet was
    /// returned.
    pub rank: u32,
    /// Host that sends it.
    pub source: u32,
    /// Host that gets it.
    pub destination: u32,
    /// What switches choose among equal paths by, beside the flow.
    pub entropy: u16,
    /// What it is for.
    pub kind: Kind,
    /// Queue where a port has several.
    pub class: u8,
    /// Marks.
    pub ecn: Ecn,
    /// In answers: whether the packet that is answered was marked; in pause frames: whether to
    /// hold.
    pub echo: bool,
    /// Whether it may be trimmed.
    pub trimming: Trimming,
    /// In what a host sends to a flow's source: flows that are arriving at it; 0 elsewhere.
    pub senders: u16,
    /// The port at which the switch that it goes to gets it, by the port's place, where PFC counts
    /// by ports; 0 elsewhere.
    pub(crate) ingress: u16,
    /// When it left its sender, ns; in answers, when the packet did that is answered.
    pub sent_ns: u64,
    /// What arrived, where one answer tells it of several packets. A box of a list is half as long
    /// here, and most packets have none.
    #[expect(clippy::box_collection, reason = "packets are short")]
    pub(crate) reports: Option<Box<Vec<Report>>>,
    /// As switches with a program see it.
    pub(crate) head: Option<Box<Head>>,
}

impl Packet {
    /// A whole packet of DATA of so many bytes, ECN-capable and not to be trimmed, from host 0 to
    /// host 1.
    pub fn data(flow: u32, number: u32, length: u32) -> Self {
        Self {
            flow,
            number,
            length,
            rank: 0,
            source: 0,
            destination: 1,
            entropy: 0,
            kind: Kind::Data,
            class: 0,
            ecn: Ecn::Ect,
            echo: false,
            trimming: Trimming::Plain,
            senders: 0,
            ingress: 0,
            sent_ns: 0,
            reports: None,
            head: None,
        }
    }

    /// The packet that answers this one, to its sender.
    pub(crate) fn answer(&self, kind: Kind, number: u32) -> Self {
        Self {
            flow: self.flow,
            number,
            length: CONTROL,
            rank: 0,
            source: self.destination,
            destination: self.source,
            entropy: self.entropy,
            kind,
            class: CONTROL_CLASS,
            ecn: Ecn::Ect,
            echo: self.ecn == Ecn::Ce,
            trimming: Trimming::Plain,
            senders: 0,
            ingress: 0,
            sent_ns: self.sent_ns,
            reports: None,
            head: None,
        }
    }

    /// A PFC frame for the other end of a link: it holds a priority, or goes on.
    pub(crate) fn pause(class: u8, hold: bool) -> Self {
        Self { kind: Kind::Pause, class, echo: hold, ecn: Ecn::NotEct, ..Self::data(0, 0, CONTROL) }
    }

    /// What a switch sends back when it has no room for the header either.
    pub(crate) fn returned(&self) -> Self {
        Self {
            length: self.length.min(HEAD),
            trimming: Trimming::Trimmed,
            ..self.answer(Kind::Returned, self.number)
        }
    }

    /// Whether it was trimmed on its way.
    pub fn is_trimmed(&self) -> bool {
        self.trimming == Trimming::Trimmed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_takes_no_more_memory_than_a_cache_line() {
        assert!(size_of::<Packet>() <= 64, "{}", size_of::<Packet>());
    }
}
