// SPDX-License-Identifier: Apache-2.0
//! bpf(2): a map of AF_XDP sockets, a program, and its link to an interface.
//!
//! The kernel takes the program off the interface when the link's descriptor closes, also where the process is killed.
#![expect(unsafe_code, reason = "bpf(2) has no wrapper among the dependencies")]

use super::program::Instruction;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// linux/bpf.h: commands, then types.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
// linux/if_link.h.
const FLAGS_GENERIC: u32 = 1 << 1;
const FLAGS_NATIVE: u32 = 1 << 2;

/// Where the kernel runs the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the interface's driver.
    Native,
    /// Behind it, on packets that the kernel has taken in already.
    Generic,
}

/// Calls bpf(2).
///
/// # Safety
/// `attributes` is what the command takes; addresses in it are of memory that lives through the call and is as long as it says.
unsafe fn call<T>(command: libc::c_long, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer and the length describe `attributes`; what it holds is the caller's promise.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>()) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(outcome as i32) }
}

/// As [`call`], of the commands that give a descriptor.
///
/// # Safety
/// As [`call`].
unsafe fn open<T>(command: libc::c_long, attributes: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: by the caller's promise; the descriptor that the kernel gives is new, and nobody else's.
    unsafe { call(command, attributes).map(|fd| OwnedFd::from_raw_fd(fd)) }
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
}

fn map(kind: u32, entries: u32) -> io::Result<OwnedFd> {
    let mut attributes = MapCreate { kind, key_size: 4, value_size: 4, max_entries: entries, flags: 0 };
    // SAFETY: these are a map's attributes, and hold no address.
    unsafe { open(MAP_CREATE, &mut attributes) }
}

/// A map from receive queues to AF_XDP sockets.
pub(super) fn socket_map(queues: u32) -> io::Result<OwnedFd> {
    map(MAP_TYPE_XSKMAP, queues)
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

fn update(map: BorrowedFd<'_>, key: u32, value: u32) -> io::Result<()> {
    let mut attributes = MapUpdate {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: &raw const key as u64,
        value: &raw const value as u64,
        flags: 0,
    };
    // SAFETY: key and value are as long as the map's, 4 bytes each, and live through the call.
    unsafe { call(MAP_UPDATE_ELEM, &mut attributes).map(drop) }
}

/// Gives what comes on a queue to a socket.
pub(super) fn set_socket(map: BorrowedFd<'_>, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    update(map, queue, socket.as_raw_fd() as u32)
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach: u32,
}

/// Has the kernel check and compile a program.
pub(super) fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    let mut attributes = ProgramLoad {
        kind: PROG_TYPE_XDP,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: *b"trimwire_port\0\0\0",
        interface: 0,
        attach: ATTACH_XDP,
    };
    // SAFETY: `count` instructions of 8 bytes and a C string, which live through the call.
    unsafe { open(PROG_LOAD, &mut attributes) }
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// Attaches a program to an interface for as long as the descriptor is open.
pub(super) fn attach(program: BorrowedFd<'_>, interface: u32, mode: Mode) -> io::Result<OwnedFd> {
    let flags = match mode {
        Mode::Native => FLAGS_NATIVE,
        Mode::Generic => FLAGS_GENERIC,
    };
    let program = program.as_raw_fd() as u32;
    let mut attributes = LinkCreate { program, interface, attach: ATTACH_XDP, flags };
    // SAFETY: these are a link's attributes, and hold no address.
    unsafe { open(LINK_CREATE, &mut attributes) }
}

/// What a program decides of a frame that nobody sent.
#[cfg(test)]
pub(super) mod trial {
    use super::*;

    const PROG_TEST_RUN: libc::c_long = 10;
    const MAP_TYPE_CPUMAP: u32 = 16;

    /// A map that may stand for that of sockets, with something at queue 0: there need be no interface for it.
    pub(in super::super) fn processor_map() -> io::Result<OwnedFd> {
        let made = map(MAP_TYPE_CPUMAP, 1)?;
        update(std::os::fd::AsFd::as_fd(&made), 0, 64)?;
        Ok(made)
    }

    #[repr(C)]
    struct TestRun {
        program: u32,
        outcome: u32,
        length: u32,
        length_out: u32,
        data: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }

    /// The program's outcome (`enum xdp_action`): 2 lets the frame pass, 4 redirects it. Frames have 14 bytes at least.
    pub(in super::super) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> io::Result<u32> {
        let mut attributes = TestRun {
            program: program.as_raw_fd() as u32,
            outcome: 0,
            length: frame.len() as u32,
            length_out: 0,
            data: frame.as_ptr() as u64,
            data_out: 0,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: the frame is as long as it says, and lives through the call; nothing is written but the attributes.
        unsafe { call(PROG_TEST_RUN, &mut attributes)? };
        Ok(attributes.outcome)
    }
}
