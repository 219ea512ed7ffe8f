//! Virtual time: hosts, links, switches, cross-traffic
