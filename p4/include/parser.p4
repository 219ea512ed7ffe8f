// SPDX-License-Identifier: Apache-2.0
//
// Ethernet, one VLAN tag, IPv4 with options, IPv6, and of layer 4 what the program uses.
//
// Layer 4 of a fragment is not parsed, not even of the first one: its later brothers have no ports, and all of them
// should take the same path; and a cut fragment would leave a hole that reassembly never fills. A packet without a
// parsed UDP header is never cut, so fragments, TCP and IPv6 packets with extension headers are safe from it.

#ifndef TRIMWIRE_PARSER_P4
#define TRIMWIRE_PARSER_P4

#include "headers.p4"
#include "sizes.p4"

parser ParseFrame(packet_in packet, inout headers_t hdr) {
    state start {
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
        transition select(hdr.ipv4.ihl) {
            4w0 &&& 4w0xc: accept;   // 0 to 4 words: not an IPv4 header, Route drops it
            4w4: accept;
            4w5: parse_ipv4_payload;
            default: parse_ipv4_options;
        }
    }

    state parse_ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.ihl - 5) * 32);
        transition parse_ipv4_payload;
    }

    state parse_ipv4_payload {
        transition select(hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, 0, PROTOCOL_UDP): parse_udp;
            (0, 0, PROTOCOL_TCP): parse_l4_ports;
            (0, 0, PROTOCOL_SCTP): parse_l4_ports;
            default: accept;
        }
    }

    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_l4_ports;
            PROTOCOL_SCTP: parse_l4_ports;
            default: accept;
        }
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

#endif
