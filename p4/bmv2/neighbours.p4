// SPDX-License-Identifier: Apache-2.0
//
// Answers to ARP requests (RFC 826) and neighbour solicitations (RFC 4861): a router forwards none.
// Nobody has to be told what to answer, as the route to the address asked for knows: the answer is
// the MAC address of the next hop, which is the host itself where it is this switch's own. Any
// other does as well, since frames to every unicast address are routed.
//
// An address whose route leads back to the port that asks is the asker's own, or one behind it, and
// gets no answer. So hosts that look whether their address is free (RFC 4862, section 5.4; RFC
// 5227) are told so only if another port has it.

#ifndef TRIMWIRE_BMV2_NEIGHBOURS_P4
#define TRIMWIRE_BMV2_NEIGHBOURS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

const bit<16> ARP_REPLY = 2;
const bit<8> NEIGHBOUR_ADVERTISEMENT = 136;
const bit<8> TARGET_MAC = 2;
const bit<32> SOLICITED = 0x40000000;
const bit<32> OVERRIDE = 0x20000000;
// The advertisement with its one option.
const bit<16> ADVERTISEMENT_BYTES = 32;

const bit<48> ALL_NODES_MAC = 0x333300000001;
const bit<128> ALL_NODES = 0xff020000000000000000000000000001;

// What a question becomes; `mac` is the answer, `asker` who asked. The answer goes out at the port
// that the question came from.
control Answer(inout headers_t hdr, in bit<48> mac, in bit<48> asker) {
    @hidden
    action answer_arp() {
        hdr.arp.operation = ARP_REPLY;
        hdr.arp.target_mac = hdr.arp.sender_mac;
        hdr.arp.sender_mac = mac;
        bit<32> asked = hdr.arp.target_addr;
        hdr.arp.target_addr = hdr.arp.sender_addr;
        hdr.arp.sender_addr = asked;
    }

    @hidden
    action advertise() {
        hdr.nd.type = NEIGHBOUR_ADVERTISEMENT;
        hdr.nd.flags = SOLICITED | OVERRIDE;
        hdr.nd_option.setValid();
        hdr.nd_option.type = TARGET_MAC;
        hdr.nd_option.len = 1;
        hdr.nd_option.mac = mac;
        hdr.ipv6.payload_len = ADVERTISEMENT_BYTES;
        hdr.ipv6.dst_addr = hdr.ipv6.src_addr;
        hdr.ipv6.src_addr = hdr.nd.target_addr;
    }

    // Who looks whether its address is free has none yet (RFC 4861, section 7.2.4).
    @hidden
    action advertise_to_all() {
        hdr.nd.flags = OVERRIDE;
        hdr.ipv6.dst_addr = ALL_NODES;
        hdr.ethernet.dst_addr = ALL_NODES_MAC;
    }

    apply {
        hdr.ethernet.src_addr = mac;
        hdr.ethernet.dst_addr = asker;
        if (hdr.arp.isValid()) {
            answer_arp();
        } else {
            advertise();
            if (hdr.ipv6.dst_addr == 0) {
                advertise_to_all();
            }
        }
    }
}

#endif
