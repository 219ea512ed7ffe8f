// SPDX-License-Identifier: Apache-2.0
//! What is said about a packet, and about all of them.

use super::codes::{Coordinate, coordinates};
use super::frame::{Datagram, Route};
use super::masks::{Mask, Masks, Unmasked};
use crate::output::table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use trimwire_encoder::quantiser::peak_magnitude;
use trimwire_encoder::wire::{BLOCK, TAG_LEN, VERSION};
use trimwire_encoder::{Codec, HEADER_LEN, Header, Kind, PacketError, PacketView, Prefix};

/// One packet.
#[derive(Debug, Serialize)]
pub(super) struct Packet {
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<Route>,
    bytes: usize,
    #[serde(flatten)]
    content: Content,
}

/// What the bytes are.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Data {
        kind: &'static str,
        stream: Stream,
        data: Box<Data>,
    },
    Other {
        kind: &'static str,
        stream: Stream,
    },
    /// A DATA packet whose header is not what was sent. Its fields are what the bytes say, which
    /// nobody should believe.
    Damaged {
        kind: &'static str,
        error: String,
        check: u16,
        check_expected: u16,
        stream: Stream,
    },
    Bad {
        error: String,
    },
}

/// The part of the header that packets of all kinds have.
#[derive(Debug, Serialize)]
struct Stream {
    job: u8,
    rank: u16,
    /// `null` where it is under a mask that nobody here knows.
    message: Option<u32>,
    important: bool,
    layer_class: u8,
    last: bool,
}

/// A DATA packet's header and body.
#[derive(Debug, Serialize)]
struct Data {
    codec: &'static str,
    index: u32,
    coordinates: usize,
    first_plane: u8,
    /// The header's check without the mask, which is right; `null` where the mask is not known.
    check: Option<u16>,
    /// The sender's incarnation, whose mask was over message and check.
    #[serde(skip_serializing_if = "Option::is_none")]
    incarnation: Option<u32>,
    /// The row was rotated twice.
    twice: bool,
    /// `null` where the row is not finite.
    sigma: Option<f32>,
    not_finite: bool,
    kappa: f64,
    peak: f32,
    /// Blocks of 32 coordinates that are zero in the row before its rotation; `null` where it did
    /// not arrive which these are.
    zero_blocks: Option<usize>,
    /// Bytes of the packet when it is not trimmed.
    whole_bytes: usize,
    /// Whole planes from `first_plane` on.
    planes_held: u8,
    /// A plane of which a part arrived.
    partial_plane: Option<Partial>,
    /// Bytes behind the last plane that the codec has.
    bytes_behind: usize,
    /// Whether that is as many as the tags have of a sealed packet.
    long_as_sealed: bool,
    values: Vec<Coordinate>,
}

#[derive(Debug, Serialize)]
struct Partial {
    plane: u8,
    coordinates: usize,
}

/// All packets of a run.
#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    /// Packets looked at.
    pub packets: u64,
    /// Those that cannot be decoded.
    pub bad: u64,
    /// DATA whose check is under a mask that is not known: whether it was damaged was not looked
    /// at.
    pub unchecked: u64,
    /// Captured frames that are not UDP or of another port.
    pub elsewhere: u64,
    /// Packets by kind.
    kinds: BTreeMap<&'static str, u64>,
    /// DATA packets by whole planes held.
    data_by_planes: BTreeMap<u8, u64>,
    /// DATA packets that are shorter than their codec's whole packet.
    trimmed: u64,
}

impl Packet {
    /// Decodes a UDP payload, with its first `count` coordinates.
    pub(super) fn decode(datagram: &Datagram, count: usize, masks: &Masks) -> Self {
        let content = match Prefix::parse(&datagram.payload) {
            Err(PacketError::Version(version)) if (1..VERSION).contains(&version) => Content::Bad {
                error: format!(
                    "version {version} of the format, which this command does not read (it reads {VERSION})"
                ),
            },
            Err(error) => Content::Bad { error: error.to_string() },
            Ok(prefix) if prefix.kind != Kind::Data => {
                Content::Other { kind: name(prefix.kind), stream: Stream::new(prefix) }
            }
            Ok(prefix) => Content::data(prefix, datagram, count, masks),
        };
        let bytes = datagram.payload.len();
        Self { source: datagram.source.clone(), route: datagram.route, bytes, content }
    }

    /// For people.
    pub(super) fn render(&self) -> String {
        let mut text = self.source.clone();
        if let Some(route) = self.route {
            let ecn = ["not-ECT", "ECT(1)", "ECT(0)", "CE"][usize::from(route.ecn & 3)];
            let _ = write!(text, ": {} → {}, DSCP {}, {ecn}", route.from, route.to, route.dscp);
            if usize::from(route.announced) != self.bytes {
                let _ = write!(text, ", UDP length announces {} bytes of payload", route.announced);
            }
        }
        text.push('\n');
        match &self.content {
            Content::Bad { error } => {
                let _ = writeln!(text, "  cannot be decoded: {error} ({} bytes)", self.bytes);
            }
            Content::Damaged { kind, error, stream, .. } => {
                let _ = writeln!(
                    text,
                    "  cannot be decoded: {error} ({} bytes)\n  its header says {kind} of {stream}, and something of that or behind it is wrong",
                    self.bytes
                );
            }
            Content::Other { kind, stream } => {
                let _ = writeln!(text, "  {kind} of {stream}; {} bytes", self.bytes);
            }
            Content::Data { kind, stream, data } => {
                let _ = writeln!(text, "  {kind} of {stream}\n{}", data.render(self.bytes));
            }
        }
        text
    }
}

