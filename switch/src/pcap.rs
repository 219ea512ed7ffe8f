// SPDX-License-Identifier: Apache-2.0
//! Pcap files: captures as `simple_switch --pcap` writes them, for each interface what came in and what went out, and frames that
//! come from files (`--use-files`).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a frame that a file holds, as in BMv2 and tcpdump.
pub(crate) const SNAP_LENGTH: u32 = 262_144;

/// A pcap file (version 2.4, Ethernet, nanoseconds) on its way into `W`.
///
/// Every frame is written in one call and nothing is kept back: what a killed switch leaves ends with a whole frame.
#[derive(Debug)]
pub(crate) struct PcapWriter<W> {
    to: W,
    record: Vec<u8>,
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file's header.
    ///
    /// # Errors
    /// Those of `to`.
    pub(crate) fn new(mut to: W) -> io::Result<Self> {
        // draft-ietf-opsawg-pcap-04, section 4: the magic number of nanosecond resolution, in our byte order.
        let mut header = Vec::with_capacity(24);
        header.extend(0xa1b2_3c4d_u32.to_le_bytes());
        header.extend(2_u16.to_le_bytes());
        header.extend(4_u16.to_le_bytes());
        header.extend([0; 8]);
        header.extend(SNAP_LENGTH.to_le_bytes());
        // LINKTYPE_ETHERNET, without FCS.
        header.extend(1_u32.to_le_bytes());
        to.write_all(&header)?;
        Ok(Self { to, record: Vec::new() })
    }

    /// Appends a frame, `unix_ns` after 1970.
    ///
    /// # Errors
    /// Those of the underlying file.
    pub(crate) fn write(&mut self, unix_ns: u64, frame: &[u8]) -> io::Result<()> {
        let kept = frame.get(..SNAP_LENGTH as usize).unwrap_or(frame);
        self.record.clear();
        self.record.extend(((unix_ns / 1_000_000_000) as u32).to_le_bytes());
        self.record.extend(((unix_ns % 1_000_000_000) as u32).to_le_bytes());
        self.record.extend((kept.len() as u32).to_le_bytes());
        self.record.extend((frame.len() as u32).to_le_bytes());
        self.record.extend_from_slice(kept);
        self.to.write_all(&self.record)
    }
}

/// Frames of a pcap file (version 2.4, Ethernet, either byte order, micro- or nanoseconds).
///
/// A file is read as it is needed, a frame at a time.
#[derive(Debug)]
pub(crate) struct PcapReader<R> {
    from: R,
    big_endian: bool,
    /// Nanoseconds in a unit of the time stamps' second half.
    unit_ns: u64,
    read: u64,
}

impl<R: Read> PcapReader<R> {
    /// Reads the file's header.
    ///
    /// # Errors
    /// `InvalidData` for what is no pcap file of Ethernet frames, and those of `from`.
    pub(crate) fn new(mut from: R) -> io::Result<Self> {
        let mut header = [0; 24];
        from.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => invalid("shorter than a pcap file's header".to_owned()),
            _ => error,
        })?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let (big_endian, unit_ns) = match u32::from_le_bytes(word(0)) {
            0xa1b2_c3d4 => (false, 1_000),
            0xa1b2_3c4d => (false, 1),
            0xd4c3_b2a1 => (true, 1_000),
            0x4d3c_b2a1 => (true, 1),
            0x0a0d_0d0a => {
                return Err(invalid(
                    "a pcapng file; `tcpdump -r FILE -w OTHER` makes a pcap file of it".to_owned(),
                ));
            }
            other => return Err(invalid(format!("no pcap file: it begins with {other:#010x}"))),
        };
        // The upper bits of the link type say what follows a frame.
        let link = number(big_endian, word(20)) & 0xffff;
        if link != 1 {
            return Err(invalid(format!("frames of link type {link}; Ethernet is 1")));
        }
        Ok(Self { from, big_endian, unit_ns, read: 0 })
    }

    /// The next frame, with its time in ns since 1970; `None` at the end of the file.
    ///
    /// # Errors
    /// `InvalidData` for a file that ends in the middle of a frame, and for frames that were not captured whole.
    pub(crate) fn next_frame(&mut self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let mut record = [0; 16];
        let mut filled = 0;
        while filled < record.len() {
            match self.from.read(&mut record[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(invalid(format!("it ends in the header of frame {}", self.read))),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let word =
            |at: usize| number(self.big_endian, [record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let (seconds, fraction, kept, length) = (word(0), word(4), word(8), word(12));
        if kept != length || length > SNAP_LENGTH {
            return Err(invalid(format!(
                "frame {} has {kept} of {length} bytes, of at most {SNAP_LENGTH}",
                self.read
            )));
        }
        let mut frame = vec![0; length as usize];
        self.from.read_exact(&mut frame).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => invalid(format!("it ends in frame {}", self.read)),
            _ => error,
        })?;
        self.read += 1;
        Ok(Some((u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns, frame)))
    }
}

fn number(big_endian: bool, bytes: [u8; 4]) -> u32 {
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// Why a capture cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// BMv2, too, makes no folder.
    #[error("--pcap: '{}' is not a folder; create it first, or leave it out for the current one", .0.display())]
    NoFolder(PathBuf),
    /// A file cannot be made.
    #[error("--pcap: cannot write '{}': {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Both files of an interface.
#[derive(Debug)]
pub(crate) struct Capture {
    received: Option<PcapWriter<File>>,
    sent: Option<PcapWriter<File>>,
    interface: String,
}

impl Capture {
    /// Makes `INTERFACE_in.pcap` and `INTERFACE_out.pcap` in a folder, emptied if they exist.
    ///
    /// # Errors
    /// A folder that is none, a file that cannot be made.
    pub(crate) fn create(folder: &Path, interface: &str) -> Result<Self, CaptureError> {
        if !folder.is_dir() {
            return Err(CaptureError::NoFolder(folder.to_owned()));
        }
        let open = |direction: &str| {
            let path = folder.join(format!("{interface}_{direction}.pcap"));
            let writer = File::create(&path).and_then(PcapWriter::new);
            writer.map_err(|source| CaptureError::Create { path, source })
        };
        Ok(Self { received: Some(open("in")?), sent: Some(open("out")?), interface: interface.to_owned() })
    }

    /// A frame has come in.
    pub(crate) fn received(&mut self, unix_ns: u64, frame: &[u8]) {
        write(&mut self.received, &self.interface, unix_ns, frame);
    }

    /// A frame is going out.
    pub(crate) fn sent(&mut self, unix_ns: u64, frame: &[u8]) {
        write(&mut self.sent, &self.interface, unix_ns, frame);
    }
}

/// A full disk ends the capture, not the switch.
fn write(writer: &mut Option<PcapWriter<File>>, interface: &str, unix_ns: u64, frame: &[u8]) {
    if let Some(Err(error)) = writer.as_mut().map(|writer| writer.write(unix_ns, frame)) {
        tracing::warn!("--pcap: the capture of '{interface}' ends: {error}");
        *writer = None;
    }
}

#[cfg(test)]
mod tests;
