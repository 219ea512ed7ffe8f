// SPDX-License-Identifier: Apache-2.0
//! A file of records: JSON lines, each a gzip member of its own (docs/reference/transcript.md). A
//! reader can begin at any of them, and what stands before a damaged one is whole.

use super::record::{Header, MAX_BODY, Record};
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};
use trimwire_encoder::StreamId;

/// The version of the format.
pub const VERSION: u8 = 2;
/// What files of version 1 begin with.
const VERSION_1: &[u8] = b"trimwireT\x01";
/// What a gzip member begins with.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Why a file cannot be read, or not further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The system says so.
    #[error("cannot read at byte {at}: {source}")]
    Io {
        /// Where.
        at: u64,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("no transcript: it does not begin with {{\"trimwire\":\"transcript\"}} in gzip")]
    NotATranscript,
    /// It is of another version.
    #[error("a transcript of version {0}; valid is {VERSION}")]
    Version(u64),
    /// The header is damaged.
    #[error("the header is damaged: {0}")]
    Header(String),
    /// The file ends in the middle of a record: its writer was killed, or its disk was full. The
    /// records before are whole.
    #[error("it ends at byte {at}, in the middle of a record; the {records} in front of it are whole")]
    Truncated {
        /// Where that record begins.
        at: u64,
        /// Whole records.
        records: u64,
    },
    /// A record is damaged.
    #[error("the record at byte {at} is damaged: {what}; the {records} in front of it are whole")]
    Damaged {
        /// Where it begins.
        at: u64,
        /// Records in front of it.
        records: u64,
        /// What is wrong.
        what: String,
    },
}

/// A line as a gzip member.
pub(super) fn member(line: &impl Serialize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Neither fails: the types have no maps, and memory takes all bytes.
    let written = serde_json::to_writer(&mut encoder, line).map_err(io::Error::from);
    let written = written.and_then(|()| encoder.write_all(b"\n"));
    written.and_then(|()| encoder.finish()).unwrap_or_default()
}

/// The first line: what the file is, and whose.
pub(super) fn first_member(header: &Header) -> Vec<u8> {
    let Header { job, rank, world, seed } = header;
    member(&json!({
        "trimwire": "transcript", "version": VERSION, "job": job, "rank": rank, "world": world, "seed": seed,
    }))
}

/// Counts the bytes that are taken from a source.
#[derive(Debug)]
struct Counted<R> {
    source: R,
    at: u64,
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        self.source.consume(count);
        self.at += count as u64;
    }
}

/// Why a member gives no line.
enum Broken {
    Io(io::Error),
    EndsEarly,
    Damaged(String),
}

impl<R: BufRead> Counted<R> {
    /// The next line; `None` at the end.
    fn line(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        if self.fill_buf().map_err(Broken::Io)?.is_empty() {
            return Ok(None);
        }
        let mut line = Vec::new();
        let read = GzDecoder::new(self).take(MAX_BODY as u64 + 1).read_to_end(&mut line);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => Broken::EndsEarly,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Broken::Damaged(error.to_string()),
            _ => Broken::Io(error),
        })?;
        if line.len() > MAX_BODY {
            return Err(Broken::Damaged("it is longer than a record may be".to_owned()));
        }
        Ok(Some(line))
    }
}

/// Reads a transcript from its beginning, record by record. Whatever the bytes, it does not panic,
/// and keeps no more than one record in memory.
#[derive(Debug)]
pub struct Reader<R> {
    source: Counted<R>,
    header: Header,
    records: u64,
    over: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// [`ReadError`] when it is no transcript of this version.
    pub fn new(source: R) -> Result<Self, ReadError> {
        let mut source = Counted { source, at: 0 };
        let begins = source.fill_buf().map_err(|source| ReadError::Io { at: 0, source })?;
        if begins.is_empty() {
            return Err(ReadError::Header("the file is empty".to_owned()));
        }
        if begins.starts_with(VERSION_1) {
            return Err(ReadError::Version(1));
        }
        if !begins.starts_with(GZIP) {
            return Err(ReadError::NotATranscript);
        }
        let line = source.line().map_err(|broken| match broken {
            Broken::Io(source) => ReadError::Io { at: 0, source },
            Broken::EndsEarly => ReadError::Header("the file ends in it".to_owned()),
            Broken::Damaged(what) => ReadError::Header(what),
        })?;
        let opening: Value = serde_json::from_slice(&line.unwrap_or_default()).unwrap_or_default();
        match (opening["trimwire"].as_str(), opening["version"].as_u64()) {
            (Some("transcript"), Some(version)) if version == u64::from(VERSION) => {}
            (Some("transcript"), Some(version)) => return Err(ReadError::Version(version)),
            _ => return Err(ReadError::NotATranscript),
        }
        let header: Header =
            serde_json::from_value(opening).map_err(|error| ReadError::Header(error.to_string()))?;
        if header.world > StreamId::MAX_RANK + 1 || header.rank >= header.world {
            return Err(ReadError::Header("its rank is none of its ranks".to_owned()));
        }
        Ok(Self { source, header, records: 0, over: false })
    }

    /// Whose transcript it is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the next record begins, bytes from the file's beginning.
    pub fn position(&self) -> u64 {
        self.source.at
    }

    /// The next record; `None` at the end, and after an error.
    ///
    /// # Errors
    /// [`ReadError`]; everything in front of that place was whole.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        if self.over {
            return Ok(None);
        }
        let (at, records) = (self.position(), self.records);
        let record = self
            .source
            .line()
            .and_then(|line| line.map(|line| Record::parse(&line)).transpose().map_err(Broken::Damaged));
        self.over = !matches!(record, Ok(Some(_)));
        self.records += u64::from(!self.over);
        record.map_err(|broken| match broken {
            Broken::Io(source) => ReadError::Io { at, source },
            Broken::EndsEarly => ReadError::Truncated { at, records },
            Broken::Damaged(what) => ReadError::Damaged { at, records, what },
        })
    }
}

impl<R: BufRead + io::Seek> Reader<R> {
    /// Goes on at a [`Self::position`] of before.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn seek(&mut self, at: u64) -> Result<(), ReadError> {
        self.source.source.seek(io::SeekFrom::Start(at)).map_err(|source| ReadError::Io { at, source })?;
        (self.source.at, self.over) = (at, false);
        Ok(())
    }
}
