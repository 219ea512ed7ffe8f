// SPDX-License-Identifier: Apache-2.0
//! Transcripts: what arrived of every packet of a run, so that the run can be looked at and
//! repeated bit for bit (the HotNets'24 paper, §5.4).
//!
//! ```text
//!  endpoint ── events ──► Filter ── events ──► communicator          recording: Recorder looks at what goes by, Writer puts it on disk, on a thread of its own
//!                        │   ▲                                    replaying: everything arrives, and Replay trims it to what the file says before it is decoded
//!                        ▼   │
//!                       file of records                           Reader gives them back: held bytes and planes of every packet of every message
//! ```
//!
//! How many bytes of a packet's planes are there, without a gap from the first one on, decides what
//! its coordinates decode to. That is recorded. The file is JSON lines in gzip
//! (docs/reference/transcript.md). Recorder and Replay own no clock and no thread.
#![forbid(unsafe_code)]

mod file;
mod filter;
mod record;
mod recorder;
mod replay;
mod writer;

pub use file::{ReadError, Reader, VERSION};
pub use filter::{Filter, Filtered};
pub use record::{Header, Held, MAX_BODY, MapRecord, MessageRecord, OperationRecord, Record, Shape, hex};
pub use recorder::Recorder;
pub use replay::{Replay, ReplayError};
pub use writer::{Writer, Written};

#[cfg(test)]
mod tests;
