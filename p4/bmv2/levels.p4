// SPDX-License-Identifier: Apache-2.0
//
// Which thresholds a queue has reached, in bytes, and to what length a packet would be trimmed
// there. "Reached" is ">=" against the bytes queued before this packet. Sizes are those of the
// frame behind `tunnel_bytes`.

#ifndef TRIMWIRE_BMV2_LEVELS_P4
#define TRIMWIRE_BMV2_LEVELS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

control Levels(in bit<16> tunnel_bytes, inout metadata_t meta) {
    apply {
        if (meta.trimming == Trimming.TRIMMED) {
            meta.trim_queue_bytes = meta.queue_bytes;
        }
        if (meta.trim_queue_bytes >= meta.policy.trim_drop_at) {
            meta.reached.trim_drop = 1;
        }
        if (meta.queue_bytes >= meta.policy.mark_at) {
            meta.reached.mark = 1;
        }
        if (meta.queue_bytes >= meta.policy.drop_at) {
            meta.reached.drop = 1;
        }
        if (meta.queue_bytes >= meta.policy.shallow_at) {
            meta.reached.shallow = 1;
            meta.trim_to = meta.policy.shallow_size;
            if (meta.queue_bytes >= meta.policy.deep_at) {
                meta.reached.deep = 1;
                meta.trim_to = meta.policy.deep_size;
            }
            meta.trim_to = meta.trim_to |+| tunnel_bytes;
            if (meta.trim_to < meta.head_end) {
                meta.trim_to = meta.head_end;
            }
            // Never enlarged: neither the frame nor a length field.
            if ((bit<32>)meta.trim_to < meta.frame_bytes && meta.trim_to < meta.ip_end) {
                if (meta.reached.deep == 1) {
                    meta.deep_trimmable = 1;
                } else {
                    meta.shallow_trimmable = 1;
                }
            }
        }
    }
}

#endif
