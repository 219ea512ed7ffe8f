// SPDX-License-Identifier: Apache-2.0
//
// To what length a packet is trimmed, and whether it can be. A mirror session truncates every
// packet to the same length, so a packet whose head would not fit (BMv2 trims it behind the head)
// is not trimmed.

#ifndef TRIMWIRE_TOFINO_TRIM_P4
#define TRIMWIRE_TOFINO_TRIM_P4

#include "headers.p4"

control Trim(inout ingress_t meta) {
    bit<16> shallow_gain;
    bit<16> shallow_lack;
    bit<16> deep_gain;
    bit<16> deep_lack;

    // What a trim takes away of the IP packet, and what it would take of the head.
    @hidden
    action compare() {
        shallow_gain = meta.packet.ip_end |-| meta.packet.policy.shallow_size;
        shallow_lack = meta.packet.head_end |-| meta.packet.policy.shallow_size;
        deep_gain = meta.packet.ip_end |-| meta.packet.policy.deep_size;
        deep_lack = meta.packet.head_end |-| meta.packet.policy.deep_size;
    }

    apply {
        compare();
        if (shallow_gain != 0 && shallow_lack == 0) {
            meta.packet.shallow_trimmable = 1;
        } else {
            meta.packet.shallow_trimmable = 0;
        }
        if (deep_gain != 0 && deep_lack == 0) {
            meta.packet.deep_trimmable = 1;
        } else {
            meta.packet.deep_trimmable = 0;
        }
        if (meta.packet.reached.deep == 1) {
            meta.packet.trim_to = meta.packet.policy.deep_size;
        } else {
            meta.packet.trim_to = meta.packet.policy.shallow_size;
        }
    }
}

#endif
