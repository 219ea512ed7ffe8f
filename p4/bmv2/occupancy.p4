// SPDX-License-Identifier: Apache-2.0
//
// Bytes queued per (port, queue), which BMv2 does not tell to ingress.
//
// Ingress adds up all that ever entered a queue, and a packet takes the sum along in which it is
// the last. A queue is served in its order: when that packet leaves, all that the sum holds has
// left, or was dropped by a traffic manager that tells nobody. So nothing drifts, whatever ingress
// adds while egress works, and what was dropped is forgotten with the next that leaves.
//
// Behind the last one there is no next. Where the traffic manager says that a packet left an empty
// queue, and nothing has entered since, all that was added behind it was dropped.
//
// BMv2 locks the registers of an action for as long as it runs, not those of an @atomic block: each
// update is one action, or the other pipeline's thread would come between a read and a write.

#ifndef TRIMWIRE_BMV2_OCCUPANCY_P4
#define TRIMWIRE_BMV2_OCCUPANCY_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// Declared outside both controls because both use most of them. All are counted in bytes but the
// time.
@id(0x16000001) @name("Ingress.occupancy")
register<bit<32>>(QUEUE_SLOTS) occupancy;
// All that entered, and the part of it that is gone. They wrap round; differences do not mind.
@id(0x16000004) @name("Ingress.entered")
register<bit<32>>(QUEUE_SLOTS) entered;
@id(0x16000005) @name("Ingress.gone")
register<bit<32>>(QUEUE_SLOTS) gone;
// When something entered last, microseconds.
@id(0x16000006) @name("Ingress.entered_at")
register<bit<32>>(QUEUE_SLOTS) entered_at;
// The most that `occupancy` was in this window of 2^23 us (8.4 s), and in the one before: what is
// over in microseconds, nobody reads in time. A window ends with the first packet after it.
@id(0x16000009) @name("Ingress.peak")
register<bit<32>>(QUEUE_SLOTS) peak;
@id(0x1600000a) @name("Ingress.peak_before")
register<bit<32>>(QUEUE_SLOTS) peak_before;

control OccupancyEnter(in bit<32> now_us, inout metadata_t meta) {
    bit<32> bytes;
    bit<32> last_us;
    bit<32> most;

    @hidden
    action enter() {
        bit<32> sum;
        occupancy.read(bytes, meta.queue_slot);
        entered.read(sum, meta.queue_slot);
        entered_at.read(last_us, meta.queue_slot);
        peak.read(most, meta.queue_slot);
        meta.entered_with = sum + meta.queued_bytes;
        bytes = bytes + meta.queued_bytes;
        occupancy.write(meta.queue_slot, bytes);
        entered.write(meta.queue_slot, meta.entered_with);
        entered_at.write(meta.queue_slot, now_us);
    }

    // Nobody else touches the peaks, so that they need no action of their own.
    apply {
        enter();
        if (now_us[31:23] != last_us[31:23]) {
            bit<9> windows = now_us[31:23] - last_us[31:23];
            peak_before.write(meta.queue_slot, windows == 1 ? most : 0);
            most = 0;
        }
        if (bytes > most) {
            peak.write(meta.queue_slot, bytes);
        }
    }
}

control OccupancyLeave(in metadata_t meta, in bit<19> packets_left, in bit<32> dequeued_us) {
    @hidden
    action leave() {
        bit<32> bytes;
        bit<32> sum;
        bit<32> before;
        bit<32> last_us;
        occupancy.read(bytes, meta.queue_slot);
        entered.read(sum, meta.queue_slot);
        gone.read(before, meta.queue_slot);
        entered_at.read(last_us, meta.queue_slot);
        bool is_last = packets_left == 0 && dequeued_us - last_us < 0x80000000;
        bit<32> after = is_last ? sum : meta.entered_with;
        // Between what was gone and all that entered, or the packet is of a time before the
        // registers were reset.
        bool is_ours = after - before <= sum - before;
        after = is_ours ? after : before;
        gone.write(meta.queue_slot, after);
        occupancy.write(meta.queue_slot, bytes |-| (after - before));
    }

    apply {
        leave();
    }
}

#endif
