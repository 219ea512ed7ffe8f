// SPDX-License-Identifier: Apache-2.0
//
// Registers of many widths, counters, meters.

#include "skeleton.p4"

header op_t { bit<8> op; bit<8> index; bit<32> value; int<16> small; bit<200> wide; }
struct headers_t { op_t op; }
struct metadata_t { bit<32> color; }

PARSER { state start { packet.extract(hdr.op); transition accept; } }
INGRESS {
    register<bit<1>>(4) bits;
    register<bit<32>>(8) words;
    register<int<16>>(4) levels;
    register<bit<128>>(4) longs;
    register<bit<200>>(4) wides;
    counter(8, CounterType.packets) packets_only;
    counter(8, CounterType.bytes) bytes_only;
    counter(8, CounterType.packets_and_bytes) both;
    meter(4, MeterType.packets) packet_meter;
    meter(4, MeterType.bytes) byte_meter;
    apply {
        standard.egress_spec = 1;
        bit<32> index = (bit<32>)hdr.op.index;
        bit<32> word; bit<1> flag; bit<128> long; bit<200> wide; int<16> level;
        packets_only.count(index);
        if (hdr.op.op == 1) { words.read(word, index); words.write(index, word + hdr.op.value); hdr.op.value = word; }
        if (hdr.op.op == 2) { bits.read(flag, index); bits.write(index, ~flag); hdr.op.value = (bit<32>)flag; }
        if (hdr.op.op == 3) { levels.read(level, index); levels.write(index, level |+| hdr.op.small); hdr.op.small = level; }
        if (hdr.op.op == 4) { longs.read(long, index); longs.write(index, long + hdr.op.wide[127:0]); hdr.op.wide[127:0] = long; }
        if (hdr.op.op == 5) { wides.read(wide, index); wides.write(index, wide + hdr.op.wide); hdr.op.wide = wide; }
        if (hdr.op.op == 6) { bytes_only.count(index); both.count(hdr.op.value); }
        if (hdr.op.op == 7) { packet_meter.execute_meter(index, meta.color); hdr.op.value = meta.color; }
        if (hdr.op.op == 8) { meta.color = 7; byte_meter.execute_meter(index, meta.color); hdr.op.value = meta.color; }
        if (hdr.op.op == 9) { words.write(index, 0xffffffff); wides.write(2, (bit<200>)hdr.op.value << 150); }
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