impl Content {
    fn data(prefix: Prefix, datagram: &Datagram, count: usize, masks: &Masks) -> Self {
        let kind = name(prefix.kind);
        let Unmasked { bare, mask } =
            masks.take_off(prefix.stream, &datagram.payload, datagram.route.is_some());
        match PacketView::parse(&bare) {
            Err(error @ PacketError::Check { got, expected }) => Self::Damaged {
                kind,
                error: error.to_string(),
                check: got,
                check_expected: expected,
                stream: Stream::new(prefix),
            },
            Err(error) => Self::Bad { error: error.to_string() },
            Ok(view) => {
                let message = (mask != Mask::Unknown).then_some(view.header().prefix.message);
                Self::Data {
                    kind,
                    stream: Stream { message, ..Stream::new(prefix) },
                    data: Box::new(Data::new(&view, &bare, mask, count)),
                }
            }
        }
    }
}

impl std::fmt::Display for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { job, rank, message, layer_class, .. } = self;
        write!(f, "job {job}, rank {rank}, message ")?;
        match message {
            Some(message) => write!(f, "{message}")?,
            None => f.write_str("under a mask")?,
        }
        write!(f, ", layer class {layer_class}")?;
        f.write_str(if self.important { ", important" } else { ", less important" })?;
        f.write_str(if self.last { ", last" } else { "" })
    }
}

impl Stream {
    fn new(prefix: Prefix) -> Self {
        Self {
            job: prefix.stream.job(),
            rank: prefix.stream.rank(),
            message: Some(prefix.message),
            important: prefix.important,
            layer_class: prefix.layer_class,
            last: prefix.last,
        }
    }
}

impl Data {
    fn new(view: &PacketView<'_>, payload: &[u8], mask: Mask, count: usize) -> Self {
        let header: &Header = view.header();
        let (codec, n) = (header.codec(), header.coordinates);
        let offset = |plane| codec.plane_offset(plane, n) - codec.plane_offset(header.first_plane, n);
        let body = view.body().len();
        let planes = (header.first_plane..codec.planes()).take_while(|p| offset(p + 1) <= body).count() as u8;
        let open = header.first_plane + planes;
        let partial = (open < codec.planes() && offset(open) < body).then(|| {
            let width = 8 * (offset(open + 1) - offset(open)) / n;
            let mask = if open == 0 { codec.mask_len(n) } else { 0 };
            Partial {
                plane: open,
                coordinates: 8 * (body - offset(open)).saturating_sub(mask) / width.max(1),
            }
        });
        let whole = HEADER_LEN + offset(codec.planes());
        let bytes_behind = payload.len().saturating_sub(whole);
        Self {
            codec: codec.name(),
            index: header.index,
            coordinates: n,
            first_plane: header.first_plane,
            check: payload
                .get(HEADER_LEN - 2..)
                .and_then(<[u8]>::first_chunk)
                .map(|check| u16::from_be_bytes(*check))
                .filter(|_| mask != Mask::Unknown),
            incarnation: if let Mask::Of(incarnation) = mask { Some(incarnation) } else { None },
            twice: header.twice,
            sigma: (!header.is_not_finite()).then_some(header.sigma),
            not_finite: header.is_not_finite(),
            kappa: f64::from(header.kappa) / 255.0,
            peak: peak_magnitude(header.peak),
            zero_blocks: view.zero_blocks().map(|zeros| zeros.into_iter().filter(|zero| *zero).count()),
            whole_bytes: whole,
            planes_held: planes,
            partial_plane: partial,
            bytes_behind,
            long_as_sealed: bytes_behind == TAG_LEN * codec.tags(header.first_plane, codec.planes()),
            values: coordinates(view, count),
        }
    }

