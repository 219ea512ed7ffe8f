// SPDX-License-Identifier: Apache-2.0
//! Which packets have come.

use super::{Flow, Receiver};
use crate::sim::packet::{Kind, Packet};
use std::collections::VecDeque;

/// One bit a packet.
#[derive(Debug)]
pub(super) struct Board {
    words: Vec<u64>,
    packets: u32,
    held: u32,
    /// All packets below have come.
    next: u32,
}

impl Board {
    pub(super) fn new(packets: u32) -> Self {
        Self { words: vec![0; packets.div_ceil(64) as usize], packets, held: 0, next: 0 }
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.words.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Notes a packet; whether it is the first of its number.
    pub(super) fn insert(&mut self, number: u32) -> bool {
        if number >= self.packets || self.has(number) {
            return false;
        }
        self.words[number as usize / 64] |= 1 << (number % 64);
        self.held += 1;
        while self.next < self.packets && self.has(self.next) {
            self.next += 1;
        }
        true
    }

    pub(super) fn held(&self) -> u32 {
        self.held
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn is_full(&self) -> bool {
        self.held == self.packets
    }
}

/// Acknowledges every packet by itself (pFabric).
#[derive(Debug)]
pub(super) struct EachReceiver {
    board: Board,
}

impl EachReceiver {
    pub(super) fn new(flow: &Flow) -> Self {
        Self { board: Board::new(flow.packets()) }
    }
}

impl Receiver for EachReceiver {
    fn handle_packet(&mut self, _: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        match packet.kind {
            Kind::Data if !packet.is_trimmed() => {
                self.board.insert(packet.number);
                out.push_back(packet.answer(Kind::Ack, packet.number));
            }
            Kind::Probe => out.push_back(packet.answer(Kind::Status, packet.number)),
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.board.is_full()
    }
}
