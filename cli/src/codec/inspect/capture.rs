// SPDX-License-Identifier: Apache-2.0
//! pcap and pcapng files.

use super::frame::{Datagram, Link, udp};
use anyhow::{Result, anyhow};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

/// Magic numbers of pcap (µs and ns, both byte orders) and pcapng.
const MAGIC: [[u8; 4]; 5] = [
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x0a, 0x0d, 0x0d, 0x0a],
];
/// Room for one block, at first.
const BUFFER: usize = 1 << 20;

/// What else a capture held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Counted {
    /// Frames that are not UDP or of another port.
    pub elsewhere: u64,
    /// Why reading ended early.
    pub problem: Option<String>,
}

/// Whether a file begins as captures do.
pub(super) fn is_capture(bytes: &[u8]) -> bool {
    bytes.first_chunk::<4>().is_some_and(|magic| MAGIC.contains(magic))
}

/// Hands every UDP datagram from or to `port` (0: any) on, in order. A capture that ends inside a
/// block gives what is in front.
pub(super) fn each(bytes: &[u8], name: &str, port: u16, take: &mut dyn FnMut(Datagram)) -> Result<Counted> {
    let mut reader = create_reader(BUFFER, bytes)
        .map_err(|error| anyhow!("{name}: no readable capture: {}", say(&error)))?;
    let (mut links, mut frames, mut counted) = (Vec::new(), 0, Counted::default());
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let Some((link, frame)) = frame_of(&block, &mut links) {
                    frames += 1;
                    let found = link.and_then(|link| udp(link, frame));
                    let wanted =
                        found.filter(|(r, _)| port == 0 || r.from.port() == port || r.to.port() == port);
                    if let Some((route, payload)) = wanted {
                        let source = format!("{name}, frame {frames}");
                        take(Datagram { source, route: Some(route), payload: payload.to_vec() });
                    } else {
                        counted.elsewhere += 1;
                    }
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => break,
            Err(error) => {
                let (incomplete, why) = (matches!(error, PcapError::Incomplete(_)), say(&error));
                if incomplete && more(reader.as_mut()) {
                    continue;
                }
                if incomplete && reader.data().is_empty() {
                    break;
                }
                counted.problem = Some(format!("the capture is damaged behind frame {frames}: {why}"));
                break;
            }
        }
    }
    Ok(counted)
}

/// Gets more of the file into the buffer; false when there is no more.
fn more(reader: &mut (dyn PcapReaderIterator + Send)) -> bool {
    let before = reader.data().len();
    reader.refill().is_ok() && reader.data().len() > before
}

/// A block's frame, with what it begins with where that is known. Remembers the interfaces that the
/// capture describes.
fn frame_of<'a>(
    block: &PcapBlockOwned<'a>,
    links: &mut Vec<Option<Link>>,
) -> Option<(Option<Link>, &'a [u8])> {
    let captured = |data: &'a [u8], length: u32| data.get(..length as usize).unwrap_or(data);
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            *links = vec![Link::from_number(header.network.0)];
            None
        }
        PcapBlockOwned::Legacy(frame) => {
            Some((links.first().copied().flatten(), captured(frame.data, frame.caplen)))
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            links.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            links.push(Link::from_number(interface.linktype.0));
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(frame)) => {
            let link = links.get(frame.if_id as usize).copied().flatten();
            Some((link, captured(frame.data, frame.caplen)))
        }
        PcapBlockOwned::NG(Block::SimplePacket(frame)) => {
            Some((links.first().copied().flatten(), captured(frame.data, frame.origlen)))
        }
        PcapBlockOwned::NG(_) => None,
    }
}

fn say<I>(error: &PcapError<I>) -> &'static str {
    match error {
        PcapError::Eof => "it is empty",
        PcapError::UnexpectedEof | PcapError::Incomplete(_) => "it ends inside a block",
        PcapError::BufferTooSmall => "a block is larger than 1 MiB",
        PcapError::ReadError => "it cannot be read",
        PcapError::HeaderNotRecognized => "its header is not pcap's nor pcapng's",
        PcapError::NomError(..) | PcapError::OwnedNomError(..) => "a block contradicts itself",
    }
}
