// SPDX-License-Identifier: Apache-2.0
//
// Ingress of Tofino 1 cannot see the queues. A byte meter near line rate stands for one: its
// committed bucket (CBS = shallow_at) is empty when about shallow_at bytes wait. Its peak bucket
// (PBS = deep_at) is no second threshold of the same queue: packets that are trimmed take their
// tokens from it, too. The traffic manager's limit, and deflect-on-drop, hold the queue
// (docs/how-to/tofino.md, "Meters").
//
// Two arrays, because the two importances have their own thresholds. Every packet goes through
// both, so that both see all that enters the queue; the packet's importance says which one it
// obeys.

#ifndef TRIMWIRE_TOFINO_VIRTUAL_QUEUE_P4
#define TRIMWIRE_TOFINO_VIRTUAL_QUEUE_P4

#include "headers.p4"

// What a meter says; green is 0.
const bit<8> YELLOW = 1;
const bit<8> RED = 3;

control VirtualQueue(inout ingress_t meta) {
    @id(0x14000001) @name(".Ingress.virtual_queue_low")
    Meter<bit<12>>(QUEUE_SLOTS, MeterType_t.BYTES) low;
    @id(0x14000002) @name(".Ingress.virtual_queue_high")
    Meter<bit<12>>(QUEUE_SLOTS, MeterType_t.BYTES) high;
    bit<8> low_color;
    bit<8> high_color;

    @hidden
    action enter_low() {
        low_color = low.execute(meta.slot);
    }

    @hidden
    action enter_high() {
        high_color = high.execute(meta.slot);
    }

    @hidden
    action reach_shallow() {
        meta.packet.reached.mark = 1;
        meta.packet.reached.shallow = 1;
    }

    // `trim_drop` is asked for by packets that were trimmed upstream, whose queue this is then. Of
    // what is trimmed here and goes to the trim queue, ingress sees nothing: the ladder is told of
    // no full trim queue, and the traffic manager has one.
    @hidden
    action reach_deep() {
        meta.packet.reached.mark = 1;
        meta.packet.reached.shallow = 1;
        meta.packet.reached.deep = 1;
        meta.packet.reached.drop = 1;
        meta.packet.reached.trim_drop = (bit<1>)meta.packet.trimming[1:1];
    }

    apply {
        // What has no next hop enters no queue.
        if (meta.routed == 1) {
            enter_low();
            enter_high();
        }
        meta.packet.reached.mark = 0;
        meta.packet.reached.shallow = 0;
        meta.packet.reached.deep = 0;
        meta.packet.reached.drop = 0;
        meta.packet.reached.trim_drop = 0;
        if (meta.packet.importance == 0 && low_color == YELLOW) {
            reach_shallow();
        } else if (meta.packet.importance == 0 && low_color == RED) {
            reach_deep();
        } else if (meta.packet.importance == 1 && high_color == YELLOW) {
            reach_shallow();
        } else if (meta.packet.importance == 1 && high_color == RED) {
            reach_deep();
        }
    }
}

#endif
