// SPDX-License-Identifier: Apache-2.0
//
// The headers of the program, and what is known about a packet while it is in the switch.

#ifndef TRIMWIRE_HEADERS_P4
#define TRIMWIRE_HEADERS_P4

header ethernet_t {
    bit<48> dst_addr;
    bit<48> src_addr;
    bit<16> ether_type;
}

header vlan_t {
    bit<3>  priority;
    bit<1>  drop_eligible;
    bit<12> id;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<6>  dscp;
    bit<2>  ecn;
    bit<16> total_len;
    bit<16> identification;
    bit<1>  reserved;
    bit<1>  dont_fragment;
    bit<1>  more_fragments;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> hdr_checksum;
    bit<32> src_addr;
    bit<32> dst_addr;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4>   version;
    bit<6>   dscp;
    bit<2>   ecn;
    bit<20>  flow_label;
    bit<16>  payload_len;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src_addr;
    bit<128> dst_addr;
}

// Hop-by-hop options, routing and destination options (RFC 8200, section 4), of up to 128 bytes.
header ipv6_extension_t {
    bit<8>       next_header;
    bit<8>       len;             // in units of 8 bytes, the first not counted
    varbit<1008> content;
}

header udp_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> len;
    bit<16> checksum;
}

// RFC 7348, section 5. What the flags and the network say does not matter to a trim.
header vxlan_t {
    bit<8>  flags;
    bit<24> reserved;
    bit<24> network;
    bit<8>  reserved_too;
}

// The first four bytes of TCP and SCTP: all that the ECMP hash wants of them.
header l4_ports_t {
    bit<16> src_port;
    bit<16> dst_port;
}

#ifdef TRIMWIRE_V1MODEL
// IEEE 802's for local experiments.
const bit<16> ETHERTYPE_PROBE = 0x88b5;

// A controller's frame for one link: what each end had counted when it passed (wires.p4). Whose it
// is comes behind.
header probe_t {
    bit<32> departed;
    bit<32> arrived;
}

const bit<16> ETHERTYPE_ARP = 0x0806;
const bit<8> PROTOCOL_ICMPV6 = 58;
// Ethernet, IPv4, lengths of 6 and 4 bytes, a request.
const bit<64> ARP_REQUEST = 0x0001080006040001;
const bit<8> NEIGHBOUR_SOLICITATION = 135;

// RFC 826, of Ethernet and IPv4.
header arp_t {
    bit<16> hardware;
    bit<16> protocol;
    bit<8>  hardware_bytes;
    bit<8>  protocol_bytes;
    bit<16> operation;
    bit<48> sender_mac;
    bit<32> sender_addr;
    bit<48> target_mac;
    bit<32> target_addr;
}

// Neighbour solicitation and advertisement (RFC 4861, sections 4.3 and 4.4).
header nd_t {
    bit<8>   type;
    bit<8>   code;
    bit<16>  checksum;
    bit<32>  flags;
    bit<128> target_addr;
}

// Link-layer address (RFC 4861, section 4.6.1).
header nd_option_t {
    bit<8>  type;
    bit<8>  len;              // in units of 8 bytes
    bit<48> mac;
}
#endif

// Controller headers (P4Runtime PacketIO).
@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> pad;
}

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> pad;
}

struct headers_t {
    packet_in_t    packet_in;
    packet_out_t   packet_out;
    ethernet_t     ethernet;
    vlan_t         vlan;
    ipv4_t         ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t         ipv6;
    udp_t          udp;
    l4_ports_t     l4_ports;
    // On v1model only: between IPv6 and UDP, and what a tunnel carries.
    ipv6_extension_t ipv6_extension1;
    ipv6_extension_t ipv6_extension2;
    ipv6_extension_t ipv6_extension3;
    vxlan_t        vxlan;
    ethernet_t     inner_ethernet;
    ipv4_t         inner_ipv4;
    ipv6_t         inner_ipv6;
    udp_t          inner_udp;
#ifdef TRIMWIRE_V1MODEL
    probe_t        probe;
    arp_t          arp;
    nd_t           nd;
    nd_option_t    nd_option;
#endif
}

// What the sender allows the fabric to do with a packet, from its DSCP.
enum bit<2> Trimming {
    PLAIN = 0,       // admit whole, mark or drop
    TRIMMABLE = 1,   // may be trimmed once
    TRIMMED = 2      // has been trimmed, here or upstream; never again
}

