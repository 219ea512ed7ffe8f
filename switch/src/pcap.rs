// SPDX-License-Identifier: Apache-2.0
//! Captures as `simple_switch --pcap` writes them: for each interface what came in and what went
//! out.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a frame that a file holds, as in BMv2 and tcpdump.
pub(crate) const SNAP_LENGTH: u32 = 262_144;

/// A pcap file (version 2.4, Ethernet, nanoseconds) on its way into `W`.
///
/// Every frame is written in one call and nothing is kept back: what a killed switch leaves ends
/// with a whole frame.
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
        // draft-ietf-opsawg-pcap-04, section 4: the magic number of nanosecond resolution, in our
        // byte order.
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
