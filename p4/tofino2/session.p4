// SPDX-License-Identifier: Apache-2.0
//
// Which mirror session trims a packet. Tofino 2 has 255 sessions, too few for two a port, but takes
// the copy's port and queue from ingress. What is left for the session is the length: session =
// size / 32.

#ifndef TRIMWIRE_TOFINO2_SESSION_P4
#define TRIMWIRE_TOFINO2_SESSION_P4

#include "../tofino/headers.p4"

control ChooseSession(inout ingress_t meta) {
    // Wires, not hashes: a way to take a number's middle bits that ties no containers together.
    Hash<MirrorId_t>(HashAlgorithm_t.IDENTITY) shorten;
    Hash<MirrorId_t>(HashAlgorithm_t.IDENTITY) shorten_deep;

    @hidden
    action choose() {
        meta.session = shorten.get({ meta.packet.trim_to[12:5] });
    }

    @hidden
    action choose_deep() {
        meta.deep_session = shorten_deep.get({ meta.packet.policy.deep_size[12:5] });
    }

    apply {
        choose();
        choose_deep();
    }
}

control DirectCopy(in ingress_t meta, inout ingress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
        to_deparser.mirror_io_select = 0;
        to_deparser.mirror_egress_port = meta.egress_port;
        to_deparser.mirror_qid = (QueueId_t)meta.packet.policy.trim_queue;
    }
}

control DirectDeflectedCopy(in egress_t meta, inout egress_intrinsic_metadata_for_deparser_t to_deparser) {
    apply {
        to_deparser.mirror_io_select = 1;
        to_deparser.mirror_egress_port = meta.bridge.class_slot[11:3];
        to_deparser.mirror_qid = (QueueId_t)meta.bridge.trim_queue;
    }
}

#endif
