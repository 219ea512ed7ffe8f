//! `watch`.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use trimwire_controller::units;
use trimwire_controller::watch::{Interval, Watch as Watching};

use super::file::FileArgs;
use super::outcome::{FAILED, Outcome, failed, print};
use super::switches::SwitchArgs;

#[derive(Args)]
pub(crate) struct Watch {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    switches: SwitchArgs,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// End after so many intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show idle queues, too.
    #[arg(long)]
    all: bool,
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(async {
            let mut watching = Watching::new(&fabric, &artifacts, &options, self.interval);
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
            let height = terminal_size::terminal_size().map_or(24, |(_, height)| height.0);
            redraw(&interval.table(self.all), usize::from(height))
        } else {
            format!("interval {}\n{}", interval.interval, interval.table(self.all))
        };
        print(&text)
    }
}

/// Over what was drawn before, without the flicker of clearing first; what does not fit is counted.
fn redraw(table: &str, height: usize) -> String {
    let lines: Vec<&str> = table.lines().collect();
    let room = height.saturating_sub(2).max(2);
    let mut text = "\x1b[H".to_owned();
    for line in lines.iter().take(room) {
        text.push_str(line);
        text.push_str("\x1b[K\n");
    }
    if let Some(more @ 1..) = lines.len().checked_sub(room) {
        let _ = writeln!(text, "… {more} more lines; a higher window or --switch shows them\x1b[K");
    }
    // Erases what is left from a longer table.
    text.push_str("\x1b[J");
    text
}
