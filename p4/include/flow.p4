// SPDX-License-Identifier: Apache-2.0
//
// What the tables ask of a packet whatever its address family: its protocol and ports, its DSCP and
// its importance.

#ifndef TRIMWIRE_FLOW_P4
#define TRIMWIRE_FLOW_P4

#include "headers.p4"
#include "sizes.p4"

control Flow(in headers_t hdr, inout metadata_t meta) {
    apply {
        bit<2> ecn = ECN_NOT_ECT;
        if (hdr.ipv4.isValid()) {
            meta.flow_protocol = hdr.ipv4.protocol;
            meta.dscp = hdr.ipv4.dscp;
            ecn = hdr.ipv4.ecn;
        } else if (hdr.ipv6.isValid()) {
            meta.flow_protocol = hdr.ipv6.next_header;
            meta.dscp = hdr.ipv6.dscp;
            ecn = hdr.ipv6.ecn;
        }
        // ECN is how MLT's senders say "important" (section 5.2). A packet marked CE upstream was
        // ECT when it left.
        if (ecn == ECN_NOT_ECT) {
            meta.importance = 0;
        } else {
            meta.importance = 1;
        }

        if (hdr.udp.isValid()) {
            meta.flow_src_port = hdr.udp.src_port;
            meta.flow_dst_port = hdr.udp.dst_port;
        } else if (hdr.l4_ports.isValid()) {
            meta.flow_src_port = hdr.l4_ports.src_port;
            meta.flow_dst_port = hdr.l4_ports.dst_port;
        }
    }
}

#endif
