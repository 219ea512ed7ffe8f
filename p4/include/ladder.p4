// SPDX-License-Identifier: Apache-2.0
//
// The ladder: what becomes of a packet, given its class, its policy and two occupancies. The first rung that holds
// decides. All comparisons are ">=" against the bytes queued before this packet.
//
//   1  TRIMMED              trim queue full           -> TRIM_DROP, else ADMIT
//   2  trimmable            >= deep_at / shallow_at   -> CUT to deep_size / shallow_size (trim queue full -> TRIM_DROP)
//   3  otherwise, not ECT   >= shallow_at             -> SELECTIVE_DROP
//   4  any                  >= drop_at                -> TAIL_DROP
//   5  not trimmable, ECT   >= mark_at                -> ADMIT_MARKED
//      else                                           -> ADMIT
//
// drop_at limits what enters the packet's own queue. A cut packet does not enter it, so rung 4 does not apply to it.

#ifndef TRIMWIRE_LADDER_P4
#define TRIMWIRE_LADDER_P4

#include "headers.p4"
#include "sizes.p4"

control Ladder(in headers_t hdr, inout metadata_t meta) {
    apply {
        meta.verdict = Verdict.ADMIT;
        if (meta.trimming == Trimming.TRIMMED) {
            // A packet that arrived trimmed was classified to the trim queue: `queue` is its own and the trim queue.
            if (meta.queue_bytes >= meta.policy.trim_drop_at) {
                meta.verdict = Verdict.TRIM_DROP;
            }
        } else if (meta.trimming == Trimming.TRIMMABLE && hdr.udp.isValid()) {
            if (meta.queue_bytes >= meta.policy.shallow_at) {
                meta.cut_to = (bit<32>)meta.policy.shallow_size;
                if (meta.queue_bytes >= meta.policy.deep_at) {
                    meta.cut_to = (bit<32>)meta.policy.deep_size;
                }

                // Where the IP packet ends in the frame (Ethernet may pad behind it), and where its head does.
                meta.l2_bytes = ETHERNET_BYTES;
                if (hdr.vlan.isValid()) {
                    meta.l2_bytes = ETHERNET_BYTES + VLAN_BYTES;
                }
                bit<32> ip_end;
                bit<32> head_end;
                if (hdr.ipv4.isValid()) {
                    ip_end = meta.l2_bytes + (bit<32>)hdr.ipv4.total_len;
                    head_end = meta.l2_bytes + ((bit<32>)hdr.ipv4.ihl << 2) + (UDP_BYTES + TRIMWIRE_HEAD_BYTES);
                } else {
                    ip_end = meta.l2_bytes + (bit<32>)hdr.ipv6.payload_len + IPV6_BYTES;
                    head_end = meta.l2_bytes + (IPV6_BYTES + UDP_BYTES + TRIMWIRE_HEAD_BYTES);
                }

                if (meta.cut_to < head_end) {
                    meta.cut_to = head_end;
                }
                // Never enlarged: neither the frame nor a length field. A packet that is short enough already (cut by
                // its sender) competes for its own queue as it is.
                if (meta.cut_to < meta.frame_bytes && meta.cut_to < ip_end) {
                    if (meta.trim_queue_bytes >= meta.policy.trim_drop_at) {
                        meta.verdict = Verdict.TRIM_DROP;
                    } else {
                        meta.verdict = Verdict.CUT;
                    }
                } else if (meta.queue_bytes >= meta.policy.drop_at) {
                    meta.verdict = Verdict.TAIL_DROP;
                }
            }
        } else if (meta.importance == 0 && meta.queue_bytes >= meta.policy.shallow_at) {
            meta.verdict = Verdict.SELECTIVE_DROP;
        } else if (meta.queue_bytes >= meta.policy.drop_at) {
            meta.verdict = Verdict.TAIL_DROP;
        } else if (meta.importance == 1 && meta.queue_bytes >= meta.policy.mark_at) {
            meta.verdict = Verdict.ADMIT_MARKED;
        }
    }
}

#endif