    fn render(&self, bytes: usize) -> String {
        let codec: Codec = self.codec.parse().unwrap_or_default();
        let mut text = format!(
            "  codec {codec}, packet {}: {} coordinates{}{}, {}\n  {}\n  {bytes} of {} bytes: {}",
            self.index,
            self.coordinates,
            match (codec.rotates(), self.twice) {
                (_, true) => " (rotated twice)",
                (true, false) => " (rotated)",
                (false, false) => "",
            },
            match self.zero_blocks {
                Some(0) => String::new(),
                Some(zero) => format!(", {zero} of {} blocks zero", self.coordinates / BLOCK),
                None => ", which of its blocks are zero did not arrive".to_owned(),
            },
            self.sigma.map_or_else(
                || "of a row that is not finite: all of it decodes to NaN".to_owned(),
                |sigma| format!(
                    "σ = {sigma:.6e}, mean magnitude {:.4} σ, largest at most {:.4} σ",
                    self.kappa, self.peak
                )
            ),
            self.checked(),
            self.whole_bytes,
            self.planes(codec),
        );
        if self.long_as_sealed {
            let _ = write!(
                text,
                "; {} bytes more, as many as the tags of a sealed packet have: if it is one, they lie between the planes, and of the \
                 codes below the first plane alone is right",
                self.bytes_behind
            );
        } else if self.bytes_behind > 0 {
            let _ = write!(text, "; {} bytes behind the last plane are ignored", self.bytes_behind);
        }
        text.push('\n');
        if !self.values.is_empty() {
            // Hex digits of the code word that travel: rht's lowest two are always 0.
            let digits = (2 * codec.body_len(BLOCK) / BLOCK).min(8);
            let rows: Vec<Vec<String>> = self.values.iter().map(|value| row(value, digits)).collect();
            let table = table(&["coordinate", "code", "bits", "at least", "at most"], &rows, 0);
            table.lines().for_each(|line| {
                let _ = writeln!(text, "    {line}");
            });
        }
        text
    }

    fn checked(&self) -> String {
        match (self.check, self.incarnation) {
            (Some(check), None) => format!("check {check:#06x}, right"),
            (Some(check), Some(incarnation)) => {
                format!("check {check:#06x}, right, under the mask of incarnation {incarnation}")
            }
            (None, _) => "check and message are under a mask, and were not looked at: no control packet tells the sender's incarnation (--incarnation)"
                .to_owned(),
        }
    }

    fn planes(&self, codec: Codec) -> String {
        let mut text = if self.planes_held == 0 {
            "no whole plane".to_owned()
        } else if self.first_plane == 0 && self.planes_held == codec.planes() {
            format!("all {} planes", self.planes_held)
        } else if self.planes_held == 1 {
            format!("plane {}", self.first_plane)
        } else {
            format!("planes {} to {}", self.first_plane, self.first_plane + self.planes_held - 1)
        };
        if let Some(partial) = &self.partial_plane {
            let _ = write!(text, ", plane {} of {} coordinates", partial.plane, partial.coordinates);
        }
        text
    }
}

fn row(coordinate: &Coordinate, digits: usize) -> Vec<String> {
    // A digit for every four bits that arrived in part or whole, dots for the others.
    let digits = (0..8).rev().take(digits).map(|digit| match coordinate.known >> (4 * digit) & 15 {
        0 => '·',
        _ => char::from_digit(coordinate.code >> (4 * digit) & 15, 16).unwrap_or('·'),
    });
    vec![
        coordinate.index.to_string(),
        digits.collect(),
        coordinate.bits.to_string(),
        format!("{:.6e}", coordinate.low),
        format!("{:.6e}", coordinate.high),
    ]
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Data => "DATA",
        Kind::Ack => "ACK",
        Kind::Probe => "PROBE",
        Kind::Status => "STATUS",
        Kind::Stop => "STOP",
        Kind::Final => "FINAL",
        Kind::Abort => "ABORT",
        Kind::Hello => "HELLO",
        Kind::Forward => "FORWARD",
        Kind::Path => "PATH",
        Kind::Piece => "PIECE",
        Kind::Vote => "VOTE",
    }
}

impl Summary {
    /// Counts a packet in.
    pub(super) fn count(&mut self, packet: &Packet) {
        self.packets += 1;
        match &packet.content {
            Content::Bad { .. } | Content::Damaged { .. } => self.bad += 1,
            Content::Other { kind, .. } => *self.kinds.entry(kind).or_default() += 1,
            Content::Data { kind, data, .. } => {
                *self.kinds.entry(kind).or_default() += 1;
                *self.data_by_planes.entry(data.planes_held).or_default() += 1;
                self.trimmed += u64::from(packet.bytes < data.whole_bytes);
                self.unchecked += u64::from(data.check.is_none());
            }
        }
    }

    /// For people.
    pub(super) fn render(&self, shown: usize, port: u16) -> String {
        let kinds: Vec<String> = self.kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let mut text = format!("{} packet(s): {}", self.packets, kinds.join(", "));
        if self.bad > 0 {
            let comma = if kinds.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{} that cannot be decoded", self.bad);
        }
        let planes: Vec<String> = self.data_by_planes.iter().map(|(b, n)| format!("{n} × {b}")).collect();
        if !planes.is_empty() {
            let _ = write!(
                text,
                "; {} trimmed; packets × whole planes held: {}",
                self.trimmed,
                planes.join(", ")
            );
        }
        if self.unchecked > 0 {
            let _ = write!(text, "; {} that nobody could check, under an unknown mask", self.unchecked);
        }
        if self.elsewhere > 0 {
            let which = if port == 0 { "not UDP".to_owned() } else { format!("not UDP port {port}") };
            let _ = write!(text, "; {} other frames ({which})", self.elsewhere);
        }
        if (shown as u64) < self.packets {
            let _ = write!(text, "; the first {shown} are shown (--limit)");
        }
        text + "\n"
    }
}
