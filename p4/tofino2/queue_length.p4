// SPDX-License-Identifier: Apache-2.0
//
// How long the queues are. The traffic manager of Tofino 2 tells the ghost thread every change; the
// ghost thread writes it down, and ingress reads it. Unit: cells of 176 bytes.
//
// Two arrays with the same content, because a packet asks for two queues, its own and the trim
// queue, and may read an array but once.

#ifndef TRIMWIRE_TOFINO2_QUEUE_LENGTH_P4
#define TRIMWIRE_TOFINO2_QUEUE_LENGTH_P4

#include "../tofino/headers.p4"

// The traffic manager's number of a queue: pipe, then port in the pipe * 16 + queue. (It gives each
// of a MAC's eight channels 16 of the MAC's 128 queues.)
typedef bit<13> queue_index_t;

Register<bit<32>, queue_index_t>(8192) queue_cells;
Register<bit<32>, queue_index_t>(8192) trim_queue_cells;

control TrimwireGhost(in ghost_intrinsic_metadata_t ghost) {
    RegisterAction<bit<32>, queue_index_t, bit<32>>(queue_cells) write_queue = {
        void apply(inout bit<32> cells) {
            cells = (bit<32>)ghost.qlength;
        }
    };
    RegisterAction<bit<32>, queue_index_t, bit<32>>(trim_queue_cells) write_trim_queue = {
        void apply(inout bit<32> cells) {
            cells = (bit<32>)ghost.qlength;
        }
    };

    apply {
        write_queue.execute(ghost.pipe_id ++ ghost.qid);
        write_trim_queue.execute(ghost.pipe_id ++ ghost.qid);
    }
}

// Fills in `queue_bytes` and `trim_queue_bytes` (in cells) and the thresholds reached.
control QueueLength(inout ingress_t meta) {
    RegisterAction<bit<32>, queue_index_t, bit<32>>(queue_cells) read_queue = {
        void apply(inout bit<32> cells, out bit<32> length) {
            length = cells;
        }
    };
    RegisterAction<bit<32>, queue_index_t, bit<32>>(trim_queue_cells) read_trim_queue = {
        void apply(inout bit<32> cells, out bit<32> length) {
            length = cells;
        }
    };
    bit<3>  trim_queue;
    bit<32> to_mark;
    bit<32> to_shallow;
    bit<32> to_deep;
    bit<32> to_drop;
    bit<32> to_trim_drop;

    @hidden
    action read() {
        meta.packet.queue_bytes = read_queue.execute(meta.egress_port ++ 1w0 ++ meta.packet.queue);
    }

    @hidden
    action read_trim() {
        meta.packet.trim_queue_bytes = read_trim_queue.execute(meta.egress_port ++ 1w0 ++ trim_queue);
    }

    // What is missing to a threshold; 0 when it is reached.
    @hidden
    action compare() {
        to_mark = meta.packet.policy.mark_at |-| meta.packet.queue_bytes;
        to_shallow = meta.packet.policy.shallow_at |-| meta.packet.queue_bytes;
        to_deep = meta.packet.policy.deep_at |-| meta.packet.queue_bytes;
        to_drop = meta.packet.policy.drop_at |-| meta.packet.queue_bytes;
        to_trim_drop = meta.packet.policy.trim_drop_at |-| meta.packet.trim_queue_bytes;
    }

    apply {
        meta.packet.reached.mark = 0;
        meta.packet.reached.shallow = 0;
        meta.packet.reached.deep = 0;
        meta.packet.reached.drop = 0;
        meta.packet.reached.trim_drop = 0;
        if (meta.packet.policed == 1) {
            if (meta.packet.trimming == Trimming.TRIMMED) {
                trim_queue = meta.packet.queue;
            } else {
                trim_queue = meta.packet.policy.trim_queue;
            }
            read();
            read_trim();
            compare();
            if (to_mark == 0) {
                meta.packet.reached.mark = 1;
            }
            if (to_shallow == 0) {
                meta.packet.reached.shallow = 1;
            }
            if (to_deep == 0) {
                meta.packet.reached.deep = 1;
            }
            if (to_drop == 0) {
                meta.packet.reached.drop = 1;
            }
            if (to_trim_drop == 0) {
                meta.packet.reached.trim_drop = 1;
            }
        }
    }
}

#endif
