// SPDX-License-Identifier: Apache-2.0
//! What became of probes, and what that means.

use super::probe::{Tally, plan};
use super::{Finding, State};
use std::net::{IpAddr, SocketAddr};

/// One direction's probes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Way {
    /// `to 10.0.0.2`, `from 10.0.0.2`.
    pub(super) name: String,
    /// Who sends, and where the other end listens.
    pub(super) from: IpAddr,
    pub(super) to: SocketAddr,
    /// Largest IP packet that the sending interface takes, and those tried, bytes.
    pub(super) sizes: Vec<u32>,
    pub(super) dscp: Tally,
    pub(super) sized: Tally,
    /// Small datagrams without a checksum.
    pub(super) unchecked: Tally,
    /// Packets of a burst, and what came of it: with checksums, without, and by raw reception where
    /// that may be.
    pub(super) burst: u64,
    pub(super) filled: Tally,
    pub(super) zero: Tally,
    pub(super) raw: Option<Tally>,
}

impl Way {
    pub(super) fn findings(&self) -> Vec<Finding> {
        if self.is_blocked() {
            return vec![self.blocked()];
        }
        vec![self.mtu(), self.marks(), self.checksums(), self.trimming()]
    }

    /// Whether no probe of any kind has come.
    pub(super) fn is_blocked(&self) -> bool {
        let came = |tally: &Tally| !tally.small.is_empty() || tally.whole + tally.trimmed > 0;
        let tallies = [&self.dscp, &self.sized, &self.unchecked, &self.filled, &self.zero];
        !tallies.into_iter().chain(&self.raw).any(came)
    }

    /// Says it once: without a single probe nothing is known of sizes, DSCPs or trims.
    fn blocked(&self) -> Finding {
        let Self { from, to, .. } = self;
        let advice = format!(
            "a firewall or a security group drops it: let UDP through from {from} to {}, to whatever port",
            to.ip()
        );
        Finding::new(self.check("UDP"), State::Bad, format!("no UDP from {from} reaches {to}"), &advice)
    }

    fn check(&self, what: &str) -> String {
        format!("{}: {what}", self.name)
    }

    fn mtu(&self) -> Finding {
        let there = |size: &u32| self.sized.small.contains_key(size);
        let largest = self.sizes.iter().copied().filter(|size| there(size)).max();
        let all = self.sizes.iter().all(there) && !self.sizes.is_empty();
        let found = match largest {
            Some(size) if all => format!("{size} bytes get through, the most that was tried"),
            Some(size) => format!("{size} bytes get through, and not all that the interface sends"),
            None => "nothing gets through".to_owned(),
        };
        let most = largest.unwrap_or(0);
        let advice = format!(
            "lower the interfaces' MTU to {most} (ip link set IFACE mtu {most}), or raise the switches'"
        );
        Finding::fine_if(all, self.check("MTU of the path"), found, &advice)
    }

    /// DSCPs kept or erased.
    fn marks(&self) -> Finding {
        let mut changed = Vec::new();
        let mut lost = Vec::new();
        for sent in plan() {
            match self.dscp.small.get(&u32::from(sent)) {
                None => lost.push(sent.to_string()),
                Some(came) => {
                    if let Some(other) = came.iter().find(|&&dscp| dscp != sent) {
                        changed.push(format!("{sent} becomes {other}"));
                    }
                }
            }
        }
        let check = self.check("DSCP");
        let advice = "switches tell by it what may be trimmed: trust DSCP on their ports, and let no router or host rewrite it";
        if !lost.is_empty() {
            let found = format!("nothing came of DSCP {}", lost.join(", "));
            return Finding::new(check, State::Bad, found, advice);
        }
        let found =
            if changed.is_empty() { format!("all {} kept", plan().len()) } else { changed.join(", ") };
        Finding::fine_if(changed.is_empty(), check, found, advice)
    }

    fn checksums(&self) -> Finding {
        let through = !self.unchecked.small.is_empty();
        let found = if through { "get through" } else { "do not get through" };
        let advice = "switches that trim set the checksum to 0: what is in the way drops such packets (a firewall, or conntrack)";
        Finding::fine_if(through, self.check("UDP without checksums"), found, advice)
    }

