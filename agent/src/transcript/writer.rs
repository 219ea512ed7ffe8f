// SPDX-License-Identifier: Apache-2.0
//! Writes records on a thread of its own: what a disk does never holds up the network.

use super::file::{first_member, member};
use super::record::{Header, Record};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::time::Duration;

/// Records that wait for the disk at most.
const QUEUE: usize = 1_024;
/// Packets that they tell of at most; four bytes each in memory.
const QUEUED_PACKETS: usize = 16 << 20;
/// How long the end of a run waits for the disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Records in the file, those that say what is missing not counted.
    pub records: u64,
    /// Packets that they tell of.
    pub packets: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Records that are not in it.
    pub lost: u64,
    /// Why it ends early.
    pub error: Option<String>,
}

/// Writes a transcript. Recording is for looking at a run, never a reason to fail or to stall it:
/// where the disk is slower than the network records are left out, and the file says how many;
/// where it is full, or gone, the file ends, and [`Written`] says why.
#[derive(Debug)]
pub struct Writer {
    name: String,
    /// `None` once the thread has gone.
    queue: Option<SyncSender<Record>>,
    queued_packets: Arc<AtomicUsize>,
    end: Receiver<Written>,
    /// Records left out since the last that was not, and in all.
    gap: u64,
    lost: u64,
}

impl Writer {
    /// Begins a file; one that is there is overwritten.
    ///
    /// # Errors
    /// When it cannot be made. That it cannot be written to is told at the end.
    pub fn create(path: &Path, header: &Header) -> io::Result<Self> {
        Self::start(File::create(path)?, path.display().to_string(), header)
    }

    /// Begins a transcript of another kind of file. `name` is for messages.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        file: impl Write + Send + 'static,
        name: impl Into<String>,
        header: &Header,
    ) -> io::Result<Self> {
        let name = name.into();
        let (queue, records) = sync_channel(QUEUE);
        let (over, end) = channel();
        let queued_packets = Arc::new(AtomicUsize::new(0));
        let (counter, called, head) = (Arc::clone(&queued_packets), name.clone(), first_member(header));
        let write = move || {
            let _ = over.send(write_all(file, &called, &head, &records, &counter));
        };
        std::thread::Builder::new().name("transcript".to_owned()).spawn(write)?;
        Ok(Self { name, queue: Some(queue), queued_packets, end, gap: 0, lost: 0 })
    }

    /// Writes a record, sooner or later, or leaves it out. Never waits.
    pub fn push(&mut self, record: Record) {
        if !self.catch_up() || !self.offer(record) {
            if self.lost == 0 && self.queue.is_some() {
                tracing::warn!("{}: the disk is slower than the network; records are left out", self.name);
            }
            self.gap += 1;
            self.lost += 1;
        }
    }

    /// Packets of records that the thread has not taken yet.
    #[cfg(test)]
    pub(super) fn queued(&self) -> usize {
        self.queued_packets.load(Ordering::Relaxed)
    }

    /// Says what was left out, if anything was. `false`: there is no room for it.
    fn catch_up(&mut self) -> bool {
        let gap = self.gap;
        if gap > 0 && self.offer(Record::Gap(gap)) {
            self.gap = 0;
        }
        self.gap == 0
    }

    fn offer(&mut self, record: Record) -> bool {
        let Some(queue) = &self.queue else { return false };
        let packets = record.packets();
        if self.queued_packets.load(Ordering::Relaxed).saturating_add(packets) > QUEUED_PACKETS {
            return false;
        }
        self.queued_packets.fetch_add(packets, Ordering::Relaxed);
        match queue.try_send(record) {
            Ok(()) => true,
            Err(error) => {
                self.queued_packets.fetch_sub(packets, Ordering::Relaxed);
                if matches!(error, TrySendError::Disconnected(_)) {
                    self.queue = None;
                }
                false
            }
        }
    }

    /// Waits until everything is written, but not for ever.
    pub fn finish(mut self) -> Written {
        self.catch_up();
        self.queue = None;
        let timed_out = |_: RecvTimeoutError| Written {
            error: Some(format!("the disk has not taken it in {PATIENCE:?}")),
            ..Written::default()
        };
        let written = self.end.recv_timeout(PATIENCE).unwrap_or_else(timed_out);
        // What the thread threw away it counts itself.
        Written { lost: written.lost + self.lost, ..written }
    }
}

/// The thread's work: until the queue is closed or the disk refuses.
fn write_all(
    mut file: impl Write,
    name: &str,
    head: &[u8],
    records: &Receiver<Record>,
    queued_packets: &AtomicUsize,
) -> Written {
    let mut written = Written::default();
    if let Err(error) = file.write_all(head) {
        stop(&mut written, name, &error);
    }
    written.bytes = if written.error.is_none() { head.len() as u64 } else { 0 };
    while let Ok(record) = records.recv() {
        let packets = record.packets();
        queued_packets.fetch_sub(packets, Ordering::Relaxed);
        let is_gap = matches!(record, Record::Gap(_));
        if written.error.is_some() {
            written.lost += u64::from(!is_gap);
            continue;
        }
        let bytes = member(&record);
        // In one piece, so that a file whose writer was killed ends with a whole record wherever
        // possible.
        match file.write_all(&bytes) {
            Ok(()) => {
                written.records += u64::from(!is_gap);
                written.packets += packets as u64;
                written.bytes += bytes.len() as u64;
            }
            Err(error) => {
                written.lost += u64::from(!is_gap);
                stop(&mut written, name, &error);
            }
        }
    }
    if written.error.is_none()
        && let Err(error) = file.flush()
    {
        stop(&mut written, name, &error);
    }
    written
}

fn stop(written: &mut Written, name: &str, error: &io::Error) {
    tracing::warn!("{name}: the transcript ends here, the run goes on: {error}");
    written.error = Some(error.to_string());
}
