// SPDX-License-Identifier: Apache-2.0
//! Switches that run the P4 program: what they are given, and the heads of frames that they see.
//!
//! Elsewhere packets are a few numbers. Where one comes to such a switch it gets a head, the
//! Ethernet, IPv4 and UDP headers that a host would write, which goes with it from one such switch
//! to the next as the program leaves it; bodies are lengths here, too. 20 bytes behind UDP stand
//! for the transport's header, which no switch reads.

use super::packet::{Ecn, Head, Kind, Packet, Trimming};
use super::topology::Topology;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use trimwire_fabric::frame::Address;
use trimwire_switch::engine::Pipeline;

/// UDP port of the agents.
const AGENT_PORT: u16 = 9_217;
/// Routers that a packet may meet.
const TTL: u8 = 64;

/// Code points of the fabric's DSCP plan (docs/reference/fabric-file.md): what hosts write, and
/// what switches write into what they trim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodePoints {
    /// Packets that may be trimmed.
    pub trimmable: u8,
    /// Data that may not.
    pub droppable: u8,
    /// Packets that were trimmed, by whatever port; the first is for those that a plain switch has
    /// trimmed.
    pub trimmed: Vec<u8>,
    /// Control packets.
    pub control: u8,
}

/// One switch's program.
#[derive(Clone)]
pub struct SwitchProgram {
    /// The program's numbers of its ports, in the order of its links.
    pub ports: Vec<u16>,
    /// Loaded, with its tables.
    pub pipeline: Arc<Pipeline>,
}

/// Which switches run the P4 program, and what it takes to meet them.
#[derive(Clone)]
pub struct Programs {
    addresses: Arc<[Address]>,
    code_points: CodePoints,
    switches: BTreeMap<u32, SwitchProgram>,
    source: Arc<str>,
}

/// Why programs do not fit a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramsError {
    /// Each host has an address.
    #[error("{given} addresses for {hosts} hosts")]
    Addresses {
        /// Addresses given.
        given: usize,
        /// Hosts of the network.
        hosts: u32,
    },
    /// The network has no such switch.
    #[error("there is no switch {switch}; the network has {switches}, from 0")]
    Switch {
        /// Its number.
        switch: u32,
        /// Switches of the network.
        switches: u32,
    },
    /// Each of a switch's links has a port.
    #[error("switch {switch}: {given} ports for {links} links")]
    Ports {
        /// Its number.
        switch: u32,
        /// Ports given.
        given: usize,
        /// Links that it has.
        links: usize,
    },
    /// Trimmed packets could not be told.
    #[error("no code point says that a packet was trimmed")]
    Trimmed,
}

impl Programs {
    /// Addresses are by host; `source` is what the tables follow from, for whoever compares inputs.
    pub fn new(
        topology: &Topology,
        addresses: Vec<Address>,
        code_points: CodePoints,
        switches: BTreeMap<u32, SwitchProgram>,
        source: &str,
    ) -> Result<Self, ProgramsError> {
        if addresses.len() != topology.hosts as usize {
            return Err(ProgramsError::Addresses { given: addresses.len(), hosts: topology.hosts });
        }
        if code_points.trimmed.is_empty() {
            return Err(ProgramsError::Trimmed);
        }
        for (&switch, program) in &switches {
            if switch >= topology.switches {
                return Err(ProgramsError::Switch { switch, switches: topology.switches });
            }
            let (given, links) = (program.ports.len(), topology.links_of(switch).len());
            if given != links {
                return Err(ProgramsError::Ports { switch, given, links });
            }
        }
        Ok(Self { addresses: addresses.into(), code_points, switches, source: source.into() })
    }

    /// What a switch runs; none where it is a plain one.
    pub(crate) fn of(&self, switch: u32) -> Option<&SwitchProgram> {
        self.switches.get(&switch)
    }

