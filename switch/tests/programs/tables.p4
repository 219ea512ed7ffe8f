// SPDX-License-Identifier: Apache-2.0
//
// Tables: every match kind alone and mixed, wide keys, const and initial entries with priorities, default actions,
// direct counters and meters, hit and miss, action_run.

#include "skeleton.p4"

header key_t { bit<8> a; bit<16> b; bit<32> c; bit<128> d; bit<200> e; int<8> f; bit<1> g; bit<7> h; }
header result_t { bit<8> exact; bit<8> lpm; bit<8> ternary; bit<8> ranged; bit<8> optionals; bit<8> mixed; bit<8> wide; bit<8> fixed; bit<8> first; bit<8> path; bit<8> color; bit<8> expression; bit<200> argument; }
struct headers_t { result_t result; key_t key; }
struct metadata_t { bit<2> color; }

PARSER { state start { packet.extract(hdr.key); transition accept; } }

INGRESS {
    direct_counter(CounterType.packets_and_bytes) exact_hits;
    direct_counter(CounterType.bytes) ternary_bytes;
    direct_meter<bit<2>>(MeterType.packets) ranged_meter;

    action exact_action(bit<8> value) { hdr.result.exact = value; exact_hits.count(); }
    action lpm_action(bit<8> value) { hdr.result.lpm = value; }
    action ternary_action(bit<8> value, bit<200> argument) { hdr.result.ternary = value; hdr.result.argument = argument; ternary_bytes.count(); }
    action ternary_other() { hdr.result.ternary = 0xee; ternary_bytes.count(); }
    action ranged_action(bit<8> value) { hdr.result.ranged = value; ranged_meter.read(meta.color); }
    action optional_action(bit<8> value) { hdr.result.optionals = value; }
    action mixed_action(bit<8> value) { hdr.result.mixed = value; }
    action wide_action(bit<8> value) { hdr.result.wide = value; }
    action fixed_action(bit<8> value) { hdr.result.fixed = value; }
    action first_action(bit<8> value) { hdr.result.first = value; }
    action expression_action(bit<8> value) { hdr.result.expression = value; }
    action left() { hdr.result.path = hdr.result.path | 1; }
    action right(bit<8> value) { hdr.result.path = value; }

    table exact_table { key = { hdr.key.a: exact; hdr.key.b: exact; } actions = { exact_action; NoAction; } counters = exact_hits; size = 64; }
    table lpm_table { key = { hdr.key.c: lpm; hdr.key.g: exact; } actions = { lpm_action; } default_action = lpm_action(0x55); size = 64; }
    table ternary_table { key = { hdr.key.b: ternary; hdr.key.f: ternary; } actions = { ternary_action; ternary_other; } counters = ternary_bytes; size = 64; }
    table ranged_table { key = { hdr.key.a: range; hdr.key.d: range; } actions = { ranged_action; } meters = ranged_meter; size = 64; }
    table optional_table { key = { hdr.key.a: optional; hdr.key.c: optional; } actions = { optional_action; } size = 64; }
    table mixed_table { key = { hdr.key.a: exact; hdr.key.c: lpm; hdr.key.b: ternary; hdr.key.h: range; hdr.key.g: optional; } actions = { mixed_action; } size = 64; }
    table wide_table { key = { hdr.key.e: ternary; hdr.key.d: exact; } actions = { wide_action; } size = 64; }
    table fixed_table {
        key = { hdr.key.a: ternary; hdr.key.b: range; }
        actions = { fixed_action; }
        const default_action = fixed_action(0xaa);
        const entries = {
            (0x01 &&& 0x03, 0 .. 100): fixed_action(1);
            (0x01, 0 .. 0xffff): fixed_action(2);
            (_, 0x1000 .. 0xffff): fixed_action(3);
            (0x80 &&& 0x80, _): fixed_action(4);
        }
    }
    table first_table {
        key = { hdr.key.c: lpm; }
        actions = { first_action; @defaultonly NoAction; }
        const entries = { 0x00000000 &&& 0xffff0000: first_action(1); 0x80000000 &&& 0x80000000: first_action(2); 0x1: first_action(3); }
    }
    table expression_table {
        key = { hdr.key.a + 1: exact @name("next"); hdr.key.isValid(): exact; hdr.key.b[11:4]: ternary @name("slice"); hdr.key.f < 0: exact @name("negative"); }
        actions = { expression_action; }
        size = 64;
    }
    table path_table { key = { hdr.key.h: exact; } actions = { left; right; NoAction; } default_action = NoAction; size = 64; }

    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        if (exact_table.apply().hit) { hdr.result.path = 0x10; }
        lpm_table.apply();
        if (!ternary_table.apply().hit) { hdr.result.ternary = 0xdd; }
        meta.color = 3;
        ranged_table.apply();
        hdr.result.color = (bit<8>)meta.color;
        optional_table.apply();
        mixed_table.apply();
        wide_table.apply();
        fixed_table.apply();
        first_table.apply();
        expression_table.apply();
        switch (path_table.apply().action_run) {
            left: { hdr.result.path = hdr.result.path | 2; }
            right: { if (hdr.result.path > 0x40) { hdr.result.path = 0x41; } }
            default: { hdr.result.path = hdr.result.path | 0x80; }
        }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
