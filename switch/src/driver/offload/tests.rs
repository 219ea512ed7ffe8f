// SPDX-License-Identifier: Apache-2.0
//! What comes of bursts, held against etherparse's reading of every frame, and damaged ones.
//! `tests/driver_bursts.rs` has the kernel's.

use super::{Burst, Offload, Refusal};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;
use trimwire_bmv2_tests::packets::{self, Recipe};

const MOST: usize = 9_230;

fn recipes() -> impl Strategy<Value = Recipe> {
    let tags = prop_oneof![
        Just(vec![]),
        any::<u16>().prop_map(|value| vec![[0x8100, value]]),
        any::<[u16; 2]>().prop_map(|[outer, inner]| vec![[0x88a8, outer], [0x8100, inner]]),
    ];
    let ip = (any::<bool>(), 0usize..3, 0usize..3, any::<u8>(), any::<u16>());
    let transport = (proptest::option::of(any::<u8>()), 0usize..11, any::<u32>());
    let payload = (48usize..3_000, vec(any::<u8>(), 1..20_000));
    (tags, ip, transport, payload).prop_map(
        |(tags, ip, (tcp_flags, options, sequence), (segment, payload))| {
            let (is_v6, ip_options, extension, dscp_ecn, id) = ip;
            Recipe {
                tags,
                is_v6,
                ip_options: if is_v6 { 0 } else { 4 * ip_options },
                tcp_options: 4 * options,
                extension: if is_v6 { extension } else { 0 },
                tcp_flags,
                dscp_ecn,
                id,
                sequence,
                segment,
                payload,
            }
        },
    )
}

/// The frames of a burst, and how many it said that there are.
fn split(offload: &Offload, frame: &mut [u8]) -> Result<(usize, Vec<Vec<u8>>), Refusal> {
    let burst = Burst::parse(frame, frame.len(), offload, MOST)?;
    let mut frames = Vec::new();
    burst.split(frame, |frame| frames.push(frame.to_vec()));
    Ok((burst.frames(), frames))
}

