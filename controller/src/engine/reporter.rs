// SPDX-License-Identifier: Apache-2.0
//! Tells people (the log) and the board what a switch's task and its digests say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::v1::DigestList;

use super::board::Board;
use super::task::{Notice, Runs, Standing, SwitchTask};
use super::trim_events::{self, TrimEvent};
use super::trimming::{News, Said, TurnCounts};
use super::wanted::Wanted;
use crate::counters::{Counters, Look};

/// What bringing a switch in place showed beside that.
pub(crate) struct Findings {
    /// Whether it tells of trims.
    pub digests: Result<(), String>,
    /// What does not go with the file.
    pub warnings: Vec<String>,
    /// The program has just begun, and counts from 0.
    pub begins: bool,
}

/// Tells people and the board.
pub(crate) struct Reporter {
    name: String,
    board: Board,
    /// A roll-out tells what became of a switch by itself.
    logs: bool,
    turns: TurnCounts,
    said: Said,
    /// Of the task's clock.
    last_success: Option<u64>,
    backoff_ns: u64,
    findings: Findings,
    look: Look,
}

impl Reporter {
    pub(crate) fn new(name: String, board: Board, logs: bool) -> Self {
        Self {
            name,
            board,
            logs,
            turns: TurnCounts::default(),
            said: Said::default(),
            last_success: None,
            backoff_ns: 0,
            findings: Findings { digests: Ok(()), warnings: Vec::new(), begins: false },
            look: Look::default(),
        }
    }

    /// Digests of a switch that counts from anywhere.
    pub(crate) fn begin(&mut self) {
        self.turns.begin();
    }

    /// By the fabric file of this number.
    pub(crate) fn report(&mut self, now_ns: u64, task: &mut SwitchTask, file: u64) {
        for (last, news) in self.said.due(now_ns) {
            self.log_trimming(&last, &news);
        }
        while let Some(notice) = task.poll_notice() {
            if let Notice::Down(_, wait) | Notice::Failed(_, wait) = &notice {
                self.backoff_ns = *wait;
            }
            if self.logs {
                log(&self.name, &notice);
            }
        }
        let succeeded = task.last_success() > self.last_success;
        self.last_success = task.last_success();
        let backoff_ns = if task.failures() == 0 { 0 } else { self.backoff_ns };
        self.board.change_switch(&self.name, |status| {
            status.up = task.is_up();
            status.primary = task.is_primary();
            status.in_place = task.in_place();
            if task.runs() == Runs::Wanted {
                status.file = file;
            }
            status.failures = task.failures();
            status.backoff_seconds = Duration::from_nanos(backoff_ns).as_secs_f64();
            if status.tally != *task.tally() {
                status.tally = task.tally().clone();
            }
            if succeeded {
                status.last_success = Some(unix_time());
            }
            if !status.up {
                self.look.last = Arc::default();
                status.counters = Arc::clone(&self.look.last);
                status.trimming.values_mut().for_each(|queue| queue.is_trimming = false);
            }
        });
    }

    pub(crate) fn worked(&mut self, counters: Option<Counters>, findings: Option<Findings>) {
        if let Some(findings) = findings {
            if findings.begins {
                self.begin();
                self.board.change_switch(&self.name, |status| {
                    status.trimming.values_mut().for_each(|queue| queue.is_trimming = false);
                });
            }
            if let (Err(error), true) = (&findings.digests, self.findings.digests != findings.digests) {
                tracing::warn!(switch = %self.name, "does not tell what its queues trim: {error}");
            }
            for warning in
                findings.warnings.iter().filter(|warning| !self.findings.warnings.contains(warning))
            {
                tracing::warn!(switch = %self.name, "{warning}");
            }
            self.findings = findings;
        }
        if let Some(counters) = counters {
            self.look.last = Arc::new(counters);
            self.look.number = self.look.number.wrapping_add(1);
            self.board.change_switch(&self.name, |status| status.counters = Arc::clone(&self.look.last));
        }
    }

