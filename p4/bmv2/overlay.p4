// SPDX-License-Identifier: Apache-2.0
//
// VXLAN (RFC 7348), which carries the frames of tenants in UDP. Classified, routed and marked by
// the outer header, to which tunnels copy DSCP and ECN (RFC 2983, RFC 6040); trimmed behind the
// inner one. A trim leaves both heads whole, and mends both.

#ifndef TRIMWIRE_BMV2_OVERLAY_P4
#define TRIMWIRE_BMV2_OVERLAY_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// What a tunnel adds to the extent of a packet (extent.p4). `tunnel_bytes` is what stands in front
// of the inner frame; sizes of trims are those of inner frames. A packet in a tunnel without a
// parsed inner UDP header is not trimmable.
control OverlayExtent(in headers_t hdr, out bit<16> tunnel_bytes, inout metadata_t meta) {
    apply {
        tunnel_bytes = 0;
        if (hdr.inner_udp.isValid()) {
            tunnel_bytes = meta.l2_bytes + meta.ip_bytes + (UDP_BYTES + VXLAN_BYTES);
            meta.head_end = meta.head_end + (VXLAN_BYTES + ETHERNET_BYTES + UDP_BYTES);
            if (hdr.inner_ipv4.isValid()) {
                meta.head_end = meta.head_end + IPV4_BYTES;
            } else {
                meta.head_end = meta.head_end + IPV6_BYTES;
            }
        } else if (hdr.udp.isValid() && hdr.udp.dst_port == PORT_VXLAN && meta.trimming == Trimming.TRIMMABLE) {
            meta.trimming = Trimming.PLAIN;
        }
    }
}

// The inner headers of a packet that is trimmed to `meta.trim_to` bytes of frame: lengths that
// never grow, and the DSCP, which is all that is left of the outer one when the tunnel ends. The
// IPv4 checksum is corrected by the difference (RFC 1624, equation 3), so that damage stays
// visible.
control RewriteInner(inout headers_t hdr, in bit<16> tunnel_bytes, in metadata_t meta) {
    bit<16> left;
    bit<16> surplus;
    bit<32> sum;

    @hidden
    action rewrite_ipv4() {
        surplus = hdr.inner_ipv4.total_len |-| left;
        sum = (bit<32>)(~hdr.inner_ipv4.hdr_checksum) + (bit<32>)(~hdr.inner_ipv4.total_len)
            + (bit<32>)(~(8w0 ++ hdr.inner_ipv4.dscp ++ hdr.inner_ipv4.ecn));
        hdr.inner_ipv4.total_len = hdr.inner_ipv4.total_len - surplus;
        hdr.inner_ipv4.dscp = meta.policy.trimmed_dscp;
        sum = sum + (bit<32>)hdr.inner_ipv4.total_len + (bit<32>)(8w0 ++ hdr.inner_ipv4.dscp ++ hdr.inner_ipv4.ecn);
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        hdr.inner_ipv4.hdr_checksum = ~sum[15:0];
        left = left - IPV4_BYTES;
    }

    @hidden
    action rewrite_ipv6() {
        left = left - IPV6_BYTES;
        surplus = hdr.inner_ipv6.payload_len |-| left;
        hdr.inner_ipv6.payload_len = hdr.inner_ipv6.payload_len - surplus;
        hdr.inner_ipv6.dscp = meta.policy.trimmed_dscp;
    }

    @hidden
    action rewrite_udp() {
        surplus = hdr.inner_udp.len |-| left;
        hdr.inner_udp.len = hdr.inner_udp.len - surplus;
        hdr.inner_udp.checksum = 0;
    }

    apply {
        if (hdr.inner_udp.isValid()) {
            left = meta.trim_to - tunnel_bytes - ETHERNET_BYTES;
            if (hdr.inner_ipv4.isValid()) {
                rewrite_ipv4();
            } else {
                rewrite_ipv6();
            }
            rewrite_udp();
        }
    }
}

#endif
