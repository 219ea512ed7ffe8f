// SPDX-License-Identifier: Apache-2.0
//
// The shared parser's decisions (../include/parser.p4), with what only this hardware asks for: its
// intrinsic metadata, and IPv4 header checksums that are worked out while the header passes.
//
// IPv4 options are not parsed, nor is what lies behind them: such packets are routed, and never
// trimmed. Their header checksum is not verified, but it is corrected by the difference that the
// switch makes, so that damage stays visible.

#ifndef TRIMWIRE_TOFINO_PARSER_P4
#define TRIMWIRE_TOFINO_PARSER_P4

#include "headers.p4"

// The words of the IPv4 header in which the switch changes something (DSCP, ECN, length, TTL), and
// the checksum.
#define IPV4_CHANGING { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, \
    hdr.ipv4.ttl, hdr.ipv4.protocol }

parser TrimwireIngressParser(packet_in packet, out headers_t hdr, out ingress_t meta,
                             out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_header;
    Checksum() ipv4_rest;

    state start {
        packet.extract(intrinsic);
        packet.advance(PORT_METADATA_SIZE);
        // What the controls leave alone in packets that they have no business with.
        meta.packet.ip_version = 0;
        meta.packet.flow_src_port = 0;
        meta.packet.flow_dst_port = 0;
        meta.packet.trimming = Trimming.PLAIN;
        meta.packet.policed = 0;
        meta.packet.verdict = Verdict.ADMIT;
        meta.routed = 0;
        transition select(intrinsic.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_ethernet;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_ethernet;
    }

    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_header.add(hdr.ipv4);
        ipv4_rest.subtract({ hdr.ipv4.hdr_checksum });
        ipv4_rest.subtract(IPV4_CHANGING);
        meta.checksum_rest = ipv4_rest.get();
        transition select(hdr.ipv4.version, hdr.ipv4.ihl) {
            (4, 5): parse_ipv4_payload;
            (4, 6 &&& 0xe): parse_ipv4_options;
            (4, 8 &&& 0x8): parse_ipv4_options;
            default: accept;   // not an IPv4 header: no version, not routed
        }
    }

    state parse_ipv4_options {
        meta.packet.ip_version = 4;
        meta.damaged = false;
        transition accept;
    }

    state parse_ipv4_payload {
        meta.packet.ip_version = 4;
        meta.damaged = ipv4_header.verify();
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_TCP): parse_l4_ports;
            (0, 0, PROTOCOL_SCTP): parse_l4_ports;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.version, hdr.ipv6.next_header) {
            (6, PROTOCOL_UDP): parse_ipv6_udp;
            (6, PROTOCOL_TCP): parse_ipv6_l4_ports;
            (6, PROTOCOL_SCTP): parse_ipv6_l4_ports;
            (6, _): parse_ipv6_other;
            default: accept;
        }
    }

    state parse_ipv6_udp {
        meta.packet.ip_version = 6;
        transition parse_udp;
    }

    state parse_ipv6_l4_ports {
        meta.packet.ip_version = 6;
        transition parse_l4_ports;
    }

    state parse_ipv6_other {
        meta.packet.ip_version = 6;
        transition accept;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition accept;
    }

    state parse_l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }
}

// Of a whole packet, egress reads nothing but the bridge. Copies are UDP without options and
// fragments, or they would not have been trimmed.
parser TrimwireEgressParser(packet_in packet, out headers_t hdr, out egress_t meta,
                            out egress_intrinsic_metadata_t intrinsic) {
    Checksum() ipv4_rest;

    state start {
        packet.extract(intrinsic);
        transition select(packet.lookahead<bit<8>>()) {
            PACKET_WHOLE: parse_bridge;
            PACKET_TRIMMED: parse_trimmed;
            PACKET_TRIMMED_DEFLECTED: parse_trimmed;
            default: reject;
        }
    }

    state parse_bridge {
        packet.extract(meta.bridge);
        transition accept;
    }

    state parse_trimmed {
        packet.extract(meta.trim);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: parse_vlan;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: reject;
        }
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: reject;
        }
    }

    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        ipv4_rest.subtract({ hdr.ipv4.hdr_checksum });
        ipv4_rest.subtract(IPV4_CHANGING);
        meta.checksum_rest = ipv4_rest.get();
        transition parse_udp;
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition parse_udp;
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition accept;
    }
}

#endif
