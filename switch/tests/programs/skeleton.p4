// SPDX-License-Identifier: Apache-2.0
//
// What every program here shares: the architecture and the controls that most leave empty. A program defines
// headers_t and metadata_t before it includes this file.

#include <core.p4>
#include <v1model.p4>

#define PARSER parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard)
#define INGRESS control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard)
#define EGRESS control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard)
#define DEPARSER control D(packet_out packet, in headers_t hdr)
#define NO_EGRESS EGRESS { apply { } }
#define NO_CHECKSUMS control V(inout headers_t hdr, inout metadata_t meta) { apply { } } \
    control C(inout headers_t hdr, inout metadata_t meta) { apply { } }
#define SWITCH V1Switch(P(), V(), I(), E(), C(), D()) main;