    /// The next one at the switch's counters.
    pub(crate) fn look(&self) -> Look {
        self.look.clone()
    }

    pub(crate) fn digest(&mut self, now_ns: u64, client: &Client, list: &DigestList, wanted: &Wanted) {
        self.trimming(now_ns, &trim_events::read(list, wanted.index()), wanted);
        if client.missed_messages() > 0 {
            tracing::debug!(switch = %self.name, missed = client.missed_messages(), "messages missed");
        }
    }

    /// A queue may turn thousands of times a second: the log has some of it.
    fn trimming(&mut self, now_ns: u64, events: &[TrimEvent], wanted: &Wanted) {
        let mut left: BTreeMap<(u16, u8), (TrimEvent, News)> = BTreeMap::new();
        for event in events.iter().filter(|event| wanted.knows(event.port, event.queue)) {
            let Some(news) = self.turns.told(event) else { continue };
            let (last, sum) = left.entry((event.port, event.queue)).or_insert((*event, News::default()));
            *last = *event;
            sum.starts += news.starts;
            sum.stops += news.stops;
        }
        self.board.change_switch(&self.name, |status| {
            for (place, (last, news)) in &left {
                let queue = status.trimming.entry(*place).or_default();
                queue.is_trimming = last.starts;
                queue.starts += news.starts;
                queue.stops += news.stops;
            }
        });
        for (last, news) in left.into_values() {
            if let Some((last, news)) = self.said.told(now_ns, last, news) {
                self.log_trimming(&last, &news);
            }
        }
    }

    fn log_trimming(&self, last: &TrimEvent, news: &News) {
        let &TrimEvent { port, queue, starts, queue_bytes, .. } = last;
        let often = match news.starts + news.stops {
            ..=1 => String::new(),
            turns => format!(" after {turns} turns"),
        };
        let word = if starts { "starts" } else { "stops" };
        tracing::info!(switch = %self.name, port, queue, queue_bytes, "{word} trimming{often}");
    }
}

#[expect(clippy::disallowed_methods, reason = "a driver: people and Prometheus want the time of day")]
fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn log(switch: &str, notice: &Notice) {
    const SHOWN: usize = 5;
    let seconds = |ns: &u64| Duration::from_nanos(*ns).as_secs_f64();
    let words = |standing: &Standing| match standing {
        Standing::Primary => "primary".to_owned(),
        Standing::Backup { highest, primary_exists } => {
            let id = highest.map_or_else(String::new, |id| format!(" with election id {id}"));
            let word = if *primary_exists { "is" } else { "was" };
            format!("backup: another controller {word} primary{id}")
        }
    };
    match notice {
        Notice::Up(standing) => tracing::info!(switch, "connected: {}", words(standing)),
        Notice::Changed(standing) => tracing::warn!(switch, "from now on {}", words(standing)),
        Notice::Down(reason, wait) => {
            tracing::warn!(switch, "not connected, next attempt in {:.1} s: {reason}", seconds(wait));
        }
        Notice::TakingOver(bid) => {
            tracing::warn!(switch, "nobody is primary: bidding with election id {bid}");
        }
        Notice::InPlace(written) => tracing::info!(switch, "in place after {written} updates"),
        Notice::Repaired(kinds, changes) => {
            let kinds: Vec<String> =
                kinds.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
            tracing::warn!(switch, "had drifted and is in place again: {}", kinds.join(", "));
            for change in changes.iter().take(SHOWN) {
                tracing::warn!(switch, "  {change}");
            }
            if let Some(more @ 1..) = changes.len().checked_sub(SHOWN) {
                tracing::warn!(switch, "  and {more} more");
            }
        }
        Notice::Waits => {
            tracing::info!(switch, "runs another program, and waits for its turn to be given its own");
        }
        Notice::Rerouted(written) => tracing::info!(switch, "routes changed by {written} updates"),
        Notice::Failed(reason, wait) => {
            tracing::warn!(switch, "not in place, next attempt in {:.1} s: {reason}", seconds(wait));
        }
    }
}
