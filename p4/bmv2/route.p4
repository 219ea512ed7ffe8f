// SPDX-License-Identifier: Apache-2.0
//
// Layer 3: longest prefix, then one member of an ECMP group by a hash over the flow, or by chance.
// What cannot be routed leaves with egress_spec = DROP_PORT. A question for a neighbour is routed
// by the address that it asks for, and answered.

#ifndef TRIMWIRE_BMV2_ROUTE_P4
#define TRIMWIRE_BMV2_ROUTE_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"
#include "../include/load_balance.p4"
#include "neighbours.p4"

// v1model's value of egress_spec for a packet to be dropped (BMv2's --drop-port).
const bit<9> DROP_PORT = 511;

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What the tables are asked for.
    bit<32>  ipv4_dst;
    bit<128> ipv6_dst;
    // Who asks for a neighbour.
    bit<48>  asker;

    // One selector for both tables: next hops do not depend on the address family.
    @id(0x11000001) @name(".Ingress.ecmp")
    action_selector(HashAlgorithm.crc16, ECMP_MEMBERS, ECMP_HASH_BITS) ecmp;

    @id(0x01000001) @name(".Ingress.forward")
    action forward(bit<9> port, bit<48> dst_mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
        hdr.ethernet.dst_addr = dst_mac;
    }

    @id(0x01000002) @name(".Ingress.drop")
    action drop() {
        standard_metadata.egress_spec = DROP_PORT;
    }

    @id(0x02000001) @name(".Ingress.ipv4_route")
    table ipv4_route {
        key = {
            ipv4_dst: lpm @name("dst_addr");
            meta.path: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp;
        size = IPV4_ROUTES;
    }

    @id(0x02000002) @name(".Ingress.ipv6_route")
    table ipv6_route {
        key = {
            ipv6_dst: lpm @name("dst_addr");
            meta.path: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp;
        size = IPV6_ROUTES;
    }

    LoadBalance() load_balance;
    Answer() answer;

    @id(0x01000010) @name(".Ingress.set_hash_seed")
    action set_hash_seed(bit<32> seed) {
        meta.hash_seed = seed;
    }

    // One number for the whole switch: its default action.
    @id(0x0200000a) @name(".Ingress.hash_seed")
    table hash_seed {
        actions = { set_hash_seed; }
        default_action = set_hash_seed(0);
    }

    @hidden
    action hash_flow(bit<16> src_port) {
        hash(meta.flow_hash, HashAlgorithm.crc32, 32w0,
             { meta.flow_src_addr, meta.flow_dst_addr, meta.flow_protocol, src_port, meta.flow_dst_port },
             64w0x100000000);
    }

    // A CRC is linear: a seed in what it is taken of gives another order of the same paths, and
    // whoever chose alike before chooses alike again. What follows is not: MurmurHash3's last step
    // for 32 bits (A. Appleby, public domain).
    @hidden
    action stir() {
        meta.flow_hash = meta.flow_hash ^ meta.hash_seed;
        meta.flow_hash = (meta.flow_hash ^ (meta.flow_hash >> 16)) * 0x85ebca6b;
        meta.flow_hash = (meta.flow_hash ^ (meta.flow_hash >> 13)) * 0xc2b2ae35;
        meta.flow_hash = meta.flow_hash ^ (meta.flow_hash >> 16);
    }

    @hidden
    action draw_path() {
        random(meta.path, 16w0, 16w0xffff);
    }

    apply {
        // The addresses in 32 bits, for the hash.
        if (hdr.ipv4.isValid()) {
            meta.flow_src_addr = hdr.ipv4.src_addr;
            meta.flow_dst_addr = hdr.ipv4.dst_addr;
        } else if (hdr.ipv6.isValid()) {
            meta.flow_src_addr = hdr.ipv6.src_addr[127:96] ^ hdr.ipv6.src_addr[95:64]
                ^ hdr.ipv6.src_addr[63:32] ^ hdr.ipv6.src_addr[31:0];
            meta.flow_dst_addr = hdr.ipv6.dst_addr[127:96] ^ hdr.ipv6.dst_addr[95:64]
                ^ hdr.ipv6.dst_addr[63:32] ^ hdr.ipv6.dst_addr[31:0];
        }
        load_balance.apply(meta);
        if (meta.path_choice == PathChoice.PACKET) {
            draw_path();
        } else {
            if (meta.path_choice == PathChoice.FLOW && hdr.udp.isValid()) {
                hash_flow(0);
            } else {
                hash_flow(meta.flow_src_port);
            }
            hash_seed.apply();
            if (meta.hash_seed != 0) {
                stir();
            }
            if (meta.hash_half == 0) {
                meta.path = meta.flow_hash[15:0];
            } else {
                meta.path = meta.flow_hash[31:16];
            }
        }

        // The address family that the packet can be routed by; none for what is not, or only claims
        // to be, IP.
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5 && (hdr.ipv4.ihl == 5 || hdr.ipv4_options.isValid())
                && hdr.ipv4.total_len >= ((bit<16>)hdr.ipv4.ihl << 2) && standard_metadata.checksum_error == 0) {
                meta.ip_version = 4;
                meta.hops_left = hdr.ipv4.ttl;
                ipv4_dst = hdr.ipv4.dst_addr;
            }
        } else if (hdr.ipv6.isValid() && hdr.ipv6.version == 6) {
            meta.ip_version = 6;
            meta.hops_left = hdr.ipv6.hop_limit;
            ipv6_dst = hdr.ipv6.dst_addr;
            if (hdr.nd.isValid()) {
                ipv6_dst = hdr.nd.target_addr;
                asker = hdr.ethernet.src_addr;
            }
        } else if (hdr.arp.isValid()) {
            meta.ip_version = 4;
            ipv4_dst = hdr.arp.target_addr;
            asker = hdr.ethernet.src_addr;
        }

        // A frame to a group address is nobody's packet to forward (RFC 1812, section 5.3.4).
        if (hdr.ethernet.dst_addr[40:40] == 0 || hdr.arp.isValid() || hdr.nd.isValid()) {
            // BMv2 has no default action for tables with a selector. Asking for a miss also makes
            // p4c branch on hit and miss instead of on the action: of two tables with one selector,
            // BMv2 knows the members' actions by one table's action numbers, does not find them in
            // the other table, and ends.
            if (meta.ip_version == 4) {
                if (ipv4_route.apply().miss) {
                    drop();
                }
            } else if (meta.ip_version == 6) {
                if (ipv6_route.apply().miss) {
                    drop();
                }
            }
        }

        if (hdr.arp.isValid() || hdr.nd.isValid()) {
            if (standard_metadata.egress_spec == standard_metadata.ingress_port) {
                drop();
            } else if (standard_metadata.egress_spec != DROP_PORT) {
                answer.apply(hdr, hdr.ethernet.dst_addr, asker);
                standard_metadata.egress_spec = standard_metadata.ingress_port;
            }
        // What is for this switch's own controller has arrived; anything else has one hop less to
        // go.
        } else if (standard_metadata.egress_spec < CPU_PORT) {
            if (meta.own_mac != 0 && standard_metadata.egress_spec == standard_metadata.ingress_port) {
                // Two switches that each take the other for the way would hand it to and fro.
                meta.queue = TURNED_BACK;
                drop();
            } else if (meta.hops_left <= 1) {
                drop();
            } else if (meta.ip_version == 4) {
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            } else {
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        }
    }
}

#endif
