// SPDX-License-Identifier: Apache-2.0
//! What UDP sockets are opened with.

use super::link::LinkError;
use crate::wire::ADDRESSES_MAX;
use std::net::{IpAddr, SocketAddr};

/// The port on which agents listen.
pub const DEFAULT_PORT: u16 = 9217;

/// How datagrams are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Receive {
    /// From an ordinary UDP socket: for switches that fix the lengths of what they trim.
    #[default]
    Socket,
    /// From a packet socket, sized by the bytes that came: for switches that leave the lengths
    /// alone. Needs CAP_NET_RAW. UDP checksums are not looked at.
    Raw,
}

/// What stands in the checksum field of DATA. Control packets always have a right one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checksums {
    /// The right checksum: for switches that set it to 0 when they trim
    /// (docs/reference/wire-format.md). Segmentation offload needs it.
    #[default]
    Filled,
    /// 0: for switches that mend lengths and leave the checksum alone, which a trim makes wrong.
    Zero,
}

/// What a link is opened with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address and port to listen on.
    pub bind: SocketAddr,
    /// Addresses of further interfaces, of the same family: the same port of each is listened on,
    /// and DATA's sockets are on all of them in turn.
    pub further: Vec<IpAddr>,
    /// Sockets to spray DATA over, 1 to 256.
    pub data_sockets: u16,
    /// How to receive.
    pub receive: Receive,
    /// Checksums of DATA.
    pub checksums: Checksums,
    /// Let the kernel or the card split bursts into datagrams where it can.
    pub segmentation: bool,
    /// The end of a wait of up to a millisecond that is spent looking instead of sleeping, ns:
    /// sleepers wake up late, and pacing waits are short. 0 sleeps only.
    pub spin_ns: u64,
}

impl UdpConfig {
    /// The defaults at an address: 16 sockets for DATA, ordinary reception, right checksums,
    /// segmentation, 20 µs of spinning.
    pub const fn new(bind: SocketAddr) -> Self {
        Self {
            bind,
            further: Vec::new(),
            data_sockets: 16,
            receive: Receive::Socket,
            checksums: Checksums::Filled,
            segmentation: true,
            spin_ns: 20_000,
        }
    }

    /// The same on one port of several addresses, the first of which others are told.
    ///
    /// # Errors
    /// [`LinkError::NoAddress`], [`LinkError::Families`], [`LinkError::Addresses`].
    pub fn on(addresses: &[IpAddr], port: u16) -> Result<Self, LinkError> {
        let (&first, further) = addresses.split_first().ok_or(LinkError::NoAddress)?;
        if let Some(&other) = further.iter().find(|other| other.is_ipv4() != first.is_ipv4()) {
            return Err(LinkError::Families { first, other });
        }
        if addresses.len() > ADDRESSES_MAX {
            return Err(LinkError::Addresses { count: addresses.len() });
        }
        Ok(Self { further: further.to_vec(), ..Self::new(SocketAddr::new(first, port)) })
    }
}
