// SPDX-License-Identifier: Apache-2.0
//! The program that picks an agent's datagrams out of what an interface receives.
//!
//! ```text
//!   untagged frame ─ to the own address ─ UDP, no fragment, no options ─ to channel c's port
//!                  ─ on a queue q that belongs to c (q mod channels = c) ─► the socket at q in the map, with the time of arrival in front
//!   everything else ─► the kernel, as if there were no program
//! ```
//!
//! Channels may not read each other's queues: a socket takes frames of its own queue only. A datagram on another channel's queue goes to the kernel, and from there to the UDP socket.
#![forbid(unsafe_code)]

use std::net::IpAddr;

/// One instruction (RFC 9669 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    code: u8,
    /// Destination and source, as bit fields are laid out on this machine.
    registers: u8,
    offset: i16,
    value: i32,
}

/// What is picked.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick {
    /// The address that the agent listens on.
    pub(super) own: IpAddr,
    /// The first channel's port; the others' are those behind it.
    pub(super) port: u16,
    /// Channels, 1 at least.
    pub(super) channels: u16,
    /// Queues that have sockets, from 0 on.
    pub(super) queues: u32,
}

// RFC 9669: classes and modes, or'ed together.
const LOAD_WORD: u8 = 0x61;
const LOAD_HALF: u8 = 0x69;
const LOAD_BYTE: u8 = 0x71;
const STORE_DOUBLE: u8 = 0x7b;
const LOAD_CONSTANT: u8 = 0x18;
const ADD: u8 = 0x07;
const SUBTRACT: u8 = 0x17;
const AND: u8 = 0x57;
const MODULO: u8 = 0x97;
const SET: u8 = 0xb7;
const COPY: u8 = 0xbf;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_NOT_EQUAL_REGISTER: u8 = 0x5d;
const JUMP_GREATER_REGISTER: u8 = 0x2d;
const JUMP_GREATER_EQUAL: u8 = 0x35;
/// Its operand is unsigned 32 bits wide, where the 64-bit one would extend a sign.
const JUMP_NOT_EQUAL_32: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// The source register that says: the constant is a map's descriptor.
const MAP_DESCRIPTOR: u8 = 1;
// linux/bpf.h: helpers, actions, and fields of `struct xdp_md`.
const KTIME_GET_NS: i32 = 5;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_META: i32 = 54;
const XDP_PASS: i32 = 2;
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const RX_QUEUE_INDEX: i16 = 16;

const ETHERNET: i16 = 14;
const UDP: i32 = 17;
/// Bytes of the time of arrival in front of a frame: CLOCK_MONOTONIC, ns, in the machine's byte order.
pub(super) const STAMP: usize = 8;

/// Where a jump leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Pass,
    Redirect,
}

/// Instructions, with the jumps that lack their distance.
#[derive(Default)]
struct Assembler {
    code: Vec<Instruction>,
    jumps: Vec<(usize, To)>,
}

impl Assembler {
    fn push(&mut self, code: u8, destination: u8, source: u8, offset: i16, value: i32) {
        let registers =
            if cfg!(target_endian = "big") { destination << 4 | source } else { source << 4 | destination };
        self.code.push(Instruction { code, registers, offset, value });
    }

    fn jump(&mut self, code: u8, destination: u8, source: u8, value: i32, to: To) {
        self.jumps.push((self.code.len(), to));
        self.push(code, destination, source, 0, value);
    }

    /// Goes on if the frame's field at `at` is `value`, in the order of the network.
    fn must_be(&mut self, load: u8, at: i16, value: u32) {
        self.push(load, 4, 2, at, 0);
        match load {
            LOAD_WORD => self.push(TO_BIG_ENDIAN, 4, 0, 0, 32),
            LOAD_HALF => self.push(TO_BIG_ENDIAN, 4, 0, 0, 16),
            _ => {}
        }
        self.jump(JUMP_NOT_EQUAL_32, 4, 0, value as i32, To::Pass);
    }

    fn lead(&mut self, to: To) {
        let here = self.code.len();
        for (at, _) in self.jumps.iter().filter(|(_, of)| *of == to) {
            if let Some(jump) = self.code.get_mut(*at) {
                jump.offset = (here - at - 1) as i16;
            }
        }
    }
}

