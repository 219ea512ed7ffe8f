// SPDX-License-Identifier: Apache-2.0
//! Whether the kernel holds packets until they are to leave, as long as that is so.
//!
//! Pacing in this process costs a wake-up, or a wait without sleep, for each burst. Where the
//! queueing discipline of every interface in use holds packets ([`super::qdisc`]), bursts are
//! handed over up to [`LEAD_NS`] ahead, each with its departure, and the thread sleeps meanwhile.
//! What was handed over cannot be taken back: the lead is what a rate that falls takes to act, and
//! what leaves at once when the discipline is replaced. That is heard of ([`Watch`]), and acted on
//! within [`LOOK_NS`].
#![forbid(unsafe_code)]

use super::Clock;
use super::interfaces::interfaces;
use super::link::LinkError;
use super::qdisc::{Departures, Watch, departures, qdiscs};
use super::shared::Shared;
use crate::burst::Burst;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;

/// A round trip or two through a rack, and enough to sleep for half of it: sleepers wake up 50 µs
/// late.
pub(super) const LEAD_NS: u64 = 250_000;
/// Time between two looks for changes.
const LOOK_NS: u64 = 10_000_000;

/// Who spaces packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pacing {
    /// The kernel where every interface in use holds packets until they are to leave, else this
    /// process.
    #[default]
    Auto,
    /// The kernel; a link that it does not pace is not opened.
    Kernel,
    /// This process.
    User,
}

#[derive(Debug)]
struct Egress {
    name: String,
    index: u32,
    address: IpAddr,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Holding {
    egress: Vec<Egress>,
    watch: Option<Arc<Watch>>,
    /// What was heard of it so far.
    heard: u64,
    /// All of them hold packets.
    held: bool,
    clock: Option<Clock>,
    looked_ns: u64,
}

impl Holding {
    /// Looks at the interfaces that have these addresses: packets are taken to leave by them.
    /// `sockets` get leave to name departures.
    ///
    /// # Errors
    /// With [`Pacing::Kernel`], where the kernel would not pace.
    pub(super) fn open(
        pacing: Pacing,
        addresses: &[IpAddr],
        sockets: &[impl AsFd],
        shared: &Shared,
    ) -> Result<Self, LinkError> {
        let mut holding =
            Self { egress: Vec::new(), watch: None, heard: 0, held: false, clock: None, looked_ns: 0 };
        if pacing == Pacing::User {
            return Ok(holding);
        }
        match holding.begin(addresses, sockets, shared) {
            Err(error) if pacing == Pacing::Kernel => return Err(error),
            Err(error) => tracing::info!("packets are paced by this process: {error}"),
            Ok(()) => tracing::info!("packets are paced by the kernel: {} holds them", holding.names()),
        }
        Ok(holding)
    }

    fn begin(
        &mut self,
        addresses: &[IpAddr],
        sockets: &[impl AsFd],
        shared: &Shared,
    ) -> Result<(), LinkError> {
        let io = |what| move |source| LinkError::Io { what, source };
        let all = interfaces().map_err(io("list interfaces"))?;
        for &address in addresses {
            let Some(found) = all.iter().find(|interface| interface.address == address) else {
                let available = super::interfaces::describe(&all);
                return Err(LinkError::NoInterface { address, available });
            };
            let index = if_nametoindex(found.name.as_str())
                .map_err(|errno| io("find an interface")(io::Error::from(errno)))?;
            self.egress.push(Egress { name: found.name.clone(), index, address });
        }
        for socket in sockets {
            // The clock that `fq` has. An error would be told of where a discipline drops packets
            // for their departures; this one does not.
            let option = libc::sock_txtime { clockid: libc::CLOCK_MONOTONIC, flags: 0 };
            setsockopt(socket, sockopt::TxTime, &option)
                .map_err(|errno| io("set SO_TXTIME")(io::Error::from(errno)))?;
        }
        // Before the first look, so that no change is missed.
        self.watch = Some(shared.watch().map_err(io("listen to rtnetlink"))?);
        self.look()
    }

    fn look(&mut self) -> Result<(), LinkError> {
        self.held = false;
        let all = qdiscs().map_err(|source| LinkError::Io { what: "list queueing disciplines", source })?;
        for Egress { name, index, address } in &self.egress {
            if let Departures::Ignored(found) = departures(&all, *index) {
                return Err(LinkError::Pacing { interface: name.clone(), address: *address, found });
            }
        }
        self.held = !self.egress.is_empty();
        Ok(())
    }

    fn names(&self) -> String {
        self.egress.iter().map(|egress| egress.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Whether the kernel paces.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    #[cfg(test)]
    pub(super) fn pretend_held(&mut self) {
        self.held = true;
    }

    /// How long before its departure a burst may be handed over, ns.
    pub(super) fn lead_ns(&mut self, now_ns: u64) -> u64 {
        if let Some(watch) = &self.watch
            && now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
        {
            self.looked_ns = now_ns;
            let indices: Vec<u32> = self.egress.iter().map(|egress| egress.index).collect();
            if watch.has_news(&indices, &mut self.heard) {
                let before = self.held;
                match self.look() {
                    Err(error) if before => tracing::warn!("the kernel paces no more: {error}"),
                    Ok(()) if !before => tracing::info!("the kernel paces from here on"),
                    _ => {}
                }
            }
        }
        if self.held && self.clock.is_some() { LEAD_NS } else { 0 }
    }

    /// Packets arrived before they were to leave. Until the interfaces' queueing disciplines change
    /// they are not believed.
    pub(super) fn not_held(&mut self) {
        if std::mem::take(&mut self.held) {
            tracing::warn!(
                "{} should hold packets until they are to leave, and they arrive before: do they leave by another interface? They are paced by this process from here on",
                self.names()
            );
        }
    }

    /// The departure that the kernel is told, ns of CLOCK_MONOTONIC.
    pub(super) fn departs_ns(&self, burst: &Burst) -> Option<u64> {
        let clock = self.clock.filter(|_| self.held && burst.departs_ns > 0)?;
        Some(clock.to_monotonic_ns(burst.departs_ns))
    }
}
