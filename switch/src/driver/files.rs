// SPDX-License-Identifier: Apache-2.0
//! Ports on files instead of interfaces, as `simple_switch --use-files` has them: what `X_in.pcap` holds comes in on port X,
//! what goes out is written to `X_out.pcap`.

use super::Attachment;
use crate::pcap::{PcapReader, PcapWriter};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

/// Frames handed to the switch in one turn: they are there all at once, and queues have to be served in between.
const BATCH: usize = 32;

/// All ports' files.
#[derive(Debug)]
pub(super) struct Files {
    ports: Vec<Port>,
    /// When the first frame comes in, by the driver's clock.
    start_ns: u64,
}

#[derive(Debug)]
struct Port {
    number: u16,
    path: PathBuf,
    received: PcapReader<BufReader<File>>,
    /// The next frame to come in, with the time that it was captured at; none at the end.
    next: Option<(u64, Vec<u8>)>,
    sent: PcapWriter<File>,
}

impl Files {
    /// Opens all of them.
    pub(super) fn open(
        attachments: &[Attachment],
        start_ns: u64,
    ) -> Result<Self, (Attachment, PathBuf, io::Error)> {
        let mut ports = Vec::new();
        for attachment in attachments {
            let path = |direction: &str| PathBuf::from(format!("{}_{direction}.pcap", attachment.interface));
            let failed = |direction: &str| {
                let at = (attachment.clone(), path(direction));
                move |error| (at.0, at.1, error)
            };
            let file = File::open(path("in")).map_err(failed("in"))?;
            let mut received = PcapReader::new(BufReader::new(file)).map_err(failed("in"))?;
            let next = received.next_frame().map_err(failed("in"))?;
            let sent = File::create(path("out")).and_then(PcapWriter::new).map_err(failed("out"))?;
            ports.push(Port { number: attachment.port, path: path("in"), received, next, sent });
        }
        Ok(Self { ports, start_ns })
    }

    /// Hands in what is due, in the order in which it was captured, as fast as the switch takes it; gives when there is more.
    pub(super) fn receive(&mut self, now_ns: u64, mut take: impl FnMut(u16, &[u8])) -> Option<u64> {
        if now_ns < self.start_ns {
            return Some(self.start_ns);
        }
        for _ in 0..BATCH {
            let waiting = self.ports.iter_mut().filter(|port| port.next.is_some());
            // Of frames of one time that of the first port goes first, as on BMv2.
            let port = waiting.min_by_key(|port| port.next.as_ref().map(|(at_ns, _)| *at_ns))?;
            let (_, frame) = port.next.take()?;
            take(port.number, &frame);
            match port.received.next_frame() {
                Ok(next) => port.next = next,
                Err(error) => {
                    tracing::error!("port {}: '{}' ends early: {error}", port.number, port.path.display());
                }
            }
        }
        Some(now_ns)
    }

    /// Writes a frame that goes out.
    pub(super) fn send(&mut self, port: u16, unix_ns: u64, frame: &[u8]) -> io::Result<()> {
        match self.ports.iter_mut().find(|other| other.number == port) {
            Some(port) => port.sent.write(unix_ns, frame),
            None => Ok(()),
        }
    }
}
