// SPDX-License-Identifier: Apache-2.0
//
// What a verdict changes in the headers. The target truncates the frame and recomputes the IPv4 header checksum.

#ifndef TRIMWIRE_REWRITE_P4
#define TRIMWIRE_REWRITE_P4

#include "headers.p4"
#include "sizes.p4"

// Lengths, checksum and DSCP of a packet that is cut to `meta.cut_to` bytes of frame. Asks for `l2_bytes` and `ip_bytes`
// (extent.p4). One operation to a line: switch hardware has no more in a stage.
control RewriteCut(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<16> ip_bytes = meta.cut_to - meta.l2_bytes;
        bit<16> udp_bytes = ip_bytes - meta.ip_bytes;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.total_len = ip_bytes;
            hdr.ipv4.dscp = meta.policy.trimmed_dscp;
        } else {
            hdr.ipv6.payload_len = udp_bytes;
            hdr.ipv6.dscp = meta.policy.trimmed_dscp;
        }
        // A UDP length that was shorter than the packet stays: no field grows.
        bit<16> surplus = hdr.udp.len |-| udp_bytes;
        hdr.udp.len = hdr.udp.len - surplus;
        // The sum over the bytes that were cut off is unknown here. Zero is "no checksum" in IPv4 (RFC 768), and in
        // IPv6 where the receiving socket has asked for it (RFC 6935, section 5; RFC 6936).
        hdr.udp.checksum = 0;
    }
}

// Congestion Experienced (RFC 3168). Only ECN-capable packets get this far.
control MarkCongestion(inout headers_t hdr) {
    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.ecn = ECN_CE;
        } else {
            hdr.ipv6.ecn = ECN_CE;
        }
    }
}

#endif
