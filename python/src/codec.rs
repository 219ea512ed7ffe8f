// SPDX-License-Identifier: Apache-2.0
//! Packets of tensors, without a network.

use crate::dlpack::{Tensor, Values};
use crate::transcript::Fate;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use std::sync::atomic::{AtomicUsize, Ordering};
use trimwire_encoder::papers::{Scheme, Trimmed};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Element, Encoder, Envelope, Header, Importance, Job, Layout, Message,
    RowChoice, RowReceiver, StreamId,
};

fn invalid(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn codec(name: &str) -> PyResult<Codec> {
    name.parse().map_err(|error| PyValueError::new_err(format!("codec: {error}")))
}

/// One that is sent, or one of figures.
fn scheme(name: &str) -> PyResult<Scheme> {
    name.parse().map_err(|error| PyValueError::new_err(format!("codec: {error}")))
}

fn decoding(name: &str) -> PyResult<Decoding> {
    match name {
        "unbiased" => Ok(Decoding::Unbiased),
        "mmse" => Ok(Decoding::Mmse),
        "paper" => Ok(Decoding::Paper),
        _ => Err(PyValueError::new_err(format!(
            "decoding: {name:?}; valid are 'unbiased', 'mmse' and 'paper'"
        ))),
    }
}

/// `planes`, where it is given, of a codec.
fn planes(codec: Scheme, planes: Option<u8>, name: &str) -> PyResult<u8> {
    let most = codec.planes();
    match planes.unwrap_or(most) {
        planes if (1..=most).contains(&planes) => Ok(planes),
        planes => Err(PyValueError::new_err(format!("{name}: {planes}; {codec} has planes 1 to {most}"))),
    }
}

/// What both ends agree on.
#[derive(Debug, Clone, Copy, FromPyObject)]
pub(crate) struct Agreement {
    seed: u64,
    message: u32,
    rank: u16,
    coordinates_per_packet: Option<usize>,
    row_log2: u8,
}

impl Agreement {
    fn layout(&self, length: usize, codec: Scheme, sent: u8) -> PyResult<Layout> {
        let fits = codec.coordinates_per_packet(1_500, sent, false);
        let layout = Layout::new(length, self.coordinates_per_packet.unwrap_or(fits)).map_err(invalid)?;
        layout.with_row_log2(self.row_log2).map_err(invalid)
    }

    fn envelope(&self) -> PyResult<Envelope> {
        let stream = StreamId::new(0, self.rank);
        let stream = stream
            .ok_or_else(|| PyValueError::new_err(format!("rank: {}; valid are 0 to 1023", self.rank)))?;
        Ok(Envelope { stream, message: self.message })
    }

    fn job(&self) -> Job {
        Job::new(self.seed)
    }
}

/// The packets of a tensor, as bytes.
#[pyfunction]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    tensor: &Bound<'py, PyAny>,
    codec_name: &str,
    planes_sent: Option<u8>,
    agreement: Agreement,
) -> PyResult<Bound<'py, PyList>> {
    let tensor = Tensor::import(tensor, "tensor")?;
    let codec = codec(codec_name)?;
    let sent = planes(Scheme::Wire(codec), planes_sent, "planes")?;
    let envelope = agreement.envelope()?;
    let layout = agreement.layout(tensor.len(), Scheme::Wire(codec), sent)?;
    let encoder = Encoder::new(layout, agreement.job()).with_codec(codec);
    let values = tensor.values()?;
    let message = py.detach(|| {
        let mut message = Message::default();
        match values {
            Values::F32(values) => encoder.encode(values, envelope, sent, &mut message),
            Values::F16(values) => encoder.encode(values, envelope, sent, &mut message),
            Values::Bf16(values) => encoder.encode(values, envelope, sent, &mut message),
        }
        .map(|()| message)
    });
    let message = message.map_err(|error| PyValueError::new_err(format!("tensor: {error}")))?;
    PyList::new(py, (0..message.packets()).map(|index| PyBytes::new(py, message.packet(index))))
}

/// The first planes of a packet, as a switch leaves them.
#[pyfunction]
pub(crate) fn trim<'py>(py: Python<'py>, packet: &[u8], planes_left: u8) -> PyResult<Bound<'py, PyBytes>> {
    let header = Header::parse(packet).map_err(|error| PyValueError::new_err(format!("packet: {error}")))?;
    let codec = header.codec();
    let left = planes(Scheme::Wire(codec), Some(planes_left), "planes")?;
    let length = codec.packet_len(left, header.coordinates, false).min(packet.len());
    Ok(PyBytes::new(py, &packet[..length]))
}

