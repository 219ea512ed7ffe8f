// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller when a queue starts to cut packets and when it stops. It has stopped when a packet finds it below a
// quarter of the packet's shallow_at: far enough from both importances' thresholds that a queue which hovers at one of them
// does not flood the controller.

#ifndef TRIMWIRE_BMV2_CUT_EVENTS_P4
#define TRIMWIRE_BMV2_CUT_EVENTS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// `told` is 1 for a packet that carries such a digest.
control CutEvents(in bit<9> egress_port, in metadata_t meta, out bit<1> told) {
    @id(0x16000002) @name(".Ingress.cutting")
    register<bit<1>>(QUEUE_SLOTS) cutting;

    bit<1> starts;
    bit<1> stops;
    bit<1> before;
    bit<1> after;

    // One action: BMv2 holds the register's lock that long.
    @hidden
    action turn() {
        cutting.read(before, meta.class_slot);
        after = (before | starts) & ~stops;
        cutting.write(meta.class_slot, after);
    }

    apply {
        told = 0;
        starts = 0;
        stops = 0;
        if (meta.verdict == Verdict.CUT) {
            starts = 1;
        } else if (meta.queue_bytes < (meta.policy.shallow_at >> 2)) {
            stops = 1;
        }
        if (starts == 1 || stops == 1) {
            turn();
            if (before != after) {
                told = 1;
                digest<cutting_t>(1, { egress_port, meta.queue, after, meta.queue_bytes });
            }
        }
    }
}

#endif
