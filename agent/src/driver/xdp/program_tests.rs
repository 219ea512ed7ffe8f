// SPDX-License-Identifier: Apache-2.0
//! What the kernel does with frames by the program, against a parser in plain Rust. Needs CAP_BPF; skipped loudly otherwise.

use super::super::bpf::{self, trial};
use super::*;
use crate::driver::packet;
use std::os::fd::{AsFd, AsRawFd};

const PORT: u16 = 9_217;

fn skip(error: &std::io::Error) {
    eprintln!("SKIPPED: the program in the kernel: {error}");
}

fn own(v6: bool) -> IpAddr {
    if v6 { "fd00::1:2" } else { "10.1.2.3" }.parse().expect("literal")
}

/// A frame to the own address and PORT, with a payload of 20 bytes.
fn frame(v6: bool) -> Vec<u8> {
    let mut bytes = vec![2; 12];
    match own(v6) {
        IpAddr::V4(to) => {
            bytes.extend([8, 0, 0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 9]);
            bytes.extend(to.octets());
        }
        IpAddr::V6(to) => {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, 17, 64]);
            bytes.extend([9; 16]);
            bytes.extend(to.octets());
        }
    }
    bytes.extend([0x30, 0x39]);
    bytes.extend(PORT.to_be_bytes());
    bytes.extend([0, 28, 0, 0]);
    bytes.extend([7; 20]);
    bytes
}

/// The same by reading: IPv4 without options, or IPv6, whole headers, the address and the port.
fn is_picked(bytes: &[u8], v6: bool) -> bool {
    let (ethertype, header) = if v6 { ([0x86, 0xdd], 40) } else { ([8, 0], 20) };
    let Some(ip) = bytes.get(14..).filter(|_| bytes[12..14] == ethertype) else { return false };
    let is_version =
        if v6 { ip.first().is_some_and(|first| first >> 4 == 6) } else { ip.first() == Some(&0x45) };
    let mut mended = ip.to_vec();
    // Lengths do not matter: those of switches that trim are wrong.
    if v6 && ip.len() >= 40 {
        mended[4..6].copy_from_slice(&u16::MAX.to_be_bytes());
    } else if ip.len() >= 20 {
        mended[2..4].copy_from_slice(&u16::MAX.to_be_bytes());
    }
    let to = match own(v6) {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    is_version
        && ip.len() >= header + 8
        && packet::parse(&mended).is_some_and(|found| found.destination == to && found.port == PORT)
}

#[test]
fn the_kernel_picks_what_is_ours_and_passes_everything_else() {
    for v6 in [false, true] {
        let map = match trial::processor_map() {
            Ok(map) => map,
            Err(error) => return skip(&error),
        };
        let pick = Pick { own: own(v6), port: PORT, channels: 1, queues: 1 };
        let loaded = match bpf::load(&program(&pick, map.as_raw_fd())) {
            Ok(loaded) => loaded,
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return skip(&error),
            Err(error) => panic!("the kernel refuses the program: {error}"),
        };
        let decide = |bytes: &[u8]| match trial::run(loaded.as_fd(), bytes).expect("runs") {
            4 => true,
            2 => false,
            other => panic!("action {other}"),
        };
        let whole = frame(v6);
        assert!(is_picked(&whole, v6) && decide(&whole));
        // Cut anywhere, as a switch may.
        for length in 14..whole.len() {
            assert_eq!(decide(&whole[..length]), is_picked(&whole[..length], v6), "{length} bytes");
        }
        // Any bit of the headers turned.
        let headers = whole.len() - 20;
        let mut picked = 0;
        for bit in 0..headers * 8 {
            let mut other = whole.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            let expected = is_picked(&other, v6);
            assert_eq!(decide(&other), expected, "bit {bit}, IPv6 {v6}");
            picked += usize::from(expected);
        }
        // MAC and source addresses, among others, do not matter.
        assert!(picked > 100, "{picked}");
        // Another channel's port on the first channel's queue.
        let two = Pick { channels: 2, ..pick };
        let loaded = bpf::load(&program(&two, map.as_raw_fd())).expect("loads");
        let mut other = whole.clone();
        other[headers - 5] += 1;
        assert_eq!(trial::run(loaded.as_fd(), &whole).ok(), Some(4));
        assert_eq!(trial::run(loaded.as_fd(), &other).ok(), Some(2));
    }
}
