// SPDX-License-Identifier: Apache-2.0
//
// How a packet picks one of several equal paths, by its DSCP. A target computes the hash that
// `path_choice` names and gives the selectors of the route tables `meta.path`.

#ifndef TRIMWIRE_LOAD_BALANCE_P4
#define TRIMWIRE_LOAD_BALANCE_P4

#include "headers.p4"
#include "sizes.p4"

control LoadBalance(inout metadata_t meta) {
    // The sender sprays, with the UDP source port as entropy; whoever keeps the port keeps the
    // path. `half` picks 16 bits of the 32-bit hash: where two tiers of a fabric use the same bits,
    // the second has nothing left to choose from.
    @id(0x01000008) @name(".Ingress.hash_five_tuple")
    action hash_five_tuple(bit<1> half) {
        meta.path_choice = PathChoice.FIVE_TUPLE;
        meta.hash_half = half;
    }

    // The source port does not count: all packets between two hosts, to one port, take one path and
    // arrive in order.
    @id(0x01000009) @name(".Ingress.hash_flow")
    action hash_flow(bit<1> half) {
        meta.path_choice = PathChoice.FLOW;
        meta.hash_half = half;
    }

    // The switch sprays, for senders that do not.
    @id(0x0100000a) @name(".Ingress.spray_packet")
    action spray_packet() {
        meta.path_choice = PathChoice.PACKET;
    }

    @id(0x02000005) @name(".Ingress.load_balance")
    table load_balance {
        key = { meta.dscp: exact @name("dscp"); }
        actions = { hash_five_tuple; hash_flow; spray_packet; }
        default_action = hash_five_tuple(0);
        size = CODE_POINTS;
    }

    apply {
        load_balance.apply();
    }
}

#endif
