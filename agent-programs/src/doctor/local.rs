// SPDX-License-Identifier: Apache-2.0
//! This host alone.

use super::{Finding, State};
use nix::sys::prctl::{get_timerslack, set_timerslack};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use trimwire_agent::driver::interfaces::{Interface, interfaces, line_rate_bps, mtu};
use trimwire_agent::driver::offloads::offloads;
use trimwire_agent::endpoint::MTU_LEAST;

/// What sockets of an endpoint ask for, bytes.
const RECEIVE_BUFFER: usize = 8 << 20;

/// Of the interface that has an address, or of all that are up.
pub(super) fn findings(own: Option<IpAddr>) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let mut seen = Vec::new();
    for Interface { name, address, up } in interfaces()? {
        let wanted = own.map_or(up && !address.is_loopback(), |own| own == address);
        if wanted && !seen.contains(&name) {
            interface(&name, &mut found);
            seen.push(name);
        }
    }
    if seen.is_empty() {
        let advice = "--bind or --socket-ifname chooses one; `ip addr` lists them";
        found.push(Finding::new("interfaces", State::Note, "none that is up but loopback", advice));
    }
    found.push(receive_buffer()?);
    found.push(bursts()?);
    found.extend([timers(), processors()]);
    found.extend(clock());
    Ok(found)
}

fn interface(name: &str, found: &mut Vec<Finding>) {
    if let Some(mtu) = mtu(name) {
        let least = u32::from(MTU_LEAST);
        let advice = format!("packets are made to fit, from {least} bytes on: ip link set {name} mtu 1500");
        found.push(Finding::fine_if(mtu >= least, format!("{name}: MTU"), format!("{mtu} bytes"), &advice));
    }
    let check = format!("{name}: speed");
    found.push(match line_rate_bps(name) {
        Some(bps) => Finding::new(check, State::Fine, format!("{} Gbit/s", bps as f64 / 1e9), ""),
        None => Finding::new(
            check,
            State::Note,
            "unknown: 10 Gbit/s are taken for it",
            "--bitrate says what it is",
        ),
    });
    let Ok(offloads) = offloads(name) else { return };
    if offloads.driver == "veth" {
        // A switch in software at the other end sees what the kernel leaves to the interface.
        for (on, what, feature) in [
            (offloads.checksums, "checksums are left to the interface", "tx"),
            (offloads.segmentation, "the interface splits bursts", "gso"),
        ] {
            let check = format!("{name}: veth, {feature}");
            let advice = format!(
                "BMv2 at the other end wants it off: ethtool -K {name} {feature} off (trimwire-switch does not)"
            );
            let found_text = if on { what } else { "off" };
            found.push(Finding::new(check, if on { State::Note } else { State::Fine }, found_text, &advice));
        }
    } else {
        let found_text = if offloads.checksums { "on" } else { "off" };
        let advice =
            format!("bursts go to the kernel in one piece only where it is on: ethtool -K {name} tx on");
        found.push(Finding::new(
            format!("{name}: checksum offload"),
            if offloads.checksums { State::Fine } else { State::Note },
            found_text,
            &advice,
        ));
    }
}

fn receive_buffer() -> anyhow::Result<Finding> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        let _ = setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER);
    }
    // The kernel says twice what was asked for: half of it is its bookkeeping.
    let got = nix::sys::socket::getsockopt(&socket, sockopt::RcvBuf)? / 2;
    let advice = format!(
        "what comes in bursts is lost here: sysctl net.core.rmem_max={RECEIVE_BUFFER}, or run with CAP_NET_ADMIN"
    );
    let found = format!("{got} of {RECEIVE_BUFFER} bytes");
    Ok(Finding::fine_if(got >= RECEIVE_BUFFER, "receive buffer", found, &advice))
}

fn bursts() -> anyhow::Result<Finding> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let out = setsockopt(&socket, sockopt::UdpGsoSegment, &0).is_ok();
    let back = setsockopt(&socket, sockopt::UdpGroSegment, &true).is_ok();
    let found = match (out, back) {
        (true, true) => "UDP_SEGMENT and UDP_GRO",
        (true, false) => "UDP_SEGMENT, no UDP_GRO",
        (false, true) => "UDP_GRO, no UDP_SEGMENT",
        (false, false) => "neither UDP_SEGMENT nor UDP_GRO",
    };
    let advice =
        "a datagram a system call costs about twice the processor time; Linux 4.18 and 5.0 have them";
    Ok(Finding::new("bursts", if out && back { State::Fine } else { State::Note }, found, advice))
}

fn timers() -> Finding {
    let _ = set_timerslack(1_000);
    let slack_ns = get_timerslack().unwrap_or(i32::MAX);
    let advice = "pacing is later by so much: this kernel or container does not let timers be exact";
    let state = if slack_ns <= 1_000 { State::Fine } else { State::Note };
    Finding::new("timer slack", state, format!("{slack_ns} ns"), advice)
}

fn processors() -> Finding {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let advice = "one thread moves packets; with a second processor others do the coding beside it";
    let state = if processors > 1 { State::Fine } else { State::Note };
    Finding::new("processors", state, format!("{processors} for this process"), advice)
}

fn clock() -> Option<Finding> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = std::fs::read_to_string(path).ok()?;
    let source = source.trim();
    // These are read by a trap into the kernel or the hypervisor, at each look.
    let slow = matches!(source, "hpet" | "acpi_pm" | "xen" | "jiffies" | "refined-jiffies");
    let advice = "reading the time costs microseconds; tsc, kvm-clock and arch_sys_counter do not";
    Some(Finding::new("clock source", if slow { State::Note } else { State::Fine }, source, advice))
}
