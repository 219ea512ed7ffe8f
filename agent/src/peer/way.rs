// SPDX-License-Identifier: Apache-2.0
//! What the path to a peer carries: the questions about it as packets, and what follows from the
//! answers.

use super::timers::Timer;
use super::{Context, Due, Peer};
use crate::config::MTU_LEAST;
use crate::outcome::{TransferError, Way, WorstPath};
use crate::paths::is_ours;
use crate::transfer::outgoing::Outgoing;
use crate::wire::{CHECK_LEN, CONTROL_LEN_MAX, Path, Piece, Writer};
use std::net::SocketAddr;
use trimwire_encoder::wire::TAG_LEN;

/// Bytes of IP and UDP headers in front of a payload. Trimwire sends no options and no extension
/// headers.
fn headers(to: Option<SocketAddr>) -> u16 {
    if to.is_some_and(|to| to.is_ipv6()) { 48 } else { 28 }
}

/// Bytes behind a control packet: a tag, or a check.
const fn behind(sealed: bool) -> usize {
    if sealed { TAG_LEN } else { CHECK_LEN }
}

impl Peer {
    /// Bytes of the longest IP packets that the path carries, as far as is known; `None` while
    /// nothing is, and where nobody asks.
    pub(crate) fn path_mtu(&self) -> Option<u16> {
        self.mtu.size().filter(|_| self.mtu.is_settled())
    }

    /// Most bytes of a DATA payload; those that are longer go in pieces.
    pub(crate) fn data_room(&self) -> usize {
        self.mtu.size().map_or(usize::MAX, |size| usize::from(size - headers(self.address())))
    }

    /// Most bytes of a control packet, without what stands behind it.
    pub(super) fn control_room(&self, sealed: bool) -> usize {
        self.data_room().saturating_sub(behind(sealed)).min(CONTROL_LEN_MAX)
    }

    fn wait_ns(&self, cx: &Context<'_>, times: u32) -> u64 {
        self.estimate.answer_timeout_ns(times, &cx.config.timeouts)
    }

    /// Finds out what the path carries, if that is not known yet, or has not been asked for long.
    pub(super) fn explore(&mut self, cx: &Context<'_>) {
        self.mtu.begin(cx.now_ns, self.wait_ns(cx, 0));
        self.ask_path();
    }

    /// Long packets vanish, and short ones do not: what does the path carry?
    pub(super) fn suspect_path(&mut self, cx: &Context<'_>) {
        self.mtu.suspect(cx.now_ns, self.wait_ns(cx, 0));
        self.ask_path();
    }

    /// The peer does not answer: its answers may be too long for the way back. Questions about the
    /// path tell it so; the short ones get through.
    pub(super) fn suspect_both_ways(&mut self, cx: &Context<'_>) {
        self.unheard = true;
        self.suspect_path(cx);
    }

    /// This rank's interfaces carry no more than that.
    pub(crate) fn set_interface_mtu(&mut self, cx: &Context<'_>, mtu: u16) {
        self.mtu.refused(cx.now_ns, mtu, self.wait_ns(cx, 0));
        self.ask_path();
    }

    pub(super) fn on_path_timeout(&mut self, cx: &Context<'_>) {
        let (estimate, timeouts) = (&self.estimate, &cx.config.timeouts);
        self.mtu.on_timeout(cx.now_ns, |times| estimate.answer_timeout_ns(times, timeouts));
        self.ask_path();
    }

    /// Queues the questions that are due, and sets the timer.
    fn ask_path(&mut self) {
        for size in self.mtu.take_due() {
            self.control.push_back(Due::PathQuestion { size });
        }
        self.timers.set(Timer::Path, self.mtu.timer_ns());
    }

