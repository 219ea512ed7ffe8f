// SPDX-License-Identifier: Apache-2.0
//
// Bytes queued per (port, queue), which BMv2 does not tell to ingress. Ingress adds what it admits, egress subtracts it.
//
// BMv2 locks a register array for the length of one action, not for an @atomic block: each read-modify-write below is
// one action, or an update from the other pipeline's thread would be lost between the read and the write.

#ifndef TRIMWIRE_BMV2_OCCUPANCY_P4
#define TRIMWIRE_BMV2_OCCUPANCY_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// Declared outside both controls because both use it.
@id(0x16000001) @name("Ingress.occupancy")
register<bit<32>>(QUEUE_SLOTS) occupancy;

control OccupancyEnter(inout metadata_t meta) {
    @hidden
    action enter() {
        bit<32> bytes;
        occupancy.read(bytes, meta.queue_slot);
        occupancy.write(meta.queue_slot, bytes + meta.queued_bytes);
    }

    apply {
        enter();
    }
}

control OccupancyLeave(inout metadata_t meta, in bit<19> packets_left) {
    @hidden
    action leave() {
        bit<32> bytes;
        occupancy.read(bytes, meta.queue_slot);
        // Saturating: what was queued before a register reset must not wrap round to four gigabytes.
        occupancy.write(meta.queue_slot, bytes |-| meta.queued_bytes);
    }

    // The queue is empty, whatever the sum says. Packets that the traffic manager dropped between the two pipelines
    // were added and never subtracted; this forgets them, so that a drop cannot fill a queue for good.
    @hidden
    action leave_empty() {
        occupancy.write(meta.queue_slot, 0);
    }

    apply {
        if (packets_left == 0) {
            leave_empty();
        } else {
            leave();
        }
    }
}

#endif
