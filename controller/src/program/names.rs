// SPDX-License-Identifier: Apache-2.0
//! Names of the program (`p4/`): an interface, the same for every target.

pub(crate) const IPV4_ROUTE: &str = "Ingress.ipv4_route";
pub(crate) const IPV6_ROUTE: &str = "Ingress.ipv6_route";
pub(crate) const CLASSIFY: &str = "Ingress.classify";
pub(crate) const POLICY: &str = "Ingress.queue_policy.policy";
pub(crate) const LOAD_BALANCE: &str = "Ingress.load_balance";
pub(crate) const TRIM_ACL_IPV4: &str = "Ingress.trim_acl_ipv4";
pub(crate) const TRIM_ACL_IPV6: &str = "Ingress.trim_acl_ipv6";
/// Where the program, and not the traffic manager, holds trimmed packets below their cap.
pub(crate) const TRIM_CAP: &str = "Ingress.trim_cap.cap";
/// On v1model: whose DSCP is believed, the switch's hash seed, trimmable code points that are
/// marked CE.
pub(crate) const TRUST: &str = "Ingress.trust";
pub(crate) const HASH_SEED: &str = "Ingress.hash_seed";
pub(crate) const MARK_TRIMMABLE: &str = "Ingress.mark_trimmable";
/// On v1model: the addresses of ports to switches.
pub(crate) const OWN_MAC: &str = "Ingress.own_mac";
pub(crate) const EXPECT_MAC: &str = "Ingress.expect_mac";
/// All tables that this controller owns where they are: what else is in them is foreign.
pub(crate) const TABLES: [&str; 12] = [
    OWN_MAC,
    POLICY,
    TRIM_CAP,
    CLASSIFY,
    LOAD_BALANCE,
    TRIM_ACL_IPV4,
    TRIM_ACL_IPV6,
    TRUST,
    HASH_SEED,
    MARK_TRIMMABLE,
    IPV4_ROUTE,
    IPV6_ROUTE,
];
pub(crate) const ECMP: &str = "Ingress.ecmp";
/// What routes consist of.
pub(crate) const ROUTING: [&str; 3] = [IPV4_ROUTE, IPV6_ROUTE, ECMP];
pub(crate) const FORWARD: &str = "Ingress.forward";
pub(crate) const SET_THRESHOLDS: &str = "Ingress.queue_policy.set_thresholds";
pub(crate) const NO_POLICY: &str = "Ingress.queue_policy.no_policy";
pub(crate) const SET_CAP: &str = "Ingress.trim_cap.set_cap";
pub(crate) const NO_CAP: &str = "Ingress.trim_cap.no_cap";
pub(crate) const DISABLE_TRIM: &str = "Ingress.disable_trim";
pub(crate) const NO_ACTION: &str = "NoAction";
/// Packets that came where they should not have, by the port that they came in at: for another
/// port's address, and such as would leave where they came in. On v1model.
pub(crate) const STRAYS: [(&str, &str); 2] =
    [("Ingress.wrong_neighbour", "wrong_neighbour"), ("Ingress.turned_back", "turned_back")];
/// Packets without a route, of the whole switch.
pub(crate) const UNROUTABLE: &str = "Ingress.unroutable";
pub(crate) const OCCUPANCY: &str = "Ingress.occupancy";
/// It, and the most that it was, in the current window and in the one before.
pub(crate) const WAITING: [&str; 3] = [OCCUPANCY, "Ingress.peak", "Ingress.peak_before"];
