// SPDX-License-Identifier: Apache-2.0
//
// The ladder: what becomes of a packet, given its class and the thresholds that its queue has
// reached. The first rung that holds decides.
//
//   1  TRIMMED              trim_drop reached         -> TAIL_DROP, else ADMIT
//   2  trimmable            shallow reached           -> TRIM to `trim_to`;
//                                                       if trim_drop is reached, too: ADMIT whole;
//                                                       if drop is reached as well: TRIM_DROP
//   3  otherwise, not ECT   shallow reached           -> SELECTIVE_DROP
//   4  any                  drop reached              -> TAIL_DROP
//   5  not trimmable, ECT   mark reached              -> ADMIT_MARKED
//      else                                           -> ADMIT
//
// drop_at limits what enters the packet's own queue. A trimmed packet does not enter it, so rung 4
// does not apply to it. A packet whose head finds no room is worth no less than one that cannot be
// trimmed: it is dropped where its own queue has no room either.

#ifndef TRIMWIRE_LADDER_P4
#define TRIMWIRE_LADDER_P4

#include "headers.p4"

control Ladder(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.verdict = Verdict.ADMIT;
        if (meta.trimming == Trimming.TRIMMED) {
            // A packet that arrived trimmed was classified to the trim queue: its own queue is the
            // trim queue.
            if (meta.reached.trim_drop == 1) {
                meta.verdict = Verdict.TAIL_DROP;
            }
        } else if (meta.trimming == Trimming.TRIMMABLE && hdr.udp.isValid()) {
            if (meta.reached.shallow == 1) {
                // A packet that is short enough already (trimmed by its sender) competes for its
                // own queue as it is.
                if ((meta.reached.deep == 1 && meta.deep_trimmable == 1)
                    || (meta.reached.deep == 0 && meta.shallow_trimmable == 1)) {
                    if (meta.reached.trim_drop == 0) {
                        meta.verdict = Verdict.TRIM;
                    } else if (meta.reached.drop == 1) {
                        meta.verdict = Verdict.TRIM_DROP;
                    }
                } else if (meta.reached.drop == 1) {
                    meta.verdict = Verdict.TAIL_DROP;
                }
            }
        } else if (meta.importance == 0 && meta.reached.shallow == 1) {
            meta.verdict = Verdict.SELECTIVE_DROP;
        } else if (meta.reached.drop == 1) {
            meta.verdict = Verdict.TAIL_DROP;
        } else if (meta.importance == 1 && meta.reached.mark == 1) {
            meta.verdict = Verdict.ADMIT_MARKED;
        }
    }
}

#endif
