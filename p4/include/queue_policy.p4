// SPDX-License-Identifier: Apache-2.0
//
// Thresholds of the (egress port, queue, importance) that a packet is about to enter. A target
// applies this table, reads the two occupancies that it names, and then climbs the Ladder.

#ifndef TRIMWIRE_QUEUE_POLICY_P4
#define TRIMWIRE_QUEUE_POLICY_P4

#include "headers.p4"
#include "sizes.p4"

control QueuePolicy(in bit<9> egress_port, inout metadata_t meta) {
    @id(0x01000006) @name(".Ingress.queue_policy.set_thresholds")
    action set_thresholds(bit<32> mark_at, bit<32> shallow_at, bit<32> deep_at, bit<32> drop_at,
                          bit<16> shallow_size, bit<16> deep_size,
                          bit<6> trimmed_dscp, bit<3> trim_queue, bit<32> trim_drop_at) {
        meta.policed = 1;
        meta.policy.mark_at = mark_at;
        meta.policy.shallow_at = shallow_at;
        meta.policy.deep_at = deep_at;
        meta.policy.drop_at = drop_at;
        meta.policy.shallow_size = shallow_size;
        meta.policy.deep_size = deep_size;
        meta.policy.trimmed_dscp = trimmed_dscp;
        meta.policy.trim_queue = trim_queue;
        meta.policy.trim_drop_at = trim_drop_at;
    }

    // A queue without a policy admits everything.
    @id(0x01000007) @name(".Ingress.queue_policy.no_policy")
    action no_policy() {
        meta.policed = 0;
    }

    @id(0x02000004) @name(".Ingress.queue_policy.policy")
    table policy {
        key = {
            egress_port: exact @name("egress_port");
            meta.queue: exact @name("queue");
            meta.importance: exact @name("importance");
        }
        actions = { set_thresholds; no_policy; }
        default_action = no_policy();
        size = QUEUE_POLICIES;
    }

    apply {
        policy.apply();
    }
}

#endif
