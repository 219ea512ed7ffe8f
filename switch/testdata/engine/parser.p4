// SPDX-License-Identifier: Apache-2.0
//
// What a parser can do: select with masks and value sets, lookahead, advance, verify, varbit, a header stack in a loop.

#include <core.p4>
#include <v1model.p4>

error { BadVersion }

header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }
header vlan_t { bit<3> pcp; bit<1> dei; bit<12> vid; bit<16> kind; }
header ipv4_t {
    bit<4> version; bit<4> ihl; bit<8> tos; bit<16> total_len; bit<16> id; bit<3> flags; bit<13> offset;
    bit<8> ttl; bit<8> protocol; bit<16> checksum; bit<32> src; bit<32> dst;
}
header options_t { varbit<320> bytes; }
header report_t { bit<8> state; bit<8> peeked; bit<8> parser_error; bit<8> checksum_error; bit<8> vlans; bit<16> last_vid; }

struct headers_t { report_t report; ethernet_t ethernet; vlan_t[3] vlan; ipv4_t ipv4; options_t options; }
struct metadata_t { bit<8> state; bit<8> peeked; bit<16> last_vid; }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) kinds;

    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x8100: vlan;
            0x0800: ipv4;
            kinds: listed;
            0x9000 &&& 0xf000: masked;
            0xa000: skip;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan.next);
        meta.last_vid = (bit<16>)hdr.vlan.last.vid;
        transition select(hdr.vlan.last.kind) {
            0x8100: vlan;
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.BadVersion);
        transition select(hdr.ipv4.ihl) {
            5: done;
            default: options;
        }
    }
    state options {
        packet.extract(hdr.options, (bit<32>)(((bit<16>)hdr.ipv4.ihl - 5) * 32));
        transition done;
    }
    state done { meta.state = 4; transition accept; }
    state listed { meta.state = 1; transition accept; }
    state masked {
        meta.peeked = packet.lookahead<bit<8>>();
        meta.state = 2;
        transition select(packet.lookahead<bit<16>>()[7:0]) {
            0x55: listed;
            default: accept;
        }
    }
    state skip { packet.advance(16); meta.peeked = packet.lookahead<bit<8>>(); meta.state = 3; transition accept; }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.id,
            hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst,
            hdr.options.bytes }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        hdr.report.setValid();
        hdr.report.state = meta.state;
        hdr.report.peeked = meta.peeked;
        hdr.report.last_vid = meta.last_vid;
        hdr.report.checksum_error = (bit<8>)standard.checksum_error;
        hdr.report.parser_error = 0xff;
        if (standard.parser_error == error.NoError) { hdr.report.parser_error = 0; }
        if (standard.parser_error == error.PacketTooShort) { hdr.report.parser_error = 1; }
        if (standard.parser_error == error.StackOutOfBounds) { hdr.report.parser_error = 2; }
        if (standard.parser_error == error.BadVersion) { hdr.report.parser_error = 3; }
        if (standard.parser_error == error.HeaderTooShort) { hdr.report.parser_error = 4; }
        if (hdr.vlan[0].isValid()) { hdr.report.vlans = hdr.report.vlans + 1; }
        if (hdr.vlan[1].isValid()) { hdr.report.vlans = hdr.report.vlans + 1; }
        if (hdr.vlan[2].isValid()) { hdr.report.vlans = hdr.report.vlans + 1; }
        if (hdr.ethernet.src == 48w1) { hdr.vlan.pop_front(1); }
        if (hdr.ethernet.src == 48w2) {
            hdr.vlan.push_front(1);
            hdr.vlan[0].setValid();
            hdr.vlan[0].vid = 77;
            hdr.vlan[0].kind = hdr.ethernet.kind;
            hdr.ethernet.kind = 0x8100;
        }
        if (hdr.ipv4.isValid()) { hdr.ipv4.ttl = hdr.ipv4.ttl - 1; }
        standard.egress_spec = 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply { } }

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(), { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_len, hdr.ipv4.id,
            hdr.ipv4.flags, hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst,
            hdr.options.bytes }, hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.report);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.options);
    }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
