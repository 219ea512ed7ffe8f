// SPDX-License-Identifier: Apache-2.0
//! The host's interfaces: addresses, MTU, line rate.
#![forbid(unsafe_code)]

use super::link::LinkError;
use crate::config::MTU_LEAST;
use crate::wire::ADDRESSES_MAX;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

/// An interface's address. An interface with several has several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// Whether it is up.
    pub up: bool,
}

/// All addresses of all interfaces, in the system's order.
///
/// # Errors
/// Those of getifaddrs.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let found = getifaddrs()?.filter_map(|entry| {
        let address = ip(&entry.address?)?;
        let up = entry.flags.contains(InterfaceFlags::IFF_UP);
        Some(Interface { name: entry.interface_name, address, up })
    });
    Ok(found.collect())
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

/// Bits a second of an interface's link; `None` where the system does not know (virtual ones,
/// mostly).
pub fn line_rate_bps(name: &str) -> Option<u64> {
    // In Mbit/s; -1, or no number at all, where it is unknown.
    attribute(name, "speed")?.parse::<u64>().ok().filter(|&mbps| mbps > 0)?.checked_mul(1_000_000)
}

/// The same of the interfaces that have these addresses, together: as often the slowest one's as
/// there are, since all carry as much.
pub fn line_rate_of(addresses: &[IpAddr]) -> Option<u64> {
    let all = interfaces().ok()?;
    let rate =
        |&address: &IpAddr| line_rate_bps(&all.iter().find(|interface| interface.address == address)?.name);
    let rates: Option<Vec<u64>> = addresses.iter().map(rate).collect();
    rates?.into_iter().min()?.checked_mul(addresses.len() as u64)
}

/// Refuses interfaces whose packets cannot be as long as they have to be.
pub(super) fn check_mtu(addresses: &[IpAddr]) -> Result<(), LinkError> {
    // Where interfaces cannot be listed, sockets tell in time.
    let all = interfaces().unwrap_or_default();
    let of = |address: &IpAddr| all.iter().find(|interface| interface.address == *address);
    let small = addresses.iter().filter_map(of).find_map(|interface| {
        let mtu = mtu(&interface.name).filter(|&mtu| mtu < MTU_LEAST.into())?;
        Some(LinkError::Mtu { interface: interface.name.clone(), address: interface.address, mtu })
    });
    small.map_or(Ok(()), Err)
}

/// The same of MTUs: the smallest.
pub fn mtu_of(addresses: &[IpAddr]) -> Option<u32> {
    let all = interfaces().ok()?;
    let of = |&address: &IpAddr| mtu(&all.iter().find(|interface| interface.address == address)?.name);
    addresses.iter().filter_map(of).min()
}

/// Bytes of the longest IP packet that an interface sends.
pub fn mtu(name: &str) -> Option<u32> {
    attribute(name, "mtu")?.parse().ok()
}

fn attribute(name: &str, attribute: &str) -> Option<String> {
    // Names of interfaces have no slash and are not `.` or `..`.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    let path: PathBuf = ["/sys/class/net", name, attribute].iter().collect();
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The addresses that a pattern in the form of `NCCL_SOCKET_IFNAME` selects, one an interface and
/// at most 8: comma-separated prefixes of names (`eth,ib`), exact names after `=` (`=eth0`), or all
/// but those after `^` (`^eth1`), the loopback and Docker's, which every host has with the same
/// addresses. Interfaces that are up only; IPv4, or IPv6 where there is none, and no link-local
/// IPv6. In the system's order.
pub fn select(interfaces: &[Interface], pattern: &str) -> Vec<IpAddr> {
    let (except, rest) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let named = |name: &str| {
        let mut words = rest.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.any(|word| if exact { name == word } else { name.starts_with(word) })
    };
    let usable = |interface: &&Interface| {
        let link_local = matches!(interface.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let everywhere = interface.address.is_loopback() || interface.name.starts_with("docker");
        interface.up && !link_local && named(&interface.name) != except && !(except && everywhere)
    };
    let usable: Vec<&Interface> = interfaces.iter().filter(usable).collect();
    let v4 = usable.iter().any(|interface| interface.address.is_ipv4());
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for interface in usable.into_iter().filter(|interface| interface.address.is_ipv4() == v4) {
        if addresses.len() < ADDRESSES_MAX && !names.contains(&&interface.name) {
            names.push(&interface.name);
            addresses.push(interface.address);
        }
    }
    addresses
}

/// `eth0 10.0.0.1, lo 127.0.0.1`.
pub fn describe(interfaces: &[Interface]) -> String {
    let words: Vec<String> = interfaces.iter().map(|i| format!("{} {}", i.name, i.address)).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Vec<Interface> {
        [("lo", "127.0.0.1", true), ("eth0", "fe80::1", true), ("eth0", "fd00::1", true)]
            .into_iter()
            .chain([("eth0", "10.0.0.1", true), ("eth10", "10.0.1.1", true), ("ib0", "10.0.2.1", false)])
            .chain([("docker0", "172.17.0.1", true)])
            .map(|(name, address, up)| Interface {
                name: name.to_owned(),
                address: address.parse().expect("literal"),
                up,
            })
            .collect()
    }

    fn selected(pattern: &str) -> String {
        select(&host(), pattern).iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn patterns_select_as_nccl_socket_ifname_does() {
        assert_eq!(selected("eth"), "10.0.0.1 10.0.1.1", "all of them, one address each");
        assert_eq!(selected("eth0"), "10.0.0.1");
        assert_eq!(selected("=eth1"), "");
        assert_eq!(selected("=eth10"), "10.0.1.1");
        assert_eq!(selected("^lo,eth0"), "10.0.1.1");
        assert_eq!(selected("^=lo"), "10.0.0.1 10.0.1.1", "docker0 has the same address on every host");
        assert_eq!(
            (selected("docker"), selected("lo")),
            ("172.17.0.1".into(), "127.0.0.1".into()),
            "by name"
        );
        assert_eq!(selected("ib"), "", "interfaces that are down are not used");
        assert_eq!(selected(""), "");
    }

    #[test]
    fn the_loopback_interface_is_found_by_its_address() {
        let found = interfaces().expect("getifaddrs");
        assert!(found.iter().all(|interface| !interface.name.is_empty()));
        let local = found.iter().find(|interface| interface.address.is_loopback());
        if let Some(local) = local {
            assert!(mtu(&local.name).is_some_and(|mtu| mtu >= 1_280), "{local:?}");
            assert_eq!(line_rate_bps(&local.name), None, "loopback has no line");
        }
        assert_eq!((mtu("../lo"), mtu("no such interface")), (None, None));
    }
}