proptest! {
    #[test]
    fn every_frame_of_a_burst_is_a_packet_of_its_own_and_together_they_carry_its_payload(recipe in recipes()) {
        let packets::Burst { offload, mut frame, headers, segment } = recipe.burst();
        let (count, frames) = split(&Offload::of(offload), &mut frame).unwrap();
        prop_assert_eq!((frames.len(), count), (recipe.payload.len().div_ceil(segment), count));
        let mut carried = Vec::new();
        for (i, frame) in frames.iter().enumerate() {
            prop_assert!(frame.len() <= headers + segment);
            let packet = SlicedPacket::from_ethernet(frame).unwrap();
            let transport = packet.transport.clone().unwrap();
            let payload = match &transport {
                TransportSlice::Tcp(tcp) => tcp.payload(),
                TransportSlice::Udp(udp) => udp.payload(),
                other => panic!("{other:?}"),
            };
            let sum = |checksum: Result<u16, _>| -> u16 { checksum.ok().unwrap() };
            let (right, found) = match (packet.net.as_ref().unwrap(), &transport) {
                (NetSlice::Ipv4(ip), transport) => {
                    let header = ip.header();
                    prop_assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
                    prop_assert_eq!(header.identification(), recipe.id.wrapping_add(i as u16));
                    prop_assert_eq!(usize::from(header.total_len()), frame.len() - 14 - 4 * recipe.tags.len());
                    match transport {
                        TransportSlice::Tcp(tcp) => (
                            sum(tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())),
                            tcp.checksum(),
                        ),
                        TransportSlice::Udp(udp) => (
                            udp.to_header().calc_checksum_ipv4(&header.to_header(), payload).unwrap(),
                            udp.checksum(),
                        ),
                        other => panic!("{other:?}"),
                    }
                }
                (NetSlice::Ipv6(ip), transport) => {
                    let header = ip.header().to_header();
                    prop_assert_eq!(usize::from(header.payload_length), frame.len() - 54 - 4 * recipe.tags.len());
                    match transport {
                        TransportSlice::Tcp(tcp) => (
                            tcp.to_header().calc_checksum_ipv6(&header, payload).unwrap(),
                            tcp.checksum(),
                        ),
                        TransportSlice::Udp(udp) => {
                            (udp.to_header().calc_checksum_ipv6(&header, payload).unwrap(), udp.checksum())
                        }
                        other => panic!("{other:?}"),
                    }
                }
                (other, _) => panic!("{other:?}"),
            };
            // All ones and all zeroes are the same number.
            prop_assert_eq!(right % 0xffff, found % 0xffff);
            if let (TransportSlice::Tcp(tcp), Some(flags)) = (&transport, recipe.tcp_flags) {
                let is_last = i + 1 == frames.len();
                prop_assert_eq!(tcp.sequence_number(), recipe.sequence.wrapping_add((i * segment) as u32));
                prop_assert_eq!((tcp.fin(), tcp.psh()), (is_last && flags & 1 != 0, is_last && flags & 8 != 0));
                prop_assert_eq!(tcp.cwr(), i == 0 && flags & 0x80 != 0);
                prop_assert_eq!((tcp.ack(), tcp.ece()), (flags & 0x10 != 0, flags & 0x40 != 0));
            }
            carried.extend_from_slice(payload);
        }
        prop_assert!(carried == recipe.payload);
    }

    #[test]
    fn damaged_bursts_are_refused_or_cut_into_frames_no_longer_than_was_said(
        recipe in recipes(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        said in vec((0usize..10, any::<u8>()), 0..3),
        left in any::<prop::sample::Index>(),
        is_short in any::<bool>(),
    ) {
        let packets::Burst { mut offload, mut frame, headers, .. } = recipe.burst();
        for (at, byte) in damage {
            // Payloads are nobody's business.
            frame[at.index(headers)] ^= byte;
        }
        said.into_iter().for_each(|(at, byte)| offload[at] = byte);
        if is_short {
            frame.truncate(left.index(frame.len()));
        }
        let offload = Offload::of(offload);
        if let Ok((count, frames)) = split(&offload, &mut frame) {
            prop_assert_eq!(frames.len(), count);
            prop_assert!(frames.iter().all(|frame| frame.len() <= MOST.min(super::MOST_HEADERS + offload.segment)));
            prop_assert!(count <= super::MOST_FRAMES);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_split(offload in any::<[u8; 10]>(), mut frame in vec(any::<u8>(), 0..300), length in 0usize..70_000) {
        let offload = Offload::of(offload);
        if let Ok((count, frames)) = split(&offload, &mut frame) {
            prop_assert!(frames.len() == count && frames.iter().all(|frame| frame.len() <= MOST));
        }
        offload.finish(&mut frame);
        // Of a frame whose end nobody has.
        let _ = Burst::parse(&frame, length, &offload, MOST);
    }
}

#[test]
fn what_is_refused_says_why() {
    let plain =
        Recipe { tcp_flags: Some(0x10), segment: 1_000, payload: vec![7; 5_000], ..Recipe::default() };
    let refusal = |change: &dyn Fn(&mut packets::Burst)| {
        let mut burst = plain.burst();
        change(&mut burst);
        split(&Offload::of(burst.offload), &mut burst.frame).unwrap_err()
    };
    assert_eq!(refusal(&|burst| burst.offload[1] = 3), Refusal::Kind(3), "fragments of one datagram");
    assert_eq!(refusal(&|burst| burst.offload[0] = 0), Refusal::Kind(1), "whole checksums");
    assert_eq!(refusal(&|burst| burst.offload[4..6].fill(0)), Refusal::Kind(1), "no length of a segment");
    assert_eq!(refusal(&|burst| burst.offload[1] = 4), Refusal::Headers, "TCP over IPv6 that is over IPv4");
    assert_eq!(refusal(&|burst| burst.frame[23] = 17), Refusal::Headers, "TCP in UDP");
    assert_eq!(refusal(&|burst| burst.frame[20] |= 0x20), Refusal::Headers, "a fragment");
    assert_eq!(refusal(&|burst| burst.frame[46] = 0x40), Refusal::Headers, "a TCP header of 16 bytes");
    assert_eq!(
        refusal(&|burst| burst.offload[6..8].copy_from_slice(&84u16.to_ne_bytes())),
        Refusal::Headers,
        "a tunnel"
    );
    assert_eq!(refusal(&|burst| burst.frame.truncate(50)), Refusal::Headers, "half a header");
    assert_eq!(refusal(&|burst| burst.offload[4..6].copy_from_slice(&1u16.to_ne_bytes())), Refusal::TooMany);
    let long = Recipe { segment: 9_200, payload: vec![7; 20_000], ..plain.clone() };
    let mut burst = long.burst();
    assert_eq!(split(&Offload::of(burst.offload), &mut burst.frame).unwrap_err(), Refusal::TooLong);
}
