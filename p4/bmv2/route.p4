// SPDX-License-Identifier: Apache-2.0
//
// Layer 3: longest prefix, then one member of an ECMP group by a hash over the 5-tuple. The UDP source port is the
// sender's spraying entropy. What cannot be routed leaves with egress_spec = DROP_PORT.

#ifndef TRIMWIRE_BMV2_ROUTE_P4
#define TRIMWIRE_BMV2_ROUTE_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// v1model's value of egress_spec for a packet to be dropped (BMv2's --drop-port).
const bit<9> DROP_PORT = 511;

control Route(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
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
            hdr.ipv4.dst_addr: lpm @name("dst_addr");
            meta.flow_src_addr: selector;
            meta.flow_dst_addr: selector;
            meta.flow_protocol: selector;
            meta.flow_src_port: selector;
            meta.flow_dst_port: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp;
        size = IPV4_ROUTES;
    }

    @id(0x02000002) @name(".Ingress.ipv6_route")
    table ipv6_route {
        key = {
            hdr.ipv6.dst_addr: lpm @name("dst_addr");
            meta.flow_src_addr: selector;
            meta.flow_dst_addr: selector;
            meta.flow_protocol: selector;
            meta.flow_src_port: selector;
            meta.flow_dst_port: selector;
        }
        actions = { forward; drop; }
        const default_action = drop();
        implementation = ecmp;
        size = IPV6_ROUTES;
    }

    apply {
        // The header by whose destination the packet can be routed; none for what is not, or only claims to be, IP.
        bool is_ipv4 = hdr.ipv4.isValid() && hdr.ipv4.version == 4 && hdr.ipv4.ihl >= 5
            && (hdr.ipv4.ihl == 5 || hdr.ipv4_options.isValid())
            && hdr.ipv4.total_len >= ((bit<16>)hdr.ipv4.ihl << 2)
            && standard_metadata.checksum_error == 0;
        bool is_ipv6 = hdr.ipv6.isValid() && hdr.ipv6.version == 6;

        // A frame to a group address is nobody's packet to forward (RFC 1812, section 5.3.4).
        if (hdr.ethernet.dst_addr[40:40] == 0 && (is_ipv4 || is_ipv6)) {
            if (is_ipv4) {
                meta.flow_src_addr = hdr.ipv4.src_addr;
                meta.flow_dst_addr = hdr.ipv4.dst_addr;
                meta.flow_protocol = hdr.ipv4.protocol;
                meta.hops_left = hdr.ipv4.ttl;
            } else {
                meta.flow_src_addr = hdr.ipv6.src_addr[127:96] ^ hdr.ipv6.src_addr[95:64]
                    ^ hdr.ipv6.src_addr[63:32] ^ hdr.ipv6.src_addr[31:0];
                meta.flow_dst_addr = hdr.ipv6.dst_addr[127:96] ^ hdr.ipv6.dst_addr[95:64]
                    ^ hdr.ipv6.dst_addr[63:32] ^ hdr.ipv6.dst_addr[31:0];
                meta.flow_protocol = hdr.ipv6.next_header;
                meta.hops_left = hdr.ipv6.hop_limit;
            }
            if (hdr.udp.isValid()) {
                meta.flow_src_port = hdr.udp.src_port;
                meta.flow_dst_port = hdr.udp.dst_port;
            } else if (hdr.l4_ports.isValid()) {
                meta.flow_src_port = hdr.l4_ports.src_port;
                meta.flow_dst_port = hdr.l4_ports.dst_port;
            }

            if (is_ipv4) {
                ipv4_route.apply();
            } else {
                ipv6_route.apply();
            }

            // What is for this switch's own controller has arrived; anything else has one hop less to go.
            if (standard_metadata.egress_spec != CPU_PORT) {
                if (meta.hops_left <= 1) {
                    drop();
                } else if (is_ipv4) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
        }
    }
}

#endif
