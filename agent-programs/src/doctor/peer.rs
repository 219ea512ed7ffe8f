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

const VERSION: u32 = 2;
const ROUND_TRIPS: usize = 200;
/// Round trips are measured so often where many are lost: an end that was held up for a moment is
/// no broken path.
const MEASUREMENTS: u32 = 2;
/// A way counts as blocked after so many rounds of small datagrams, 27 each, of which none has
/// come.
const ROUNDS: u32 = 2;
/// Of bursts, where the interface does not tell its speed: virtual ones, with software behind them.
const UNKNOWN_RATE_BPS: u64 = 1_000_000_000;
/// Longest that an end sends or counts, and more.
const COUNTING: Duration = Duration::from_secs(60);

/// What the two ends say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// The visitor's first word, and the answer: the ports to send to, of an ordinary socket and of
    /// raw reception, and the interface's MTU.
    Doctor {
        version: u32,
        socket: u16,
        raw: Option<u16>,
        mtu: u32,
    },
    /// Count what comes until `Sent` is said; small datagrams may be to go back.
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
    /// All probes of this kind have left.
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

    /// Counts until the other end has said that all is sent.
    fn count(&mut self, line: &mut Line, raw: bool, echo: bool) -> anyhow::Result<Tally> {
        let link = match (&mut self.raw, raw) {
            (Some(link), true) => link,
            (None, true) => bail!("no raw reception at {}", self.own),
            (_, false) => &mut self.socket,
        };
        let tally = tally(link, &self.packets, echo, || line.has_word())?;
        match line_hear(line)? {
            Word::Sent => Ok(tally),
            other => bail!("{} says {other:?}", line.address),
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
    attend(line, &mut end, &there)
}

/// Does what the visitor says, until it is over.
fn attend(line: &mut Line, end: &mut End, there: &There) -> anyhow::Result<()> {
    loop {
        match line_hear(line)? {
            Word::Count { raw, echo } => {
                line.say(&Word::Ready)?;
                let tally = end.count(line, raw, echo)?;
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
    let forth = visit.forth(format!("to {name}"))?;
    let back = visit.back(format!("from {name}"))?;
    // A way that nothing passes lets no round trip be, and waiting for each would take long.
    let blocked = forth.is_blocked() || back.is_blocked();
    let (trips, tried) = if blocked { (Vec::new(), 0) } else { visit.round_trips()? };
    visit.line.say(&Word::Over)?;
    Ok((own, judge::findings(&format!("to {name}"), trips, tried, [&forth, &back])))
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
        self.line.say(&Word::Sent)?;
        match line_hear(&mut self.line)? {
            Word::Counted { tally } => Ok((tally, done)),
            other => bail!("{} says {other:?}", self.line.address),
        }
    }

    fn round_trips(&mut self) -> anyhow::Result<(Vec<u64>, usize)> {
        let mut best = (Vec::new(), 0);
        for _ in 0..MEASUREMENTS {
            let (_, (trips, tried)) =
                self.counted(false, true, |end, to| measure(&mut end.socket, to, ROUND_TRIPS))?;
            if trips.len() >= best.0.len() {
                best = (trips, tried);
            }
            if !judge::is_lossy(best.0.len(), best.1) {
                break;
            }
        }
        Ok(best)
    }

    /// Probes of one kind, sent to the other end.
    fn sent(&mut self, probe: Probe, zero: bool, raw: bool) -> anyhow::Result<Tally> {
        Ok(self.counted(raw, false, |end, to| end.send(to, probe, zero))?.0)
    }

    /// The same, sent by the other end.
    fn received(&mut self, probe: Probe, zero: bool, raw: bool) -> anyhow::Result<Tally> {
        self.line.say(&Word::Send { probe, zero, raw })?;
        self.end.count(&mut self.line, raw, false)
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
        let mut way = Way {
            name,
            from,
            to,
            sizes: sizes(mtu),
            dscp: Tally::default(),
            sized: Tally::default(),
            unchecked: Tally::default(),
            burst: self.end.packets.count(),
            filled: Tally::default(),
            zero: Tally::default(),
            raw: None,
        };
        for _ in 0..ROUNDS {
            way.dscp = probe(self, Probe::Dscp, false, false)?;
            if !way.is_blocked() {
                break;
            }
        }
        if way.is_blocked() {
            // Larger or faster datagrams get no further.
            return Ok(way);
        }
        way.sized = probe(self, Probe::Sizes, false, false)?;
        way.unchecked = probe(self, Probe::Dscp, true, false)?;
        way.filled = probe(self, Probe::Burst, false, false)?;
        way.zero = probe(self, Probe::Burst, true, false)?;
        way.raw = if raw { Some(probe(self, Probe::Burst, false, true)?) } else { None };
        Ok(way)
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
            Word::Counted { tally: Tally { small, trimmed: 7, ..Tally::default() } },
            Word::Send { probe: Probe::Burst, zero: true, raw: false },
            Word::Over,
        ] {
            let text = serde_json::to_string(&word).expect("JSON");
            assert!(!text.contains('\n') && (text.len() as u64) < talk::LONGEST, "{text}");
            assert_eq!(serde_json::from_str::<Word>(&text).expect("parses"), word);
        }
    }

    /// What a visitor finds whose probes go to a socket that nobody reads, as if a firewall dropped
    /// them, and how many there were. Where `mute`, the listener's go there, too.
    fn visit_behind_a_firewall(mute: bool) -> (Vec<Finding>, usize) {
        let own = IpAddr::from([127, 0, 0, 1]);
        let firewall = std::net::UdpSocket::bind((own, 0)).expect("a socket");
        let at = firewall.local_addr().expect("bound");
        let listener = std::net::TcpListener::bind((own, 0)).expect("listens");
        let to = listener.local_addr().expect("bound");
        let findings = std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut line = Line::accept(&listener).expect("a visitor");
                let word = line_hear(&mut line).expect("greets");
                let mut there = There::new(&line, &word).expect("a doctor");
                if mute {
                    (there.socket, there.raw) = (at, None);
                }
                let mut end = End::open(own).expect("sockets");
                let mtu = end.card.mtu;
                let greeting = Word::Doctor { version: VERSION, socket: at.port(), raw: None, mtu };
                line.say(&greeting).expect("said");
                attend(&mut line, &mut end, &there).expect("attends");
            });
            let line = talk::call(to, None, ANSWER, "doctor --listen").map_err(|failure| failure.error);
            examine(line.expect("connects")).expect("examined").1
        });
        firewall.set_nonblocking(true).expect("a socket");
        let dropped = std::iter::from_fn(|| firewall.recv(&mut [0; 64]).ok()).count();
        (findings, dropped)
    }

    #[test]
    fn where_udp_is_dropped_a_few_probes_tell_and_the_way_that_is_open_is_examined() {
        // Each DSCP three times.
        let round = 3 * super::super::probe::plan().len();
        let checks = |findings: &[Finding], way: &str| -> Vec<String> {
            let of = findings.iter().filter(|finding| finding.check.starts_with(way));
            of.map(|finding| finding.check.clone()).collect()
        };
        let (findings, dropped) = visit_behind_a_firewall(false);
        assert_eq!(dropped, ROUNDS as usize * round, "no probe but the smallest, and no round trips");
        assert_eq!(checks(&findings, "to 127.0.0.1"), ["to 127.0.0.1: UDP"], "{findings:?}");
        assert_eq!(checks(&findings, "from 127.0.0.1").len(), 4, "{findings:?}");
        let (findings, dropped) = visit_behind_a_firewall(true);
        assert_eq!(dropped, 2 * ROUNDS as usize * round);
        assert_eq!(checks(&findings, ""), ["to 127.0.0.1: UDP", "from 127.0.0.1: UDP"]);
    }

    #[test]
    fn a_sender_that_is_late_is_waited_for() {
        let own = IpAddr::from([127, 0, 0, 1]);
        let mut end = End::open(own).expect("sockets");
        let to = end.socket.local_address();
        let mut sender = End::open(own).expect("sockets");
        let mut asked = 0;
        // It sends when it is asked for the eightieth time whether it has: later than the counting
        // end waits for anything.
        let counted = tally(&mut end.socket, &end.packets, false, || {
            asked += 1;
            if asked == 80 {
                sender.send(to, Probe::Dscp, false).expect("sends");
            }
            asked >= 80
        });
        assert!(!counted.expect("counts").small.is_empty());
    }
}
