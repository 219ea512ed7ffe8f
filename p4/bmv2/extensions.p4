// SPDX-License-Identifier: Apache-2.0
//
// Extension headers between IPv6 and what it carries. They belong to the head that a trim leaves.

#ifndef TRIMWIRE_BMV2_EXTENSIONS_P4
#define TRIMWIRE_BMV2_EXTENSIONS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// `ipv6_bytes` is the length of the IPv6 header and its extensions. The flow's protocol is what
// comes behind those.
control Extensions(in headers_t hdr, out bit<16> ipv6_bytes, inout metadata_t meta) {
    apply {
        ipv6_bytes = IPV6_BYTES;
        if (hdr.ipv6_extension1.isValid()) {
            ipv6_bytes = ipv6_bytes + ((bit<16>)hdr.ipv6_extension1.len + 1) * 8;
            meta.flow_protocol = hdr.ipv6_extension1.next_header;
            if (hdr.ipv6_extension2.isValid()) {
                ipv6_bytes = ipv6_bytes + ((bit<16>)hdr.ipv6_extension2.len + 1) * 8;
                meta.flow_protocol = hdr.ipv6_extension2.next_header;
                if (hdr.ipv6_extension3.isValid()) {
                    ipv6_bytes = ipv6_bytes + ((bit<16>)hdr.ipv6_extension3.len + 1) * 8;
                    meta.flow_protocol = hdr.ipv6_extension3.next_header;
                }
            }
        }
    }
}

#endif
