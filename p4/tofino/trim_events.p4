// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller when a queue starts to trim packets and when it stops. A meter does not say
// how full it is, so on Tofino 1 a queue has stopped when a packet of it comes that is not trimmed,
// a millisecond after the last that was.

#ifndef TRIMWIRE_TOFINO_TRIM_EVENTS_P4
#define TRIMWIRE_TOFINO_TRIM_EVENTS_P4

#include "headers.p4"

struct trimming_state_t {
    bit<16> trimming;
    bit<16> last_trim;            // units of 65,536 ns
}

control TrimEvents(in bit<48> now_ns, inout ingress_t meta, inout DigestType_t digest_type) {
    @name(".Ingress.trimming")
    Register<trimming_state_t, bit<12>>(QUEUE_SLOTS) trimming;
    bit<16> now;
    bit<16> before;

    // Returns whether the queue was trimming.
    RegisterAction<trimming_state_t, bit<12>, bit<16>>(trimming) trims = {
        void apply(inout trimming_state_t state, out bit<16> was) {
            was = state.trimming;
            state.trimming = 1;
            state.last_trim = now;
        }
    };

    // Returns whether it has stopped just now.
    RegisterAction<trimming_state_t, bit<12>, bit<16>>(trimming) pass = {
        void apply(inout trimming_state_t state, out bit<16> was) {
            was = 0;
            if (now - state.last_trim > 15) {
                was = state.trimming;
                state.trimming = 0;
            }
        }
    };

    @hidden
    action count_trim() {
        before = trims.execute(meta.slot);
    }

    @hidden
    action count_pass() {
        before = pass.execute(meta.slot);
    }

    apply {
        now = now_ns[31:16];
        meta.packet.queue_bytes = 0;   // a meter does not say
        if (meta.packet.verdict == Verdict.TRIM) {
            count_trim();
            meta.event_trimming = 1;
            if (before == 0) {
                digest_type = DIGEST_TRIMMING;
            }
        } else if (meta.packet.trimming == Trimming.TRIMMABLE && meta.packet.policed == 1) {
            count_pass();
            meta.event_trimming = 0;
            if (before == 1) {
                digest_type = DIGEST_TRIMMING;
            }
        }
    }
}

#endif
