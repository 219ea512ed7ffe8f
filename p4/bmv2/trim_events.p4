// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller when a queue starts to trim packets and when it stops. It has stopped when a
// packet finds it below a quarter of the packet's shallow_at: far enough from both importances'
// thresholds that a queue which hovers at one of them does not flood the controller.

#ifndef TRIMWIRE_BMV2_TRIM_EVENTS_P4
#define TRIMWIRE_BMV2_TRIM_EVENTS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// A queue starts to trim packets, or stops (P4Runtime digest).
struct trimming_t {
    bit<9>  egress_port;
    bit<3>  queue;
    bit<1>  trimming;             // 1: starts, 0: stops
    bit<32> queue_bytes;
    bit<32> turns;                // times it has started and stopped, this one included; wraps round
}

// Switches tell of digests in any order, and P4Runtime has them leave out repetitions: by `turns` a
// controller knows the order and what is missing, and no two digests are alike.
control TrimEvents(in bit<9> egress_port, in metadata_t meta) {
    // Odd while the queue trims.
    @id(0x16000002) @name(".Ingress.trimming")
    register<bit<32>>(QUEUE_SLOTS) trimming;

    bit<1>  starts;
    bit<1>  stops;
    bit<1>  turned;
    bit<32> turns;

    // One action: BMv2 holds the register's lock that long.
    @hidden
    action turn() {
        trimming.read(turns, meta.class_slot);
        turned = (starts & ~turns[0:0]) | (stops & turns[0:0]);
        turns = turns + (bit<32>)turned;
        trimming.write(meta.class_slot, turns);
    }

    apply {
        starts = 0;
        stops = 0;
        if (meta.verdict == Verdict.TRIM) {
            starts = 1;
        } else if (meta.queue_bytes < (meta.policy.shallow_at >> 2)) {
            stops = 1;
        }
        if (starts == 1 || stops == 1) {
            turn();
            if (turned == 1) {
                digest<trimming_t>(1, { egress_port, meta.queue, turns[0:0], meta.queue_bytes, turns });
            }
        }
    }
}

#endif