// How a packet picks one of several equal paths (load_balance.p4).
enum bit<2> PathChoice {
    FIVE_TUPLE = 0,
    FLOW = 1,
    PACKET = 2
}

// The rung of the ladder on which a packet came to rest (queue_policy.p4).
enum bit<3> Verdict {
    ADMIT = 0,
    ADMIT_MARKED = 1,
    TRIM = 2,
    TRIM_DROP = 3,
    SELECTIVE_DROP = 4,
#ifdef TRIMWIRE_V1MODEL
    PROBE = 6,             // the controller's: neither policed nor counted
#endif
    TAIL_DROP = 5
}

#ifdef TRIMWIRE_V1MODEL
// Why a frame is dropped that could be routed. It stands where its queue would: a field more would
// be one that every flow remembers.
const bit<3> WRONG_NEIGHBOUR = 1;   // for another port's address
const bit<3> TURNED_BACK = 2;       // it would leave where it came in
#endif

// Action data of Ingress.queue_policy.policy. Thresholds are bytes queued, sizes are bytes of
// frame.
struct policy_t {
    bit<32> mark_at;
    bit<32> shallow_at;
    bit<32> deep_at;
    bit<32> drop_at;
    bit<16> shallow_size;
    bit<16> deep_size;
    bit<6>  trimmed_dscp;
    bit<3>  trim_queue;
    bit<32> trim_drop_at;
}

// Which of the policy's thresholds the queue stands at or above. A target knows its queues in its
// own way (bytes, cells, the colours of a meter) and fills this in; the ladder asks for no more.
struct reached_t {
    bit<1> mark;
    bit<1> shallow;
    bit<1> deep;
    bit<1> drop;
    bit<1> trim_drop;   // of the trim queue; for a TRIMMED packet, its own queue is the trim queue
}

struct metadata_t {
#ifdef TRIMWIRE_V1MODEL
    // Where it came in.
    bit<48>  own_mac;             // the port's; 0: any will do
#endif

    // Routing.
    bit<4>   ip_version;          // 4 or 6; 0: cannot be routed
    bit<8>   hops_left;           // TTL or hop limit on arrival

    // The 5-tuple; IPv6 addresses folded to 32 bits. Ports are 0 where there are none (fragments,
    // other protocols).
    bit<32>  flow_src_addr;
    bit<32>  flow_dst_addr;
    bit<8>   flow_protocol;
    bit<16>  flow_src_port;
    bit<16>  flow_dst_port;

    // The member of an ECMP group.
    PathChoice path_choice;
    bit<1>   hash_half;
    bit<32>  flow_hash;
    bit<32>  hash_seed;           // the switch's own; 0: none
    bit<16>  path;

    // Classification.
    bit<6>   dscp;
    bit<1>   importance;          // 1: ECT or CE on the IP header (MLT, section 5.2)
    Trimming trimming;
    bit<3>   queue;               // the queue the packet was classified to

    // Policy. Occupancies are bytes, taken before this packet is added.
    bit<1>   policed;             // 1: a policy entry matched
    policy_t policy;
    bit<32>  queue_bytes;         // occupancy of `queue`
    bit<32>  trim_queue_bytes;    // occupancy of `policy.trim_queue`
    reached_t reached;
    Verdict  verdict;
    bit<1>   over_cap;            // 1: trimmed packets have had their share of the port

    // The trim. Offsets are bytes from the start of the frame; one beyond 65,535 stays there.
    bit<16>  l2_bytes;            // where the IP header starts: behind Ethernet and VLAN
    bit<16>  ip_bytes;            // how long the IP header is, options included
    bit<16>  head_end;            // where the head ends that a trim has to leave
    bit<16>  ip_end;              // where the IP packet ends; Ethernet may pad behind it
    bit<16>  trim_to;             // length of the frame after a trim
    // 1: a trim to this size leaves the head and takes something away. Deep is asked for where
    // deep_at is reached, shallow where it is not.
    bit<1>   shallow_trimmable;
    bit<1>   deep_trimmable;

    // Accounting.
    bit<32>  class_slot;          // egress port * 8 + `queue`
    bit<32>  trim_slot;           // egress port * 8 + `policy.trim_queue`
    bit<32>  queue_slot;          // egress port * 8 + the queue that the packet is put in
    bit<32>  frame_bytes;         // length of the frame as it arrived
    bit<32>  queued_bytes;        // length of the frame as it is sent
    bit<32>  entered_with;        // all that ever entered the queue, up to this packet
}

#endif
