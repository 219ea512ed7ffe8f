// SPDX-License-Identifier: Apache-2.0
//
// Trimwire on Tofino 1 (TNA): the shared controls of ../include, with what this target adds at its
// edges: virtual queues made of meters, mirror sessions that truncate, deflection on drop.
//
//   parse -> flow -> path -> route -> classify -> trim_acl -> queue_policy -> virtual_queue -> trim
//         -> ladder
//         -> mirror + drop | mark | drop -> TM
//         -> (copy: lengths, DSCP; deflected: mirror + drop) -> counters -> deparse

#include <core.p4>
#include <tna.p4>

// The PCIe port of a switch with four pipes; with two it is 192.
#ifndef CPU_PORT
#define CPU_PORT 320
#endif

#include "../include/sizes.p4"
#include "headers.p4"
#include "parser.p4"
#include "deparser.p4"
#include "forwarding.p4"
#include "virtual_queue.p4"
#include "trim.p4"
#include "session.p4"
#include "trim_events.p4"
#include "../include/ladder.p4"
#include "egress.p4"

control TrimwireIngress(inout headers_t hdr, inout ingress_t meta,
                        in ingress_intrinsic_metadata_t intrinsic,
                        in ingress_intrinsic_metadata_from_parser_t from_parser,
                        inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                        inout ingress_intrinsic_metadata_for_tm_t to_tm) {
    Forwarding() forwarding;
    VirtualQueue() virtual_queue;
    Trim() trim;
    ChooseSession() choose_session;
    Ladder() ladder;
    TrimEvents() trim_events;
    Disposal() disposal;

    apply {
        forwarding.apply(hdr, meta);
        virtual_queue.apply(meta);
        trim.apply(meta);
        choose_session.apply(meta);
        if (meta.routed == 1 && meta.packet.policed == 1) {
            ladder.apply(hdr, meta.packet);
            trim_events.apply(from_parser.global_tstamp, meta, to_deparser.digest_type);
        }
        disposal.apply(hdr, meta, intrinsic.ingress_port, to_deparser, to_tm);
    }
}

Pipeline(TrimwireIngressParser(), TrimwireIngress(), TrimwireIngressDeparser(),
         TrimwireEgressParser(), TrimwireEgress(), TrimwireEgressDeparser()) pipe;

Switch(pipe) main;
