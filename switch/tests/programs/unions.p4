// SPDX-License-Identifier: Apache-2.0
//
// Header unions and stacks of them: extraction, validity, assignment, comparison.

#include "skeleton.p4"

header op_t { bit<8> op; bit<8> count; }
header small_t { bit<8> kind; bit<8> value; }
header large_t { bit<8> kind; bit<40> value; }
header open_t { bit<8> kind; varbit<32> value; }
header_union item_t { small_t small; large_t large; open_t open; }
header result_t { bit<8> flags; bit<8> seen; bit<64> copied; }
struct headers_t { op_t op; item_t one; item_t[3] many; item_t other; result_t result; }
struct metadata_t { bit<8> left; }

PARSER {
    state start {
        packet.extract(hdr.op);
        meta.left = hdr.op.count;
        transition select(packet.lookahead<bit<8>>()) { 1: one_small; 2: one_large; 3: one_open; default: many; }
    }
    state one_small { packet.extract(hdr.one.small); transition many; }
    state one_large { packet.extract(hdr.one.large); transition many; }
    state one_open { packet.extract(hdr.one.open, 16); transition many; }
    state many { transition select(meta.left) { 0: accept; default: item; } }
    state item {
        meta.left = meta.left - 1;
        transition select(packet.lookahead<bit<8>>()) { 1: item_small; 2: item_large; 3: item_open; default: accept; }
    }
    state item_small { packet.extract(hdr.many.next.small); transition many; }
    state item_large { packet.extract(hdr.many.next.large); transition many; }
    state item_open { packet.extract(hdr.many.next.open, 8); transition many; }
}

INGRESS {
    apply {
        standard.egress_spec = 2;
        hdr.result.setValid();
        if (hdr.op.op == 1) { hdr.one.large.setValid(); hdr.one.large.kind = 9; hdr.one.large.value = 0x0102030405; }
        if (hdr.op.op == 2) { hdr.one.small.setInvalid(); }
        if (hdr.op.op == 3) { hdr.one.small.setValid(); hdr.one.small = { 7, 8 }; }
        if (hdr.op.op == 4) { hdr.many[1].small.setValid(); hdr.many[1].small.value = hdr.op.count; hdr.many[1].small.kind = 5; }
        if (hdr.op.op == 5) { hdr.many[0].large.setInvalid(); hdr.many[2].small.setInvalid(); }
        if (hdr.op.op == 6) { hdr.other = hdr.many[1]; }
        if (hdr.op.op == 7) { hdr.many[2] = hdr.many[0]; }
        if (hdr.op.op == 8) { hdr.one = hdr.many[0]; }
        if (hdr.op.op == 9) { hdr.one.large = hdr.many[1].large; }
        if (hdr.one.isValid()) { hdr.result.flags = hdr.result.flags | 1; }
        if (hdr.one.small.isValid()) { hdr.result.flags = hdr.result.flags | 2; }
        if (hdr.one.large.isValid()) { hdr.result.flags = hdr.result.flags | 4; }
        if (hdr.one.open.isValid()) { hdr.result.flags = hdr.result.flags | 8; }
        if (hdr.many[1].small.isValid()) { hdr.result.flags = hdr.result.flags | 32; hdr.result.seen = hdr.many[1].small.value; }
        if (hdr.many[0].small == hdr.many[1].small) { hdr.result.flags = hdr.result.flags | 64; }
        if (hdr.many[2].large.isValid()) { hdr.result.copied[39:0] = hdr.many[2].large.value; }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr.result); packet.emit(hdr.op); packet.emit(hdr.one); packet.emit(hdr.many); packet.emit(hdr.other); } }
SWITCH