    /// Whether the fabric trims, and how.
    fn trimming(&self) -> Finding {
        let check = self.check("trimming");
        let of = self.burst;
        let told = |tally: &Tally| {
            let Tally { whole, trimmed, overflowed, .. } = *tally;
            let lost = of.saturating_sub(whole + trimmed);
            let own = if overflowed > 0 {
                format!(" ({overflowed} or more of them in this host)")
            } else {
                String::new()
            };
            format!("of {of} packets at once {whole} came whole, {trimmed} trimmed, {lost} did not{own}")
        };
        let raw_trimmed = self.raw.as_ref().is_some_and(|raw| raw.trimmed > 0);
        if self.filled.trimmed > 0 {
            let unmarked = self.filled.trimmed - self.filled.marked;
            let found = format!("{}; lengths and checksums are mended", told(&self.filled));
            if unmarked > 0 {
                let advice = "trimmed packets without the DSCP for it wait behind whole ones, and receivers see trims late: set the trimmed DSCP";
                return Finding::new(
                    check,
                    State::Note,
                    format!("{found}, {unmarked} without the DSCP of trimmed ones"),
                    advice,
                );
            }
            return Finding::new(check, State::Fine, found, "");
        }
        if self.zero.trimmed > 0 {
            let advice = "--set checksums=zero: this fabric mends lengths, and leaves checksums wrong";
            return Finding::new(check, State::Bad, told(&self.zero), advice);
        }
        if raw_trimmed {
            let advice = "--set receive=raw --set checksums=zero: this fabric trims and leaves lengths as they were, which ordinary sockets refuse";
            return Finding::new(check, State::Bad, told(self.raw.as_ref().unwrap_or(&self.filled)), advice);
        }
        if of.saturating_sub(self.filled.whole) > of / 50 {
            let advice = "nothing was trimmed and much was lost: trimming is off on the way, or the DSCP is not what its policy trims, or raw \
                          reception (as root at both ends) would show it";
            return Finding::new(check, State::Bad, told(&self.filled), advice);
        }
        let advice = "one host alone did not congest anything; `perf reduce` of three hosts would";
        Finding::new(check, State::Note, told(&self.filled), advice)
    }
}

/// Both ways to a host, and round trips. Where a way is blocked, no round trip can be, and it is
/// not said again.
pub(super) fn findings(name: &str, trips: Vec<u64>, times: usize, ways: [&Way; 2]) -> Vec<Finding> {
    let explained = trips.is_empty() && ways.iter().any(|way| way.is_blocked());
    let trip = (!explained).then(|| round_trips(name, trips, times));
    trip.into_iter().chain(ways.into_iter().flat_map(Way::findings)).collect()
}

/// Whether of so many tries more were lost than where a host was asleep, which may cost one.
pub(super) fn is_lossy(came: usize, tried: usize) -> bool {
    tried.saturating_sub(came) * 50 > tried
}

