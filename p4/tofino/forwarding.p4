// SPDX-License-Identifier: Apache-2.0
//
// The way of a packet through ingress of both Tofinos, before and after the ladder.

#ifndef TRIMWIRE_TOFINO_FORWARDING_P4
#define TRIMWIRE_TOFINO_FORWARDING_P4

#include "headers.p4"
#include "route.p4"
#include "../include/flow.p4"
#include "../include/classify.p4"
#include "../include/trim_acl.p4"
#include "../include/queue_policy.p4"
#include "../include/extent.p4"
#include "../include/rewrite.p4"

// Where a packet goes, to which queue, and what the policy there says.
control Forwarding(inout headers_t hdr, inout ingress_t meta) {
    Flow() flow;
    Extent() extent;
    Path() path;
    Route() route;
    Classify() classify;
    TrimAcl() trim_acl;
    QueuePolicy() queue_policy;
    // A wire, not a hash: a way to put bits beside each other that ties no containers together.
    Hash<bit<12>>(HashAlgorithm_t.IDENTITY) side_by_side;

    @hidden
    action locate() {
        meta.slot = side_by_side.get({ meta.egress_port, meta.packet.queue });
    }

    apply {
        if (hdr.packet_out.isValid()) {
            meta.egress_port = hdr.packet_out.egress_port;
            meta.packet.queue = CONTROL_QUEUE;
            meta.routed = 1;
        } else {
            flow.apply(hdr, meta.packet);
            extent.apply(hdr, IPV4_BYTES, IPV6_BYTES, meta.packet);
            path.apply(hdr, meta.packet);
            classify.apply(meta.packet);
            trim_acl.apply(hdr, meta.packet);
            route.apply(hdr, meta);
            // The controller's own link has no queue policy: it is not a link that gradients cross.
            // (What has no next hop finds any policy; it is not obeyed. Not to wait for the route's
            // last word spares a stage.)
            if (meta.egress_port != CPU_PORT) {
                queue_policy.apply(meta.egress_port, meta.packet);
            }
        }
        locate();
    }
}

// What the verdict asks for. Counters are indexed by egress port * 8 + queue and count the bytes
// that arrived.
control Disposal(inout headers_t hdr, inout ingress_t meta, in bit<9> ingress_port,
                 inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                 inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    // Every packet with a next hop is counted by exactly one of these five, at the queue it was
    // classified to.
    @id(0x12000001) @name(".Ingress.admitted")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) admitted;
    @id(0x12000002) @name(".Ingress.trimmed")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) trimmed;
    @id(0x12000003) @name(".Ingress.trim_dropped")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) trim_dropped;
    @id(0x12000004) @name(".Ingress.selective_dropped")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) selective_dropped;
    @id(0x12000005) @name(".Ingress.tail_dropped")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) tail_dropped;
    // Of those admitted, the ones that this switch marked.
    @id(0x12000006) @name(".Ingress.marked")
    Counter<bit<64>, bit<12>>(QUEUE_SLOTS, CounterType_t.PACKETS_AND_BYTES) marked;
    // Packets without a next hop: no route, TTL used up, not IP, malformed.
    @id(0x12000007) @name(".Ingress.unroutable")
    Counter<bit<64>, bit<1>>(1, CounterType_t.PACKETS_AND_BYTES) unroutable;

    MarkCongestion() mark_congestion;
    // A wire, not a hash: it may put the port anywhere in a byte. `pad` stays what it was.
    Hash<bit<9>>(HashAlgorithm_t.IDENTITY) shift_port;

    @hidden
    action tell_ingress_port() {
        hdr.packet_in.setValid();
        hdr.packet_in.ingress_port = shift_port.get({ ingress_port });
    }

    apply {
        if (meta.routed == 0) {
            unroutable.count(0);
            to_deparser.drop_ctl = 1;
        } else {
            to_tm.ucast_egress_port = meta.egress_port;
            to_tm.qid = (QueueId_t)meta.packet.queue;
            meta.bridge.setValid();
            meta.bridge.kind = PACKET_WHOLE;
            meta.bridge.session = meta.deep_session;
            meta.bridge.trim_to = meta.packet.policy.deep_size;
            meta.bridge.trimmed_dscp = meta.packet.policy.trimmed_dscp;
            meta.bridge.trim_queue = meta.packet.policy.trim_queue;
            meta.bridge.class_slot = meta.slot;
            if (meta.egress_port == CPU_PORT) {
                tell_ingress_port();
            }

            if (meta.packet.verdict == Verdict.ADMIT) {
                // Should the traffic manager have no room after all, it sends the packet to the
                // deflection port, and egress trims it.
                if (meta.packet.policed == 1 && meta.packet.trimming == Trimming.TRIMMABLE && hdr.udp.isValid()
                    && meta.packet.deep_trimmable == 1) {
                    to_tm.deflect_on_drop = 1;
                }
            } else if (meta.packet.verdict == Verdict.ADMIT_MARKED) {
                marked.count(meta.slot);
                mark_congestion.apply(hdr);
            } else {
                to_deparser.drop_ctl = 1;
            }

            if (meta.packet.verdict == Verdict.TRIM) {
                trimmed.count(meta.slot);
                to_deparser.mirror_type = MIRROR_TRIM;
                meta.copy_kind = PACKET_TRIMMED;
            } else if (meta.packet.verdict == Verdict.TRIM_DROP) {
                trim_dropped.count(meta.slot);
            } else if (meta.packet.verdict == Verdict.SELECTIVE_DROP) {
                selective_dropped.count(meta.slot);
            } else if (meta.packet.verdict == Verdict.TAIL_DROP) {
                tail_dropped.count(meta.slot);
            } else {
                admitted.count(meta.slot);
            }
        }
    }
}

#endif
