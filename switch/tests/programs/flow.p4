// SPDX-License-Identifier: Apache-2.0
//
// Control flow: exit, return, loops, switch on values, functions, assume, log_msg, metadata and headers as values.

#include "skeleton.p4"

header in_t { bit<8> op; bit<8> count; bit<32> value; int<8> level; bit<8> path; }
header trailer_t { bit<8> code; bit<24> text; }
struct headers_t { in_t fields; trailer_t trailer; }
struct inner_t { bit<8> a; bit<16> b; }
struct metadata_t { inner_t inner; trailer_t kept; bool flag; }

bit<32> mixed(in bit<32> x, in bit<8> by) { if (by == 0) { return 0xdeadbeef; } return (x << by) ^ x; }

PARSER {
    state start { packet.extract(hdr.fields); transition select(hdr.fields.op[0:0]) { 1: trailer; default: accept; } }
    state trailer { packet.extract(hdr.trailer); transition accept; }
}
INGRESS {
    action bump(inout bit<32> x, bit<32> by) { x = x + by; if (x > 1000) { return; } hdr.fields.path = hdr.fields.path | 1; }
    action leave() { hdr.fields.path = 0x77; exit; }
    action give_up(bit<8> reason, int<8> level) {
        hdr.fields.path = reason;
        hdr.fields.level = level;
        if (level < 0) { hdr.fields.path = 0x33; }
        if (hdr.fields.level > 100) { hdr.fields.path = hdr.fields.path | 0x40; }
        exit;
        hdr.fields.path = 0;
    }
    table stop { key = { hdr.fields.count: exact; } actions = { leave; give_up; NoAction; } default_action = NoAction; support_timeout = true; size = 32; }
    apply {
        standard.egress_spec = 1;
        meta.inner = { hdr.fields.count, 16w5 };
        meta.kept = hdr.trailer;
        meta.flag = hdr.fields.level > -3;
        switch (hdr.fields.op) {
            2: { hdr.fields.value = mixed(hdr.fields.value, hdr.fields.count); }
            3: 
            4: { hdr.fields.value = 0x3434; }
            5: { bump(hdr.fields.value, 10); bump(hdr.fields.value, 990); }
            6: { stop.apply(); hdr.fields.path = hdr.fields.path | 0x80; }
            7: { for (bit<8> i = 0; i < 5; i = i + 1) { hdr.fields.value = hdr.fields.value + (bit<32>)i; if (hdr.fields.value == 9) { break; } } }
            8: { log_msg("level {} value {}", { hdr.fields.level, hdr.fields.value }); log_msg("nothing"); }
            9: { assume(hdr.fields.op == 9); assert(hdr.fields.op < 10); }
            10: { if (meta.flag) { return; } hdr.fields.path = 0x10; }
            11: { exit; }
            13: { hdr.trailer = meta.kept; hdr.trailer.code = hdr.trailer.code + meta.inner.a; }
            15: { hdr.trailer.setInvalid(); }
            17: { meta.kept = { 1, 2 }; hdr.trailer = meta.kept; }
            default: { hdr.fields.path = 0xee; }
        }
        if (meta.flag && meta.inner.b == 5) { hdr.fields.path = hdr.fields.path | 0x40; }
    }
}
EGRESS { apply { hdr.fields.count = hdr.fields.count + 1; if (hdr.fields.op == 12) { exit; } hdr.fields.count = hdr.fields.count + 1; } }
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
