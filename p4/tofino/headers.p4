// SPDX-License-Identifier: Apache-2.0
//
// What both Tofinos add to the shared headers: what travels from ingress to egress in front of a
// frame, and the metadata of the two pipelines. The including program has included tna.p4 or
// t2na.p4 before.

#ifndef TRIMWIRE_TOFINO_HEADERS_P4
#define TRIMWIRE_TOFINO_HEADERS_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

// The first byte of what egress gets.
const bit<8> PACKET_WHOLE = 1;           // with a bridge_t in front
const bit<8> PACKET_TRIMMED = 2;             // with a trim_t; the frame is as it arrived, only shorter
const bit<8> PACKET_TRIMMED_DEFLECTED = 3;   // with a trim_t; the frame has been routed already

const MirrorType_t MIRROR_TRIM = 1;
const DigestType_t DIGEST_TRIMMING = 1;

// In front of a frame from ingress. Egress needs it to trim the frame after all, should the traffic
// manager deflect it. The compiler lays both headers out, but for their first byte.
header bridge_t {
    bit<8>  kind;
    @flexible MirrorId_t session;        // that trims deep
    @flexible bit<16> trim_to;
    @flexible bit<6>  trimmed_dscp;
    @flexible bit<3>  trim_queue;
    @flexible bit<12> class_slot;        // egress port * 8 + the queue the packet was classified to
}

// In front of a copy that a mirror session has truncated. The session's length counts these 12
// bytes too.
header trim_t {
    bit<8>  kind;
    @flexible bit<16> trim_to;            // length of the frame
    @flexible bit<48> dst_mac;
    @flexible bit<6>  trimmed_dscp;
    @flexible bit<3>  trim_queue;
    @flexible bit<12> class_slot;
}

struct ingress_t {
    metadata_t   packet;
    bridge_t     bridge;
    bit<9>       egress_port;
    bit<1>       routed;                 // 1: `egress_port` is where the packet goes
    bool         damaged;                // the IPv4 header checksum is wrong
    bit<16>      checksum_rest;          // of the IPv4 header, what the switch does not change
    bit<12>      slot;                   // egress port * 8 + queue
    bit<8>       copy_kind;              // the `kind` of a truncated copy
    MirrorId_t   session;                // and the session that makes it
    MirrorId_t   deep_session;           // the one that egress would take
    bit<1>       event_trimming;          // the digest's `trimming`
}

// What the controller is told when a queue starts to trim packets, and when it stops (P4Runtime
// digest).
struct trimming_t {
    bit<9>  egress_port;
    bit<3>  queue;
    bit<1>  trimming;             // 1: starts, 0: stops
    bit<32> queue_bytes;
}

struct egress_t {
    metadata_t   packet;
    bridge_t     bridge;
    trim_t       trim;
    bit<16>      checksum_rest;
    bit<8>       copy_kind;
    MirrorId_t   session;
    bit<12>      queue_slot;             // egress port * 8 + the queue the packet was in
}

#endif
