// SPDX-License-Identifier: Apache-2.0
//! Transcripts: what arrived of every packet of a run, so that the run can be looked at and repeated bit for bit (the HotNets'24 paper, §5.4).
//!
//! ```text
//!  endpoint ── events ──► Filter ── events ──► communicator          recording: Recorder looks at what goes by, Writer puts it on disk, on a thread of its own
//!                        │   ▲                                    replaying: everything arrives, and Replay cuts it to what the file says before it is decoded
//!                        ▼   │
//!                       file of records                           Reader gives them back: held bytes and planes of every packet of every message
//! ```
//!
//! What decides what a row decodes to is how many bytes of each packet's planes it holds, without a gap from the first one on: not only whole planes, since the coordinates that a cut plane reaches are decoded with it. That is
//! recorded, a fraction of a bit a packet where packets are mostly alike; the format is in docs/reference/transcript.md. Recorder and Replay own no clock and no thread.
#![forbid(unsafe_code)]

mod bytes;
mod file;
mod filter;
mod record;
mod recorder;
mod replay;
mod series;
mod writer;

pub use file::{HEADER_LEN, ReadError, Reader, VERSION};
pub use filter::{Filter, Filtered};
pub use record::{
    Header, Held, MAX_BODY, MAX_TEXT, MapRecord, MessageRecord, OperationRecord, Record, Shape,
};
pub use recorder::Recorder;
pub use replay::{Replay, ReplayError, hex};
pub use writer::{Writer, Written};

#[cfg(test)]
mod tests;
