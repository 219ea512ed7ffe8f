// SPDX-License-Identifier: Apache-2.0
//
// hash(): every algorithm of v1model that BMv2 knows, over inputs of odd sizes, with bases and limits; and random(),
// whose result is only said to be within its range.

#include "skeleton.p4"

header in_t { bit<8> op; bit<4> a; bit<12> b; bit<32> c; bit<200> d; bit<16> base; bit<32> limit; }
header varied_t { bit<8> length; varbit<64> data; }
header out_t { bit<32> crc32; bit<32> crc32_custom; bit<16> crc16; bit<16> crc16_custom; bit<64> identity; bit<16> csum16; bit<16> xor16; bit<16> odd; bit<8> in_range; bit<16> limited; }
struct headers_t { out_t result; in_t fields; varied_t varied; }
struct metadata_t { }

PARSER {
    state start { packet.extract(hdr.fields); transition select(hdr.fields.op) { 0: varied; default: accept; } }
    state varied { packet.extract(hdr.varied, (bit<32>)(packet.lookahead<bit<8>>() & 7) * 8); transition accept; }
}
#define INPUT { hdr.fields.a, hdr.fields.b, hdr.fields.c, hdr.fields.d }
INGRESS {
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        hash(hdr.result.crc32, HashAlgorithm.crc32, 32w0, INPUT, 64w0x100000000);
        hash(hdr.result.crc32_custom, HashAlgorithm.crc32_custom, 32w0, INPUT, 64w0x100000000);
        hash(hdr.result.crc16, HashAlgorithm.crc16, hdr.fields.base, INPUT, 32w0x10000);
        hash(hdr.result.crc16_custom, HashAlgorithm.crc16_custom, 16w0, INPUT, 32w0x10000);
        hash(hdr.result.identity, HashAlgorithm.identity, 64w0, { hdr.fields.b, hdr.fields.c, hdr.fields.a }, 64w0xffffffffffffffff);
        hash(hdr.result.csum16, HashAlgorithm.csum16, 16w0, INPUT, 32w0x10000);
        hash(hdr.result.xor16, HashAlgorithm.xor16, 16w0, INPUT, 32w0x10000);
        hash(hdr.result.odd, HashAlgorithm.crc16, 16w0, { hdr.fields.a, hdr.fields.b[2:0], 5w3, hdr.fields.a }, 32w0x10000);
        hash(hdr.result.limited, HashAlgorithm.crc32, hdr.fields.base, { hdr.fields.c }, hdr.fields.limit);
        bit<16> drawn;
        random(drawn, 16w10, 16w20);
        hdr.result.in_range = (bit<8>)(bit<1>)(drawn >= 10 && drawn <= 20);
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
