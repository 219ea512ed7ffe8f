// SPDX-License-Identifier: Apache-2.0
//
// Externs and what happens between the pipelines. The packet's first byte says what to do; see the tests.

#include <core.p4>
#include <v1model.p4>

header command_t { bit<8> op; bit<8> arg; bit<16> index; bit<32> value; }
header report_t {
    bit<8> instance; bit<8> passes; bit<32> length; bit<16> rid; bit<9> ingress_port; bit<9> egress_port; bit<6> pad;
    bit<48> ingress_us; bit<48> egress_us; bit<32> enq_us; bit<24> enq_depth; bit<32> waited_us; bit<24> deq_depth;
}
struct headers_t { report_t report; command_t command; }
struct metadata_t { @field_list(1) bit<8> passes; @field_list(1, 2) bit<8> kept; bit<8> lost; @field_list(3) bit<8> other; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.command); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

struct digest_t { bit<8> op; bit<32> value; }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    counter(8, CounterType.packets_and_bytes) counted;
    register<bit<32>>(8) cells;
    register<bit<200>>(2) wide_cells;
    register<bit<48>>(2) cells48;
    meter(4, MeterType.bytes) meters;

    apply {
        standard.egress_spec = 1;
        if (hdr.command.op == 1) { counted.count((bit<32>)hdr.command.index); }
        if (hdr.command.op == 2) { cells.write((bit<32>)hdr.command.index, hdr.command.value); }
        if (hdr.command.op == 3) { cells.read(hdr.command.value, (bit<32>)hdr.command.index); }
        if (hdr.command.op == 4) { truncate((bit<32>)hdr.command.arg); }
        if (hdr.command.op == 5) { mark_to_drop(standard); }
        if (hdr.command.op == 6) { standard.mcast_grp = hdr.command.index; }
        if (hdr.command.op == 7) { clone_preserving_field_list(CloneType.I2E, 5, 2); meta.kept = 0x77; meta.lost = 0x66; hdr.command.value = 1; }
        if (hdr.command.op == 8) {
            meta.passes = meta.passes + 1;
            if (meta.passes < hdr.command.arg) { resubmit_preserving_field_list(1); hdr.command.value = 0xdead; }
        }
        if (hdr.command.op == 9) { hash(hdr.command.value, HashAlgorithm.crc16, 32w10, { hdr.command.index, hdr.command.arg }, 32w100); }
        if (hdr.command.op == 10) { hash(hdr.command.value, HashAlgorithm.crc32, 32w0, { hdr.command.index, hdr.command.arg }, 64w0x100000000); }
        if (hdr.command.op == 11) { hash(hdr.command.value, HashAlgorithm.identity, 32w0, { hdr.command.index, hdr.command.arg }, 64w0x100000000); }
        if (hdr.command.op == 12) { hash(hdr.command.value, HashAlgorithm.csum16, 32w0, { hdr.command.index, hdr.command.arg }, 64w0x100000000); }
        if (hdr.command.op == 13) { hash(hdr.command.value, HashAlgorithm.xor16, 32w0, { hdr.command.index, hdr.command.arg }, 64w0x100000000); }
        if (hdr.command.op == 14) { random(hdr.command.value, 10, 20); }
        if (hdr.command.op == 15) { bit<32> color; meters.execute_meter((bit<32>)hdr.command.index, color); hdr.command.value = color; }
        if (hdr.command.op == 16) { digest<digest_t>(1, { hdr.command.op, hdr.command.value }); }
        if (hdr.command.op == 17) { exit; }
        if (hdr.command.op == 18) { assert(hdr.command.arg != 0); }
        if (hdr.command.op == 19) { log_msg("value {} of {}", { hdr.command.value, hdr.command.index }); }
        if (hdr.command.op == 20) { standard.priority = hdr.command.arg[2:0]; }
        if (hdr.command.op == 21) { wide_cells.write(1, (bit<200>)hdr.command.value); cells48.write(1, 0xffffffffffff); }
        if (hdr.command.op == 24) { truncate((bit<32>)hdr.command.arg); standard.mcast_grp = hdr.command.index; }
        standard.egress_spec = standard.egress_spec == 511 ? 9w511 : 9w3;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        if (hdr.command.op == 22 && standard.instance_type == 0) { clone_preserving_field_list(CloneType.E2E, 5, 2); meta.kept = 0x55; hdr.command.value = 2; }
        if (hdr.command.op == 23) {
            if (meta.passes < 2) { meta.passes = meta.passes + 1; hdr.command.value = hdr.command.value + 1; recirculate_preserving_field_list(1); }
        }
        if (hdr.command.op == 25) { mark_to_drop(standard); }
        if (hdr.command.op == 26) { truncate((bit<32>)hdr.command.arg); }
        if (!(hdr.command.op == 23 && meta.passes < 2) && hdr.command.op != 23) {
            hdr.report.setValid();
            hdr.report.instance = (bit<8>)standard.instance_type;
            hdr.report.passes = meta.passes | meta.kept | meta.lost;
            hdr.report.length = standard.packet_length;
            hdr.report.rid = standard.egress_rid;
            hdr.report.ingress_port = standard.ingress_port;
            hdr.report.egress_port = standard.egress_port;
            hdr.report.ingress_us = standard.ingress_global_timestamp;
            hdr.report.egress_us = standard.egress_global_timestamp;
            hdr.report.enq_us = standard.enq_timestamp;
            hdr.report.enq_depth = (bit<24>)standard.enq_qdepth;
            hdr.report.waited_us = standard.deq_timedelta;
            hdr.report.deq_depth = (bit<24>)standard.deq_qdepth;
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.command); packet.emit(hdr.report); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
