// SPDX-License-Identifier: Apache-2.0
//
// verify_checksum and update_checksum, with and without the payload, conditional, with several algorithms.

#include "skeleton.p4"

header in_t { bit<8> op; bit<8> a; bit<16> b; bit<32> c; bit<16> checksum; bit<16> other; }
header options_t { bit<8> length; varbit<32> data; }
header out_t { bit<8> bad; bit<16> csum16; bit<16> crc16; bit<32> crc32; bit<16> xor16; bit<16> payload; bit<16> conditional; }
struct headers_t { out_t result; in_t fields; options_t options; }
struct metadata_t { bit<16> carried; }

PARSER {
    state start { packet.extract(hdr.fields); transition select(hdr.fields.op) { 0 .. 3: options; default: accept; } }
    state options { packet.extract(hdr.options, (bit<32>)(packet.lookahead<bit<8>>() & 3) * 8); transition accept; }
}
control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.fields.op < 8, { hdr.fields.a, hdr.fields.b, hdr.fields.c, hdr.fields.op }, hdr.fields.checksum, HashAlgorithm.csum16);
        verify_checksum_with_payload(hdr.fields.op == 9, { hdr.fields.b }, hdr.fields.other, HashAlgorithm.csum16);
    }
}
INGRESS {
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        hdr.result.bad = (bit<8>)standard.checksum_error;
        hdr.result.conditional = 0x1234;
        meta.carried = 0x4321;
        if (hdr.fields.op == 2) { hdr.options.setInvalid(); }
    }
}
NO_EGRESS
control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(true, { hdr.fields.a, hdr.fields.b, hdr.fields.c, hdr.options.data }, hdr.result.csum16, HashAlgorithm.csum16);
        update_checksum(true, { hdr.fields.op, hdr.fields.c, meta.carried }, hdr.result.crc16, HashAlgorithm.crc16);
        update_checksum(true, { hdr.fields.c, 8w0x5a }, hdr.result.crc32, HashAlgorithm.crc32);
        update_checksum(true, { hdr.fields.a, hdr.fields.c }, hdr.result.xor16, HashAlgorithm.xor16);
        update_checksum_with_payload(true, { hdr.fields.a, hdr.fields.op }, hdr.result.payload, HashAlgorithm.csum16);
        update_checksum(hdr.fields.a == 1 && hdr.options.isValid(), { hdr.fields.b }, hdr.result.conditional, HashAlgorithm.csum16);
    }
}
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
