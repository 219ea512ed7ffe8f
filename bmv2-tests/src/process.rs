// SPDX-License-Identifier: Apache-2.0
//! Child processes that do not outlive a test.
#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a wait for a process looks.
const LOOK: Duration = Duration::from_millis(5);
/// The shortest pause of [`poll`]; it doubles up to `LOOK`.
const FIRST_LOOK: Duration = Duration::from_micros(50);

/// A deadline; the tests' clock.
#[expect(clippy::disallowed_methods, reason = "tests of real processes wait in real time")]
pub fn deadline(after: Duration) -> Instant {
    Instant::now() + after
}

/// Whether it has passed.
#[expect(clippy::disallowed_methods, reason = "as above")]
pub fn passed(deadline: Instant) -> bool {
    Instant::now() >= deadline
}

/// Looks again and again until a condition gives something; the last reason why not is the error.
pub fn poll<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let end = deadline(within);
    let mut pause = FIRST_LOOK;
    loop {
        let reason = match look() {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if passed(end) {
            let error = reason.unwrap_or_else(|| anyhow::anyhow!("not yet"));
            return Err(error.context(format!("{what}: gave up after {within:?}")));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    what: String,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

impl Running {
    /// Starts a program; what it writes is kept.
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        let what = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| what.clone())?;
        let (stdout, stderr) = (drain(child.stdout.take()), drain(child.stderr.take()));
        Ok(Self { child, what, stdout: Some(stdout), stderr: Some(stderr) })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; kills it and fails when that does not come in time.
    pub fn finish(mut self, within: Duration) -> anyhow::Result<Output> {
        let end = deadline(within);
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if passed(end) {
                self.child.kill()?;
                let (stdout, stderr) = self.output();
                bail!("{}: still running after {within:?}\n{stdout}\n{stderr}", self.what);
            }
            std::thread::sleep(LOOK);
        };
        let take = |pipe: &mut Option<JoinHandle<Vec<u8>>>| {
            pipe.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        Ok(Output { status, stdout: take(&mut self.stdout), stderr: take(&mut self.stderr) })
    }

    /// Waits for its end with exit code 0, and reads its stdout as JSON.
    pub fn json(self, within: Duration) -> anyhow::Result<serde_json::Value> {
        let what = self.what.clone();
        let output = self.finish(within)?;
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!("{what}: {}\n{stdout}\n{stderr}", output.status);
        }
        serde_json::from_str(&stdout).with_context(|| format!("{what}: not JSON: {stdout}\n{stderr}"))
    }

    /// Kills it and gives what it wrote.
    pub fn output(&mut self) -> (String, String) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let text = |pipe: Option<JoinHandle<Vec<u8>>>| {
            let bytes = pipe.and_then(|thread| thread.join().ok()).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        (text(self.stdout.take()), text(self.stderr.take()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `ip netns exec` replaces itself by the program, so that this reaches the program.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
