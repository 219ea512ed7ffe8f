// SPDX-License-Identifier: Apache-2.0
//! Hosts that have no neighbour entries: the switch tells them each other's MAC addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;
use trimwire_bmv2_tests::process::poll;
use trimwire_bmv2_tests::programs::bmv2_or_skip;
use trimwire_bmv2_tests::{Kind, Namespace, Network, Programs, exclusive};

const LIMIT: Duration = Duration::from_secs(20);

/// Sends a datagram, for which the kernel has to find out the MAC address.
fn send(host: &Namespace, to: IpAddr) {
    let sent = host.enter(|| {
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        // Where an earlier question had no answer the kernel refuses.
        let _ = UdpSocket::bind((any, 0))?.send_to(b"?", (to, 9));
        Ok(())
    });
    sent.expect("a socket");
}

fn ip(host: &Namespace, words: &str) -> anyhow::Result<String> {
    host.run("ip", &words.split_whitespace().collect::<Vec<_>>())
}

/// What the host has found out of `address` once it has.
fn neighbour(host: &Namespace, address: IpAddr) -> String {
    poll("a neighbour entry", LIMIT, || {
        send(host, address);
        std::thread::sleep(Duration::from_millis(100));
        let shown = ip(host, &format!("neigh show {address} dev eth0"))?;
        Ok(shown.contains("lladdr").then_some(shown))
    })
    .expect("the switch answers")
}

fn answers(kind: &Kind, programs: &Programs) {
    let network = Network::start(programs, kind, 2, 100_000_000).expect("network");
    let hosts = [1, 2].map(|number| network.host(number).expect("host"));
    for (number, host) in (1..).zip(hosts) {
        host.run("sh", &["-c", "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6"]).expect("IPv6");
        host.ip(&format!("addr add fd00::{number}/64 dev eth0")).expect("address");
    }
    network.apply("{ trim: off, drop_at: 70KB }").expect("controller applies");
    for (host, other) in [(hosts[0], 2_u8), (hosts[1], 1)] {
        for address in [
            Ipv4Addr::new(10, 0, 0, other).into(),
            Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, other.into()).into(),
        ] {
            let shown = neighbour(host, address);
            assert!(shown.contains(&format!("lladdr 02:00:00:00:00:0{other} ")), "{shown}");
        }
    }
    // Nobody has it.
    send(hosts[0], Ipv4Addr::new(10, 0, 0, 77).into());
    std::thread::sleep(Duration::from_millis(300));
    let shown = ip(hosts[0], "neigh show 10.0.0.77 dev eth0").expect("neighbours");
    assert!(!shown.contains("lladdr"), "{shown}");
    // An address of one's own is free, one of another host's is not.
    let state = |address: &str| {
        hosts[0].ip(&format!("addr add {address}/64 dev eth0")).expect("address");
        poll("detection of duplicates", LIMIT, || {
            std::thread::sleep(Duration::from_millis(100));
            let shown = ip(hosts[0], &format!("addr show dev eth0 to {address}"))?;
            let is_over = shown.contains("dadfailed") || !shown.contains("tentative");
            Ok(is_over.then_some(shown))
        })
        .expect("detection ends")
    };
    hosts[0].ip("addr del fd00::1/64 dev eth0").expect("address");
    let shown = state("fd00::1");
    assert!(!shown.contains("dadfailed"), "{shown}");
    let shown = state("fd00::2");
    assert!(shown.contains("dadfailed"), "{shown}");
}

#[test]
fn hosts_find_each_other_through_trimwire_switch_and_nobody_else() {
    let _turn = exclusive();
    let Some(programs) = Programs::or_skip("neighbours through trimwire-switch") else { return };
    answers(&Kind::ours(&programs), &programs);
}

#[test]
fn hosts_find_each_other_through_bmv2_and_nobody_else() {
    let _turn = exclusive();
    let test = "neighbours through BMv2";
    let Some(programs) = Programs::or_skip(test) else { return };
    let Some(bmv2) = bmv2_or_skip(test) else { return };
    answers(&Kind::Bmv2(bmv2), &programs);
}
