// SPDX-License-Identifier: Apache-2.0
//
// Every size and every constant that two files share. Nothing here depends on a target.

#ifndef TRIMWIRE_SIZES_P4
#define TRIMWIRE_SIZES_P4

// Tables (entries).
const bit<32> IPV4_ROUTES = 4096;
const bit<32> IPV6_ROUTES = 4096;
const bit<32> CODE_POINTS = 64;        // one per DSCP
const bit<32> QUEUE_POLICIES = 4096;   // (egress port, queue, importance)
const bit<32> TRIM_ACL_ENTRIES = 512;  // for IPv4, and again for IPv6
const bit<32> TRUST_ENTRIES = 4096;    // (ingress port, DSCP)
const bit<32> ECMP_MEMBERS = 1024;     // members of all groups together
#define ECMP_HASH_BITS 16              // an extern argument that has to be a literal

// Arrays indexed by port * 8 + queue, or by port. Ports are 9 bits wide, queues 3.
const bit<32> QUEUE_SLOTS = 4096;
const bit<32> PORTS = 512;

// Bytes.
const bit<16> ETHERNET_BYTES = 14;
const bit<16> VLAN_BYTES = 4;
const bit<16> IPV4_BYTES = 20;         // without options
const bit<16> IPV6_BYTES = 40;
const bit<16> UDP_BYTES = 8;
const bit<16> VXLAN_BYTES = 8;
// The head of a DATA datagram, without which its bit-planes cannot be decoded. A trim leaves it
// whole.
const bit<16> TRIMWIRE_HEAD_BYTES = 20;
const bit<32> PACKET_OUT_BYTES = 2;

// The port behind which the controller sits (`--cpu-port 510` on BMv2), where a target has not said
// otherwise.
#ifndef CPU_PORT
#define CPU_PORT 510
#endif
// The queue of packets that the controller sends (packet-out); the one that is served first.
const bit<3> CONTROL_QUEUE = 7;

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;

const bit<8> PROTOCOL_HOP_BY_HOP = 0;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<8> PROTOCOL_ROUTING = 43;
const bit<8> PROTOCOL_DESTINATION = 60;
const bit<8> PROTOCOL_SCTP = 132;

const bit<16> PORT_VXLAN = 4789;

// RFC 3168, section 5.
const bit<2> ECN_NOT_ECT = 0;
const bit<2> ECN_CE = 3;

#endif
