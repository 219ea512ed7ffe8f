// SPDX-License-Identifier: Apache-2.0
//
// One of each thing that P4Runtime can be asked about; see the server's tests. The first byte of a packet is looked up in
// most tables, the second says which of the externs it meets. NEXT is the program's next version, for
// RECONCILE_AND_COMMIT. Compiled with p4c 1.2.5.16, in this folder:
//   p4c-bm2-ss --p4runtime-files server.p4info.txtpb -o server.json server.p4
//   p4c-bm2-ss -DNEXT --p4runtime-files next.p4info.txtpb -o next.json server.p4

#include <core.p4>
#include <v1model.p4>

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> reason; }
@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> pad; }
header probe_t { bit<8> key; bit<8> what; bit<16> kind; bit<32> value; }
header body_t { bit<8> kind; }

struct headers_t { packet_in_t packet_in; packet_out_t packet_out; probe_t probe; body_t body; }
struct metadata_t { bit<2> color; }
struct pair_t { bit<8> what; bit<16> kind; }
struct seen_t { bit<8> key; bit<32> value; bit<9> port; }

const bit<9> CPU_PORT = 510;

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    value_set<bit<16>>(4) kinds;
    value_set<pair_t>(2) pairs;

    state start {
        transition select(standard.ingress_port) {
            CPU_PORT: parse_packet_out;
            default: parse_probe;
        }
    }
    state parse_packet_out { packet.extract(hdr.packet_out); transition parse_probe; }
    state parse_probe {
        packet.extract(hdr.probe);
        transition select(hdr.probe.kind) {
            kinds: parse_body;
            default: parse_pair;
        }
    }
    state parse_pair {
        transition select(hdr.probe.what, hdr.probe.kind) {
            pairs: parse_body;
            default: accept;
        }
    }
    state parse_body { packet.extract(hdr.body); transition accept; }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    direct_counter(CounterType.packets_and_bytes) acl_hits;
    direct_meter<bit<2>>(MeterType.packets) acl_rate;
    direct_counter(CounterType.packets_and_bytes) fixed_hits;
    counter(16, CounterType.packets_and_bytes) seen;
    meter(4, MeterType.bytes) rates;
    register<int<16>>(8) balance;
    register<bit<1>>(4) flags;

    action forward(bit<9> port) { standard.egress_spec = port; }
    action drop() { mark_to_drop(standard); }
    action hit(bit<9> port) { acl_hits.count(); acl_rate.read(meta.color); standard.egress_spec = port; }
    action fixed_forward(bit<9> port) { fixed_hits.count(); standard.egress_spec = port; }

    table acl {
        key = { hdr.probe.key: ternary @name("key"); hdr.probe.what: optional @name("what"); hdr.probe.kind: range @name("kind"); }
        actions = { hit; NoAction; }
        default_action = NoAction();
        counters = acl_hits;
        meters = acl_rate;
        size = 8;
    }
    table aging {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { forward; drop; @defaultonly NoAction; }
        default_action = NoAction();
        support_timeout = true;
        size = 16;
    }
    table fixed {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { fixed_forward; @defaultonly NoAction; }
        const default_action = NoAction();
        counters = fixed_hits;
        const entries = { 200: fixed_forward(7); 201: fixed_forward(8); }
    }
    @max_group_size(8)
    action_selector(HashAlgorithm.crc16, 32, 16) spread;
    table balanced {
        key = { hdr.probe.key: exact @name("key"); hdr.probe.value: selector; }
        actions = { forward; drop; @defaultonly NoAction; }
        implementation = spread;
        size = 16;
    }
#ifdef NEXT
    table added {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { forward; @defaultonly NoAction; }
        default_action = NoAction();
        size = 16;
    }
#else
    action_profile(4) few;
    table indirect {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { forward; drop; @defaultonly NoAction; }
        implementation = few;
        size = 16;
    }
#endif

    apply {
        // A packet-out to port 0 goes the way of all packets.
        if (hdr.packet_out.isValid() && hdr.packet_out.egress_port != 0) {
            standard.egress_spec = hdr.packet_out.egress_port;
        } else {
            mark_to_drop(standard);
            acl.apply();
            aging.apply();
            fixed.apply();
            balanced.apply();
#ifdef NEXT
            added.apply();
#else
            indirect.apply();
#endif
            if (hdr.probe.what == 1) { digest(1, (seen_t){ hdr.probe.key, hdr.probe.value, standard.ingress_port }); }
            if (hdr.probe.what == 2) { seen.count(hdr.probe.value & 15); }
            if (hdr.probe.what == 3) { standard.egress_spec = CPU_PORT; }
            if (hdr.body.isValid()) { standard.egress_spec = 9w100 + (bit<9>) hdr.body.kind; }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action mark(bit<32> value) { hdr.probe.value = value; }
    table outgoing {
        key = { hdr.probe.key: exact @name("key"); }
        actions = { mark; @defaultonly NoAction; }
        default_action = NoAction();
        size = 16;
    }
    apply {
        outgoing.apply();
        if (standard.egress_port == CPU_PORT) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = standard.ingress_port;
            hdr.packet_in.reason = 5;
        }
    }
}
control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.packet_in); packet.emit(hdr.probe); packet.emit(hdr.body); }
}

V1Switch(P(), V(), I(), E(), C(), D()) main;
