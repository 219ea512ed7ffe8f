// SPDX-License-Identifier: Apache-2.0
//
// The IPv4 header checksum, options included. It is verified on the way in: the one written on the way out would
// otherwise hide a header that was damaged before it came here.

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

control UpdateIpv4Checksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), IPV4_CHECKSUM_DATA, hdr.ipv4.hdr_checksum, HashAlgorithm.csum16);
    }
}

#endif
