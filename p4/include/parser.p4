// SPDX-License-Identifier: Apache-2.0
//
// Ethernet, one VLAN tag, IPv4 with options, IPv6 with up to three extension headers, of layer 4
// what the program uses, of VXLAN the inner Ethernet, IP and UDP headers, and questions for
// neighbours.
//
// Layer 4 of a fragment is not parsed, not even of the first one: its later brothers have no ports,
// and all of them should take the same path; and a trimmed fragment would leave a hole that
// reassembly never fills. A packet without a parsed UDP header is never trimmed, so fragments, TCP
// and IPv6 packets with other extension headers are safe from it.

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
            ETHERTYPE_ARP: find_arp;
            ETHERTYPE_PROBE: parse_probe;
            default: accept;
        }
    }

    state parse_probe {
        packet.extract(hdr.probe);
        transition accept;
    }

    state parse_vlan {
        packet.extract(hdr.vlan);
        transition select(hdr.vlan.ether_type) {
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            ETHERTYPE_ARP: find_arp;
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
            PROTOCOL_HOP_BY_HOP: find_ipv6_extension1;
            PROTOCOL_ROUTING: find_ipv6_extension1;
            PROTOCOL_DESTINATION: find_ipv6_extension1;
            PROTOCOL_ICMPV6: find_nd;
            default: accept;
        }
    }

    // Other kinds of ARP and of ICMPv6 are left alone.
    state find_arp {
        transition select(packet.lookahead<bit<64>>()) {
            ARP_REQUEST: parse_arp;
            default: accept;
        }
    }

    state parse_arp {
        packet.extract(hdr.arp);
        transition accept;
    }

    // What has crossed a router is no neighbour's.
    state find_nd {
        transition select(hdr.ipv6.hop_limit, packet.lookahead<bit<16>>()) {
            (255, NEIGHBOUR_SOLICITATION ++ 8w0): parse_nd;
            default: accept;
        }
    }

    state parse_nd {
        packet.extract(hdr.nd);
        transition accept;
    }

    // What is longer than 128 bytes is left alone, and so is what comes behind the third.
    state find_ipv6_extension1 {
        transition select(packet.lookahead<bit<16>>()) {
            0 &&& 0xf0: parse_ipv6_extension1;
            default: accept;
        }
    }

    state parse_ipv6_extension1 {
        bit<32> rest = (bit<32>)(packet.lookahead<bit<16>>() & 0xf) * 64 + 48;
        packet.extract(hdr.ipv6_extension1, rest);
        transition select(hdr.ipv6_extension1.next_header) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_l4_ports;
            PROTOCOL_SCTP: parse_l4_ports;
            PROTOCOL_ROUTING: find_ipv6_extension2;
            PROTOCOL_DESTINATION: find_ipv6_extension2;
            default: accept;
        }
    }

    state find_ipv6_extension2 {
        transition select(packet.lookahead<bit<16>>()) {
            0 &&& 0xf0: parse_ipv6_extension2;
            default: accept;
        }
    }

    state parse_ipv6_extension2 {
        bit<32> rest = (bit<32>)(packet.lookahead<bit<16>>() & 0xf) * 64 + 48;
        packet.extract(hdr.ipv6_extension2, rest);
        transition select(hdr.ipv6_extension2.next_header) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_l4_ports;
            PROTOCOL_SCTP: parse_l4_ports;
            PROTOCOL_ROUTING: find_ipv6_extension3;
            PROTOCOL_DESTINATION: find_ipv6_extension3;
            default: accept;
        }
    }

    state find_ipv6_extension3 {
        transition select(packet.lookahead<bit<16>>()) {
            0 &&& 0xf0: parse_ipv6_extension3;
            default: accept;
        }
    }

    state parse_ipv6_extension3 {
        bit<32> rest = (bit<32>)(packet.lookahead<bit<16>>() & 0xf) * 64 + 48;
        packet.extract(hdr.ipv6_extension3, rest);
        transition select(hdr.ipv6_extension3.next_header) {
            PROTOCOL_UDP: parse_udp;
            PROTOCOL_TCP: parse_l4_ports;
            PROTOCOL_SCTP: parse_l4_ports;
            default: accept;
        }
    }

    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst_port) {
            PORT_VXLAN: parse_vxlan;
            default: accept;
        }
    }

    state parse_vxlan {
        packet.extract(hdr.vxlan);
        packet.extract(hdr.inner_ethernet);
        transition select(hdr.inner_ethernet.ether_type) {
            ETHERTYPE_IPV4: parse_inner_ipv4;
            ETHERTYPE_IPV6: parse_inner_ipv6;
            default: accept;
        }
    }

    // Without options, as agents send it; anything else in a tunnel is not trimmed.
    state parse_inner_ipv4 {
        packet.extract(hdr.inner_ipv4);
        transition select(hdr.inner_ipv4.version, hdr.inner_ipv4.ihl, hdr.inner_ipv4.more_fragments,
                          hdr.inner_ipv4.fragment_offset, hdr.inner_ipv4.protocol) {
            (4, 5, 0, 0, PROTOCOL_UDP): parse_inner_udp;
            default: accept;
        }
    }

    state parse_inner_ipv6 {
        packet.extract(hdr.inner_ipv6);
        transition select(hdr.inner_ipv6.version, hdr.inner_ipv6.next_header) {
            (6, PROTOCOL_UDP): parse_inner_udp;
            default: accept;
        }
    }

    state parse_inner_udp {
        packet.extract(hdr.inner_udp);
        transition accept;
    }

    state parse_l4_ports {
        packet.extract(hdr.l4_ports);
        transition accept;
    }
}

#endif
