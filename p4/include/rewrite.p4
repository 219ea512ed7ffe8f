// SPDX-License-Identifier: Apache-2.0
//
// What a verdict changes in the headers. The target truncates the frame and recomputes the IPv4
// header checksum.

#ifndef TRIMWIRE_REWRITE_P4
#define TRIMWIRE_REWRITE_P4

#include "headers.p4"
#include "sizes.p4"

// Lengths, checksum and DSCP of a packet that is trimmed to `meta.trim_to` bytes of frame. Asks for
// `l2_bytes` and `ip_bytes` (extent.p4). One operation to an action: switch hardware has no more in
// a stage.
control RewriteTrimmed(inout headers_t hdr, inout metadata_t meta) {
    bit<16> left_of_ip;
    bit<16> left_of_udp;
    bit<16> surplus;

    @hidden
    action measure_ip() {
        left_of_ip = meta.trim_to - meta.l2_bytes;
    }

    @hidden
    action measure_udp() {
        left_of_udp = left_of_ip - meta.ip_bytes;
    }

    @hidden
    action rewrite_ipv4() {
        hdr.ipv4.total_len = left_of_ip;
        hdr.ipv4.dscp = meta.policy.trimmed_dscp;
    }

    @hidden
    action rewrite_ipv6() {
        hdr.ipv6.payload_len = left_of_ip - IPV6_BYTES;
        hdr.ipv6.dscp = meta.policy.trimmed_dscp;
    }

    @hidden
    action measure_surplus() {
        surplus = hdr.udp.len |-| left_of_udp;
    }

    @hidden
    action rewrite_udp() {
        // A UDP length that was shorter than the packet stays: no field grows.
        hdr.udp.len = hdr.udp.len - surplus;
        // The sum over the bytes that were trimmed off is unknown here. Zero is "no checksum" in
        // IPv4 (RFC 768), and in IPv6 where the receiving socket has asked for it (RFC 6935,
        // section 5; RFC 6936).
        hdr.udp.checksum = 0;
    }

    apply {
        measure_ip();
        measure_udp();
        if (hdr.ipv4.isValid()) {
            rewrite_ipv4();
        } else {
            rewrite_ipv6();
        }
        measure_surplus();
        rewrite_udp();
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
