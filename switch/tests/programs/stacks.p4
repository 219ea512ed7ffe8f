// SPDX-License-Identifier: Apache-2.0
//
// Header stacks and whole headers: push, pop, assignment, indices known at run time, validity, comparison.

#include "skeleton.p4"

header op_t { bit<8> op; bit<8> index; bit<8> value; }
header item_t { bit<1> last; bit<7> name; int<8> level; bit<200> wide; }
header result_t { bit<8> flags; bit<8> picked; bit<200> wide; }
struct headers_t { op_t op; item_t[4] items; item_t[4] saved; item_t single; result_t result; }
struct metadata_t { bit<32> at; }

PARSER {
    state start {
        packet.extract(hdr.op);
        transition select(hdr.op.op) { 0xff: none; default: item; }
    }
    state none { meta.at = 0; transition accept; }
    state item {
        packet.extract(hdr.items.next);
        meta.at = hdr.items.lastIndex;
        transition select(hdr.items.last.last) { 1: accept; default: item; }
    }
}

INGRESS {
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        hdr.result.picked = (bit<8>)meta.at;
        if (hdr.op.op == 1) { hdr.items.push_front(1); hdr.items[0].setValid(); hdr.items[0].name = 1; }
        if (hdr.op.op == 2) { hdr.items.push_front(3); }
        if (hdr.op.op == 3) { hdr.items.pop_front(1); }
        if (hdr.op.op == 4) { hdr.items.pop_front(4); }
        if (hdr.op.op == 5) { hdr.saved = hdr.items; hdr.saved[1].name = 0x33; }
        if (hdr.op.op == 6) { hdr.single = hdr.items[1]; }
        if (hdr.op.op == 7) { hdr.items[2] = hdr.items[0]; hdr.items[0].setInvalid(); }
        if (hdr.op.op == 14) { hdr.items[0].setValid(); hdr.items[3].setValid(); hdr.items[3].level = -5; }
        if (hdr.op.op == 15) { hdr.items.push_front(1); hdr.items.pop_front(2); }
        // BMv2 reads from headers that are not valid what earlier packets left there: only those that the parser saw are read.
        bit<2> to = hdr.op.index[1:0];
        bit<2> from = hdr.op.value[1:0];
        bool both = hdr.items[0].isValid() && hdr.items[1].isValid();
        if (hdr.op.op == 8) { hdr.items[to].name = hdr.op.value[6:0]; }
        if (hdr.op.op == 9 && (bit<32>)from <= meta.at) { hdr.items[to].level = hdr.items[from].level; }
        if (hdr.op.op == 10 && (bit<32>)from <= meta.at) { hdr.items[to].wide = hdr.items[from].wide; }
        if (hdr.op.op == 11 && (bit<32>)to <= meta.at) { hdr.result.picked = (bit<8>)hdr.items[to].name; }
        if (hdr.op.op == 12 && (bit<32>)to <= meta.at) { hdr.result.wide = hdr.items[to].wide + 1; }
        if (hdr.op.op == 13 && (bit<32>)to <= meta.at && hdr.items[to].level < 0) { hdr.result.picked = 0x99; }
        if (hdr.op.op == 16 && both) { hdr.items[0].wide = hdr.items[1].wide | (bit<200>)hdr.op.value; }
        if (hdr.items[0] == hdr.items[1]) { hdr.result.flags = hdr.result.flags | 1; }
        if (hdr.items[1] != hdr.items[2]) { hdr.result.flags = hdr.result.flags | 2; }
        if (both && hdr.items[0].wide > hdr.items[1].wide) { hdr.result.flags = hdr.result.flags | 8; }
        if (both && hdr.items[0].level > hdr.items[1].level) { hdr.result.flags = hdr.result.flags | 16; }
        if (hdr.items[3].isValid()) { hdr.result.flags = hdr.result.flags | 4; }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr.result); packet.emit(hdr.op); packet.emit(hdr.items); packet.emit(hdr.saved); packet.emit(hdr.single); } }
SWITCH
