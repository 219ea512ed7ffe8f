// SPDX-License-Identifier: Apache-2.0
//! A line on stderr for work that takes longer than a moment.

use std::io::{IsTerminal, Write as _};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use trimwire_controller::Progress;

const EVERY: Duration = Duration::from_secs(2);

/// Works, and tells every two seconds how far it is: on a terminal on one line, elsewhere on lines
/// of their own.
pub(crate) fn with_progress<T>(progress: &Progress, work: impl FnOnce() -> T) -> T {
    let (working, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stderr = std::io::stderr();
            let terminal = stderr.is_terminal();
            let mut shown = false;
            // Nothing is ever sent: the other end goes when the work is done.
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                // Somebody who closed stderr does not want to know.
                let _ = if terminal {
                    write!(stderr, "\r{progress}\x1b[K")
                } else {
                    writeln!(stderr, "{progress}")
                };
                shown = true;
            }
            if shown && terminal {
                let _ = write!(stderr, "\r\x1b[K");
            }
        });
        let done = work();
        drop(working);
        done
    })
}