/// Decodes what there is of a tensor's packets into `out`; gives how many packets were whole,
/// trimmed and missing.
#[pyfunction]
pub(crate) fn decode_into(
    py: Python<'_>,
    packets: Vec<Vec<u8>>,
    out: &Bound<'_, PyAny>,
    codec_name: &str,
    planes_sent: Option<u8>,
    decoding_name: &str,
    agreement: Agreement,
) -> PyResult<(usize, usize, usize)> {
    let mut out = Tensor::import(out, "out")?;
    let codec = codec(codec_name)?;
    let sent = planes(Scheme::Wire(codec), planes_sent, "planes")?;
    let layout = agreement.layout(out.len(), Scheme::Wire(codec), sent)?;
    let (job, envelope, decoding) = (agreement.job(), agreement.envelope()?, decoding(decoding_name)?);
    let values = out.values_mut()?;
    py.detach(|| {
        let mut decoder = Decoder::new(layout, job, envelope, decoding).with_codec(codec).with_planes(sent);
        for (nth, packet) in packets.iter().enumerate() {
            decoder
                .receive(packet)
                .map_err(|error| PyValueError::new_err(format!("packets[{nth}]: {error}")))?;
        }
        decoder.decode_into(values).map_err(invalid)?;
        let total = decoder.layout().packets();
        let arrived = (0..total).filter(|&index| decoder.arrived(index)).count();
        let whole = (0..total).filter(|&index| decoder.coverage(index) >= sent).count();
        Ok((whole, arrived - whole, total - arrived))
    })
}

/// What happens to packets: by chance, when shares of them keep so many planes, 0 is lost, and all
/// others arrive whole; or as it is written.
#[derive(Debug, Clone, FromPyObject)]
pub(crate) struct Network {
    shares: Vec<(u8, f64)>,
    chance: u64,
    /// What was left of each packet of a message, [`Fate`]s; a message of more or fewer packets has
    /// the same at the same share of its way.
    written: Option<Vec<u32>>,
}