/// The program, with the map of sockets by its descriptor. r6 is the context, r7 the queue; r2 is where the frame begins, r3 where it ends.
pub(super) fn program(pick: &Pick, map: i32) -> Vec<Instruction> {
    let mut to = Assembler::default();
    // Behind the Ethernet header, and that of IP; behind which ports come.
    let (ethertype, header) = if pick.own.is_ipv4() { (libc::ETH_P_IP, 20) } else { (libc::ETH_P_IPV6, 40) };
    to.push(COPY, 6, 1, 0, 0);
    to.push(LOAD_WORD, 2, 6, DATA, 0);
    to.push(LOAD_WORD, 3, 6, DATA_END, 0);
    to.push(COPY, 4, 2, 0, 0);
    to.push(ADD, 4, 0, 0, i32::from(ETHERNET + header + 8));
    to.jump(JUMP_GREATER_REGISTER, 4, 3, 0, To::Pass);
    to.must_be(LOAD_HALF, 12, ethertype as u32);
    match pick.own {
        IpAddr::V4(v4) => {
            // Version 4, without options.
            to.must_be(LOAD_BYTE, ETHERNET, 0x45);
            to.must_be(LOAD_BYTE, ETHERNET + 9, UDP as u32);
            to.must_be(LOAD_WORD, ETHERNET + 16, v4.to_bits());
            // Neither more fragments nor an offset.
            to.push(LOAD_HALF, 4, 2, ETHERNET + 6, 0);
            to.push(TO_BIG_ENDIAN, 4, 0, 0, 16);
            to.push(AND, 4, 0, 0, 0x3fff);
            to.jump(JUMP_NOT_EQUAL, 4, 0, 0, To::Pass);
        }
        IpAddr::V6(v6) => {
            to.push(LOAD_BYTE, 4, 2, ETHERNET, 0);
            to.push(AND, 4, 0, 0, 0xf0);
            to.jump(JUMP_NOT_EQUAL, 4, 0, 0x60, To::Pass);
            to.must_be(LOAD_BYTE, ETHERNET + 6, UDP as u32);
            for (at, shift) in [(24, 96), (28, 64), (32, 32), (36, 0)] {
                to.must_be(LOAD_WORD, ETHERNET + at, (v6.to_bits() >> shift) as u32);
            }
        }
    }
    // Channel, and whose queue it is.
    to.push(LOAD_HALF, 4, 2, ETHERNET + header + 2, 0);
    to.push(TO_BIG_ENDIAN, 4, 0, 0, 16);
    to.push(SUBTRACT, 4, 0, 0, i32::from(pick.port));
    to.push(LOAD_WORD, 7, 6, RX_QUEUE_INDEX, 0);
    to.jump(JUMP_GREATER_EQUAL, 7, 0, pick.queues as i32, To::Pass);
    to.push(COPY, 5, 7, 0, 0);
    to.push(MODULO, 5, 0, 0, i32::from(pick.channels.max(1)));
    to.jump(JUMP_NOT_EQUAL_REGISTER, 5, 4, 0, To::Pass);
    // A driver without room for it leaves the time out.
    to.push(COPY, 1, 6, 0, 0);
    to.push(SET, 2, 0, 0, -(STAMP as i32));
    to.push(CALL, 0, 0, 0, XDP_ADJUST_META);
    to.jump(JUMP_NOT_EQUAL, 0, 0, 0, To::Redirect);
    to.push(CALL, 0, 0, 0, KTIME_GET_NS);
    to.push(LOAD_WORD, 2, 6, DATA_META, 0);
    to.push(LOAD_WORD, 3, 6, DATA, 0);
    to.push(COPY, 4, 2, 0, 0);
    to.push(ADD, 4, 0, 0, STAMP as i32);
    to.jump(JUMP_GREATER_REGISTER, 4, 3, 0, To::Redirect);
    to.push(STORE_DOUBLE, 2, 0, 0, 0);
    to.lead(To::Redirect);
    to.push(LOAD_CONSTANT, 1, MAP_DESCRIPTOR, 0, map);
    to.push(0, 0, 0, 0, 0);
    to.push(COPY, 2, 7, 0, 0);
    // Where no socket is at the queue.
    to.push(SET, 3, 0, 0, XDP_PASS);
    to.push(CALL, 0, 0, 0, REDIRECT_MAP);
    to.push(EXIT, 0, 0, 0, 0);
    to.lead(To::Pass);
    to.push(SET, 0, 0, 0, XDP_PASS);
    to.push(EXIT, 0, 0, 0, 0);
    to.code
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
