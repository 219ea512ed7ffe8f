// SPDX-License-Identifier: Apache-2.0
//! What a host's endpoints are on: UDP sockets, and AF_XDP in front of them where it is asked for and possible.
//!
//! The sockets hold the ports, send what AF_XDP cannot, and receive what its program lets pass: datagrams on other channels' queues, and those that came before the program was there.
#![forbid(unsafe_code)]

use super::holding::Pacing;
use super::link::{Link, LinkError, LinkStats, Take};
use super::udp::UdpLink;
use super::udp_config::{Checksums, UdpConfig};
use super::wake::Wake;
use super::xdp::{self, Card, Sent};
use super::{Clock, monotonic_ns};
use crate::burst::{Burst, Origin};
use bytes::Buf;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// While frames come by AF_XDP, sockets are looked at so often: once in as many calls.
const SOCKETS_EVERY: u32 = 16;
/// Until frames that found no room may have left.
const ROOM_NS: u64 = 50_000;

/// What carries datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// UDP sockets.
    #[default]
    Sockets,
    /// AF_XDP, on interfaces that offer it; the others have UDP sockets, and it is said why.
    Xdp,
}

/// See the module.
#[derive(Debug)]
pub struct HostLink {
    sockets: UdpLink,
    /// One an interface, in the order of the sockets' addresses.
    cards: Vec<Option<Card>>,
    ports: Vec<u16>,
    checksums: Checksums,
    /// Bursts that sockets send.
    by_kernel: VecDeque<Burst>,
    stats: LinkStats,
    /// Interfaces that had no room at the last sending.
    full: Vec<bool>,
    calls: u32,
    drained: bool,
}

impl HostLink {
    /// The links of a rank's channels, as [`UdpLink::open_channels`] has them. AF_XDP that cannot be had is warned of, and done without.
    ///
    /// # Errors
    /// Those of [`UdpLink::open_channels`].
    pub fn open_channels(
        config: &UdpConfig,
        channels: u16,
        carrier: Carrier,
    ) -> Result<Vec<Self>, LinkError> {
        let mut config = config.clone();
        let mut carrier = carrier;
        if carrier == Carrier::Xdp {
            if config.pacing == Pacing::Kernel {
                tracing::warn!(
                    "no AF_XDP: the kernel is to space packets, and AF_XDP passes its queueing disciplines by"
                );
                carrier = Carrier::Sockets;
            } else {
                config.pacing = Pacing::User;
            }
        }
        let links = UdpLink::open_channels(&config, channels)?;
        let mut links: Vec<Self> = links.into_iter().map(|link| Self::new(link, config.checksums)).collect();
        let Some(first) = links.first().filter(|_| carrier == Carrier::Xdp) else { return Ok(links) };
        let own = first.sockets.local_address();
        for address in std::iter::once(own.ip()).chain(config.further.iter().copied()) {
            let opened = match xdp::open(SocketAddr::new(address, own.port()), channels) {
                Ok(opened) => opened,
                Err(error) => {
                    tracing::warn!("no AF_XDP at {address}, but sockets: {error}");
                    continue;
                }
            };
            let place = links.first().map_or(0, |link| link.place_of(address));
            for (link, card) in links.iter_mut().zip(opened) {
                match card {
                    Ok(card) => {
                        let (text, native) = card.describe();
                        if native {
                            tracing::info!("{text}");
                        } else {
                            tracing::warn!("{text}");
                        }
                        if let Some(slot) = link.cards.get_mut(place) {
                            *slot = Some(card);
                        }
                    }
                    Err(error) => {
                        tracing::warn!("no AF_XDP at {}, but sockets: {error}", link.sockets.local_address());
                    }
                }
            }
        }
        Ok(links)
    }

    fn new(sockets: UdpLink, checksums: Checksums) -> Self {
        let interfaces = sockets.own_addresses().len();
        Self {
            ports: sockets.data_ports(),
            sockets,
            cards: (0..interfaces).map(|_| None).collect(),
            checksums,
            by_kernel: VecDeque::new(),
            stats: LinkStats::default(),
            full: vec![false; interfaces],
            calls: 0,
            drained: false,
        }
    }

    fn place_of(&self, address: IpAddr) -> usize {
        self.sockets.own_addresses().iter().position(|&own| own == address).unwrap_or(0)
    }

    /// Whether datagrams go by AF_XDP on some interface.
    pub fn is_xdp(&self) -> bool {
        self.cards.iter().any(Option::is_some)
    }

    /// Of [`Link::stats`], what went by AF_XDP.
    pub fn xdp_stats(&self) -> LinkStats {
        self.stats
    }

