// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller when a queue starts to trim packets and when it stops. It has stopped when a
// packet finds it below a quarter of the packet's shallow_at, as on BMv2. `queue_bytes` of the
// digest is in cells here.

#ifndef TRIMWIRE_TOFINO2_TRIM_EVENTS_P4
#define TRIMWIRE_TOFINO2_TRIM_EVENTS_P4

#include "../tofino/headers.p4"

control TrimEvents(inout ingress_t meta, inout DigestType_t digest_type) {
    @name(".Ingress.trimming")
    Register<bit<8>, bit<12>>(QUEUE_SLOTS) trimming;
    bit<8>  before;
    bit<32> to_quarter;
    bit<1>  calm;

    RegisterAction<bit<8>, bit<12>, bit<8>>(trimming) start = {
        void apply(inout bit<8> state, out bit<8> was) {
            was = state;
            state = 1;
        }
    };
    RegisterAction<bit<8>, bit<12>, bit<8>>(trimming) stop = {
        void apply(inout bit<8> state, out bit<8> was) {
            was = state;
            state = 0;
        }
    };

    @hidden
    action take_quarter() {
        to_quarter = meta.packet.policy.shallow_at >> 2;
    }

    @hidden
    action compare() {
        to_quarter = to_quarter |-| meta.packet.queue_bytes;
    }

    @hidden
    action count_trim() {
        before = start.execute(meta.slot);
    }

    @hidden
    action count_pass() {
        before = stop.execute(meta.slot);
    }

    apply {
        take_quarter();
        compare();
        if (to_quarter != 0) {
            calm = 1;
        } else {
            calm = 0;
        }
        if (meta.packet.verdict == Verdict.TRIM) {
            count_trim();
            meta.event_trimming = 1;
            if (before == 0) {
                digest_type = DIGEST_TRIMMING;
            }
        } else if (meta.packet.trimming == Trimming.TRIMMABLE && calm == 1) {
            count_pass();
            meta.event_trimming = 0;
            if (before == 1) {
                digest_type = DIGEST_TRIMMING;
            }
        }
    }
}

#endif
