// SPDX-License-Identifier: Apache-2.0
//
// DSCP -> queue and what may be done to the packet. The DSCP plan is table content, not program.

#ifndef TRIMWIRE_CLASSIFY_P4
#define TRIMWIRE_CLASSIFY_P4

#include "headers.p4"
#include "sizes.p4"

control Classify(inout metadata_t meta) {
    @id(0x01000003) @name(".Ingress.set_trimmable")
    action set_trimmable(bit<3> queue) {
        meta.trimming = Trimming.TRIMMABLE;
        meta.queue = queue;
    }

    @id(0x01000004) @name(".Ingress.set_trimmed")
    action set_trimmed(bit<3> queue) {
        meta.trimming = Trimming.TRIMMED;
        meta.queue = queue;
    }

    @id(0x01000005) @name(".Ingress.set_plain")
    action set_plain(bit<3> queue) {
        meta.trimming = Trimming.PLAIN;
        meta.queue = queue;
    }

    @id(0x02000003) @name(".Ingress.classify")
    table classify {
        key = { meta.dscp: exact @name("dscp"); }
        actions = { set_trimmable; set_trimmed; set_plain; }
        default_action = set_plain(0);
        size = CODE_POINTS;
    }

    apply {
        classify.apply();
    }
}

#endif
