// SPDX-License-Identifier: Apache-2.0
//! A file of records: a header, then records, each with its length and a checksum in front (docs/reference/transcript.md).

use super::bytes::Malformed;
use super::record::{Header, MAX_BODY, Record};
use std::io::{self, Read};
use trimwire_encoder::StreamId;

/// What a file begins with.
const MAGIC: [u8; 8] = *b"trimwire";
/// The kind of file behind it: a transcript.
const TRANSCRIPT: u8 = b'T';
/// The version of the format.
pub const VERSION: u8 = 1;
/// Bytes of the header.
pub const HEADER_LEN: usize = 28;
/// Bytes in front of a record's body.
const FRAME_LEN: usize = 8;

/// CRC-32 as Ethernet, zlib and PNG have it (ISO-HDLC).
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);

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
    #[error("no transcript: it does not begin with \"trimwireT\"")]
    NotATranscript,
    /// It is of another version.
    #[error("a transcript of version {0}; valid is {VERSION}")]
    Version(u8),
    /// The header is damaged.
    #[error("the header is damaged: {0}")]
    Header(&'static str),
    /// The file ends in the middle of a record: who wrote it was killed, or its disk was full. The records before are whole.
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
        what: &'static str,
    },
}

/// The header as bytes.
pub(super) fn header_bytes(header: &Header) -> Vec<u8> {
    let Header { job, rank, world, seed } = *header;
    let mut out = MAGIC.to_vec();
    out.extend([TRANSCRIPT, VERSION, job, 0]);
    out.extend(rank.to_be_bytes());
    out.extend(world.to_be_bytes());
    out.extend(seed.to_be_bytes());
    out.extend(CRC.checksum(&out).to_be_bytes());
    out
}

/// A record as bytes, frame included.
pub(super) fn framed(record: &Record) -> Vec<u8> {
    let body = record.to_bytes();
    let mut out = (body.len() as u32).to_be_bytes().to_vec();
    out.extend(CRC.checksum(&body).to_be_bytes());
    out.extend(body);
    out
}

/// Reads a transcript from its beginning, record by record. Whatever the bytes, it does not panic, and keeps no more than one record in memory.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    header: Header,
    at: u64,
    records: u64,
    body: Vec<u8>,
    over: bool,
}

/// What comes next in a file.
enum Next {
    End,
    /// A record of a kind that this version does not know.
    Unknown,
    Record(Box<Record>),
}

/// Fills as much of a buffer as there is.
fn fill(source: &mut impl Read, mut buffer: &mut [u8]) -> io::Result<usize> {
    let all = buffer.len();
    while !buffer.is_empty() {
        match source.read(buffer) {
            Ok(0) => break,
            Ok(read) => buffer = &mut buffer[read..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all - buffer.len())
}

impl<R: Read> Reader<R> {
    /// Reads the header. `source` is read in small pieces: buffer it.
    ///
    /// # Errors
    /// [`ReadError`] when it is no transcript of this version.
    pub fn new(mut source: R) -> Result<Self, ReadError> {
        let mut bytes = [0; HEADER_LEN];
        let read = fill(&mut source, &mut bytes).map_err(|source| ReadError::Io { at: 0, source })?;
        if read == 0 {
            return Err(ReadError::Header("the file is empty"));
        }
        if bytes[..8] != MAGIC || bytes[8] != TRANSCRIPT {
            return Err(ReadError::NotATranscript);
        }
        if read > 9 && bytes[9] != VERSION {
            return Err(ReadError::Version(bytes[9]));
        }
        if read < HEADER_LEN {
            return Err(ReadError::Header("the file ends in it"));
        }
        let (content, checksum) = bytes.split_at(HEADER_LEN - 4);
        if CRC.checksum(content).to_be_bytes() != checksum {
            return Err(ReadError::Header("its checksum is wrong"));
        }
        let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let seed = bytes[16..].first_chunk().map_or(0, |&bytes| u64::from_be_bytes(bytes));
        let header = Header { job: bytes[10], rank: number(12), world: number(14), seed };
        if header.world > StreamId::MAX_RANK + 1 || header.rank >= header.world {
            return Err(ReadError::Header("its rank is none of its ranks"));
        }
        Ok(Self { source, header, at: HEADER_LEN as u64, records: 0, body: Vec::new(), over: false })
    }

    /// Whose transcript it is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Where the next record begins, bytes from the file's beginning.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next record; `None` at the end, and after an error. Records of kinds that are not known are passed over.
    ///
    /// # Errors
    /// [`ReadError`]; everything in front of that place was whole.
    pub fn next_record(&mut self) -> Result<Option<Record>, ReadError> {
        while !self.over {
            match self.read() {
                Ok(Next::Unknown) => {}
                Ok(Next::Record(record)) => return Ok(Some(*record)),
                Ok(Next::End) => self.over = true,
                Err(error) => {
                    self.over = true;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<Next, ReadError> {
        let (at, records) = (self.at, self.records);
        let io = |source| ReadError::Io { at, source };
        let mut frame = [0; FRAME_LEN];
        match fill(&mut self.source, &mut frame).map_err(io)? {
            0 => return Ok(Next::End),
            FRAME_LEN => {}
            _ => return Err(ReadError::Truncated { at, records }),
        }
        let [l0, l1, l2, l3, c0, c1, c2, c3] = frame;
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        let damaged = |what| ReadError::Damaged { at, records, what };
        if length > MAX_BODY {
            return Err(damaged("it says that it is longer than a record may be"));
        }
        // Room is made as bytes come, not as a damaged length says.
        self.body.clear();
        let read = (&mut self.source).take(length as u64).read_to_end(&mut self.body).map_err(io)?;
        if read < length {
            return Err(ReadError::Truncated { at, records });
        }
        if CRC.checksum(&self.body) != u32::from_be_bytes([c0, c1, c2, c3]) {
            return Err(damaged("its checksum is wrong"));
        }
        let record = Record::parse(&self.body).map_err(|Malformed(what)| damaged(what))?;
        self.at += (FRAME_LEN + length) as u64;
        self.records += 1;
        Ok(record.map_or(Next::Unknown, |record| Next::Record(Box::new(record))))
    }
}

impl<R: Read + io::Seek> Reader<R> {
    /// Goes on at a [`Self::position`] of before.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn seek(&mut self, at: u64) -> Result<(), ReadError> {
        self.source.seek(io::SeekFrom::Start(at)).map_err(|source| ReadError::Io { at, source })?;
        (self.at, self.over) = (at, false);
        Ok(())
    }
}
