// SPDX-License-Identifier: Apache-2.0
//! Files of HPCC's simulator: flows, `SOURCE DESTINATION 3 100 BYTES SECONDS` behind their number,
//! and distributions of sizes, `BYTES PERCENT`.

use super::htsim::{lines, number};
use super::trace::{Maker, TraceError};
use super::{Begin, Sizes};

/// Reads flows into what `made` makes, as many as the file says; what is behind them is not read.
/// Hosts are those of the topology, in its order; some write neither priority nor port.
pub(super) fn hpcc(text: &str, made: &mut Maker) -> Result<(), TraceError> {
    let mut promised = None;
    for (line, words) in lines(text) {
        if promised.is_some_and(|(_, count)| count == made.demands.len() as u64) {
            break;
        }
        let wrong = |reason| TraceError { line, reason };
        let (source, destination, bytes, seconds) = match words[..] {
            [count] if promised.is_none() => {
                promised = Some((line, number(count, "flows").map_err(wrong)?));
                continue;
            }
            [source, destination, _, _, bytes, seconds] | [source, destination, bytes, seconds] => {
                (source, destination, bytes, seconds)
            }
            _ => {
                let reason =
                    "valid are the number of flows, then SOURCE DESTINATION PRIORITY PORT BYTES SECONDS";
                return Err(wrong(reason.to_owned()));
            }
        };
        let host = |word: &str| word.parse().ok().filter(|&host: &u32| host < made.hosts);
        let ends = host(source).zip(host(destination)).filter(|(source, destination)| source != destination);
        let (source, destination) = ends.ok_or_else(|| {
            wrong(format!(
                "{source} to {destination}; valid are two hosts of 0 to {}",
                made.hosts.saturating_sub(1)
            ))
        })?;
        let begin = seconds.parse().ok().filter(|seconds: &f64| (0.0..1e9).contains(seconds));
        let begin = begin.ok_or_else(|| wrong(format!("'{seconds}'; valid is a time in seconds")))?;
        let bytes = number(bytes, "bytes").and_then(|bytes| match bytes {
            0 => Err("bytes: 0; valid are 1 and more".to_owned()),
            bytes => Ok(bytes),
        });
        let place = made.flow(source, destination, bytes.map_err(wrong)?, None).map_err(wrong)?;
        made.demands[place as usize].begin = Begin::At((begin * 1e9).round() as u64);
    }
    match promised {
        Some((line, count)) if count != made.demands.len() as u64 => {
            Err(TraceError { line, reason: format!("{count} flows; the file has {}", made.demands.len()) })
        }
        Some(_) => Ok(()),
        None => Err(TraceError { line: 1, reason: "there is no number of flows".to_owned() }),
    }
}

/// Reads a distribution: sizes and the per cent of the flows that are no longer, 0 to 100, both
/// growing.
pub fn distribution(text: &str) -> Result<Sizes, TraceError> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let mut last = 1;
    for (line, words) in lines(text) {
        let wrong = |reason: &str| Err(TraceError { line, reason: reason.to_owned() });
        let point = match words[..] {
            [bytes, percent] => bytes.parse::<f64>().ok().zip(percent.parse::<f64>().ok()),
            _ => None,
        };
        let Some((bytes, percent)) = point else { return wrong("valid are BYTES and PERCENT") };
        match points.last() {
            None if percent != 0.0 => return wrong("the first per cent is another one; valid is 0"),
            Some(&(before, share)) if bytes <= before || percent / 100.0 <= share => {
                return wrong("both have to be larger than those before");
            }
            _ => {}
        }
        // Refuses what is no number, too.
        if !((0.0..=1e11).contains(&bytes) && percent <= 100.0) {
            return wrong("valid are 0 to 100000000000 bytes and up to 100 per cent");
        }
        points.push((bytes, percent / 100.0));
        last = line;
    }
    if points.last().is_none_or(|point| point.1 != 1.0) {
        return Err(TraceError {
            line: last,
            reason: "the last per cent is another one; valid is 100".to_owned(),
        });
    }
    Ok(Sizes::of(points))
}
