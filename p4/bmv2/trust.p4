// SPDX-License-Identifier: Apache-2.0
//
// Whose DSCP is believed. A code point says which queue serves a packet, and whether it may be
// trimmed or has been: a host that writes what it likes would be served before everybody else's
// gradients. What a port may not claim is re-marked, in the packet too, so that the next switch
// need not know the port.

#ifndef TRIMWIRE_BMV2_TRUST_P4
#define TRIMWIRE_BMV2_TRUST_P4

#include "../include/headers.p4"
#include "../include/sizes.p4"

control Trust(inout headers_t hdr, in bit<9> ingress_port, inout metadata_t meta) {
    @id(0x0100000e) @name(".Ingress.trust_dscp")
    action trust_dscp() {
    }

    @id(0x0100000f) @name(".Ingress.remark_dscp")
    action remark_dscp(bit<6> dscp) {
        meta.dscp = dscp;
    }

    @id(0x02000009) @name(".Ingress.trust")
    table trust {
        key = {
            ingress_port: exact @name("ingress_port");
            meta.dscp: ternary @name("dscp");
        }
        actions = { trust_dscp; remark_dscp; }
        default_action = trust_dscp();
        size = TRUST_ENTRIES;
    }

    apply {
        trust.apply();
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.dscp = meta.dscp;
        } else if (hdr.ipv6.isValid()) {
            hdr.ipv6.dscp = meta.dscp;
        }
    }
}

#endif
