// SPDX-License-Identifier: Apache-2.0
//
// How much of a port's time trimmed packets may take. The trim queue is served first, so that heads
// overtake what congests the port; without a limit they could starve everybody else (UEC: at most
// half the port).
//
// A token bucket per port over the bytes that will be sent. BMv2's meters do not do: they count a
// trimmed packet with the length that it had on arrival.

#ifndef TRIMWIRE_BMV2_TRIM_CAP_P4
#define TRIMWIRE_BMV2_TRIM_CAP_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

control TrimCap(in bit<9> egress_port, in bit<48> now_us, inout metadata_t meta) {
    // Bytes sent and not yet paid for by time (32 bits), and when that was worked out (48 bits,
    // microseconds).
    @id(0x16000003) @name(".Ingress.trim_cap.bucket")
    register<bit<80>>(PORTS) bucket;

    bool capped;
    bit<32> cap_rate;
    bit<32> cap_burst;

    // `rate` is in bytes per 1,024 microseconds, `burst` in bytes.
    @id(0x0100000c) @name(".Ingress.trim_cap.set_cap")
    action set_cap(bit<32> rate, bit<32> burst) {
        capped = true;
        cap_rate = rate;
        cap_burst = burst;
    }

    @id(0x0100000d) @name(".Ingress.trim_cap.no_cap")
    action no_cap() {
        capped = false;
    }

    @id(0x02000008) @name(".Ingress.trim_cap.cap")
    table cap {
        key = { egress_port: exact @name("egress_port"); }
        actions = { set_cap; no_cap; }
        default_action = no_cap();
        size = PORTS;
    }

    // One action: BMv2 holds the register's lock that long.
    @hidden
    action police() {
        bit<80> state;
        bucket.read(state, (bit<32>)egress_port);
        bit<48> idle_us = now_us - state[47:0];
        // After more than a second every bucket is empty; the product fits into 64 bits.
        idle_us = idle_us > 0xfffff ? 48w0xfffff : idle_us;
        bit<64> paid = ((bit<64>)idle_us * (bit<64>)cap_rate) >> 10;
        bit<64> debt = (bit<64>)state[79:48] |-| paid;
        bit<64> wanted = debt + (bit<64>)meta.queued_bytes;
        meta.over_cap = wanted > (bit<64>)cap_burst ? 1w1 : 1w0;
        debt = wanted > (bit<64>)cap_burst ? debt : wanted;
        bucket.write((bit<32>)egress_port, debt[31:0] ++ now_us);
    }

    apply {
        cap.apply();
        if (capped) {
            police();
            if (meta.over_cap == 1) {
                if (meta.trimming == Trimming.TRIMMED) {
                    meta.verdict = Verdict.TAIL_DROP;
                } else if (meta.reached.drop == 1) {
                    meta.verdict = Verdict.TRIM_DROP;
                } else {
                    // As on the ladder: no room for the head, but for the packet.
                    meta.verdict = Verdict.ADMIT;
                    meta.queued_bytes = meta.frame_bytes;
                }
            }
        }
    }
}

#endif
