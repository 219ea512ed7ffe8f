// SPDX-License-Identifier: Apache-2.0
//
// Action profiles, and action selectors with each hash that a selector may use.

#include "skeleton.p4"

header key_t { bit<8> which; bit<8> a; bit<16> entropy; bit<32> address; }
header result_t { bit<8> value; bit<8> kind; bit<8> profile; }
struct headers_t { result_t result; key_t key; }
struct metadata_t { }

PARSER { state start { packet.extract(hdr.key); transition accept; } }
INGRESS {
    action pick(bit<8> value) { hdr.result.value = value; }
    action mark(bit<8> value, bit<8> kind) { hdr.result.value = value; hdr.result.kind = kind; }
    action set_profile(bit<8> value) { hdr.result.profile = value; }
    action_selector(HashAlgorithm.crc16, 128, 16) by_crc16;
    action_selector(HashAlgorithm.crc32, 128, 32) by_crc32;
    action_selector(HashAlgorithm.identity, 128, 8) by_identity;
    action_profile(32) plain;
    table crc16_table { key = { hdr.key.a: exact; hdr.key.entropy: selector; hdr.key.address: selector; } actions = { pick; mark; } implementation = by_crc16; size = 64; }
    table crc32_table { key = { hdr.key.a: ternary; hdr.key.address: selector; } actions = { pick; mark; } implementation = by_crc32; size = 64; }
    table identity_table { key = { hdr.key.a: exact; hdr.key.entropy: selector; } actions = { pick; mark; } implementation = by_identity; size = 64; }
    table plain_table { key = { hdr.key.a: exact; } actions = { set_profile; } implementation = plain; size = 64; }
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        if (hdr.key.which == 0) { crc16_table.apply(); }
        else if (hdr.key.which == 1) { crc32_table.apply(); }
        else { identity_table.apply(); }
        if (!plain_table.apply().hit) { hdr.result.kind = 0x7f; }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
