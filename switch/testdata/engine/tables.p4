// SPDX-License-Identifier: Apache-2.0
//
// Every kind of table: the packet brings the keys, the entries that are hit leave their numbers in the results.

#include <core.p4>
#include <v1model.p4>

header keys_t { bit<16> a; bit<32> b; bit<128> c; bit<16> d; bit<9> e; bit<7> f; }
header results_t {
    bit<16> exact1; bit<16> exact2; bit<16> lpm32; bit<16> lpm128; bit<16> ternary; bit<16> range_; bit<16> optional_;
    bit<16> constant; bit<16> member; bit<16> hash; bit<16> branch; bit<8> color; bit<16> mixed;
}
struct headers_t { keys_t k; results_t r; }
struct metadata_t { bit<2> color; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.k); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<2>>(MeterType.packets) rate;
    action_profile(4) profile;
    action_selector(HashAlgorithm.crc32, 16, 16) selector_;

    action exact1(bit<16> n) { hdr.r.exact1 = n; hits.count(); }
    action exact2(bit<16> n) { hdr.r.exact2 = n; rate.read(meta.color); }
    action lpm32(bit<16> n) { hdr.r.lpm32 = n; }
    action lpm128(bit<16> n) { hdr.r.lpm128 = n; }
    action ternary_(bit<16> n) { hdr.r.ternary = n; }
    action range_(bit<16> n) { hdr.r.range_ = n; }
    action optional_(bit<16> n) { hdr.r.optional_ = n; }
    action constant(bit<16> n) { hdr.r.constant = n; }
    action member(bit<16> n) { hdr.r.member = n; }
    action hashed(bit<16> n) { hdr.r.hash = n; }
    action mixed(bit<16> n) { hdr.r.mixed = n; }
    action left() { }
    action right(bit<16> n) { hdr.r.branch = n; }

    table t_exact1 { key = { hdr.k.a: exact; } actions = { exact1; NoAction; } default_action = NoAction(); counters = hits; size = 4; }
    table t_exact2 { key = { hdr.k.a: exact; hdr.k.c: exact; } actions = { exact2; NoAction; } const default_action = NoAction(); meters = rate; size = 8; }
    table t_lpm32 { key = { hdr.k.b: lpm; } actions = { lpm32; } default_action = lpm32(999); size = 16; }
    table t_lpm128 { key = { hdr.k.e: exact; hdr.k.c: lpm; } actions = { lpm128; NoAction; } default_action = NoAction(); size = 16; }
    table t_ternary { key = { hdr.k.a: ternary; hdr.k.b: ternary; } actions = { ternary_; NoAction; } default_action = NoAction(); size = 16; }
    table t_range { key = { hdr.k.d: range; hdr.k.c: range; hdr.k.e: exact; } actions = { range_; NoAction; } default_action = NoAction(); size = 16; }
    table t_range_packed { key = { hdr.k.d: range; hdr.k.f: ternary; } actions = { mixed; NoAction; } default_action = NoAction(); size = 16; }
    table t_optional { key = { hdr.k.a: optional; hdr.k.d: optional; } actions = { optional_; NoAction; } default_action = NoAction(); size = 16; }
    table t_constant {
        key = { hdr.k.a: exact; hdr.k.d: ternary; }
        actions = { constant; NoAction; }
        const default_action = NoAction();
        const entries = {
            (1, 0x10 &&& 0xf0): constant(1);
            (1, _): constant(2);
            (2, 0x0005): constant(3);
        }
    }
    table t_member { key = { hdr.k.a: exact; } actions = { member; left; } implementation = profile; size = 16; }
    table t_hash { key = { hdr.k.a: exact; hdr.k.b: selector; hdr.k.d: selector; } actions = { hashed; } implementation = selector_; size = 16; }
    table t_branch { key = { hdr.k.f: exact; } actions = { left; right; NoAction; } default_action = NoAction(); size = 16; }

    apply {
        hdr.r.setValid();
        if (!t_exact1.apply().hit) { hdr.r.exact1 = 0xffff; }
        t_exact2.apply();
        t_lpm32.apply();
        t_lpm128.apply();
        t_ternary.apply();
        t_range.apply();
        t_range_packed.apply();
        t_optional.apply();
        t_constant.apply();
        t_member.apply();
        t_hash.apply();
        switch (t_branch.apply().action_run) {
            left: { hdr.r.branch = 0x1111; }
            right: { hdr.r.branch = hdr.r.branch + 1; }
            default: { hdr.r.branch = 0x3333; }
        }
        hdr.r.color = (bit<8>)meta.color;
        hdr.k.setInvalid();
        standard.egress_spec = 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.k); packet.emit(hdr.r); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
