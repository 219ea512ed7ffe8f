// SPDX-License-Identifier: Apache-2.0
//
// Egress of both Tofinos: truncated copies get the headers of what they are, packets that the
// traffic manager had no room for are trimmed, and what leaves is counted.

#ifndef TRIMWIRE_TOFINO_EGRESS_P4
#define TRIMWIRE_TOFINO_EGRESS_P4

#include "headers.p4"
#include "../include/extent.p4"
#include "../include/rewrite.p4"

control TrimwireEgress(inout headers_t hdr, inout egress_t meta,
                       in egress_intrinsic_metadata_t intrinsic,
                       in egress_intrinsic_metadata_from_parser_t from_parser,
                       inout egress_intrinsic_metadata_for_deparser_t to_deparser,
                       inout egress_intrinsic_metadata_for_output_port_t to_port) {
    // What left, at the queue that it was in.
    @id(0x12000008) @name(".Egress.transmitted")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) transmitted;
    // Of those, the packets trimmed here, at the queue they were classified to.
    @id(0x12000009) @name(".Egress.trim_transmitted")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) trim_transmitted;
    // Of those admitted, the ones that the traffic manager deflected and egress trimmed.
    @id(0x1200000a) @name(".Egress.deflected")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) deflected;

    Extent() extent;
    RewriteTrimmed() rewrite_trimmed;
    DirectDeflectedCopy() direct_copy;

    apply {
        if (meta.trim.isValid()) {
            // The frame of a copy from ingress is as it arrived.
            if (meta.trim.kind == PACKET_TRIMMED) {
                hdr.ethernet.src_addr = hdr.ethernet.dst_addr;
                hdr.ethernet.dst_addr = meta.trim.dst_mac;
                if (hdr.ipv4.isValid()) {
                    hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
                } else {
                    hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
                }
            }
            extent.apply(hdr, IPV4_BYTES, IPV6_BYTES, meta.packet);
            meta.packet.trim_to = meta.trim.trim_to;
            meta.packet.policy.trimmed_dscp = meta.trim.trimmed_dscp;
            rewrite_trimmed.apply(hdr, meta.packet);
            meta.queue_slot = meta.trim.class_slot[11:3] ++ meta.trim.trim_queue;
            trim_transmitted.count(meta.trim.class_slot);
            transmitted.count(meta.queue_slot);
        } else if (intrinsic.deflection_flag == 1) {
            to_deparser.mirror_type = MIRROR_TRIM;
            meta.copy_kind = PACKET_TRIMMED_DEFLECTED;
            meta.session = meta.bridge.session;
            direct_copy.apply(meta, to_deparser);
            to_deparser.drop_ctl = 1;
            deflected.count(meta.bridge.class_slot);
        } else {
            transmitted.count(meta.bridge.class_slot);
        }
    }
}

#endif
