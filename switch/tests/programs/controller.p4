// SPDX-License-Identifier: Apache-2.0
//
// Packet-in and packet-out with metadata, and digests.

#include "skeleton.p4"

@controller_header("packet_in") header packet_in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out") header packet_out_t { bit<9> egress_port; bit<7> pad; }
header op_t { bit<8> op; bit<8> small; bit<48> address; int<16> level; }
struct headers_t { packet_in_t packet_in; packet_out_t packet_out; op_t op; }
struct metadata_t { bit<8> carried; }
struct learned_t { bit<48> address; bit<9> port; }
struct odd_t { bit<8> small; bit<200> wide; bit<1> flag; bit<16> level; }

PARSER {
    state start { transition select(standard.ingress_port) { 100: from_controller; default: op; } }
    state from_controller { packet.extract(hdr.packet_out); transition op; }
    state op { packet.extract(hdr.op); transition accept; }
}
INGRESS {
    apply {
        standard.egress_spec = 1;
        if (hdr.packet_out.isValid()) { standard.egress_spec = hdr.packet_out.egress_port; hdr.packet_out.setInvalid(); }
        else if (hdr.op.op == 1) {
            standard.egress_spec = 100;
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = hdr.op.small[6:0];
        }
        else if (hdr.op.op == 2) { digest<learned_t>(1, { hdr.op.address, standard.ingress_port }); }
        else if (hdr.op.op == 3) {
            meta.carried = hdr.op.small + 1;
            digest<odd_t>(1, { meta.carried, 200w7 << hdr.op.small, hdr.op.address[0:0], (bit<16>)hdr.op.level });
            hdr.op.small = 0;
        }
        else if (hdr.op.op == 4) {
            digest<learned_t>(1, { hdr.op.address, 9w3 });
            digest<odd_t>(1, { 8w1, 200w2, 1w1, (bit<16>)hdr.op.level });
            mark_to_drop(standard);
        }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr.packet_in); packet.emit(hdr.op); } }
SWITCH