    /// The interface that a burst leaves by, and its source port; `None` of control packets: the one that is listened on.
    fn way(&self, origin: Origin) -> (usize, Option<u16>) {
        let interfaces = self.cards.len().max(1);
        match origin {
            Origin::Listening(interface) => (usize::from(interface) % interfaces, None),
            Origin::Path(path) => {
                let path = usize::from(path) % self.ports.len().max(1);
                (path % interfaces, self.ports.get(path).copied())
            }
        }
    }
}

impl Link for HostLink {
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError> {
        if !self.is_xdp() {
            return self.sockets.send(batch);
        }
        self.full.fill(false);
        let now_ns = monotonic_ns();
        for mut burst in std::mem::take(batch) {
            let (interface, port) = self.way(burst.origin);
            let is_full = self.full.get(interface).copied().unwrap_or(false);
            let card = self.cards.get_mut(interface).and_then(Option::as_mut);
            let Some(card) = card.filter(|_| !burst.payload.is_empty()) else {
                self.by_kernel.push_back(burst);
                continue;
            };
            if is_full {
                batch.push_back(burst);
                continue;
            }
            let checksum = port.is_none() || self.checksums == Checksums::Filled;
            let port = port.unwrap_or_else(|| card.own().port());
            match card.send(&burst, port, checksum, now_ns) {
                Sent::ByKernel => self.by_kernel.push_back(burst),
                Sent::Some(count) => {
                    let length = count.saturating_mul(burst.segment.max(1)).min(burst.payload.len());
                    self.stats.sent += count as u64;
                    self.stats.sent_bytes += length as u64;
                    burst.payload.advance(length);
                    if !burst.payload.is_empty() {
                        if let Some(full) = self.full.get_mut(interface) {
                            *full = true;
                        }
                        batch.push_back(burst);
                    }
                }
            }
        }
        self.cards.iter_mut().flatten().for_each(Card::flush);
        if !self.by_kernel.is_empty() {
            self.sockets.send(&mut self.by_kernel)?;
            batch.append(&mut self.by_kernel);
        }
        Ok(())
    }

    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError> {
        if !self.is_xdp() {
            return self.sockets.receive(take);
        }
        let now_ns = monotonic_ns();
        let Self { cards, stats, .. } = self;
        let (mut count, mut more) = (0, false);
        for card in cards.iter_mut().flatten() {
            let (_, waits) = card.receive(now_ns, |found| match found {
                Some((arrived, payload)) => {
                    stats.received += 1;
                    stats.received_bytes += payload.len() as u64;
                    count += 1;
                    take(arrived, payload);
                }
                None => stats.malformed += 1,
            });
            more |= waits;
        }
        self.drained = !more;
        self.calls = self.calls.wrapping_add(1);
        if count == 0 || self.calls.is_multiple_of(SOCKETS_EVERY) {
            let got = self.sockets.receive(take)?;
            self.drained &= got == 0 || self.sockets.is_drained();
            count += got;
        }
        Ok(count)
    }

    fn is_drained(&self) -> bool {
        if self.is_xdp() { self.drained } else { self.sockets.is_drained() }
    }

    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError> {
        let mut timeout_ns = timeout_ns;
        for (card, full) in self.cards.iter_mut().zip(&self.full) {
            let Some(card) = card else { continue };
            if card.is_sending() {
                card.flush();
            }
            // Nothing tells when frames have left.
            if card.is_sending() || room && *full {
                timeout_ns = timeout_ns.min(ROOM_NS);
            }
        }
        let beside: Vec<BorrowedFd<'_>> = self.cards.iter().flatten().flat_map(Card::reading).collect();
        self.sockets.wait_beside(beside, timeout_ns, room)
    }

    fn wake_by(&mut self, wake: Arc<Wake>) -> bool {
        self.sockets.wake_by(wake)
    }

    fn set_clock(&mut self, clock: Clock) {
        self.sockets.set_clock(clock);
    }

    fn lead_ns(&mut self, now_ns: u64) -> u64 {
        self.sockets.lead_ns(now_ns)
    }

    fn not_held(&mut self) {
        self.sockets.not_held();
    }

    fn mtu(&self) -> Option<u16> {
        self.sockets.mtu()
    }

    fn stats(&self) -> LinkStats {
        let mut stats = self.sockets.stats();
        stats += self.stats;
        stats.overflowed += self.cards.iter().flatten().map(Card::overflowed).sum::<u64>();
        stats
    }

    fn data_ports(&self) -> Vec<u16> {
        self.sockets.data_ports()
    }

    fn local_address(&self) -> SocketAddr {
        self.sockets.local_address()
    }

    fn addresses(&self) -> Vec<IpAddr> {
        self.sockets.addresses()
    }
}
