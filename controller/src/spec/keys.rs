// SPDX-License-Identifier: Apache-2.0
//! The keys of each mapping, in the order in which documentation and messages list them.
//! `fabric.schema.json` and `docs/reference/fabric-file.md` are tested against these.

pub(crate) const TOP: &[&str] = &[
    "version",
    "controller",
    "mtu",
    "rtt",
    "topology",
    "switches",
    "hosts",
    "links",
    "dscp",
    "queues",
    "policy",
    "load_balance",
    "disable_trim",
];
pub(crate) const CONTROLLER: &[&str] = &[
    "election_id",
    "concurrency",
    "timeout",
    "batch",
    "interval",
    "audit",
    "hold_down",
    "max_unavailable",
    "settle",
    "metrics",
    "tls",
    "insecure",
];
pub(crate) const TLS: &[&str] = &["ca", "cert", "key", "server_name"];
pub(crate) const TOPOLOGY: &[&str] = &["dumbbell", "leaf_spine", "fat_tree"];
pub(crate) const DUMBBELL: &[&str] = &[
    "hosts_per_side",
    "trunks",
    "host_speed",
    "fabric_speed",
    "oversubscription",
    "host_delay",
    "fabric_delay",
    "target",
    "pipeline",
    "addresses",
];
pub(crate) const LEAF_SPINE: &[&str] = &[
    "leaves",
    "spines",
    "hosts_per_leaf",
    "links_per_spine",
    "host_speed",
    "fabric_speed",
    "oversubscription",
    "host_delay",
    "fabric_delay",
    "target",
    "pipeline",
    "addresses",
];
pub(crate) const FAT_TREE: &[&str] = &[
    "k",
    "hosts_per_edge",
    "host_speed",
    "fabric_speed",
    "oversubscription",
    "host_delay",
    "fabric_delay",
    "target",
    "pipeline",
    "addresses",
];
pub(crate) const ADDRESSES: &[&str] = &["ipv4", "ipv6", "mac", "device_id", "grpc"];
pub(crate) const SWITCH: &[&str] = &["address", "device_id", "target", "pipeline", "gnmi", "tls"];
pub(crate) const PIPELINE: &[&str] =
    &["p4info", "json", "bfrt", "context", "binary", "name", "profile", "pipes"];
pub(crate) const HOST: &[&str] = &["ip", "ip6", "mac", "trust"];
pub(crate) const LINK: &[&str] = &["a", "b", "speed", "delay", "state"];
pub(crate) const DSCP: &[&str] = &["trimmable", "droppable", "trimmed", "trimmed_last_hop", "control"];
pub(crate) const QUEUES: &[&str] = &["control", "trimmed", "classes", "best_effort"];
pub(crate) const POLICY: &[&str] = &[
    "trim",
    "selective_drop",
    "mark_trimmable",
    "mark_at",
    "shallow_at",
    "deep_at",
    "drop_at",
    "shallow_size",
    "deep_size",
    "sealed",
    "trim_limit",
    "trim_cap",
    "trimmed_dscp",
    "important",
    "less_important",
    "queues",
    "ports",
];
pub(crate) const PORT_POLICY: &[&str] = &[
    "mark_at",
    "shallow_at",
    "deep_at",
    "drop_at",
    "shallow_size",
    "deep_size",
    "trim_limit",
    "trim_cap",
    "trimmed_dscp",
    "important",
    "less_important",
    "queues",
];
pub(crate) const QUEUE_POLICY: &[&str] = &[
    "mark_at",
    "shallow_at",
    "deep_at",
    "drop_at",
    "shallow_size",
    "deep_size",
    "important",
    "less_important",
];
pub(crate) const THRESHOLDS: &[&str] = &["mark_at", "shallow_at", "deep_at", "drop_at"];
pub(crate) const LOAD_BALANCE: &[&str] = &["default", "trimmable", "droppable"];
pub(crate) const DISABLE_TRIM: &[&str] = &["src", "dst", "protocol", "src_port", "dst_port", "switches"];
