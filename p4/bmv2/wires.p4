// SPDX-License-Identifier: Apache-2.0
//
// Whether cables are where the controller thinks. Frames to a switch carry an address that stands
// for its port: what comes for another port was sent to somebody else, and would loop or vanish.
// Probes of the controller cross one link, and come back to it with what both ends counted.

#ifndef TRIMWIRE_BMV2_WIRES_P4
#define TRIMWIRE_BMV2_WIRES_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// Frames that came in at a port, and that left there. They wrap round.
@id(0x1600000b) @name("Ingress.arrived")
register<bit<32>>(PORTS) arrived;
@id(0x1600000c) @name("Egress.departed")
register<bit<32>>(PORTS) departed;

// What a frame is by where it came in.
control Arrive(in headers_t hdr, in bit<9> ingress_port, inout metadata_t meta) {
    @id(0x01000012) @name(".Ingress.expect_mac")
    action expect_mac(bit<48> mac) {
        meta.own_mac = mac;
    }

    // Ports to switches. Hosts may send to any address.
    @id(0x0200000c) @name(".Ingress.own_mac")
    table own_mac {
        key = { ingress_port: exact @name("ingress_port"); }
        actions = { expect_mac; NoAction; }
        const default_action = NoAction();
        size = PORTS;
    }

    apply {
        own_mac.apply();
        if (meta.own_mac != 0) {
            if (hdr.probe.isValid()) {
                meta.verdict = Verdict.PROBE;
            // Group addresses are nobody's own.
            } else if (hdr.ethernet.dst_addr[40:40] == 0 && hdr.ethernet.dst_addr != meta.own_mac) {
                meta.queue = WRONG_NEIGHBOUR;
            }
        }
    }
}

// Behind the tables: what is remembered of a flow ends with the first register. Every frame comes
// here, so that nothing is asked of it.
control CountArrival(in bit<9> ingress_port) {
    bit<32> frames;

    apply {
        arrived.read(frames, (bit<32>)ingress_port);
        arrived.write((bit<32>)ingress_port, frames + 1);
    }
}

control CountDeparture(in bit<9> egress_port) {
    bit<32> frames;

    apply {
        departed.read(frames, (bit<32>)egress_port);
        departed.write((bit<32>)egress_port, frames + 1);
    }
}

#endif