    /// The head that a packet has as its host sends it, or as a plain switch has left it.
    pub(crate) fn head(&self, packet: &Packet) -> Head {
        let addresses = &self.addresses;
        let (from, to) = (addresses[packet.source as usize], addresses[packet.destination as usize]);
        let plan = &self.code_points;
        let dscp = match (packet.kind, packet.trimming) {
            (Kind::Data, Trimming::Trimmable) => plan.trimmable,
            (Kind::Data, Trimming::Plain) => plan.droppable,
            (_, Trimming::Trimmed) => plan.trimmed[0],
            _ => plan.control,
        };
        let ecn = match packet.ecn {
            Ecn::NotEct => 0,
            Ecn::Ect => 2,
            Ecn::Ce => 3,
        };
        let mut bytes = [0; Head::BYTES];
        bytes[..6].copy_from_slice(&to.mac);
        bytes[6..12].copy_from_slice(&from.mac);
        bytes[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip_length = packet.length.saturating_sub(14).min(u16::MAX.into()) as u16;
        // Version and length, DSCP and ECN, total length, no identification, do not fragment, TTL,
        // UDP, checksum.
        bytes[14..16].copy_from_slice(&[0x45, dscp << 2 | ecn]);
        bytes[16..18].copy_from_slice(&ip_length.to_be_bytes());
        bytes[20..24].copy_from_slice(&[0x40, 0, TTL, 17]);
        bytes[26..30].copy_from_slice(&from.ip.octets());
        bytes[30..34].copy_from_slice(&to.ip.octets());
        let checksum = checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        bytes[34..36].copy_from_slice(&packet.entropy.to_be_bytes());
        bytes[36..38].copy_from_slice(&AGENT_PORT.to_be_bytes());
        bytes[38..40].copy_from_slice(&ip_length.saturating_sub(20).to_be_bytes());
        bytes[42..46].copy_from_slice(&packet.flow.to_be_bytes());
        bytes[46..50].copy_from_slice(&packet.number.to_be_bytes());
        Head { bytes, ingress: 0 }
    }

    /// Takes over what the program made of a packet: its length, whether it was trimmed, whether it
    /// was marked.
    pub(crate) fn leave(&self, packet: &mut Packet, frame: &[u8], length: usize) {
        packet.length = length.min(u32::MAX as usize) as u32;
        let Some(head) = &mut packet.head else { return };
        let kept = frame.len().min(Head::BYTES);
        head.bytes[..kept].copy_from_slice(&frame[..kept]);
        let tos = head.bytes[15];
        if self.code_points.trimmed.contains(&(tos >> 2)) {
            packet.trimming = Trimming::Trimmed;
        }
        packet.ecn = match tos & 3 {
            0 => Ecn::NotEct,
            3 => Ecn::Ce,
            _ => Ecn::Ect,
        };
    }
}

/// RFC 1071, over an IPv4 header whose checksum is 0.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Programs are long; what they follow from is not.
impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ports: BTreeMap<u32, &[u16]> =
            self.switches.iter().map(|(&number, switch)| (number, switch.ports.as_slice())).collect();
        f.debug_struct("Programs")
            .field("addresses", &self.addresses)
            .field("code_points", &self.code_points)
            .field("ports", &ports)
            .field("source", &self.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::topology::Shape;
    use std::net::Ipv4Addr;
    use trimwire_fabric::frame;

    fn address(last: u8) -> Address {
        Address { mac: [2, 0, 0, 0, 0, last], ip: Ipv4Addr::new(10, 0, 0, last) }
    }

    fn programs() -> Programs {
        let topology = Shape::Star { hosts: 2, rate_bps: 1_000_000_000, delay_ns: 0 }.topology();
        let plan = CodePoints { trimmable: 3, droppable: 19, trimmed: vec![35], control: 39 };
        Programs::new(&topology, vec![address(1), address(2)], plan, BTreeMap::new(), "a test").unwrap()
    }

    #[test]
    fn a_head_is_what_a_host_writes() {
        let programs = programs();
        for (trimming, kind, ecn, tos) in [
            (Trimming::Trimmable, Kind::Data, Ecn::Ect, 3 << 2 | 2),
            (Trimming::Plain, Kind::Data, Ecn::NotEct, 19 << 2),
            (Trimming::Trimmed, Kind::Data, Ecn::Ce, 35 << 2 | 3),
            (Trimming::Plain, Kind::Ack, Ecn::Ect, 39 << 2 | 2),
        ] {
            let mut packet = Packet::data(7, 9, 1_406);
            (packet.trimming, packet.kind, packet.ecn, packet.entropy) = (trimming, kind, ecn, 50_000);
            let head = programs.head(&packet);
            // The frame that the cluster's hosts would send, but for the checksum over bytes that
            // are not there.
            let payload = vec![0; 1_406 - frame::HEADERS];
            let mut whole = frame::write(address(1), address(2), tos, 50_000, AGENT_PORT, &payload).unwrap();
            whole[40..42].fill(0);
            assert_eq!(head.of(1_406)[..frame::HEADERS], whole[..frame::HEADERS], "{packet:?}");
        }
    }

    #[test]
    fn what_a_program_writes_is_what_the_packet_is() {
        let programs = programs();
        let mut packet = Packet::data(7, 9, 1_406);
        packet.trimming = Trimming::Trimmable;
        packet.head = Some(Box::new(programs.head(&packet)));
        let trimmed =
            frame::write(address(1), address(2), 35 << 2 | 3, 50_000, AGENT_PORT, &[0; 76]).unwrap();
        programs.leave(&mut packet, &trimmed, 118);
        assert_eq!((packet.length, packet.ecn, packet.is_trimmed()), (118, Ecn::Ce, true));
        assert_eq!(packet.head.unwrap().of(118), &trimmed[..62]);
    }

    #[test]
    fn programs_that_do_not_fit_a_network_are_refused() {
        let topology = Shape::Star { hosts: 2, rate_bps: 1_000_000_000, delay_ns: 0 }.topology();
        let plan = CodePoints { trimmable: 3, droppable: 19, trimmed: vec![35], control: 39 };
        let new = |addresses, plan| Programs::new(&topology, addresses, plan, BTreeMap::new(), "");
        let error = new(vec![address(1)], plan.clone()).unwrap_err();
        assert_eq!(error.to_string(), "1 addresses for 2 hosts");
        let error = new(vec![address(1); 2], CodePoints { trimmed: Vec::new(), ..plan }).unwrap_err();
        assert_eq!(error, ProgramsError::Trimmed);
    }
}
