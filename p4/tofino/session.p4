// SPDX-License-Identifier: Apache-2.0
//
// Which mirror session trims a packet. Tofino 1 takes port, queue and length from the session: two
// sessions a port, port * 2 + 1 trims shallow, port * 2 + 2 trims deep. (Session 0 is the
// hardware's own.)

#ifndef TRIMWIRE_TOFINO_SESSION_P4
#define TRIMWIRE_TOFINO_SESSION_P4

#include "headers.p4"

control ChooseSession(inout ingress_t meta) {
    // A wire, not a hash: a way to put bits beside each other that ties no containers together.
    Hash<MirrorId_t>(HashAlgorithm_t.IDENTITY) twice;
    Hash<MirrorId_t>(HashAlgorithm_t.IDENTITY) twice_again;

    MirrorId_t shallow_session;

    @hidden
    action double_port() {
        shallow_session = twice.get({ meta.egress_port, 1w0 });
    }

    @hidden
    action double_port_again() {
        meta.deep_session = twice_again.get({ meta.egress_port, 1w0 });
    }

    apply {
        double_port();
        double_port_again();
        shallow_session = shallow_session + 1;
        meta.deep_session = meta.deep_session + 2;
        if (meta.packet.reached.deep == 1) {
            meta.session = meta.deep_session;
        } else {
            meta.session = shallow_session;
        }
    }
}

control DirectCopy(in ingress_t meta, inout ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
    }
}

control DirectDeflectedCopy(in egress_t meta, inout egress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
    }
}

#endif
