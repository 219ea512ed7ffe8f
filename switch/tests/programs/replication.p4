// SPDX-License-Identifier: Apache-2.0
//
// Clones from both pipelines, resubmission, recirculation, multicast, truncation, drops, and what survives them.

#include "skeleton.p4"

header op_t { bit<8> op; bit<8> again; bit<16> group; bit<32> value; }
header report_t { bit<8> instance; bit<8> kept; bit<8> lost; bit<8> passes; bit<32> length; bit<16> rid; bit<16> ports; }
struct headers_t { op_t op; report_t report; }
struct metadata_t {
    @field_list(1, 2) bit<8> passes;
    @field_list(2) bit<8> kept;
    bit<8> lost;
}
PARSER { state start { packet.extract(hdr.op); transition accept; } }
INGRESS {
    apply {
        standard.egress_spec = 1;
        if (hdr.op.op == 1) { clone(CloneType.I2E, 5); meta.kept = 1; meta.lost = 2; hdr.op.value = 0x11111111; }
        if (hdr.op.op == 2) { meta.kept = 0x21; clone_preserving_field_list(CloneType.I2E, 6, 2); meta.kept = 0x22; meta.lost = 0x23; hdr.op.value = 0x22222222; }
        if (hdr.op.op == 3) { standard.mcast_grp = hdr.op.group; meta.kept = 3; meta.lost = 4; }
        if (hdr.op.op == 4 && standard.instance_type == 0) { meta.passes = meta.passes + 1; meta.lost = 9; hdr.op.value = 0x44444444; resubmit_preserving_field_list(1); }
        if (hdr.op.op == 5 && meta.passes < hdr.op.again[1:0] ++ 6w0 >> 6) { meta.passes = meta.passes + 1; meta.kept = meta.kept + 2; resubmit_preserving_field_list(2); }
        if (hdr.op.op == 6) { truncate((bit<32>)hdr.op.again); }
        if (hdr.op.op == 7) { mark_to_drop(standard); }
        if (hdr.op.op == 8) { truncate(10); clone(CloneType.I2E, 5); }
        if (hdr.op.op == 9) { truncate(12); standard.mcast_grp = hdr.op.group; }
        if (hdr.op.op == 10) { clone(CloneType.I2E, 6); mark_to_drop(standard); }
        if (hdr.op.op == 11) { clone(CloneType.I2E, 5); clone(CloneType.I2E, 6); }
        if (hdr.op.op == 12) { standard.mcast_grp = hdr.op.group; mark_to_drop(standard); }
        if (hdr.op.op == 13) { mark_to_drop(standard); standard.egress_spec = 2; }
        if (hdr.op.op == 14) { clone(CloneType.I2E, 7); standard.mcast_grp = hdr.op.group; }
        if (hdr.op.op == 20) { meta.kept = 5; meta.lost = 6; }
        if (hdr.op.op == 24) { meta.passes = meta.passes + 1; if (standard.instance_type == 4) { standard.egress_spec = 3; } }
    }
}
EGRESS {
    apply {
        if (hdr.op.op == 20 && standard.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 5, 2); meta.kept = 7; hdr.op.value = 0x20202020; }
        if (hdr.op.op == 21 && standard.instance_type == 0) { clone(CloneType.E2E, 6); mark_to_drop(standard); }
        if (hdr.op.op == 22) { truncate((bit<32>)hdr.op.again); }
        if (hdr.op.op == 23) { mark_to_drop(standard); }
        if (hdr.op.op == 24 && meta.passes < 3) { hdr.op.value = hdr.op.value + 1; recirculate_preserving_field_list(1); }
        if (hdr.op.op == 25 && standard.egress_rid == 2) { mark_to_drop(standard); }
        if (hdr.op.op == 26 && hdr.op.again > 0) { hdr.op.again = hdr.op.again >> 1; truncate(9); recirculate_preserving_field_list(0); }
        if (!(hdr.op.op == 24 && meta.passes < 3) && hdr.op.op != 26) {
            hdr.report = { (bit<8>)standard.instance_type, meta.kept, meta.lost, meta.passes, standard.packet_length, standard.egress_rid,
                7w0 ++ standard.egress_port };
            hdr.report.setValid();
        }
    }
}
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
