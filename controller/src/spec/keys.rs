//! The keys of each mapping, in the order in which documentation and messages list them. `fabric.schema.json` and
//! `docs/fabric-yaml.md` are tested against these.

pub(crate) const TOP: &[&str] =
    &["version", "controller", "mtu", "rtt", "switches", "hosts", "links", "dscp", "queues", "policy"];
pub(crate) const CONTROLLER: &[&str] =
    &["election_id", "concurrency", "timeout", "batch", "interval", "metrics", "tls"];
pub(crate) const TLS: &[&str] = &["ca", "cert", "key", "server_name"];
pub(crate) const SWITCH: &[&str] = &["address", "device_id", "target", "tls"];
pub(crate) const HOST: &[&str] = &["ip", "ip6", "mac"];
pub(crate) const LINK: &[&str] = &["a", "b", "speed", "delay", "state"];
pub(crate) const DSCP: &[&str] = &["trimmable", "droppable", "trimmed", "control"];
pub(crate) const QUEUES: &[&str] = &["control", "trimmed", "classes", "best_effort"];
pub(crate) const POLICY: &[&str] = &[
    "trim",
    "selective_drop",
    "mark_at",
    "shallow_at",
    "deep_at",
    "drop_at",
    "shallow_size",
    "deep_size",
    "trim_limit",
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
