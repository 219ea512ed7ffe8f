//! The host's interfaces and their addresses.
#![expect(unsafe_code, reason = "getifaddrs has no wrapper among the dependencies")]

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a place for the pointer that the call writes.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: `next` is an element of the list, which is alive until freeifaddrs below.
        let entry = unsafe { &*next };
        next = entry.ifa_next;
        if entry.ifa_addr.is_null() {
            continue;
        }
        // SAFETY: the address is not null, and its family says which structure it is; the name is NUL-terminated.
        let (address, name) = unsafe {
            let address = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let v4 = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::V4(Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes()))
                }
                libc::AF_INET6 => {
                    let v6 = entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))
                }
                _ => continue,
            };
            (address, CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned())
        };
        found.push(Interface { name, address, up: entry.ifa_flags & libc::IFF_UP as u32 != 0 });
    }
    // SAFETY: `list` came from getifaddrs and is not used after this.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// The number of an interface.
///
/// # Errors
/// Those of if_nametoindex; a name with a NUL is invalid input.
pub(super) fn index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: `name` is a NUL-terminated string that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// The first address that a pattern in the form of `NCCL_SOCKET_IFNAME` selects: comma-separated prefixes of names
/// (`eth,ib`), exact names after `=` (`=eth0`), or all but those after `^` (`^docker,lo`). Interfaces that are up only;
/// IPv4 before IPv6, and no link-local IPv6.
pub fn select<'a>(interfaces: &'a [Interface], pattern: &str) -> Option<&'a Interface> {
    let (except, rest) = pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
    let (exact, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
    let named = |name: &str| {
        let mut words = rest.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.any(|word| if exact { name == word } else { name.starts_with(word) })
    };
    let usable = |interface: &&Interface| {
        let link_local = matches!(interface.address, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        interface.up && !link_local && named(&interface.name) != except
    };
    interfaces.iter().filter(usable).min_by_key(|interface| interface.address.is_ipv6())
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
            .map(|(name, address, up)| Interface {
                name: name.to_owned(),
                address: address.parse().expect("literal"),
                up,
            })
            .collect()
    }

    fn selected(pattern: &str) -> Option<String> {
        select(&host(), pattern).map(|interface| interface.address.to_string())
    }

    #[test]
    fn patterns_select_as_nccl_socket_ifname_does() {
        assert_eq!(selected("eth").as_deref(), Some("10.0.0.1"));
        assert_eq!(selected("=eth1"), None);
        assert_eq!(selected("=eth10").as_deref(), Some("10.0.1.1"));
        assert_eq!(selected("^lo,eth0").as_deref(), Some("10.0.1.1"));
        assert_eq!(selected("^=lo").as_deref(), Some("10.0.0.1"));
        assert_eq!(selected("ib"), None, "interfaces that are down are not used");
        assert_eq!(selected(""), None);
    }

    #[test]
    fn the_loopback_interface_is_found_by_its_address() {
        let found = interfaces().expect("getifaddrs");
        assert!(found.iter().all(|interface| !interface.name.is_empty()));
    }
}
