// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of a packet end in its frame: what a trim has to leave, and beyond what there is
// nothing to trim.

#ifndef TRIMWIRE_EXTENT_P4
#define TRIMWIRE_EXTENT_P4

#include "headers.p4"
#include "sizes.p4"

// For packets with a UDP header; others are never trimmed. One operation to an action: switch
// hardware has no more in a stage. `ipv4_bytes` is the length of an IPv4 header with options,
// `ipv6_bytes` of an IPv6 header with extensions; a target that parses neither gives constants.
control Extent(in headers_t hdr, in bit<16> ipv4_bytes, in bit<16> ipv6_bytes, inout metadata_t meta) {
    @hidden
    action measure_ipv4() {
        meta.ip_bytes = ipv4_bytes;
        meta.ip_end = hdr.ipv4.total_len;
    }

    @hidden
    action measure_ipv6() {
        meta.ip_bytes = ipv6_bytes;
        meta.ip_end = hdr.ipv6.payload_len |+| IPV6_BYTES;
    }

    @hidden
    action add_head() {
        meta.head_end = meta.ip_bytes + (UDP_BYTES + TRIMWIRE_HEAD_BYTES);
    }

    @hidden
    action add_l2() {
        meta.ip_end = meta.ip_end |+| meta.l2_bytes;
        meta.head_end = meta.head_end + meta.l2_bytes;
    }

    apply {
        if (hdr.vlan.isValid()) {
            meta.l2_bytes = ETHERNET_BYTES + VLAN_BYTES;
        } else {
            meta.l2_bytes = ETHERNET_BYTES;
        }
        if (hdr.ipv4.isValid()) {
            measure_ipv4();
        } else {
            measure_ipv6();
        }
        add_head();
        add_l2();
    }
}

#endif
