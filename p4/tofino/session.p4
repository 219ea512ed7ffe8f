// SPDX-License-Identifier: Apache-2.0
//
// Which mirror session cuts a packet. Tofino 1 takes port, queue and length from the session: two sessions a port,
// port * 2 + 1 cuts shallow, port * 2 + 2 cuts deep. (Session 0 is the hardware's own.)

#ifndef TRIMWIRE_TOFINO_SESSION_P4
#define TRIMWIRE_TOFINO_SESSION_P4

#include "headers.p4"

control ChooseSession(inout ingress_t meta) {
    apply {
        meta.bridge.session = 6w0 ++ meta.egress_port ++ 1w0;
        meta.session = meta.egress_port ++ 1w0;
        meta.bridge.session = meta.bridge.session + 2;
        if (meta.packet.reached.deep == 1) {
            meta.session = meta.session + 2;
        } else {
            meta.session = meta.session + 1;
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
