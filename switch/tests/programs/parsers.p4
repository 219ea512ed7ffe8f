// SPDX-License-Identifier: Apache-2.0
//
// Parsers: selects with masks, ranges and value sets, lookahead, advance, varbit, stacks in loops, verify, errors.

#include "skeleton.p4"

error { TooLong, Odd }

header start_t { bit<8> kind; bit<8> length; bit<16> tag; }
header pair_t { bit<8> a; bit<16> b; }
header label_t { bit<1> bottom; bit<7> value; }
header option_t { bit<8> code; varbit<64> data; }
header counted_t { bit<8> length; varbit<32> data; }
header result_t { bit<8> problem; bit<8> path; bit<160> looked; bit<16> peeked; }
struct headers_t { start_t start; pair_t pair; label_t[4] labels; option_t option; counted_t[2] counted; result_t result; }
struct metadata_t { bit<8> path; bit<160> looked; bit<16> peeked; }
struct key_t { bit<8> a; bit<16> b; }

PARSER {
    value_set<bit<16>>(4) tags;
    value_set<key_t>(4) keys;

    state start {
        packet.extract(hdr.start);
        transition select(hdr.start.kind, hdr.start.tag) {
            (0, _): labels;
            (1, 0x0100 &&& 0x0300): option;
            (1, 5 .. 13): look;
            (1, _): counted;
            (2, _): tags_first;
            (3, _): skip;
            (4, _): check;
            (5, _): pair;
            (6, _): peek;
            default: accept;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        meta.path = meta.path + 1;
        transition select(hdr.labels.last.bottom) { 0: labels; 1: accept; }
    }
    state option {
        packet.extract(hdr.option, (bit<32>)hdr.start.length);
        transition select(hdr.option.code) { 0 &&& 1: pair; default: accept; }
    }
    state counted {
        packet.extract(hdr.counted.next, (bit<32>)packet.lookahead<bit<8>>() << 3);
        transition select(hdr.counted.last.length) { 0: accept; default: counted; }
    }
    state look {
        meta.looked = packet.lookahead<bit<160>>();
        meta.path = 0x20;
        transition select(meta.looked[159:152], meta.looked[7:0]) {
            (0 &&& 0xf0, _): pair;
            (_, 1): labels;
            default: accept;
        }
    }
    state tags_first { transition select(hdr.start.tag) { tags: tagged; default: look; } }
    state tagged { meta.path = 0x30; transition pair; }
    state skip { packet.advance((bit<32>)hdr.start.length * 8); transition pair; }
    state check {
        verify(hdr.start.length < 4, error.TooLong);
        verify(hdr.start.length[0:0] == 0, error.Odd);
        meta.path = 0x40;
        transition pair;
    }
    state pair {
        packet.extract(hdr.pair);
        transition select(hdr.pair.a, hdr.pair.b) { keys: known; default: accept; }
    }
    state known { meta.path = meta.path | 0x80; transition accept; }
    state peek {
        meta.peeked = packet.lookahead<pair_t>().b;
        transition select(packet.lookahead<bit<12>>()) { 0: pair; 0x010: labels; default: accept; }
    }
}

INGRESS {
    apply {
        standard.egress_spec = 1;
        hdr.result.setValid();
        hdr.result.path = meta.path;
        hdr.result.looked = meta.looked;
        hdr.result.peeked = meta.peeked;
        if (standard.parser_error == error.NoError) { hdr.result.problem = 0; }
        else if (standard.parser_error == error.PacketTooShort) { hdr.result.problem = 1; }
        else if (standard.parser_error == error.NoMatch) { hdr.result.problem = 2; }
        else if (standard.parser_error == error.StackOutOfBounds) { hdr.result.problem = 3; }
        else if (standard.parser_error == error.HeaderTooShort) { hdr.result.problem = 4; }
        else if (standard.parser_error == error.ParserInvalidArgument) { hdr.result.problem = 5; }
        else if (standard.parser_error == error.TooLong) { hdr.result.problem = 6; }
        else if (standard.parser_error == error.Odd) { hdr.result.problem = 7; }
        else { hdr.result.problem = 0xff; }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER {
    apply {
        packet.emit(hdr.result); packet.emit(hdr.start); packet.emit(hdr.pair); packet.emit(hdr.labels);
        packet.emit(hdr.option); packet.emit(hdr.counted);
    }
}
SWITCH
