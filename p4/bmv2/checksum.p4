// SPDX-License-Identifier: Apache-2.0
//
// The IPv4 header checksum, options included. It is verified on the way in: the one written on the
// way out would otherwise hide a header that was damaged before it came here. And that of a
// neighbour advertisement, which is written here.

#ifndef TRIMWIRE_BMV2_CHECKSUM_P4
#define TRIMWIRE_BMV2_CHECKSUM_P4

#include "../include/headers.p4"

#define IPV4_CHECKSUM_DATA { \
    hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn, hdr.ipv4.total_len, hdr.ipv4.identification, \
    hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments, hdr.ipv4.fragment_offset, \
    hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src_addr, hdr.ipv4.dst_addr, hdr.ipv4_options.options }

control VerifyIpv4Checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), IPV4_CHECKSUM_DATA, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
    }
}

control UpdateChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_CHECKSUM_DATA, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
        // With IPv6's pseudo-header (RFC 8200, section 8.1).
        update_checksum(hdr.nd_option.isValid(),
            { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, 16w0, hdr.ipv6.payload_len, 24w0, hdr.ipv6.next_header,
              hdr.nd.type, hdr.nd.code, hdr.nd.flags, hdr.nd.target_addr,
              hdr.nd_option.type, hdr.nd_option.len, hdr.nd_option.mac },
            hdr.nd.checksum, HashAlgorithm.csum16);
    }
}

#endif
