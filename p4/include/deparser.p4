// SPDX-License-Identifier: Apache-2.0

#ifndef TRIMWIRE_DEPARSER_P4
#define TRIMWIRE_DEPARSER_P4

#include "headers.p4"

control EmitFrame(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.packet_in);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ipv6_extension1);
        packet.emit(hdr.ipv6_extension2);
        packet.emit(hdr.ipv6_extension3);
        packet.emit(hdr.udp);
        packet.emit(hdr.l4_ports);
        packet.emit(hdr.vxlan);
        packet.emit(hdr.inner_ethernet);
        packet.emit(hdr.inner_ipv4);
        packet.emit(hdr.inner_ipv6);
        packet.emit(hdr.inner_udp);
    }
}

#endif
