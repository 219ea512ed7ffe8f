// SPDX-License-Identifier: Apache-2.0
//! Two hosts that probe the way between them, each direction in turn.

use super::Finding;
use super::judge::{self, Way};
use super::probe::{Card, Packets, Probe, Tally, round_trips as measure, sizes, tally};
use crate::args::LinkArgs;
use crate::talk::{self, ANSWER, Line};
use crate::{Failure, failed};
use anyhow::bail;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use trimwire_agent::driver::interfaces::{interfaces, line_rate_of, mtu};
use trimwire_agent::driver::{Checksums, Link as _, LinkError, Receive, UdpConfig, UdpLink};

const VERSION: u32 = 1;
const ROUND_TRIPS: usize = 200;
/// Of bursts, where the interface does not tell its speed: virtual ones, with software behind them.
const UNKNOWN_RATE_BPS: u64 = 1_000_000_000;
/// Longest that an end counts, and more.
const COUNTING: Duration = Duration::from_secs(30);

/// What the two ends say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// The visitor's first word, and the answer: the ports to send to, of an ordinary socket and of raw reception, and the interface's MTU.
    Doctor {
        version: u32,
        socket: u16,
        raw: Option<u16>,
        mtu: u32,
    },
    /// Count what comes; small datagrams may be to go back.
    Count {
        raw: bool,
        echo: bool,
    },
    Ready,
    Counted {
        tally: Tally,
    },
    Send {
        probe: Probe,
        zero: bool,
        raw: bool,
    },
    Sent,
    Over,
}

/// The sockets of one end.
struct End {
    own: IpAddr,
    card: Card,
    packets: Packets,
    socket: UdpLink,
    /// As root.
    raw: Option<UdpLink>,
    /// Leaves checksums out.
    unchecked: UdpLink,
}

impl End {
    fn open(own: IpAddr) -> anyhow::Result<Self> {
        let open = |receive, checksums| -> Result<UdpLink, LinkError> {
            UdpLink::open(UdpConfig { receive, checksums, ..UdpConfig::new(SocketAddr::new(own, 0)) })
        };
        let name =
            interfaces()?.into_iter().find(|interface| interface.address == own).map(|found| found.name);
        let card = Card {
            mtu: name.and_then(|name| mtu(&name)).unwrap_or(1_500),
            rate_bps: line_rate_of(&[own]).unwrap_or(UNKNOWN_RATE_BPS),
        };
        Ok(Self {
            own,
            card,
            packets: Packets::new()?,
            socket: open(Receive::Socket, Checksums::Filled)?,
            raw: open(Receive::Raw, Checksums::Filled).ok(),
            unchecked: open(Receive::Socket, Checksums::Zero)?,
        })
    }

    fn greeting(&self) -> Word {
        let port = |link: &UdpLink| link.local_address().port();
        Word::Doctor {
            version: VERSION,
            socket: port(&self.socket),
            raw: self.raw.as_ref().map(port),
            mtu: self.card.mtu,
        }
    }

    fn send(&mut self, to: SocketAddr, probe: Probe, zero: bool) -> anyhow::Result<()> {
        let link = if zero { &mut self.unchecked } else { &mut self.socket };
        probe.send(link, to, &self.packets, self.card)
    }

    fn count(&mut self, raw: bool, echo: bool) -> anyhow::Result<Tally> {
        match (&mut self.raw, raw) {
            (Some(link), true) => tally(link, &self.packets, echo),
            (None, true) => bail!("no raw reception at {}", self.own),
            (_, false) => tally(&mut self.socket, &self.packets, echo),
        }
    }
}

/// Where the other end's sockets are.
struct There {
    socket: SocketAddr,
    raw: Option<SocketAddr>,
    mtu: u32,
}

impl There {
    fn new(line: &Line, word: &Word) -> anyhow::Result<Self> {
        let Word::Doctor { version: VERSION, socket, raw, mtu } = *word else {
            bail!("{} says {word:?}; this is version {VERSION} of the doctor", line.address);
        };
        let at = |port| SocketAddr::new(line.address.ip(), port);
        Ok(Self { socket: at(socket), raw: raw.map(at), mtu })
    }

    fn at(&self, raw: bool) -> SocketAddr {
        self.raw.filter(|_| raw).unwrap_or(self.socket)
    }
}

/// Serves one visitor.
pub(super) fn listen(link: &LinkArgs) -> Result<(), Failure> {
    let listener = talk::listen(link.own_address()?, link.port())?;
    loop {
        let Ok(mut line) = Line::accept(&listener) else { continue };
        let word = match line.hear::<Word>(Some(ANSWER)) {
            Ok(word @ Word::Doctor { .. }) => word,
            // Somebody looks for open ports.
            other => {
                tracing::warn!("no doctor: {other:?}");
                continue;
            }
        };
        return serve(&mut line, &word).map_err(failed);
    }
}

fn serve(line: &mut Line, word: &Word) -> anyhow::Result<()> {
    let there = There::new(line, word)?;
    let mut end = End::open(line.local_ip()?)?;
    line.say(&end.greeting())?;
    loop {
        match line.hear(Some(COUNTING))? {
            Word::Count { raw, echo } => {
                line.say(&Word::Ready)?;
                let tally = end.count(raw, echo)?;
                line.say(&Word::Counted { tally })?;
            }
            Word::Send { probe, zero, raw } => {
                end.send(there.at(raw), probe, zero)?;
                line.say(&Word::Sent)?;
            }
            Word::Over => return Ok(()),
            other => bail!("{} says {other:?}", line.address),
        }
    }
}

