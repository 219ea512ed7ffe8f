// SPDX-License-Identifier: Apache-2.0
//! Networks as routes have them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: the bits that count, and how many. Ordered by version, first address, and length; the
/// shorter first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix {
    ipv6: bool,
    /// The first address; of IPv4 in the lowest 32 bits.
    bits: u128,
    len: u32,
}

impl Prefix {
    /// One address.
    pub fn host(address: IpAddr) -> Self {
        let (ipv6, bits) = match address {
            IpAddr::V4(ip) => (false, u128::from(u32::from(ip))),
            IpAddr::V6(ip) => (true, u128::from(ip)),
        };
        Self { ipv6, bits, len: if ipv6 { 128 } else { 32 } }
    }

    /// The first address.
    pub fn address(self) -> IpAddr {
        if self.ipv6 { Ipv6Addr::from(self.bits).into() } else { Ipv4Addr::from(self.bits as u32).into() }
    }

    /// How many bits count.
    #[expect(clippy::len_without_is_empty, reason = "a prefix is never empty")]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Bits of an address.
    pub(super) fn width(self) -> u32 {
        if self.ipv6 { 128 } else { 32 }
    }

    /// The network of the first `len` bits; `len` is at most this one's.
    pub(crate) fn shortened(self, len: u32) -> Self {
        let behind = self.width() - len.min(self.len);
        let bits = if behind >= 128 { 0 } else { self.bits >> behind << behind };
        Self { bits, len: len.min(self.len), ..self }
    }

    /// Whether an address is of it.
    pub fn contains(self, address: IpAddr) -> bool {
        let host = Self::host(address);
        host.ipv6 == self.ipv6 && host.shortened(self.len) == self
    }

    /// Leading bits that two networks share, at most the shorter one's.
    pub(super) fn shared(self, other: Self) -> u32 {
        let differing = (self.bits ^ other.bits) << (128 - self.width());
        differing.leading_zeros().min(self.len).min(other.len)
    }

    /// The network of which this and the other are the two halves.
    pub(super) fn joined(self, other: Self) -> Option<Self> {
        let halves = self.ipv6 == other.ipv6 && self.len == other.len && self.len > 0 && self != other;
        let whole = self.shortened(self.len.saturating_sub(1));
        (halves && whole == other.shortened(whole.len)).then_some(whole)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address(), self.len)
    }
}
