// SPDX-License-Identifier: Apache-2.0
//! `watch`.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use trimwire_controller::units;
use trimwire_controller::watch::{Interval, Watch as Watching};
use trimwire_controller::{MetricsAt, printable};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, draw, failed, print};
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Refresh this often.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Ask the `run` of this fabric at this address what routes leave out; `off` asks nobody
    /// [default: the file's, else 127.0.0.1:9550].
    #[arg(long, value_name = "ADDRESS:PORT", env = "TRIMWIRE_METRICS", value_parser = MetricsAt::parse)]
    metrics: Option<MetricsAt>,
    /// End after this many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show idle queues as well.
    #[arg(short, long)]
    verbose: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    match units::time(text)? {
        0 => Err("time does not stand still; write 1s".to_owned()),
        ns => Ok(Duration::from_nanos(ns)),
    }
}

impl Watch {
    pub(crate) fn run(&self) -> Outcome {
        let (fabric, artifacts) = self.file.read()?;
        let options = self.switches.options(&fabric)?;
        let run = self.metrics.unwrap_or(fabric.controller.metrics).address();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async {
            let mut watching = Watching::new(&fabric, &artifacts, &options, self.interval, run);
            let mut ended = std::pin::pin!(tokio::signal::ctrl_c());
            loop {
                let interval = tokio::select! {
                    interval = watching.next() => interval,
                    _ = &mut ended => return Ok(0),
                };
                if !self.show(&interval)? {
                    return Ok(0);
                }
                if self.count == Some(interval.interval) {
                    return Ok(if interval.errors.is_empty() { 0 } else { FAILED });
                }
            }
        })
    }

    /// False when nobody reads any more.
    fn show(&self, interval: &Interval) -> Result<bool, super::Failure> {
        let terminal = std::io::stdout().is_terminal();
        let text = if self.file.json {
            serde_json::to_string(interval).map_err(failed)?
        } else if terminal {
            let (width, height) =
                terminal_size::terminal_size().map_or((80, 24), |(width, height)| (width.0, height.0));
            let table = interval.table(self.verbose);
            return draw(&redraw(&printable(&table), usize::from(width), usize::from(height)));
        } else {
            format!("interval {}\n{}", interval.interval, interval.table(self.verbose))
        };
        print(&text)
    }
}

/// Over what was drawn before, without the flicker of clearing first; what does not fit is counted.
fn redraw(table: &str, width: usize, height: usize) -> String {
    let lines: Vec<&str> = table.lines().collect();
    // A line for what does not fit, and the one that the cursor is left on.
    let room = height.saturating_sub(2).max(2);
    let mut text = "\x1b[H".to_owned();
    for line in lines.iter().take(room) {
        text.extend(line.chars().take(width));
        text.push_str("\x1b[K\n");
    }
    if let Some(more @ 1..) = lines.len().checked_sub(room) {
        let _ = write!(text, "… {more} more lines; a higher window or --switch shows them\x1b[K");
    }
    // Erases what is left from a longer table.
    text.push_str("\x1b[J");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_drawn_within_the_window_and_never_scrolls_it() {
        let table = (1..=30).map(|number| format!("line {number}")).collect::<Vec<_>>().join("\n");
        let drawn = redraw(&table, 6, 12);
        assert!(drawn.starts_with("\x1b[Hline 1\x1b[K\n") && drawn.ends_with("\x1b[J"), "{drawn:?}");
        assert!(
            drawn.contains("line 1\x1b[K\n") && drawn.contains("… 20 more lines"),
            "ends at the width: {drawn:?}"
        );
        // With the newline that printing adds, the cursor ends in the last line.
        assert_eq!(drawn.matches('\n').count(), 10);
        assert_eq!(redraw("a\nb", 80, 24), "\x1b[Ha\x1b[K\nb\x1b[K\n\x1b[J");
    }
}
