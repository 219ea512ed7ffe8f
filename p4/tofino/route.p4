// SPDX-License-Identifier: Apache-2.0
//
// Layer 3: longest prefix, then one member of an ECMP group by a hash over the flow, or by chance.
// What cannot be routed leaves with `routed` = 0.

#ifndef TRIMWIRE_TOFINO_ROUTE_P4
#define TRIMWIRE_TOFINO_ROUTE_P4

#include "headers.p4"
#include "../include/load_balance.p4"

// Both route tables share a selector and its members, which lie in one stage, and so do the tables:
// as many prefixes as the TCAM of one stage holds beside each other.
const bit<32> TOFINO_IPV4_ROUTES = 2048;
const bit<32> TOFINO_IPV6_ROUTES = 1024;
const bit<32> ECMP_GROUP_MEMBERS = 120;
const bit<32> ECMP_GROUPS = 256;

// Both hashes of every packet are worked out before it is known which one counts: that spares two
// stages.
control Path(in headers_t hdr, inout metadata_t meta) {
    Hash<bit<32>>(HashAlgorithm_t.CRC32) ipv4_five_tuple;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) ipv4_flow;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) ipv6_five_tuple;
    Hash<bit<32>>(HashAlgorithm_t.CRC32) ipv6_flow;
    Random<bit<16>>() random;
    LoadBalance() load_balance;
    bit<32> flow_hash;

    @hidden
    action hash_ipv4() {
        meta.flow_hash = ipv4_five_tuple.get({ hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.flow_protocol,
            meta.flow_src_port, meta.flow_dst_port });
    }

    @hidden
    action hash_ipv4_flow() {
        flow_hash = ipv4_flow.get({ hdr.ipv4.src_addr, hdr.ipv4.dst_addr, meta.flow_protocol, meta.flow_dst_port });
    }

    @hidden
    action hash_ipv6() {
        meta.flow_hash = ipv6_five_tuple.get({ hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.flow_protocol,
            meta.flow_src_port, meta.flow_dst_port });
    }

    @hidden
    action hash_ipv6_flow() {
        flow_hash = ipv6_flow.get({ hdr.ipv6.src_addr, hdr.ipv6.dst_addr, meta.flow_protocol, meta.flow_dst_port });
    }

    @hidden
    action draw() {
        meta.path = random.get();
    }

    apply {
        load_balance.apply(meta);
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
            hash_ipv4_flow();
        } else {
            hash_ipv6();
            hash_ipv6_flow();
        }
        if (meta.path_choice == PathChoice.PACKET) {
            draw();
        } else if (meta.path_choice == PathChoice.FLOW && hdr.udp.isValid()) {
            if (meta.hash_half == 0) {
                meta.path = flow_hash[15:0];
            } else {
                meta.path = flow_hash[31:16];
            }
        } else if (meta.hash_half == 0) {
            meta.path = meta.flow_hash[15:0];
        } else {
            meta.path = meta.flow_hash[31:16];
        }
    }
}

control Route(inout headers_t hdr, inout ingress_t meta) {
    // One selector for both tables: next hops do not depend on the address family.
    @id(0x11000001) @name(".Ingress.ecmp")
    ActionProfile(ECMP_MEMBERS) ecmp;
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) path_bits;
    @name(".Ingress.ecmp_selector")
    ActionSelector(ecmp, path_bits, SelectorMode_t.FAIR, ECMP_GROUP_MEMBERS, ECMP_GROUPS) ecmp_selector;

    @id(0x01000001) @name(".Ingress.forward")
    action forward(bit<9> port, bit<48> dst_mac) {
        meta.egress_port = port;
        meta.routed = 1;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = dst_mac;
    }

    @id(0x01000002) @name(".Ingress.drop")
    action drop() {
        meta.routed = 0;
    }

    @id(0x02000001) @name(".Ingress.ipv4_route")
    table ipv4_route {
        key = {
            hdr.ipv4.dst_addr: lpm @name("dst_addr");
            meta.packet.path: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp_selector;
        size = TOFINO_IPV4_ROUTES;
    }

    @id(0x02000002) @name(".Ingress.ipv6_route")
    table ipv6_route {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
            meta.packet.path: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp_selector;
        size = TOFINO_IPV6_ROUTES;
    }

    apply {
        // Not an IPv4 packet: damaged, or shorter than 20 bytes (0 to 15, 16 to 19). The hardware
        // compares bits more easily than numbers of 16 bits.
        if (meta.packet.ip_version == 4 && meta.damaged) {
            meta.packet.ip_version = 0;
        }
        if (meta.packet.ip_version == 4 && hdr.ipv4.total_len[15:4] == 0) {
            meta.packet.ip_version = 0;
        }
        if (meta.packet.ip_version == 4 && hdr.ipv4.total_len[15:2] == 4) {
            meta.packet.ip_version = 0;
        }

        // A frame to a group address is nobody's packet to forward (RFC 1812, section 5.3.4).
        if (hdr.ethernet.dst_addr[40:40] == 0) {
            if (meta.packet.ip_version == 4) {
                ipv4_route.apply();
            } else if (meta.packet.ip_version == 6) {
                ipv6_route.apply();
            }
        }

        // What is for this switch's own controller has arrived; anything else has one hop less to
        // go.
        if (meta.egress_port != CPU_PORT) {
            if (meta.packet.ip_version == 4) {
                if (hdr.ipv4.ttl[7:1] == 0) {
                    meta.routed = 0;
                } else {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                }
            } else if (meta.packet.ip_version == 6) {
                if (hdr.ipv6.hop_limit[7:1] == 0) {
                    meta.routed = 0;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
        }
    }
}

#endif
