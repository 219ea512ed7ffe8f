// SPDX-License-Identifier: Apache-2.0
//
// What a verdict changes in the headers. The target truncates the frame and recomputes the IPv4 header checksum.

#ifndef TRIMWIRE_REWRITE_P4
#define TRIMWIRE_REWRITE_P4

#include "headers.p4"
#include "sizes.p4"

// Lengths, checksum and DSCP of a packet that is cut to `meta.cut_to` bytes of frame.
control RewriteCut(inout headers_t hdr, inout metadata_t meta) {
    apply {
        bit<16> ip_bytes = (bit<16>)(meta.cut_to - meta.l2_bytes);
        bit<16> udp_bytes;
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.total_len = ip_bytes;
            hdr.ipv4.dscp = meta.policy.trimmed_dscp;
            udp_bytes = ip_bytes - ((bit<16>)hdr.ipv4.ihl << 2);
        } else {
            udp_bytes = ip_bytes - (bit<16>)IPV6_BYTES;
            hdr.ipv6.payload_len = udp_bytes;
            hdr.ipv6.dscp = meta.policy.trimmed_dscp;
        }
        // A UDP length that was shorter than the packet stays: no field grows.
        if (udp_bytes < hdr.udp.len) {
            hdr.udp.len = udp_bytes;
        }
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
