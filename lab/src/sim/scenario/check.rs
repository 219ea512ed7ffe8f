// SPDX-License-Identifier: Apache-2.0
//! Values that cannot be, and switches' keys that the transport's switches do not read.

use super::locate::{Wrong, wrong};
use super::words::{DctcpWords, SwitchWords, TransportWords, TrimwireWords};
use crate::sim::quantity::{Bytes, Duration};
use crate::sim::transport::WHOLE;
use std::fmt::Display;

/// Source ports of an agent at most (`EndpointConfig::source_ports`).
const MOST_PATHS: u16 = 256;
/// Least part of the window that a peer has (`EndpointConfig::window_bytes`): a smaller window
/// would be taken for this one.
const LEAST_WINDOW: u64 = 24_000;
/// Bytes of a flow at most: so many in the shortest packets, of 24 bytes, have numbers of 32 bits.
pub(super) const MOST_BYTES: u64 = 100_000_000_000;

fn refuse(transport: &'static str, key: &'static str, value: &dyn Display, valid: &str) -> Result<(), Wrong> {
    wrong(&["transport", transport, key], format!("{key}: {value}; valid are {valid}"))
}

fn at_least_one(transport: &'static str, key: &'static str, count: Option<u32>) -> Result<(), Wrong> {
    if count == Some(0) { refuse(transport, key, &0, "1 and more") } else { Ok(()) }
}

fn above_zero(transport: &'static str, key: &'static str, time: Option<Duration>) -> Result<(), Wrong> {
    if time == Some(Duration(0)) { refuse(transport, key, &0, "times above 0, such as 1ms") } else { Ok(()) }
}

/// Checks a transport's values, but for those that its own file checks; `fastest_bps` is the rate
/// of the fastest host's link.
pub(super) fn transport(words: &TransportWords, fastest_bps: u64) -> Result<(), Wrong> {
    if let Some(words) = &words.dctcp {
        dctcp("dctcp", words)?;
    }
    if let Some(words) = &words.pias {
        dctcp("pias", &words.dctcp())?;
    }
    if let Some(rounds) = words.pfabric.as_ref().and_then(|words| words.rto_round_trips)
        && !(rounds > 0.0 && rounds <= 1e6)
    {
        return refuse("pfabric", "rto_round_trips", &rounds, "above 0 to 1000000");
    }
    if let Some(words) = &words.ndp {
        at_least_one("ndp", "initial_window", words.initial_window)?;
        above_zero("ndp", "rto", words.rto)?;
    }
    if let Some(words) = &words.mlt {
        above_zero("mlt", "control_rto", words.control_rto)?;
    }
    words.trimwire.as_ref().map_or(Ok(()), |words| trimwire(words, fastest_bps))
}

fn dctcp(transport: &'static str, words: &DctcpWords) -> Result<(), Wrong> {
    at_least_one(transport, "initial_window", words.initial_window)?;
    at_least_one(transport, "duplicates", words.duplicates)?;
    above_zero(transport, "rto_min", words.rto_min)
}

fn trimwire(words: &TrimwireWords, fastest_bps: u64) -> Result<(), Wrong> {
    if !(0.0..=1.0).contains(&words.important) {
        return refuse("trimwire", "important", &words.important, "shares, 0 to 1");
    }
    if !(1..=MOST_PATHS).contains(&words.paths) {
        let valid = format!("1 to {MOST_PATHS}, as many source ports as an agent has");
        return refuse("trimwire", "paths", &words.paths, &valid);
    }
    if let Some(planes) = words.planes
        && !(1..=WHOLE).contains(&planes)
    {
        return refuse("trimwire", "planes", &planes, "1 to 10");
    }
    if let Some(Bytes(window)) = words.window
        && window < LEAST_WINDOW
    {
        let valid = format!("{LEAST_WINDOW} bytes and more, what one peer has at least");
        return refuse("trimwire", "window", &format_args!("{window} bytes"), &valid);
    }
    if let Some(start) = words.start
        && start.0 > fastest_bps
    {
        let valid = format!("up to the rate of the hosts' links, {fastest_bps} bit/s");
        return refuse("trimwire", "start", &format_args!("{} bit/s", start.0), &valid);
    }
    Ok(())
}

/// Checks the keys and values of switches; `frame` is a full packet's length in bytes.
pub(super) fn switch(words: &SwitchWords, transport: &TransportWords, frame: u64) -> Result<(), Wrong> {
    let name = transport.names().next().unwrap_or_default();
    for (key, valid) in words.thresholds() {
        if !valid.contains(&name) {
            let valid = valid.join(", ");
            return wrong(
                &["switch", key],
                format!("{key}: switches of {name} do not read it; valid with {valid}"),
            );
        }
    }
    if words.blind && words.drop_at.is_some() {
        let reason = "drop_at: blind switches drop nothing by importance; valid without blind";
        return wrong(&["switch", "drop_at"], reason.to_owned());
    }
    if words.packets == Some(0) {
        return wrong(&["switch", "packets"], "packets: 0; valid are 1 and more".to_owned());
    }
    if let Some(Bytes(buffer)) = words.buffer
        && buffer < frame
    {
        let reason = format!("buffer: {buffer} bytes; valid are a full packet, {frame} bytes, and more");
        return wrong(&["switch", "buffer"], reason);
    }
    Ok(())
}

/// Checks the bytes of each of a pattern's flows.
pub(super) fn bytes(pattern: &'static str, bytes: Bytes) -> Result<(), Wrong> {
    if (1..=MOST_BYTES).contains(&bytes.0) {
        return Ok(());
    }
    let (got, most) = (bytes.0, MOST_BYTES / 1_000_000_000);
    wrong(&["workload", pattern, "bytes"], format!("bytes: {got}; valid are 1B to {most}GB a flow"))
}
