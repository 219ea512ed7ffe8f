// SPDX-License-Identifier: Apache-2.0
//
// Flows that are never to be trimmed, whatever their DSCP says (SONiC's DISABLE_TRIM_ACTION). They
// stay in their queue and are treated as any packet there that is not trimmable.

#ifndef TRIMWIRE_TRIM_ACL_P4
#define TRIMWIRE_TRIM_ACL_P4

#include "headers.p4"
#include "sizes.p4"

control TrimAcl(in headers_t hdr, inout metadata_t meta) {
    @id(0x0100000b) @name(".Ingress.disable_trim")
    action disable_trim() {
        meta.trimming = Trimming.PLAIN;
    }

    @id(0x02000006) @name(".Ingress.trim_acl_ipv4")
    table trim_acl_ipv4 {
        key = {
            hdr.ipv4.src_addr: ternary @name("src_addr");
            hdr.ipv4.dst_addr: ternary @name("dst_addr");
            meta.flow_protocol: ternary @name("protocol");
            meta.flow_src_port: ternary @name("src_port");
            meta.flow_dst_port: ternary @name("dst_port");
        }
        actions = { disable_trim; NoAction; }
        default_action = NoAction();
        size = TRIM_ACL_ENTRIES;
    }

    @id(0x02000007) @name(".Ingress.trim_acl_ipv6")
    table trim_acl_ipv6 {
        key = {
            hdr.ipv6.src_addr: ternary @name("src_addr");
            hdr.ipv6.dst_addr: ternary @name("dst_addr");
            meta.flow_protocol: ternary @name("protocol");
            meta.flow_src_port: ternary @name("src_port");
            meta.flow_dst_port: ternary @name("dst_port");
        }
        actions = { disable_trim; NoAction; }
        default_action = NoAction();
        size = TRIM_ACL_ENTRIES;
    }

    apply {
        if (meta.trimming == Trimming.TRIMMABLE) {
            if (hdr.ipv4.isValid()) {
                trim_acl_ipv4.apply();
            } else if (hdr.ipv6.isValid()) {
                trim_acl_ipv6.apply();
            }
        }
    }
}

#endif
