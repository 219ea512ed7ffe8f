// SPDX-License-Identifier: Apache-2.0
//! GOAL schedules as text, which LogGOPSim and ATLAHS read.
//!
//! ```text
//!  rank 0 { l1: calc 500            500 ns of host 0
//!           l2: send 8b to 1 tag 7   a flow, when l1 is over
//!           l2 requires l1 }
//! ```
//!
//! A send is over at its rank as soon as it begins, as one without a rendezvous is there; what
//! `irequires` it begins with it. A rank is a host, which computes one thing at a time whatever
//! `cpu` says.

use super::order::order;
use super::trace::{Maker, TraceError};
use std::collections::{BTreeMap, VecDeque};

/// What a line does: ns; or bytes and the other rank, with the tag.
enum Does {
    Compute(u64),
    Send(u64, u32),
    Receive,
}

struct Line {
    at: u64,
    rank: u32,
    does: Does,
    /// Lines that have to be over, and those that have to have begun.
    over: Vec<usize>,
    begun: Vec<usize>,
    /// Of a receive: the send.
    from: Option<usize>,
}

/// By sender, receiver and tag.
type Channels = BTreeMap<(u32, u32, u64), VecDeque<usize>>;

/// Lines as they are read.
#[derive(Default)]
struct Reader {
    lines: Vec<Line>,
    ranks: u32,
    rank: Option<u32>,
    labels: BTreeMap<String, usize>,
    sends: Channels,
    receives: Channels,
}

/// Reads a schedule into what `made` makes.
pub(super) fn goal(text: &str, made: &mut Maker) -> Result<(), TraceError> {
    let mut reader = Reader { ranks: made.hosts, ..Reader::default() };
    for (at, line) in (1..).zip(text.lines()) {
        let line = line.split("//").next().unwrap_or_default();
        reader.read(at, line.trim(), made.hosts).map_err(|reason| TraceError { line: at, reason })?;
    }
    reader.meet()?;
    let lines = reader.lines;
    let waits: Vec<Vec<usize>> = lines
        .iter()
        .map(|line| line.over.iter().chain(&line.begun).chain(&line.from).copied().collect())
        .collect();
    let order = order(&waits).map_err(|number| TraceError {
        line: lines[number].at,
        reason: "this waits, in the end, for itself".to_owned(),
    })?;
    // By line: when it begins, when it is over, and its flow; nothing where nothing is waited for.
    let (mut begins, mut ends, mut flows) =
        (vec![None; lines.len()], vec![None; lines.len()], vec![0; lines.len()]);
    for number in order {
        let line = &lines[number];
        let refuse = |reason| TraceError { line: line.at, reason };
        let over = line.over.iter().filter_map(|&before| ends[before]);
        let mut all: Vec<u32> = over.chain(line.begun.iter().filter_map(|&before| begins[before])).collect();
        all.sort_unstable();
        all.dedup();
        let begin = (!all.is_empty()).then(|| made.meet(line.rank, all));
        begins[number] = begin;
        ends[number] = match line.does {
            Does::Compute(ns) => Some(made.compute(line.rank, ns, begin.as_ref()).map_err(refuse)?),
            Does::Send(bytes, to) => {
                flows[number] = made.flow(line.rank, to, bytes, begin).map_err(refuse)?;
                begin
            }
            Does::Receive => {
                let all = line.from.map(|send| flows[send]).into_iter().chain(begin).collect();
                Some(made.meet(line.rank, all))
            }
        };
    }
    Ok(())
}

impl Reader {
    fn read(&mut self, at: u64, line: &str, hosts: u32) -> Result<(), String> {
        let (label, rest) = match line.split_once(':') {
            Some((label, rest)) => (Some(label.trim()), rest),
            None => (None, line),
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        match (self.rank, &words[..]) {
            (_, []) => return Ok(()),
            (None, ["num_ranks", count]) => {
                self.ranks = number(count, "num_ranks")?;
                if self.ranks > hosts {
                    return Err(format!("num_ranks: {count}; the topology has {hosts} hosts"));
                }
                return Ok(());
            }
            (None, ["rank", rank, "{"]) => {
                self.rank = Some(self.known(rank)?);
                self.labels.clear();
                return Ok(());
            }
            (Some(_), ["}"]) => {
                self.rank = None;
                return Ok(());
            }
            (Some(_), [later, how @ ("requires" | "irequires"), earlier]) => {
                let [later, earlier] = [later, earlier].map(|label| {
                    let known = self.labels.get(*label).copied();
                    known.ok_or_else(|| format!("{label}: no line before has this label"))
                });
                let (later, earlier) = (later?, earlier?);
                let line = &mut self.lines[later];
                if *how == "requires" { &mut line.over } else { &mut line.begun }.push(earlier);
                return Ok(());
            }
            _ => {}
        }
        let Some(rank) = self.rank else {
            return Err(format!("{line}: valid here are num_ranks N and rank N {{"));
        };
        let place = self.lines.len();
        let tag = |rest: &[&str]| {
            let at = rest.iter().position(|&word| word == "tag");
            at.map_or(Ok(0), |at| number(rest.get(at + 1).unwrap_or(&""), "tag"))
        };
        let does = match &words[..] {
            ["calc", ns, ..] => Does::Compute(number(ns, "calc")?),
            ["send", bytes, "to", to, rest @ ..] => {
                let (bytes, to) = (number(bytes.trim_end_matches('b'), "send")?, self.known(to)?);
                if to == rank {
                    return Err(format!("send: rank {rank} sends to itself; valid are other ranks"));
                }
                self.sends.entry((rank, to, tag(rest)?)).or_default().push_back(place);
                Does::Send(bytes, to)
            }
            ["recv", _, "from", from, rest @ ..] => {
                let from = self.known(from)?;
                self.receives.entry((from, rank, tag(rest)?)).or_default().push_back(place);
                Does::Receive
            }
            _ => {
                return Err(format!(
                    "{line}: valid are calc, send N to R, recv N from R, requires, irequires"
                ));
            }
        };
        if let Some(label) = label
            && self.labels.insert(label.to_owned(), place).is_some()
        {
            return Err(format!("{label}: a line before has this label"));
        }
        self.lines.push(Line { at, rank, does, over: Vec::new(), begun: Vec::new(), from: None });
        Ok(())
    }

    fn known(&self, rank: &str) -> Result<u32, String> {
        let known = rank.parse().ok().filter(|&rank: &u32| rank < self.ranks);
        known.ok_or_else(|| format!("rank {rank}; valid are 0 to {}", self.ranks.saturating_sub(1)))
    }

    /// Gives each receive its send: of a sender, a receiver and a tag, in the order of the file.
    fn meet(&mut self) -> Result<(), TraceError> {
        for (channel @ (from, _, tag), receives) in &self.receives {
            let mut sends = self.sends.get(channel).into_iter().flatten();
            for &receive in receives {
                let line = &mut self.lines[receive];
                line.from = sends.next().copied();
                if line.from.is_none() {
                    let reason = format!("recv: rank {from} sends no more with tag {tag}");
                    return Err(TraceError { line: line.at, reason });
                }
            }
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{what}: '{word}'; valid is a whole number"))
}
