// SPDX-License-Identifier: Apache-2.0
//
// Trimwire on Tofino 2 (T2NA): as on Tofino 1 (../tofino/trimwire.p4), but ingress knows how long
// the queues are.
//
//   parse -> flow -> path -> route -> classify -> trim_acl -> queue_policy -> queue_length -> trim
//         -> ladder
//         -> mirror + drop | mark | drop -> TM
//         -> (copy: lengths, DSCP; deflected: mirror + drop) -> counters -> deparse

#include <core.p4>
#include <t2na.p4>

// The PCIe port.
#ifndef CPU_PORT
#define CPU_PORT 0
#endif

#include "../include/sizes.p4"
#include "../tofino/headers.p4"
#include "../tofino/parser.p4"
#include "../tofino/deparser.p4"
#include "../tofino/forwarding.p4"
#include "queue_length.p4"
#include "../tofino/trim.p4"
#include "session.p4"
#include "trim_events.p4"
#include "../include/ladder.p4"
#include "../tofino/egress.p4"

control TrimwireIngress(inout headers_t hdr, inout ingress_t meta,
                        in ingress_intrinsic_metadata_t intrinsic,
                        in ingress_intrinsic_metadata_from_parser_t from_parser,
                        inout ingress_intrinsic_metadata_for_deparser_t to_deparser,
                        inout ingress_intrinsic_metadata_for_tm_t to_tm,
                        in ghost_intrinsic_metadata_t ghost) {
    Forwarding() forwarding;
    QueueLength() queue_length;
    Trim() trim;
    ChooseSession() choose_session;
    DirectCopy() direct_copy;
    Ladder() ladder;
    TrimEvents() trim_events;
    Disposal() disposal;

    apply {
        forwarding.apply(hdr, meta);
        queue_length.apply(meta);
        trim.apply(meta);
        choose_session.apply(meta);
        direct_copy.apply(meta, to_deparser);
        if (meta.routed == 1 && meta.packet.policed == 1) {
            ladder.apply(hdr, meta.packet);
            trim_events.apply(meta, to_deparser.digest_type);
        }
        disposal.apply(hdr, meta, intrinsic.ingress_port, to_deparser, to_tm);
    }
}

Pipeline(TrimwireIngressParser(), TrimwireIngress(), TrimwireIngressDeparser(),
         TrimwireEgressParser(), TrimwireEgress(), TrimwireEgressDeparser(),
         TrimwireGhost()) pipe;

Switch(pipe) main;
