// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller when a queue starts to cut packets and when it stops. A meter does not say how full it is, so on Tofino 1
// a queue has stopped when a packet of it comes that is not cut, a millisecond after the last that was.

#ifndef TRIMWIRE_TOFINO_CUT_EVENTS_P4
#define TRIMWIRE_TOFINO_CUT_EVENTS_P4

#include "headers.p4"

struct cutting_state_t {
    bit<16> cutting;
    bit<16> last_cut;    // units of 65,536 ns
}

control CutEvents(in bit<48> now_ns, inout ingress_t meta, inout DigestType_t digest_type) {
    @name(".Ingress.cutting")
    Register<cutting_state_t, bit<12>>(QUEUE_SLOTS) cutting;
    bit<16> now;
    bit<16> before;

    // Returns whether the queue was cutting.
    RegisterAction<cutting_state_t, bit<12>, bit<16>>(cutting) cut = {
        void apply(inout cutting_state_t state, out bit<16> was) {
            was = state.cutting;
            state.cutting = 1;
            state.last_cut = now;
        }
    };

    // Returns whether it has stopped just now.
    RegisterAction<cutting_state_t, bit<12>, bit<16>>(cutting) pass = {
        void apply(inout cutting_state_t state, out bit<16> was) {
            was = 0;
            if (now - state.last_cut > 15) {
                was = state.cutting;
                state.cutting = 0;
            }
        }
    };

    @hidden
    action count_cut() {
        before = cut.execute(meta.slot);
    }

    @hidden
    action count_pass() {
        before = pass.execute(meta.slot);
    }

    apply {
        now = now_ns[31:16];
        meta.packet.queue_bytes = 0;   // a meter does not say
        if (meta.packet.verdict == Verdict.CUT) {
            count_cut();
            meta.event_cutting = 1;
            if (before == 0) {
                digest_type = DIGEST_CUTTING;
            }
        } else if (meta.packet.trimming == Trimming.TRIMMABLE && meta.packet.policed == 1) {
            count_pass();
            meta.event_cutting = 0;
            if (before == 1) {
                digest_type = DIGEST_CUTTING;
            }
        }
    }
}

#endif
