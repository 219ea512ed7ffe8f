// SPDX-License-Identifier: Apache-2.0
//
// Expressions of many widths, signed and not, wrapping and saturating. One width per packet, chosen by its first byte.
// The packet brings the room for the results: BMv2 has a buffer for 512 bytes more than it received.

#include "skeleton.p4"

header pick_t { bit<8> which; bit<8> by; }

// Two operands; everything that P4 computes from them.
#define OPERANDS(W) header in##W##_t { bit<W> a; bit<W> b; } \
header out##W##_t { \
    bit<W> sum; bit<W> difference; bit<W> product; bit<W> both; bit<W> any; bit<W> odd; bit<W> inverse; bit<W> negative; \
    bit<W> left; bit<W> right; bit<W> left_constant; bit<W> right_constant; bit<W> full; bit<W> floor; \
    int<W> signed_sum; int<W> signed_difference; int<W> signed_product; int<W> ceiling; int<W> bottom; int<W> signed_right; \
    int<W> opposite; bit<W> either; bit<W> mixed; int<W> widened; bit<W> divided; bit<W> rest; \
    bit<1> lt; bit<1> le; bit<1> gt; bit<1> ge; bit<1> eq; bit<1> ne; bit<1> slt; bit<1> sle; \
    bit<1> sgt; bit<1> sge; bit<1> zero; bit<1> logic; bit<4> pad; }
#define FLAG(condition) (bit<1>)(condition)
#define COMPUTE(W, H) \
    if (hdr.in##W.isValid()) { \
        bit<W> a = hdr.in##W.a; bit<W> b = hdr.in##W.b; int<W> s = (int<W>)a; int<W> t = (int<W>)b; bit<8> by = hdr.pick.by; \
        hdr.out##W.sum = a + b; hdr.out##W.difference = a - b; hdr.out##W.product = a * b; hdr.out##W.both = a & b; \
        hdr.out##W.any = a | b; hdr.out##W.odd = a ^ b; hdr.out##W.inverse = ~a; hdr.out##W.negative = -a; \
        hdr.out##W.left = a << by; hdr.out##W.right = a >> by; hdr.out##W.left_constant = a << 5; \
        hdr.out##W.right_constant = a >> 5; hdr.out##W.full = a |+| b; hdr.out##W.floor = a |-| b; \
        hdr.out##W.signed_sum = s + t; hdr.out##W.signed_difference = s - t; hdr.out##W.signed_product = s * t; \
        hdr.out##W.ceiling = s |+| t; hdr.out##W.bottom = s |-| t; hdr.out##W.signed_right = s >> by; \
        hdr.out##W.opposite = -s; hdr.out##W.either = a < b ? a : b; \
        hdr.out##W.mixed = a[H-1:0] ++ b[W-1:H]; hdr.out##W.widened = (int<W>)(int<H>)s[H-1:0]; \
        hdr.out##W.divided = a / 8; hdr.out##W.rest = a % 16; \
        hdr.out##W.lt = FLAG(a < b); hdr.out##W.le = FLAG(a <= b); hdr.out##W.gt = FLAG(a > b); hdr.out##W.ge = FLAG(a >= b); \
        hdr.out##W.eq = FLAG(a == b); hdr.out##W.ne = FLAG(a + 1 != b); hdr.out##W.slt = FLAG(s < t); hdr.out##W.sle = FLAG(s <= t); \
        hdr.out##W.sgt = FLAG(s > t); hdr.out##W.sge = FLAG(s - 1 >= t); hdr.out##W.zero = FLAG((a & b) == 0); \
        hdr.out##W.logic = FLAG((a < b && s < t) || !(a == 0)); hdr.out##W.pad = 0; }

OPERANDS(8)
OPERANDS(24)
OPERANDS(64)
OPERANDS(72)
OPERANDS(128)
OPERANDS(136)
OPERANDS(256)
OPERANDS(520)

struct headers_t {
    pick_t pick;
    in8_t in8; in24_t in24; in64_t in64; in72_t in72; in128_t in128; in136_t in136; in256_t in256; in520_t in520;
    out8_t out8; out24_t out24; out64_t out64; out72_t out72; out128_t out128; out136_t out136; out256_t out256; out520_t out520;
}
struct metadata_t { }

PARSER {
    state start {
        packet.extract(hdr.pick);
        transition select(hdr.pick.which) {
            0: in8; 1: in24; 2: in64; 3: in72; 4: in128; 5: in136; 6: in256; 7: in520; default: accept;
        }
    }
    state in8 { packet.extract(hdr.in8); packet.extract(hdr.out8); transition accept; }
    state in24 { packet.extract(hdr.in24); packet.extract(hdr.out24); transition accept; }
    state in64 { packet.extract(hdr.in64); packet.extract(hdr.out64); transition accept; }
    state in72 { packet.extract(hdr.in72); packet.extract(hdr.out72); transition accept; }
    state in128 { packet.extract(hdr.in128); packet.extract(hdr.out128); transition accept; }
    state in136 { packet.extract(hdr.in136); packet.extract(hdr.out136); transition accept; }
    state in256 { packet.extract(hdr.in256); packet.extract(hdr.out256); transition accept; }
    state in520 { packet.extract(hdr.in520); packet.extract(hdr.out520); transition accept; }
}
INGRESS {
    apply {
        standard.egress_spec = 1;
        COMPUTE(8, 3)
        COMPUTE(24, 13)
        COMPUTE(64, 33)
        COMPUTE(72, 65)
        COMPUTE(128, 64)
        COMPUTE(136, 7)
        COMPUTE(256, 129)
        COMPUTE(520, 500)
    }
}
NO_EGRESS
NO_CHECKSUMS
DEPARSER { apply { packet.emit(hdr); } }
SWITCH