impl Network {
    /// What is left of a packet, of so many, of which `sent` planes were sent.
    fn left(&self, packet: usize, packets: usize, sent: u8) -> Fate {
        if let Some(written) = self.written.as_ref().filter(|written| !written.is_empty()) {
            return Fate(written[packet * written.len() / packets]);
        }
        let mut place = share(self.chance, packet);
        for &(planes, share) in &self.shares {
            if place < share {
                return Fate::of_planes(planes.min(sent), sent);
            }
            place -= share;
        }
        Fate::WHOLE
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): a share in [0, 1) for a packet.
fn share(seed: u64, packet: usize) -> f64 {
    let mut z = seed.wrapping_add((packet as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Rows that a thread takes at a time: less is not worth a thread.
const ROWS: usize = 4;

/// Encodes, trims and decodes without a network, row by row on all processors: what receivers would
/// have. Gives how many packets were whole, trimmed and missing.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "one Python function calls it, which has names for them")]
pub(crate) fn simulate_into(
    py: Python<'_>,
    tensor: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    codec_name: &str,
    planes_sent: Option<u8>,
    decoding_name: &str,
    agreement: Agreement,
    network: Network,
) -> PyResult<(usize, usize, usize)> {
    let (tensor, mut out) = (Tensor::import(tensor, "tensor")?, Tensor::import(out, "out")?);
    let scheme = scheme(codec_name)?;
    let sent = planes(scheme, planes_sent, "sent_planes")?;
    for &(left, share) in &network.shares {
        if left > 0 {
            planes(scheme, Some(left), "planes")?;
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(PyValueError::new_err(format!("planes: a share of {share}; a share is in [0, 1]")));
        }
    }
    let simulation = Simulation {
        layout: agreement.layout(tensor.len(), scheme, sent)?,
        scheme,
        job: agreement.job(),
        envelope: agreement.envelope()?,
        decoding: decoding(decoding_name)?,
        sent,
        network,
        arrived: Arrived::default(),
    };
    if out.len() != tensor.len() {
        let text = format!("out: {} elements instead of {}", out.len(), tensor.len());
        return Err(PyValueError::new_err(text));
    }
    let (values, out) = (tensor.values()?, out.values_mut()?);
    py.detach(|| match values {
        Values::F32(values) => simulation.run(values, out),
        Values::F16(values) => simulation.run(values, out),
        Values::Bf16(values) => simulation.run(values, out),
    })?;
    let Arrived { trimmed, missing } = &simulation.arrived;
    let (trimmed, missing) = (trimmed.load(Ordering::Relaxed), missing.load(Ordering::Relaxed));
    Ok((simulation.layout.packets() - trimmed - missing, trimmed, missing))
}

/// Packets that did not arrive whole.
#[derive(Default)]
struct Arrived {
    trimmed: AtomicUsize,
    missing: AtomicUsize,
}

struct Simulation {
    layout: Layout,
    scheme: Scheme,
    job: Job,
    envelope: Envelope,
    decoding: Decoding,
    sent: u8,
    network: Network,
    arrived: Arrived,
}

impl Simulation {
    fn run<E: Element>(&self, values: &[E], out: &mut [f32]) -> PyResult<()> {
        let layout = &self.layout;
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut rest = out;
        let mut jobs: Vec<(usize, &mut [f32])> = Vec::new();
        for row in 0..layout.rows() {
            let (own, tail) = rest.split_at_mut(layout.row_coordinates(row).len());
            jobs.push((row, own));
            rest = tail;
        }
        let each = jobs.len().div_ceil(threads).max(ROWS);
        let failed = std::thread::scope(|scope| {
            let mut parts = Vec::new();
            while !jobs.is_empty() {
                let part = jobs.split_off(jobs.len().saturating_sub(each));
                let work = move || {
                    let mut packets = Vec::new();
                    part.into_iter().try_for_each(|(row, out)| self.row(row, values, out, &mut packets))
                };
                parts.push(scope.spawn(work));
            }
            parts.into_iter().map(|part| part.join()).collect::<Vec<_>>()
        });
        for part in failed {
            let ended = part.map_err(|_| invalid("tensor: a thread panicked"))?;
            ended.map_err(|error| PyValueError::new_err(format!("tensor: {error}")))?;
        }
        Ok(())
    }

    fn row<E: Element>(
        &self,
        row: usize,
        values: &[E],
        out: &mut [f32],
        packets: &mut Vec<u8>,
    ) -> Result<(), trimwire_encoder::EncodeError> {
        let Self { layout, job, envelope, decoding, sent, .. } = self;
        let (values, first) = (&values[layout.row_coordinates(row)], layout.row_packets(row).start);
        let held: Vec<usize> =
            layout.row_places(row).map(|(index, place)| self.held(index, place.len())).collect();
        let codec = match self.scheme {
            Scheme::Wire(codec) => codec,
            Scheme::Paper(codec) => {
                let of = Trimmed { layout, row, job: *job, envelope: *envelope, decoding: *decoding };
                codec.after_trim(of, values, |index| held[index - first], out);
                return Ok(());
            }
        };
        let encoder = Encoder::new(layout.clone(), *job).with_codec(codec);
        packets.resize(encoder.row_len(row, *sent), 0);
        let choice = RowChoice { planes: *sent, importance: Importance::Always };
        encoder.encode_row(row, values, *envelope, choice, packets)?;
        let receiver = RowReceiver::new(layout, row, *job, *envelope, *decoding);
        let mut receiver = receiver.with_codec(codec).with_planes(*sent);
        let mut rest = &packets[..];
        for ((_, place), held) in layout.row_places(row).zip(held) {
            let (packet, tail) = rest.split_at(codec.packet_len(*sent, place.len(), false));
            rest = tail;
            if held > 0 {
                // Own packets of the same layout.
                let _ = receiver.receive(&packet[..held.min(packet.len())]);
            }
        }
        let _ = receiver.decode_into(out);
        Ok(())
    }

    /// Bytes that are left of a packet of `n` coordinates; none of one that is lost. Counts it.
    fn held(&self, index: usize, n: usize) -> usize {
        let fate = self.network.left(index, self.layout.packets(), self.sent);
        let Some(left) = fate.bytes(self.scheme, self.sent, n) else {
            self.arrived.missing.fetch_add(1, Ordering::Relaxed);
            return 0;
        };
        if left < self.scheme.packet_len(self.sent, n) {
            self.arrived.trimmed.fetch_add(1, Ordering::Relaxed);
        }
        left
    }
}

/// Coordinates of a packet of collectives, by the planes that are sent.
#[pyfunction]
#[pyo3(signature = (planes, mtu=1_500, sealed=false))]
pub(crate) fn coordinates_per_packet(planes: u8, mtu: usize, sealed: bool) -> usize {
    Codec::default().coordinates_per_packet(mtu, planes, sealed)
}

/// The error to expect (docs/reference/wire-format.md §9), where shares of the packets keep so many
/// planes; `None` where nothing arrives, of which no scale makes anything.
#[pyfunction]
pub(crate) fn expected_nmse(
    shares: Vec<(u8, f64)>,
    codec_name: &str,
    decoding_name: &str,
) -> PyResult<Option<f64>> {
    let error = scheme(codec_name)?.expected_nmse(decoding(decoding_name)?, &shares);
    Ok(error.is_finite().then_some(error))
}
