// SPDX-License-Identifier: Apache-2.0
//! Text to addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::Mac;

/// `HOST:PORT` of a gRPC server.
pub(super) fn socket(text: &str) -> Result<String, String> {
    const FORM: &str = "expected HOST:PORT, as in 127.0.0.1:9559 or [::1]:9559";
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("'{text}' has no port; {FORM}"));
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let plain =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    let literal = || host.trim_matches(['[', ']']).parse::<Ipv6Addr>().is_ok();
    let is_host = plain || (bracketed && literal());
    if !is_host {
        return Err(format!("'{text}': '{host}' is no host; {FORM}"));
    }
    match port.parse::<u16>() {
        Ok(number) if number > 0 && !port.starts_with('+') => Ok(text.to_owned()),
        _ => Err(format!("'{text}': '{port}' is no TCP port; {FORM}")),
    }
}

/// Whether `HOST:PORT` is on this machine.
pub(super) fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn ipv4(text: &str) -> Result<Ipv4Addr, String> {
    let ip: Ipv4Addr = text.parse().map_err(|_| format!("'{text}' is no IPv4 address, as in 10.0.0.1"))?;
    if ip.is_multicast() || ip.is_unspecified() || ip.is_broadcast() || ip.is_loopback() {
        return Err(format!("'{text}' is no address of one host on a network"));
    }
    Ok(ip)
}

pub(super) fn ipv6(text: &str) -> Result<Ipv6Addr, String> {
    let ip: Ipv6Addr = text.parse().map_err(|_| format!("'{text}' is no IPv6 address, as in fd00::1"))?;
    let is_elsewhere = ip.is_unicast_link_local() || ip.to_ipv4_mapped().is_some();
    if ip.is_multicast() || ip.is_unspecified() || ip.is_loopback() || is_elsewhere {
        return Err(format!("'{text}' is no address of one host on a network"));
    }
    Ok(ip)
}

pub(super) fn mac(text: &str) -> Result<Mac, String> {
    let wrong = || format!("'{text}' is no MAC address, as in \"02:00:00:00:00:01\"");
    let mut bytes = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut bytes {
        let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()));
        *byte = u8::from_str_radix(part.ok_or_else(wrong)?, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    let [first, ..] = bytes;
    if first & 1 == 1 || bytes == [0; 6] {
        return Err(format!(
            "'{text}' is no address of one interface (group addresses have an odd first byte)"
        ));
    }
    Ok(Mac(bytes))
}

/// A network: its first address and how many leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    pub address: IpAddr,
    pub prefix_len: u32,
}

impl Network {
    /// The address `offset` behind the first, if the network has it.
    pub(super) fn nth(self, offset: u128) -> Option<IpAddr> {
        let Self { address, prefix_len } = self;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let host_bits = width - prefix_len.min(width);
        if host_bits < 128 && offset >> host_bits != 0 {
            return None;
        }
        match address {
            IpAddr::V4(ip) => Some(Ipv4Addr::from(u32::from(ip) | u32::try_from(offset).ok()?).into()),
            IpAddr::V6(ip) => Some(Ipv6Addr::from(u128::from(ip) | offset).into()),
        }
    }
}

/// `10.0.0.0/24`, `fd00::/64`, or one address.
pub(super) fn network(text: &str) -> Result<Network, String> {
    let (address, length) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let address: IpAddr =
        address.parse().map_err(|_| format!("'{text}' is no network, as in 10.0.0.0/24 or fd00::/64"))?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix_len = match length {
        None => width,
        Some(length) => length
            .parse::<u32>()
            .ok()
            .filter(|bits| *bits <= width && !length.starts_with('+'))
            .ok_or_else(|| format!("'{text}': '{length}' is no prefix length from 0 to {width}"))?,
    };
    let value = match address {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip),
    };
    let host_bits = width - prefix_len;
    let host_mask = if host_bits == 128 { u128::MAX } else { (1 << host_bits) - 1 };
    if value & host_mask != 0 {
        let first = match address {
            IpAddr::V4(_) => Ipv4Addr::from((value & !host_mask) as u32).to_string(),
            IpAddr::V6(_) => Ipv6Addr::from(value & !host_mask).to_string(),
        };
        return Err(format!("'{text}' has bits behind its prefix; did you mean '{first}/{prefix_len}'?"));
    }
    Ok(Network { address, prefix_len })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_s_address_is_one_that_routes_lead_to() {
        assert!(ipv6("fd00::1").is_ok());
        for bad in ["fe80::1", "::ffff:10.0.0.1", "ff02::1", "::1", "::"] {
            assert_eq!(ipv6(bad).unwrap_err(), format!("'{bad}' is no address of one host on a network"));
        }
    }

    #[test]
    fn a_network_gives_the_addresses_that_it_has_and_no_others() {
        let small = network("10.1.0.0/24").unwrap();
        assert_eq!(small.nth(255).unwrap().to_string(), "10.1.0.255");
        assert_eq!(small.nth(256), None);
        let all = network("::/0").unwrap();
        assert_eq!(all.nth(u128::MAX).unwrap().to_string(), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert_eq!(network("10.0.0.1").unwrap().nth(0).unwrap().to_string(), "10.0.0.1");
        assert_eq!(network("10.0.0.1").unwrap().nth(1), None);
    }

    #[test]
    fn a_wrong_network_is_named_with_the_nearest_right_one() {
        assert_eq!(
            network("10.0.0.5/24").unwrap_err(),
            "'10.0.0.5/24' has bits behind its prefix; did you mean '10.0.0.0/24'?"
        );
        assert_eq!(
            network("10.0.0.0/33").unwrap_err(),
            "'10.0.0.0/33': '33' is no prefix length from 0 to 32"
        );
        for bad in ["", "h1", "10.0.0/8", "10.0.0.0/", "fd00::/129", "10.0.0.0/+8"] {
            assert!(network(bad).is_err(), "{bad}");
        }
    }
}
