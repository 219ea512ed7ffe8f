// SPDX-License-Identifier: Apache-2.0
//
// Tells the controller whose packets are cut: one cut packet in CUT_SAMPLE, picked by chance (a count would always pick the same of
// senders that take turns), and no more than one in CUT_GAP_US of the whole switch: what a stranger's flood costs is bounded here.
//
// A sample carries how many packets its queue has cut so far. So a controller knows how many each one stands for, whatever was
// left out or lost, and no two are alike, which P4Runtime would take for repetitions.

#ifndef TRIMWIRE_BMV2_CUT_SAMPLES_P4
#define TRIMWIRE_BMV2_CUT_SAMPLES_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

const bit<8> CUT_SAMPLE = 16;
const bit<32> CUT_GAP_US = 1024;

// A packet that was cut (P4Runtime digest). In a tunnel, of the outer head: hosts that the fabric knows.
struct cut_packet_t {
    bit<9>   egress_port;
    bit<3>   queue;               // the queue it was classified to
    bit<32>  cut_packets;         // of that queue, this one included; wraps round
    bit<16>  bytes;               // what was cut off
    bit<128> src_addr;            // an IPv4 address in IPv6's form (RFC 4291, section 2.5.5.2)
    bit<128> dst_addr;
    bit<16>  src_port;
    bit<16>  dst_port;
}

control CutSamples(in headers_t hdr, in bit<9> egress_port, in bit<32> now_us, in metadata_t meta, in bit<1> told) {
    // How many packets each queue has cut.
    @id(0x16000007) @name(".Ingress.cut_packets")
    register<bit<32>>(QUEUE_SLOTS) cut_packets;
    // When the last sample was taken, microseconds.
    @id(0x16000008) @name(".Ingress.sampled_at")
    register<bit<32>>(1) sampled_at;

    bit<32>  number;
    bit<8>   chance;
    bool     is_due;
    bit<128> src_addr;
    bit<128> dst_addr;

    // One action each: BMv2 holds the register's lock that long.
    @hidden
    action count() {
        cut_packets.read(number, meta.class_slot);
        number = number + 1;
        cut_packets.write(meta.class_slot, number);
    }

    @hidden
    action take_turn() {
        bit<32> last_us;
        sampled_at.read(last_us, 0);
        is_due = now_us - last_us >= CUT_GAP_US;
        sampled_at.write(0, is_due ? now_us : last_us);
    }

    apply {
        count();
        random(chance, 8w0, CUT_SAMPLE - 1);
        // A packet has room for one digest: one that `told` of its queue is no sample.
        if (chance == 0 && told == 0) {
            take_turn();
            if (is_due) {
                if (hdr.ipv4.isValid()) {
                    src_addr = 80w0 ++ 16w0xffff ++ hdr.ipv4.src_addr;
                    dst_addr = 80w0 ++ 16w0xffff ++ hdr.ipv4.dst_addr;
                } else {
                    src_addr = hdr.ipv6.src_addr;
                    dst_addr = hdr.ipv6.dst_addr;
                }
                digest<cut_packet_t>(1, { egress_port, meta.queue, number, (meta.frame_bytes - (bit<32>)meta.cut_to)[15:0],
                    src_addr, dst_addr, meta.flow_src_port, meta.flow_dst_port });
            }
        }
    }
}

#endif
