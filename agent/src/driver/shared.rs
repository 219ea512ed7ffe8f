// SPDX-License-Identifier: Apache-2.0
//! Descriptors that the links of a process have together.
//!
//! DATA's sockets are never read: a source port serves the paths of many groups as well as those of
//! one, and receivers tell groups apart by the port they listen on. A job makes a group for each
//! dimension of its mesh, and a process has 1,024 descriptors unless its system says otherwise.
#![forbid(unsafe_code)]

use super::link::LinkError;
use super::options;
use super::qdisc::Watch;
use super::sockets::{open, set_buffers};
use super::udp_config::Checksums;
use socket2::Socket;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// DATA's sockets of an address, beyond which links share them.
const SPREAD: usize = 16;

/// What links share that are opened with the same one.
#[derive(Debug, Default)]
pub struct Shared(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// Whose it is: one that was forked off has its own.
    process: u32,
    paths: Vec<(IpAddr, Checksums, Weak<Socket>)>,
    watch: Weak<Watch>,
}

impl Shared {
    fn with<T>(&self, then: impl FnOnce(&mut Open) -> T) -> T {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if open.process != process {
            *open = Open { process, ..Open::default() };
        }
        then(&mut open)
    }

    /// `count` sockets for DATA, each on another source port of an address: new ones while there
    /// are few, then those that the fewest links use.
    pub(super) fn paths(
        &self,
        own: IpAddr,
        checksums: Checksums,
        count: usize,
    ) -> Result<Vec<Arc<Socket>>, LinkError> {
        self.with(|shared| {
            shared.paths.retain(|(_, _, socket)| socket.strong_count() > 0);
            let alike = shared.paths.iter().filter(|(at, sums, _)| (*at, *sums) == (own, checksums));
            let mut found: Vec<_> = alike.filter_map(|(_, _, socket)| socket.upgrade()).collect();
            let fresh = SPREAD.max(count).saturating_sub(found.len()).min(count);
            found.sort_by_key(Arc::strong_count);
            found.truncate(count - fresh);
            for _ in 0..fresh {
                let socket = Arc::new(path(own, checksums)?);
                shared.paths.push((own, checksums, Arc::downgrade(&socket)));
                found.push(socket);
            }
            Ok(found)
        })
    }

    /// What hears of changes of queueing disciplines.
    pub(super) fn watch(&self) -> io::Result<Arc<Watch>> {
        self.with(|shared| {
            if let Some(watch) = shared.watch.upgrade() {
                return Ok(watch);
            }
            let watch = Arc::new(Watch::open()?);
            shared.watch = Arc::downgrade(&watch);
            Ok(watch)
        })
    }
}

fn path(own: IpAddr, checksums: Checksums) -> Result<Socket, LinkError> {
    // Nobody reads it; what a stranger sends it must not stay.
    let socket = open(SocketAddr::new(own, 0), true)?;
    set_buffers(&socket);
    if checksums == Checksums::Zero {
        let check = if own.is_ipv4() { options::SO_NO_CHECK } else { options::UDP_NO_CHECK6_TX };
        options::set(&socket, check, 1).map_err(|source| LinkError::Option {
            address: own,
            option: check.2,
            source,
        })?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    #[test]
    fn links_share_ports_evenly_once_there_are_enough() {
        let (shared, own) = (Shared::default(), IpAddr::from(Ipv4Addr::LOCALHOST));
        let of = |count| shared.paths(own, Checksums::Filled, count).expect("opens");
        let ports = |links: &[Vec<Arc<Socket>>]| -> BTreeSet<u16> {
            let all = links.iter().flatten();
            all.map(|socket| socket.local_addr().expect("bound").as_socket().expect("UDP").port()).collect()
        };
        let channels: Vec<_> = (0..4).map(|_| of(4)).collect();
        assert_eq!(ports(&channels).len(), 16, "of its own for each channel");
        let second: Vec<_> = (0..4).map(|_| of(4)).collect();
        assert_eq!(ports(&second), ports(&channels), "each of them once more");
        let many = of(20);
        assert_eq!(ports(&[many]).len(), 20);
        let other = shared.paths(own, Checksums::Zero, 4).expect("opens");
        assert!(ports(&[other]).is_disjoint(&ports(&channels)), "their checksums differ");
        let closed = ports(&channels);
        drop((channels, second));
        assert!(ports(&[of(16)]).is_disjoint(&closed), "what nobody uses is closed");
    }
}
