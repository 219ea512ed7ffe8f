// SPDX-License-Identifier: Apache-2.0
//! Where rank 0 is, and how one gets there.
#![forbid(unsafe_code)]

use crate::driver::interfaces::{interfaces, select};
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// Connections that the system keeps until they are accepted: as many as there may be ranks.
const BACKLOG: i32 = 1_024;

/// Where rank 0 meets the others, over TCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Master {
    /// Its addresses, IPv4 first, so that all ranks take the same of a name that has both.
    ///
    /// # Errors
    /// When the name has none.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let mut found: Vec<SocketAddr> = Vec::new();
        for address in (host, self.port).to_socket_addrs()? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        found.sort_by_key(SocketAddr::is_ipv6);
        if found.is_empty() { Err(io::Error::other(format!("'{host}' has no address"))) } else { Ok(found) }
    }

    /// The address from which this host would send to rank 0: that of the first interface, where
    /// rank 0's name leads to loopback on its own host.
    ///
    /// # Errors
    /// When no route leads there, or the name has no address.
    pub fn own_address(&self) -> io::Result<IpAddr> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let addresses = self.resolve()?;
        if self.misleads(&addresses)
            && let Some(&own) = select(&interfaces()?, "^lo").first()
        {
            return Ok(own);
        }
        for mut address in addresses {
            address.set_port(address.port().max(1));
            let any: IpAddr =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            // Connecting a UDP socket sends nothing: the system looks up its route.
            let socket = UdpSocket::bind((any, 0)).and_then(|socket| {
                socket.connect(address)?;
                socket.local_addr()
            });
            match socket {
                Ok(own) => return Ok(own.ip()),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Whether a host's name leads to loopback on the host itself, as 127.0.1.1 of Debian's
    /// /etc/hosts does.
    fn misleads(&self, addresses: &[SocketAddr]) -> bool {
        let literal = self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        !literal && self.host != "localhost" && addresses.iter().any(|address| address.ip().is_loopback())
    }

    /// Rank 0's sockets: at its addresses, where they are this host's; else at all of this host's,
    /// as behind a service's address or where a name leads to a loopback address on its own host
    /// alone.
    pub(super) fn listen(&self) -> io::Result<Vec<TcpListener>> {
        let addresses = self.resolve().unwrap_or_default();
        let mut listeners = Vec::new();
        if !self.misleads(&addresses) {
            for address in addresses {
                match listen(address) {
                    Ok(listener) => listeners.push(listener),
                    Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
                    Err(error) => return Err(error),
                }
            }
        }
        if listeners.is_empty() {
            let everywhere = listen(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), self.port));
            let everywhere = match everywhere {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port))
                }
                other => other,
            };
            listeners.push(everywhere?);
        }
        Ok(listeners)
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // Both where it is all of them, one where it is one.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    // Connections of a generation before may still be remembered by the system.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn master(host: &str) -> Master {
        Master { host: host.to_owned(), port: 29_500 }
    }

    #[test]
    fn the_own_address_is_of_the_route_to_rank_0_in_either_ip_version() {
        assert_eq!(master("127.0.0.1").own_address().expect("a route"), IpAddr::from([127, 0, 0, 1]));
        assert_eq!(master("::1").own_address().expect("a route"), IpAddr::from(Ipv6Addr::LOCALHOST));
        assert_eq!(master("[::1]").own_address().expect("a route"), IpAddr::from(Ipv6Addr::LOCALHOST));
        assert!(master("").own_address().is_err());
    }

    #[test]
    fn a_hosts_name_that_leads_to_loopback_misleads_and_an_address_does_not() {
        let loopback = [SocketAddr::from(([127, 0, 1, 1], 29_500))];
        let elsewhere = [SocketAddr::from(([10, 0, 0, 1], 29_500))];
        assert!(master("h1").misleads(&loopback) && !master("h1").misleads(&elsewhere));
        assert!(!master("localhost").misleads(&loopback) && !master("127.0.1.1").misleads(&loopback));
    }

    #[test]
    fn addresses_are_shown_as_they_are_written() {
        assert_eq!(master("h1").to_string(), "h1:29500");
        assert_eq!(master("fd00::1").to_string(), "[fd00::1]:29500");
    }

    #[test]
    fn a_port_is_listened_on_once_and_where_rank_0_is() {
        let mut free = master("127.0.0.1");
        let probe = TcpListener::bind("127.0.0.1:0").expect("loopback");
        free.port = probe.local_addr().expect("bound").port();
        drop(probe);
        let listening = free.listen().expect("free");
        let bound: Vec<SocketAddr> = listening.iter().filter_map(|one| one.local_addr().ok()).collect();
        assert_eq!(bound, [SocketAddr::from(([127, 0, 0, 1], free.port))]);
        assert_eq!(free.listen().map_err(|error| error.kind()).map(drop), Err(io::ErrorKind::AddrInUse));
    }
}
