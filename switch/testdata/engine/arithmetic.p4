// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of P4's widths and signs. The packet brings operands, every result goes into its own field.

#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8> a; bit<8> b; bit<32> c; bit<32> d; bit<64> e; bit<64> f; bit<128> g; bit<128> h;
    int<8> i; int<8> j; int<32> k; int<128> l; bit<160> m;
}
header results_t {
    bit<8> add; bit<8> sub; bit<8> mul; bit<8> negated; bit<8> inverted;
    bit<8> add_sat; bit<8> sub_sat; int<8> signed_add_sat; int<8> signed_sub_sat;
    bit<32> shifted_left; bit<32> shifted_right; int<8> signed_right; int<32> widened; bit<32> reinterpreted;
    bit<64> mul64; bit<64> add64; bit<128> add128; bit<128> sub128; bit<128> xor128; bit<128> shift128;
    bit<16> concat; bit<4> pad; bit<4> slice; bit<8> selected;
    bit<8> compared; bit<8> signed_compared; bit<8> compared128; bit<8> signed_compared128; bit<160> copied;
    bit<64> variable_shift; int<8> signed_product; bit<32> sliced_in;
}
struct headers_t { operands_t x; results_t r; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.x); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.r.setValid();
        hdr.r.add = hdr.x.a + hdr.x.b;
        hdr.r.sub = hdr.x.a - hdr.x.b;
        hdr.r.mul = hdr.x.a * hdr.x.b;
        hdr.r.negated = -hdr.x.a;
        hdr.r.inverted = ~hdr.x.a;
        hdr.r.add_sat = hdr.x.a |+| hdr.x.b;
        hdr.r.sub_sat = hdr.x.a |-| hdr.x.b;
        hdr.r.signed_add_sat = hdr.x.i |+| hdr.x.j;
        hdr.r.signed_sub_sat = hdr.x.i |-| hdr.x.j;
        hdr.r.shifted_left = hdr.x.c << hdr.x.a;
        hdr.r.shifted_right = hdr.x.c >> hdr.x.a;
        hdr.r.signed_right = hdr.x.i >> 3;
        hdr.r.widened = (int<32>)hdr.x.i;
        hdr.r.reinterpreted = (bit<32>)hdr.x.k;
        hdr.r.mul64 = hdr.x.e * hdr.x.f;
        hdr.r.add64 = hdr.x.e + hdr.x.f;
        hdr.r.add128 = hdr.x.g + hdr.x.h;
        hdr.r.sub128 = hdr.x.g - hdr.x.h;
        hdr.r.xor128 = (hdr.x.g ^ hdr.x.h) & ~hdr.x.h | 1;
        hdr.r.shift128 = hdr.x.g << 3;
        hdr.r.concat = hdr.x.a ++ hdr.x.b;
        hdr.r.slice = hdr.x.c[21:18];
        hdr.r.selected = hdr.x.a > hdr.x.b ? hdr.x.a : hdr.x.b;
        bit<8> compared = 0;
        if (hdr.x.c < hdr.x.d) { compared = compared | 1; }
        if (hdr.x.c <= hdr.x.d) { compared = compared | 2; }
        if (hdr.x.c == hdr.x.d) { compared = compared | 4; }
        if (hdr.x.c != hdr.x.d && !(hdr.x.a == 0 || hdr.x.b == 0)) { compared = compared | 8; }
        hdr.r.compared = compared;
        bit<8> signed_compared = 0;
        if (hdr.x.i < hdr.x.j) { signed_compared = signed_compared | 1; }
        if (hdr.x.k < 0) { signed_compared = signed_compared | 2; }
        if (hdr.x.i + hdr.x.j < 0) { signed_compared = signed_compared | 4; }
        hdr.r.signed_compared = signed_compared;
        bit<8> compared128 = 0;
        if (hdr.x.g < hdr.x.h) { compared128 = compared128 | 1; }
        if (hdr.x.g == hdr.x.h) { compared128 = compared128 | 2; }
        hdr.r.compared128 = compared128;
        if (hdr.x.l < 0) { hdr.r.signed_compared128 = 1; }
        hdr.r.copied = hdr.x.m;
        hdr.r.variable_shift = (bit<64>)hdr.x.a << hdr.x.b;
        hdr.r.signed_product = hdr.x.i * hdr.x.j;
        hdr.r.sliced_in = hdr.x.c;
        hdr.r.sliced_in[15:8] = hdr.x.a;
        hdr.x.setInvalid();
        standard.egress_spec = 1;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.x); packet.emit(hdr.r); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