/// Round trips of small datagrams one at a time.
fn round_trips(name: &str, mut trips: Vec<u64>, times: usize) -> Finding {
    trips.sort_unstable();
    let lost = times.saturating_sub(trips.len());
    let found = match (trips.first(), trips.get(trips.len() / 2)) {
        (Some(&least), Some(&middle)) => {
            let [least, middle] = [least, middle].map(|ns| ns as f64 / 1e3);
            format!("{least:.0} us at least, {middle:.0} us in the middle; {lost} of {times} lost")
        }
        _ => format!("{lost} of {times} lost"),
    };
    let advice = "a path that loses packets that nothing presses on is broken: cables, optics, or an interface's errors (ip -s link)";
    Finding::fine_if(!is_lossy(trips.len(), times), format!("{name}: round trip"), found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Way {
        let small = |values: &mut dyn Iterator<Item = u32>, dscp: fn(u32) -> u8| Tally {
            small: values.map(|value| (value, vec![dscp(value); 3])).collect(),
            ..Tally::default()
        };
        let trimmed = Tally { whole: 100, trimmed: 1_900, marked: 1_900, ..Tally::default() };
        Way {
            name: "to 10.0.0.2".to_owned(),
            from: [10, 0, 0, 1].into(),
            to: ([10, 0, 0, 2], 7_000).into(),
            sizes: vec![576, 1_500],
            dscp: small(&mut plan().into_iter().map(u32::from), |dscp| dscp as u8),
            sized: small(&mut [576, 1_500].into_iter(), |_| 39),
            unchecked: small(&mut [3].into_iter(), |_| 3),
            burst: 2_000,
            filled: trimmed.clone(),
            zero: trimmed,
            raw: None,
        }
    }

    /// State and words of the finding on something.
    fn finding(way: &Way, what: &str) -> (State, String) {
        let found =
            way.findings().into_iter().find(|finding| finding.check.contains(what)).expect("looked at");
        (found.state, format!("{} {}", found.found, found.advice))
    }

    #[test]
    fn a_healthy_fabric_is_fine() {
        let findings = healthy().findings();
        assert!(findings.iter().all(|finding| finding.state == State::Fine), "{findings:?}");
    }

    #[test]
    fn each_ailment_is_named_with_its_cure() {
        let bad = |change: fn(&mut Way), what: &str, says: &str| {
            let mut way = healthy();
            change(&mut way);
            let (state, text) = finding(&way, what);
            assert!(state == State::Bad && text.contains(says), "{state:?} {text}");
        };
        bad(|way| drop(way.sized.small.remove(&1_500)), "MTU", "mtu 576");
        bad(|way| drop(way.dscp.small.insert(3, vec![0])), "DSCP", "3 becomes 0");
        bad(|way| drop(way.dscp.small.remove(&7)), "DSCP", "nothing came of DSCP 7");
        bad(|way| way.unchecked = Tally::default(), "checksums", "firewall");
        let nothing_trimmed = |way: &mut Way| way.filled = Tally { whole: 100, ..Tally::default() };
        bad(nothing_trimmed, "trimming", "--set checksums=zero");
        bad(
            |way| {
                way.filled = Tally { whole: 100, ..Tally::default() };
                way.zero = way.filled.clone();
                way.raw = Some(Tally { whole: 100, trimmed: 1_900, ..Tally::default() });
            },
            "trimming",
            "receive=raw",
        );
        bad(
            |way| {
                way.filled = Tally { whole: 1_900, ..Tally::default() };
                way.zero = way.filled.clone();
            },
            "trimming",
            "trimming is off",
        );
    }

    /// The same way with no probe through.
    fn blocked() -> Way {
        let nothing = Tally::default;
        Way {
            dscp: nothing(),
            sized: nothing(),
            unchecked: nothing(),
            filled: nothing(),
            zero: nothing(),
            raw: Some(nothing()),
            ..healthy()
        }
    }

    #[test]
    fn blocked_udp_is_one_finding_and_says_nothing_of_what_was_not_measured() {
        let open = Way { name: "from 10.0.0.2".to_owned(), ..healthy() };
        let found = findings("to 10.0.0.2", Vec::new(), 200, [&blocked(), &open]);
        let bad: Vec<_> = found.iter().filter(|finding| finding.state == State::Bad).collect();
        let [bad] = bad[..] else { panic!("one finding: {found:?}") };
        assert_eq!(bad.check, "to 10.0.0.2: UDP");
        assert_eq!(bad.found, "no UDP from 10.0.0.1 reaches 10.0.0.2:7000");
        assert!(bad.advice.contains("firewall"), "{bad:?}");
        let text = format!("{found:?}");
        assert!(!text.contains("NaN") && !text.contains("mtu 0") && !text.contains("cables"), "{text}");
        // Both ways blocked: each is named, and nothing else.
        assert_eq!(findings("to 10.0.0.2", Vec::new(), 200, [&blocked(), &blocked()]).len(), 2);
        // A single trimmed packet is a sign of life.
        let mut way = blocked();
        way.zero.trimmed = 1;
        assert!(way.findings().len() > 1);
    }

    #[test]
    fn an_idle_network_and_cuts_without_a_mark_are_worth_a_note() {
        let mut way = healthy();
        way.filled.marked = 0;
        assert_eq!(finding(&way, "trimming").0, State::Note);
        way.filled = Tally { whole: 2_000, ..Tally::default() };
        way.zero = way.filled.clone();
        assert_eq!(finding(&way, "trimming").0, State::Note);
    }

    #[test]
    fn round_trips_that_are_lost_without_a_reason_are_bad() {
        assert_eq!(round_trips("to h", vec![5_000; 100], 100).state, State::Fine);
        assert_eq!(round_trips("to h", vec![5_000; 90], 100).state, State::Bad);
        assert_eq!(round_trips("to h", Vec::new(), 100).found, "100 of 100 lost");
        // Of ways that are open it is told beside what they are.
        let (way, back) = (healthy(), healthy());
        assert!(findings("to h", Vec::new(), 100, [&way, &back])[0].found.contains("100 of 100 lost"));
    }
}
