// SPDX-License-Identifier: Apache-2.0
//! What queues take in memory. Each measurement runs in a process of its own, beside which nothing
//! allocates.

use crate::ladder_support::{Case, PROGRAM, cases, install};
use std::process::Command;
use trimwire_switch::traffic::TrafficConfig;
use trimwire_switch::{PortConfig, Switch, SwitchConfig};

/// Runs a test of this file again, alone in a process; false in that process.
fn alone(test: &str) -> bool {
    if std::env::var_os("TRIMWIRE_ALONE").is_some() {
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]).env("TRIMWIRE_ALONE", "1");
    let output = command.output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}

/// What the process holds, without what it has freed.
fn resident_kib() -> u64 {
    // SAFETY: no pointers are passed; it gives free pages of the heap back.
    unsafe { libc::malloc_trim(0) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A line so slow that everything waits.
fn switch(limit: u64) -> Switch {
    let line = PortConfig { rate_bps: 1_000, queue_limit_bytes: limit };
    let traffic = TrafficConfig::default();
    let mut switch = Switch::new(SwitchConfig { default_port: line, traffic, ..SwitchConfig::default() });
    switch.load_pipeline(PROGRAM).unwrap();
    install(switch.pipeline().unwrap().control());
    switch
}

/// A frame that is forwarded as it is by a program without policies.
fn forwarded() -> Case {
    let mut short = cases().into_iter().filter(|case| (64..=102).contains(&case.frame.len()));
    let whole = |mut case: Case| {
        let mut switch = switch(1 << 20);
        case.frame.resize(102, 0x5a);
        switch.handle_frame(0, case.ingress_port, &case.frame);
        switch.poll_transmit().filter(|sent| sent.frame.len() == 102).map(|_| case)
    };
    short.find_map(whole).unwrap()
}

#[test]
fn full_queues_take_at_most_three_times_their_bytes() {
    if alone("device_memory::full_queues_take_at_most_three_times_their_bytes") {
        return;
    }
    const LIMIT: u64 = 4 << 20;
    for (length, most) in [(102, 3.0), (1_470, 1.5)] {
        let mut switch = switch(LIMIT);
        let case = forwarded();
        let mut frame = case.frame.clone();
        frame.resize(length, 0x5a);
        // The first fills what buffers are kept of.
        (0..500).for_each(|_| switch.handle_frame(0, case.ingress_port, &frame));
        let (before_kib, before) = (resident_kib(), switch.buffered_bytes());
        (0..LIMIT)
            .take_while(|_| {
                switch.handle_frame(0, case.ingress_port, &frame);
                switch.buffered_bytes() < LIMIT - 2_000
            })
            .count();
        let waiting = switch.buffered_bytes() - before;
        let memory = (resident_kib() - before_kib) << 10;
        let times = memory as f64 / waiting as f64;
        println!(
            "{length}-byte frames: {waiting} bytes wait and take {memory} bytes of memory, {times:.2} times as much"
        );
        assert!(waiting > 2 << 20, "{waiting} bytes wait");
        assert!(times <= most, "{times:.2} times {waiting} bytes");
    }
}

#[test]
fn what_waited_in_long_queues_leaves_as_it_came() {
    let run = |rate_bps| {
        let mut switch = switch(64 << 20);
        let line = PortConfig { rate_bps, queue_limit_bytes: 64 << 20 };
        (0..64).for_each(|port| switch.configure_port(port, line));
        let case = forwarded();
        let mut sent = Vec::new();
        for number in 0..2_000_u32 {
            let mut frame = case.frame.clone();
            let end = frame.len();
            frame[end - 4..].copy_from_slice(&number.to_be_bytes());
            switch.handle_frame(u64::from(number), case.ingress_port, &frame);
            sent.extend(std::iter::from_fn(|| switch.poll_transmit()).map(|sent| sent.frame));
        }
        let waited = switch.buffered_bytes();
        while let Some(at_ns) = switch.poll_timeout() {
            switch.handle_timeout(at_ns);
            sent.extend(std::iter::from_fn(|| switch.poll_transmit()).map(|sent| sent.frame));
        }
        (waited, sent)
    };
    let ((none, at_once), (waited, later)) = (run(0), run(1_000_000));
    assert!(none == 0 && waited > 100_000, "{none} and {waited} bytes waited");
    assert_eq!(at_once.len(), 2_000);
    assert!(at_once == later, "the same frames in the same order");
}
