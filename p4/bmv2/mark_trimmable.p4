// SPDX-License-Identifier: Apache-2.0
//
// Congestion Experienced on trimmable packets that are admitted whole, for senders that slow down
// before anything is trimmed. Which code points want it is table content; from `mark_at`, as for
// packets that are not trimmable.

#ifndef TRIMWIRE_BMV2_MARK_TRIMMABLE_P4
#define TRIMWIRE_BMV2_MARK_TRIMMABLE_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

control MarkTrimmable(inout metadata_t meta) {
    @id(0x01000011) @name(".Ingress.mark_ce")
    action mark_ce() {
        meta.verdict = Verdict.ADMIT_MARKED;
    }

    @id(0x0200000b) @name(".Ingress.mark_trimmable")
    table mark_trimmable {
        key = { meta.dscp: exact @name("dscp"); }
        actions = { mark_ce; NoAction; }
        default_action = NoAction();
        size = CODE_POINTS;
    }

    apply {
        if (meta.verdict == Verdict.ADMIT && meta.trimming == Trimming.TRIMMABLE && meta.importance == 1
            && meta.reached.mark == 1) {
            mark_trimmable.apply();
        }
    }
}

#endif
