// SPDX-License-Identifier: Apache-2.0
//
// IPv4 header checksums, the truncated copies, the digest.

#ifndef TRIMWIRE_TOFINO_DEPARSER_P4
#define TRIMWIRE_TOFINO_DEPARSER_P4

#include "headers.p4"
#include "parser.p4"
#include "../include/deparser.p4"

control TrimwireIngressDeparser(packet_out packet, inout headers_t hdr, in ingress_t meta,
                                in ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    Checksum() ipv4_checksum;
    Mirror() mirror;
    @name(".trimming_t") Digest<trimming_t>() trimming;
    EmitFrame() frame;

    apply {
        if (to_deparser.mirror_type == MIRROR_TRIM) {
            // The copy is of the frame as it arrived: egress routes it again, with the address that
            // the route gave.
            mirror.emit<trim_t>(meta.session, { meta.copy_kind, meta.packet.trim_to, hdr.ethernet.dst_addr,
                meta.packet.policy.trimmed_dscp, meta.packet.policy.trim_queue, meta.slot });
        }
        if (to_deparser.digest_type == DIGEST_TRIMMING) {
            trimming.pack({ meta.egress_port, meta.packet.queue, meta.event_trimming, meta.packet.queue_bytes });
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn,
                hdr.ipv4.total_len, hdr.ipv4.ttl, hdr.ipv4.protocol, meta.checksum_rest });
        }
        packet.emit(meta.bridge);
        frame.apply(packet, hdr);
    }
}

control TrimwireEgressDeparser(packet_out packet, inout headers_t hdr, in egress_t meta,
                               in egress_intrinsic_metadata_for_deparser_t to_deparser) {
    Checksum() ipv4_checksum;
    Mirror() mirror;
    EmitFrame() frame;

    apply {
        if (to_deparser.mirror_type == MIRROR_TRIM) {
            mirror.emit<trim_t>(meta.session, { meta.copy_kind, meta.bridge.trim_to, 0,
                meta.bridge.trimmed_dscp, meta.bridge.trim_queue, meta.bridge.class_slot });
        }
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.hdr_checksum = ipv4_checksum.update({ hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.dscp, hdr.ipv4.ecn,
                hdr.ipv4.total_len, hdr.ipv4.ttl, hdr.ipv4.protocol, meta.checksum_rest });
        }
        frame.apply(packet, hdr);
    }
}

#endif