/// A visit: the own end, the other one, and how they talk.
struct Visit {
    line: Line,
    end: End,
    there: There,
}

/// Looks at the way to a host and back. Gives the own address, too.
pub(super) fn visit(link: &LinkArgs, host: &str) -> Result<(IpAddr, Vec<Finding>), Failure> {
    let to = talk::resolve(host, link.port())?;
    let patience = Duration::from_nanos(link.timeout);
    let line = talk::call(to, link.own_address()?, patience, "doctor --listen")?;
    examine(line).map_err(failed)
}

fn examine(mut line: Line) -> anyhow::Result<(IpAddr, Vec<Finding>)> {
    let own = line.local_ip()?;
    let end = End::open(own)?;
    line.say(&end.greeting())?;
    let answer = line_hear(&mut line)?;
    let there = There::new(&line, &answer)?;
    let mut visit = Visit { line, end, there };
    let name = visit.there.socket.ip();
    let trips = visit.round_trips()?;
    let forth = visit.forth(format!("to {name}"))?;
    let back = visit.back(format!("from {name}"))?;
    visit.line.say(&Word::Over)?;
    Ok((own, judge::findings(&format!("to {name}"), trips, ROUND_TRIPS, [&forth, &back])))
}

fn line_hear(line: &mut Line) -> anyhow::Result<Word> {
    line.hear(Some(COUNTING))
}

impl Visit {
    /// Lets the other end count while this one does something.
    fn counted<T>(
        &mut self,
        raw: bool,
        echo: bool,
        act: impl FnOnce(&mut End, SocketAddr) -> anyhow::Result<T>,
    ) -> anyhow::Result<(Tally, T)> {
        self.line.say(&Word::Count { raw, echo })?;
        match line_hear(&mut self.line)? {
            Word::Ready => {}
            other => bail!("{} says {other:?}", self.line.address),
        }
        let done = act(&mut self.end, self.there.at(raw))?;
        match line_hear(&mut self.line)? {
            Word::Counted { tally } => Ok((tally, done)),
            other => bail!("{} says {other:?}", self.line.address),
        }
    }

    fn round_trips(&mut self) -> anyhow::Result<Vec<u64>> {
        let (_, trips) = self.counted(false, true, |end, to| measure(&mut end.socket, to, ROUND_TRIPS))?;
        Ok(trips)
    }

    /// Probes of one kind, sent to the other end.
    fn sent(&mut self, probe: Probe, zero: bool, raw: bool) -> anyhow::Result<Tally> {
        Ok(self.counted(raw, false, |end, to| end.send(to, probe, zero))?.0)
    }

    /// The same, sent by the other end.
    fn received(&mut self, probe: Probe, zero: bool, raw: bool) -> anyhow::Result<Tally> {
        self.line.say(&Word::Send { probe, zero, raw })?;
        let tally = self.end.count(raw, false)?;
        match line_hear(&mut self.line)? {
            Word::Sent => Ok(tally),
            other => bail!("{} says {other:?}", self.line.address),
        }
    }

    fn forth(&mut self, name: String) -> anyhow::Result<Way> {
        let (mtu, raw) = (self.end.card.mtu, self.there.raw.is_some());
        self.way(name, (self.end.own, self.there.socket), mtu, raw, Self::sent)
    }

    fn back(&mut self, name: String) -> anyhow::Result<Way> {
        let (mtu, raw) = (self.there.mtu, self.end.raw.is_some());
        let ends = (self.there.socket.ip(), self.end.socket.local_address());
        self.way(name, ends, mtu, raw, Self::received)
    }

    fn way(
        &mut self,
        name: String,
        (from, to): (IpAddr, SocketAddr),
        mtu: u32,
        raw: bool,
        probe: fn(&mut Self, Probe, bool, bool) -> anyhow::Result<Tally>,
    ) -> anyhow::Result<Way> {
        Ok(Way {
            name,
            from,
            to,
            sizes: sizes(mtu),
            dscp: probe(self, Probe::Dscp, false, false)?,
            sized: probe(self, Probe::Sizes, false, false)?,
            unchecked: probe(self, Probe::Dscp, true, false)?,
            burst: self.end.packets.count(),
            filled: probe(self, Probe::Burst, false, false)?,
            zero: probe(self, Probe::Burst, true, false)?,
            raw: if raw { Some(probe(self, Probe::Burst, false, true)?) } else { None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_word_is_one_line_and_back() {
        let small = BTreeMap::from([(1_500, vec![39, 0])]);
        for word in [
            Word::Doctor { version: VERSION, socket: 1, raw: None, mtu: 1_500 },
            Word::Counted { tally: Tally { small, cut: 7, ..Tally::default() } },
            Word::Send { probe: Probe::Burst, zero: true, raw: false },
            Word::Over,
        ] {
            let text = serde_json::to_string(&word).expect("JSON");
            assert!(!text.contains('\n') && (text.len() as u64) < talk::LONGEST, "{text}");
            assert_eq!(serde_json::from_str::<Word>(&text).expect("parses"), word);
        }
    }
}