    /// Asks whether paths work that are in doubt, as long as there is anything to send.
    pub(super) fn ask_paths(&mut self, cx: &Context<'_>) {
        if self.sends.is_empty() {
            return self.timers.set(Timer::Paths, None);
        }
        let (estimate, timeouts) = (&self.estimate, &cx.config.timeouts);
        let (due, too_long) = self.paths.ask(cx.now_ns, |times| estimate.answer_timeout_ns(times, timeouts));
        self.control.extend(due.into_iter().map(Due::Ask));
        self.timers.set(Timer::Paths, self.paths.timeout_ns());
        if too_long {
            self.suspect_path(cx);
        }
    }

    /// A question of a size, as a packet: which one.
    pub(super) fn path_question(&self, sequence: u32, size: u16, sealed: bool, writer: Writer) -> Vec<u8> {
        let length =
            size.saturating_sub(headers(self.address()) + behind(sealed) as u16).max(Path::LEN as u16);
        let mtu = self.mtu.own().unwrap_or(0);
        writer.path(&Path { sequence, length, mtu, answer: false, unheard: self.unheard })
    }

    pub(super) fn path_answer(&self, sequence: u32, length: u16, writer: Writer) -> Vec<u8> {
        let mtu = self.mtu.own().unwrap_or(0);
        writer.path(&Path { sequence, length, mtu, answer: true, unheard: false })
    }

    /// Takes a PATH.
    pub(super) fn on_path(&mut self, cx: &Context<'_>, path: &Path) {
        let wait_ns = self.wait_ns(cx, 0);
        self.mtu.told(cx.now_ns, path.mtu, wait_ns);
        if path.answer && is_ours(path.sequence) {
            self.paths.on_answer(path.sequence);
            self.ask_paths(cx);
        } else if path.answer {
            let behind = behind(cx.config.seal.is_some()) as u16;
            let size = path.length.saturating_add(behind).saturating_add(headers(self.address()));
            self.mtu.on_answer(cx.now_ns, path.sequence, size, wait_ns);
        } else {
            self.answer(Due::PathAnswer { sequence: path.sequence, length: path.length });
        }
        if path.unheard && !path.answer {
            self.mtu.suspect(cx.now_ns, wait_ns);
        }
        self.ask_path();
    }

    /// Takes a part of a DATA packet. Gives the packet that it completes, and whether congestion
    /// was experienced.
    pub(crate) fn on_piece(&mut self, piece: &Piece<'_>, congested: bool) -> Option<(Vec<u8>, bool)> {
        self.pieces.take(piece, congested)
    }

    /// The way to the peer, as errors tell it.
    fn way(&self, cx: &Context<'_>) -> Way {
        let config = cx.config;
        let all = (0_u16..).zip(&config.source_ports);
        let stats = all.filter_map(|(path, &port)| Some((path, port, self.paths.state(path)?.0)));
        let worst = stats
            .filter(|(.., stats)| stats.lost > 0)
            .max_by(|(.., one), (.., other)| (one.lost * other.sent).cmp(&(other.lost * one.sent)))
            .map(|(path, port, stats)| WorstPath {
                port,
                own: config.own_of(path),
                lost: stats.lost,
                sent: stats.sent,
            });
        let way = self.session.way();
        Way {
            own: config.own_of(way),
            to: self.session.address_of(way),
            ports: config.source_ports.len() as u16,
            dead: self.paths.dead(),
            worst,
            foreign: cx.stats.foreign,
            unsealed: cx.stats.unsealed,
        }
    }

    /// Why a message is given up of which nothing gets through, and on which way: the path, where
    /// that carries not even the least.
    pub(super) fn cause(&self, cx: &Context<'_>, error: TransferError) -> TransferError {
        let error = error.on(self.way(cx));
        let TransferError::Stalled { peer, message, waited_ns, .. } = error else { return error };
        let (true, Some(to)) = (self.mtu.is_too_small(), self.address()) else { return error };
        let packet = self.sends.get(&message).map_or(0, Outgoing::longest_packet);
        TransferError::PathMtu {
            peer,
            to,
            message,
            packet: packet + u32::from(headers(Some(to))),
            least: MTU_LEAST,
            waited_ns,
        }
    }
}
