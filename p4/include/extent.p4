// SPDX-License-Identifier: Apache-2.0
//
// Where the parts of a packet end in its frame: what a cut has to leave, and beyond what there is nothing to cut.

#ifndef TRIMWIRE_EXTENT_P4
#define TRIMWIRE_EXTENT_P4

#include "headers.p4"
#include "sizes.p4"

// For packets with a UDP header; others are never cut. One operation to a line: switch hardware has no more in a stage.
control Extent(in headers_t hdr, inout metadata_t meta) {
    apply {
        if (hdr.vlan.isValid()) {
            meta.l2_bytes = ETHERNET_BYTES + VLAN_BYTES;
        } else {
            meta.l2_bytes = ETHERNET_BYTES;
        }
        if (hdr.ipv4.isValid()) {
            meta.ip_bytes = 10w0 ++ hdr.ipv4.ihl ++ 2w0;
            meta.ip_end = hdr.ipv4.total_len;
        } else {
            meta.ip_bytes = IPV6_BYTES;
            meta.ip_end = hdr.ipv6.payload_len |+| IPV6_BYTES;
        }
        meta.ip_end = meta.ip_end |+| meta.l2_bytes;
        meta.head_end = meta.ip_bytes + (UDP_BYTES + TRIMWIRE_HEAD_BYTES);
        meta.head_end = meta.head_end + meta.l2_bytes;
    }
}

#endif
