// SPDX-License-Identifier: Apache-2.0
//
// Trimwire on v1model (BMv2 and the embedded switch): the shared controls of ../include, with what
// this target adds at its edges: truncate(), priorities, registers for the occupancy of queues,
// counters.
//
//   parse -> arrive -> flow -> trust -> route or answer -> classify -> trim_acl -> queue_policy
//         -> ladder -> trim_cap -> trim | mark | drop -> TM
//         -> occupancy, counters -> deparse
//
// v1model.p4 has taken the names Ingress and Egress for types, so the controls here carry the
// project's name and what a controller sees of them is named absolutely: Ingress.ipv4_route,
// Egress.transmitted.
//
// Counters are indexed by egress port * 8 + queue. BMv2 counts the bytes with which a packet
// arrived, whatever was trimmed from it since, in ingress and egress alike; so the conservation law
// (../README.md) holds in bytes as in packets.

#include <core.p4>
#include <v1model.p4>

// Headers of what Tofinos do not answer (neighbours.p4, wires.p4).
#define TRIMWIRE_V1MODEL

#include "../include/sizes.p4"
#include "../include/headers.p4"
#include "../include/parser.p4"
#include "../include/deparser.p4"
#include "../include/flow.p4"
#include "../include/load_balance.p4"
#include "../include/classify.p4"
#include "../include/trim_acl.p4"
#include "../include/queue_policy.p4"
#include "../include/extent.p4"
#include "../include/ladder.p4"
#include "../include/rewrite.p4"
#include "extensions.p4"
#include "overlay.p4"
#include "wires.p4"
#include "trust.p4"
#include "route.p4"
#include "occupancy.p4"
#include "levels.p4"
#include "trim_cap.p4"
#include "mark_trimmable.p4"
#include "trim_events.p4"
#include "checksum.p4"

@diagnostic("uninitialized-use", "disable")
parser TrimwireParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard_metadata) {
    ParseFrame() frame;

    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_frame;
        }
    }

    state parse_packet_out {
        packet.extract(hdr.packet_out);
        transition parse_frame;
    }

    state parse_frame {
        frame.apply(packet, hdr);
        transition accept;
    }
}

control TrimwireIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // Every packet with a next hop is counted by exactly one of these five, at the queue it was
    // classified to.
    @id(0x12000001) @name(".Ingress.admitted")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) admitted;
    @id(0x12000002) @name(".Ingress.trimmed")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) trimmed;
    @id(0x12000003) @name(".Ingress.trim_dropped")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) trim_dropped;
    @id(0x12000004) @name(".Ingress.selective_dropped")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) selective_dropped;
    @id(0x12000005) @name(".Ingress.tail_dropped")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) tail_dropped;
    // Of those admitted, the ones that this switch marked.
    @id(0x12000006) @name(".Ingress.marked")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) marked;
    // Packets without a next hop: no route, TTL used up, not IP, malformed.
    @id(0x12000007) @name(".Ingress.unroutable")
    counter(1, CounterType.packets_and_bytes) unroutable;

    // At ports to switches: frames for another port's address, and packets that would leave where
    // they came in. By ingress port.
    @id(0x1200000b) @name(".Ingress.wrong_neighbour")
    counter(PORTS, CounterType.packets_and_bytes) wrong_neighbour;
    @id(0x1200000c) @name(".Ingress.turned_back")
    counter(PORTS, CounterType.packets_and_bytes) turned_back;

    Arrive() arrive;
    CountArrival() count_arrival;
    Flow() flow;
    Extensions() extensions;
    Trust() trust;
    Route() route;
    Classify() classify;
    TrimAcl() trim_acl;
    QueuePolicy() queue_policy;
    Extent() extent;
    OverlayExtent() overlay_extent;
    Levels() levels;
    Ladder() ladder;
    TrimCap() trim_cap;
    MarkTrimmable() mark_trimmable;
    TrimEvents() trim_events;
    RewriteTrimmed() rewrite_trimmed;
    RewriteInner() rewrite_inner;
    MarkCongestion() mark_congestion;
    OccupancyEnter() occupancy_enter;

    bit<16> ipv6_bytes;
    bit<16> tunnel_bytes;

    // Actions, because p4c would otherwise work these sums out again at every use.
    @hidden
    action locate() {
        meta.class_slot = (bit<32>)(standard_metadata.egress_spec ++ meta.queue);
        meta.trim_slot = (bit<32>)(standard_metadata.egress_spec ++ meta.policy.trim_queue);
    }

    @hidden
    action read_occupancy() {
        occupancy.read(meta.queue_bytes, meta.class_slot);
        occupancy.read(meta.trim_queue_bytes, meta.trim_slot);
    }

    apply {
        // Until somebody names a next hop. An empty ECMP group names none.
        standard_metadata.egress_spec = DROP_PORT;
        meta.frame_bytes = standard_metadata.packet_length;

        if (hdr.packet_out.isValid()) {
            standard_metadata.egress_spec = hdr.packet_out.egress_port;
            meta.frame_bytes = standard_metadata.packet_length - PACKET_OUT_BYTES;
            meta.queue = CONTROL_QUEUE;
            if (hdr.probe.isValid()) {
                meta.verdict = Verdict.PROBE;
            }
        } else {
            arrive.apply(hdr, standard_metadata.ingress_port, meta);
            if (meta.verdict == Verdict.PROBE) {
                standard_metadata.egress_spec = CPU_PORT;
                meta.queue = CONTROL_QUEUE;
            } else if (meta.queue != WRONG_NEIGHBOUR) {
                flow.apply(hdr, meta);
                extensions.apply(hdr, ipv6_bytes, meta);
                trust.apply(hdr, standard_metadata.ingress_port, meta);
                route.apply(hdr, meta, standard_metadata);
                if (standard_metadata.egress_spec != DROP_PORT) {
                    classify.apply(meta);
                    trim_acl.apply(hdr, meta);
                    // The controller's own link has no queue policy: it is not a link that
                    // gradients cross.
                    if (standard_metadata.egress_spec != CPU_PORT) {
                        queue_policy.apply(standard_metadata.egress_spec, meta);
                    }
                }
            }
        }

        count_arrival.apply(standard_metadata.ingress_port);
        if (standard_metadata.egress_spec == DROP_PORT) {
            if (meta.queue == WRONG_NEIGHBOUR) {
                wrong_neighbour.count((bit<32>)standard_metadata.ingress_port);
            } else if (meta.queue == TURNED_BACK) {
                turned_back.count((bit<32>)standard_metadata.ingress_port);
            } else {
                unroutable.count(0);
            }
            mark_to_drop(standard_metadata);
        } else {
            locate();
            meta.queue_slot = meta.class_slot;
            meta.queued_bytes = meta.frame_bytes;
            if (meta.policed == 1) {
                read_occupancy();
                extent.apply(hdr, (bit<16>)hdr.ipv4.ihl << 2, ipv6_bytes, meta);
                overlay_extent.apply(hdr, tunnel_bytes, meta);
                levels.apply(tunnel_bytes, meta);
                ladder.apply(hdr, meta);
                if (meta.verdict == Verdict.TRIM) {
                    // packet_length keeps the original length in egress: the length to subtract
                    // there travels along.
                    meta.queued_bytes = (bit<32>)meta.trim_to;
                }
                if (meta.verdict == Verdict.TRIM
                    || (meta.trimming == Trimming.TRIMMED && meta.verdict == Verdict.ADMIT)) {
                    trim_cap.apply(standard_metadata.egress_spec, standard_metadata.ingress_global_timestamp, meta);
                }
                mark_trimmable.apply(meta);
                if (meta.trimming == Trimming.TRIMMABLE) {
                    trim_events.apply(standard_metadata.egress_spec, meta);
                }
            }

            if (meta.verdict == Verdict.ADMIT) {
                admitted.count(meta.class_slot);
            } else if (meta.verdict == Verdict.TRIM) {
                trimmed.count(meta.class_slot);
                rewrite_trimmed.apply(hdr, meta);
                rewrite_inner.apply(hdr, tunnel_bytes, meta);
                truncate((bit<32>)meta.trim_to);
                meta.queue = meta.policy.trim_queue;
                meta.queue_slot = meta.trim_slot;
            } else if (meta.verdict == Verdict.ADMIT_MARKED) {
                admitted.count(meta.class_slot);
                marked.count(meta.class_slot);
                mark_congestion.apply(hdr);
            } else if (meta.verdict == Verdict.PROBE) {
                // In no counter: a port that nothing but probes leaves from is quiet.
                arrived.read(hdr.probe.arrived, (bit<32>)standard_metadata.ingress_port);
            } else {
                if (meta.verdict == Verdict.TRIM_DROP) {
                    trim_dropped.count(meta.class_slot);
                } else if (meta.verdict == Verdict.SELECTIVE_DROP) {
                    selective_dropped.count(meta.class_slot);
                } else {
                    tail_dropped.count(meta.class_slot);
                }
                mark_to_drop(standard_metadata);
            }

            // Options that a solicitation had are not in its answer.
            if (hdr.nd_option.isValid()) {
                meta.queued_bytes = (bit<32>)(ETHERNET_BYTES + IPV6_BYTES + ADVERTISEMENT_BYTES);
                if (hdr.vlan.isValid()) {
                    meta.queued_bytes = meta.queued_bytes + (bit<32>)VLAN_BYTES;
                }
                truncate(meta.queued_bytes);
            }

            if (standard_metadata.egress_spec != DROP_PORT) {
                standard_metadata.priority = meta.queue;
                occupancy_enter.apply((bit<32>)standard_metadata.ingress_global_timestamp, meta);
            }
        }
    }
}

control TrimwireEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard_metadata) {
    // What left, at the queue that it was in.
    @id(0x12000008) @name(".Egress.transmitted")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) transmitted;
    // Of those, the packets trimmed here, at the queue they were classified to: where
    // Ingress.trimmed counted them.
    @id(0x12000009) @name(".Egress.trim_transmitted")
    counter(QUEUE_SLOTS, CounterType.packets_and_bytes) trim_transmitted;

    OccupancyLeave() occupancy_leave;
    CountDeparture() count_departure;

    apply {
        occupancy_leave.apply(meta, standard_metadata.deq_qdepth,
                              standard_metadata.enq_timestamp + standard_metadata.deq_timedelta);
        count_departure.apply(standard_metadata.egress_port);
        if (meta.verdict == Verdict.PROBE) {
            if (standard_metadata.egress_port != CPU_PORT) {
                departed.read(hdr.probe.departed, (bit<32>)standard_metadata.egress_port);
            }
        } else {
            transmitted.count(meta.queue_slot);
            if (meta.verdict == Verdict.TRIM) {
                trim_transmitted.count(meta.class_slot);
            }
        }
        if (standard_metadata.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard_metadata.ingress_port;
            hdr.packet_in.pad = 0;
        }
    }
}

control TrimwireDeparser(packet_out packet, in headers_t hdr) {
    EmitFrame() frame;

    apply {
        frame.apply(packet, hdr);
        packet.emit(hdr.probe);
        packet.emit(hdr.arp);
        packet.emit(hdr.nd);
        packet.emit(hdr.nd_option);
    }
}

V1Switch(TrimwireParser(), VerifyIpv4Checksum(), TrimwireIngress(), TrimwireEgress(), UpdateChecksums(),
         TrimwireDeparser()) main;
