//! Packets in, gradient out: any prefix, any order, duplicates and repairs.

use crate::encoder::transpose;
use crate::layout::Layout;
use crate::packet::{BIT_PLANES, Header, PLANES, PacketError, PacketView, plane_offset};
use crate::quantiser::{self, Cells};
use crate::rotation::{self, RotationKey};
use crate::scale::RowScale;

/// How coordinates that did not arrive whole are filled in (DESIGN §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decoding {
    /// λ · centroid with λ = 1 / (1 − Σ p_b D_b): unbiased, NMSE = λ − 1.
    #[default]
    Unbiased,
    /// The centroid itself: biased, the smallest error of a single transfer.
    Mmse,
    /// f · sign on every cut coordinate with f = ‖V‖² / ‖R(V)‖₁ of the row (the paper, §3.2).
    Paper,
}

/// What a packet added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its index.
    pub index: usize,
    /// Whole planes held before.
    pub planes_before: u8,
    /// Whole planes held now.
    pub planes_now: u8,
    /// The packet brought nothing that was not held already.
    pub duplicate: bool,
}

/// How the packets of a message fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets of which all 11 planes are held.
    pub full: usize,
    /// Packets of which a part is held.
    pub cut: usize,
    /// Packets of which nothing arrived.
    pub missing: usize,
}

/// What is held of one packet.
#[derive(Debug, Clone, Copy)]
struct Held {
    header: Header,
    /// Bit p: plane p is here as a whole.
    planes: u16,
    /// Bytes held of the plane behind the leading whole ones.
    partial: (u8, usize),
}

impl Held {
    fn leading(&self) -> u8 {
        self.planes.trailing_ones() as u8
    }
}

/// Collects the packets of one message and decodes it.
#[derive(Debug, Clone)]
pub struct Decoder {
    layout: Layout,
    key: RotationKey,
    decoding: Decoding,
    held: Vec<Option<Held>>,
    limits: Vec<u8>,
    bodies: Vec<u8>,
}

impl Decoder {
    /// A decoder for the message that an [`crate::Encoder`] of the same layout and key makes.
    pub fn new(layout: Layout, key: RotationKey, decoding: Decoding) -> Self {
        let packets = layout.packets();
        Self {
            layout,
            key,
            decoding,
            held: vec![None; packets],
            limits: vec![PLANES; packets],
            bodies: vec![0; packets * layout.body_capacity()],
        }
    }

    /// The message's layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Forgets all packets and expects a message rotated under `key`; keeps the buffers.
    pub fn reset(&mut self, key: RotationKey) {
        self.key = key;
        self.held.fill(None);
        self.limits.fill(PLANES);
    }

    /// Takes the UDP payload of a DATA packet in. Its length is what arrived; nothing is changed on an error.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let view = PacketView::parse(payload)?;
        let header = *view.header();
        let index = header.index as usize;
        if index >= self.held.len() {
            return Err(PacketError::Index { index: header.index, packets: self.held.len() as u32 });
        }
        let n = self.layout.packet_range(index).len();
        if header.coordinates != n {
            return Err(PacketError::Coordinates {
                index: header.index,
                got: header.coordinates,
                expected: n,
            });
        }
        let capacity = self.layout.body_capacity();
        let slot = &mut self.bodies[index * capacity..][..plane_offset(PLANES, n)];
        let known = self.held[index].is_some();
        let held = self.held[index].get_or_insert(Held { header, planes: 0, partial: (0, 0) });
        let planes_before = held.leading();
        let before = (held.planes, held.partial);
        let mut rest = view.body();
        for plane in header.first_plane..PLANES {
            let (start, end) = (plane_offset(plane, n), plane_offset(plane + 1, n));
            let whole = rest.len() >= end - start;
            let (bytes, tail) = rest.split_at(rest.len().min(end - start));
            if held.planes >> plane & 1 == 0 && !(held.partial.0 == plane && held.partial.1 > bytes.len()) {
                slot[start..start + bytes.len()].copy_from_slice(bytes);
                if whole {
                    held.planes |= 1 << plane;
                } else if plane >= held.partial.0 || held.planes >> held.partial.0 & 1 == 1 {
                    held.partial = (plane, bytes.len());
                }
            }
            if !whole {
                break;
            }
            rest = tail;
        }
        let duplicate = known && before == (held.planes, held.partial);
        Ok(Receipt { index, planes_before, planes_now: held.leading(), duplicate })
    }

    /// Whole planes held of a packet: 0 when nothing, or nothing but its head, arrived.
    pub fn coverage(&self, index: usize) -> u8 {
        self.held.get(index).copied().flatten().map_or(0, |held| held.leading())
    }

    /// Whether anything, if only its head, arrived of a packet.
    pub fn arrived(&self, index: usize) -> bool {
        self.held.get(index).is_some_and(Option::is_some)
    }

    /// Decodes a packet as if no more than `planes` planes of it had arrived, none at 0 (replica-consistent decoding).
    pub fn limit(&mut self, index: usize, planes: u8) {
        if let Some(limit) = self.limits.get_mut(index) {
            *limit = planes.min(PLANES);
        }
    }

    /// How the packets fared.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for held in &self.held {
            match held {
                None => stats.missing += 1,
                Some(held) if held.leading() >= PLANES => stats.full += 1,
                Some(_) => stats.cut += 1,
            }
        }
        stats
    }

    /// Decodes into `out` (shape: `layout.coordinates()`; a longer or shorter slice is filled as far as both reach).
    pub fn finish_into(&self, out: &mut [f32]) {
        self.decode(out, |slot, value| *slot = value);
    }

    /// Decodes and adds to `out`, as a reducer does; shapes as in [`Self::finish_into`].
    pub fn add_into(&self, out: &mut [f32]) {
        self.decode(out, |slot, value| *slot += value);
    }

    fn decode(&self, out: &mut [f32], put: impl Fn(&mut f32, f32)) {
        let mut buffer = Vec::new();
        for row in 0..self.layout.rows() {
            let range = self.layout.row_range(row);
            buffer.clear();
            buffer.resize(range.len(), 0.0);
            let (start, end) = (range.start.min(out.len()), range.end.min(out.len()));
            let scale = self.decode_row(row, &mut buffer);
            for (slot, value) in out[start..end].iter_mut().zip(&buffer) {
                put(slot, scale.down(f64::from(*value)));
            }
        }
    }

    /// Fills `buffer` with the row at its working scale.
    fn decode_row(&self, row: usize, buffer: &mut [f32]) -> RowScale {
        let range = self.layout.row_range(row);
        let packets = self.layout.row_packets(row);
        let sigma =
            packets.clone().filter_map(|i| self.held[i]).fold(0.0f32, |m, held| m.max(held.header.sigma));
        let scale = RowScale::for_largest(sigma);
        if sigma == 0.0 {
            return scale;
        }
        let weights = RowWeights::of(packets.clone().map(|i| self.precision(i)), range.len(), scale);
        for index in packets {
            let place = self.layout.packet_range(index);
            let coordinates = &mut buffer[place.start - range.start..place.end - range.start];
            if let Some(precision) = self.precision(index).1 {
                self.decode_packet(index, precision, &weights, scale, coordinates);
            }
        }
        if self.decoding == Decoding::Unbiased {
            let lambda = weights.lambda() as f32;
            buffer.iter_mut().for_each(|v| *v *= lambda);
        }
        rotation::inverse(buffer, self.key, row as u32);
        scale
    }

    /// A packet's coordinates and, if it arrived, at what precision it is decoded.
    fn precision(&self, index: usize) -> (usize, Option<Precision>) {
        let n = self.layout.packet_range(index).len();
        let limit = self.limits[index];
        let precision = self.held[index].filter(|_| limit > 0).map(|held| {
            let leading = held.leading();
            let more = match held.partial {
                (plane, bytes) if plane == leading && plane < limit && plane < PLANES => {
                    if plane < BIT_PLANES { bytes * 8 } else { bytes }
                }
                _ => 0,
            };
            Precision { header: held.header, planes: leading.min(limit), more: more.min(n) }
        });
        (n, precision)
    }

    fn decode_packet(
        &self,
        index: usize,
        precision: Precision,
        weights: &RowWeights,
        scale: RowScale,
        coordinates: &mut [f32],
    ) {
        let n = coordinates.len();
        let body = &self.bodies[index * self.layout.body_capacity()..][..plane_offset(PLANES, n)];
        let header = precision.header;
        let sigma = scale.up64(header.sigma) as f32;
        let value = Dequantiser {
            sigma,
            one_plane: sigma * f32::from(header.kappa) / 255.0,
            cells: Cells::new(quantiser::peak_magnitude(header.peak)),
            sign_only: (self.decoding == Decoding::Paper).then_some(weights.paper_scale() as f32),
        };
        let bit_planes = (precision.planes + u8::from(precision.more > 0)).min(BIT_PLANES);
        for (group, out) in coordinates.chunks_exact_mut(8).enumerate() {
            let mut bytes = [0u8; 8];
            for (plane, byte) in bytes.iter_mut().enumerate().take(usize::from(bit_planes)) {
                *byte = body[plane * (n / 8) + group];
            }
            let indices = transpose(u64::from_be_bytes(bytes)).to_be_bytes();
            let first = group * 8;
            let mut offsets = [0u32; 8];
            // A byte-plane that arrived in part has zeroes, or an earlier packet's bytes, behind the part: `open_bits` masks them.
            for (plane, shift) in (BIT_PLANES..precision.planes_of(first)).zip([16, 8, 0]) {
                let bytes = &body[plane_offset(plane, n) + first..][..8];
                offsets.iter_mut().zip(bytes).for_each(|(offset, byte)| *offset |= u32::from(*byte) << shift);
            }
            let uniform = precision.planes_of(first) == precision.planes_of(first + 7);
            if uniform && precision.planes_of(first) == PLANES {
                for lane in 0..8 {
                    out[lane] =
                        signed(indices[lane], sigma * value.cells.magnitude(indices[lane], offsets[lane], 0));
                }
                continue;
            }
            for lane in 0..8 {
                let planes = precision.planes_of(first + lane);
                out[lane] = signed(indices[lane], value.magnitude(indices[lane], planes, offsets[lane]));
            }
        }
    }
}

/// Bit 7 of an index is the sign.
#[inline]
fn signed(index: u8, magnitude: f32) -> f32 {
    f32::from_bits(magnitude.to_bits() ^ u32::from(index & 128) << 24)
}

/// At what precision a packet is decoded: its first `more` coordinates at `planes + 1` planes, the rest at `planes`.
#[derive(Debug, Clone, Copy)]
struct Precision {
    header: Header,
    planes: u8,
    more: usize,
}

impl Precision {
    /// Planes of the coordinate in place `i`.
    fn planes_of(&self, i: usize) -> u8 {
        self.planes + u8::from(i < self.more)
    }
}

struct Dequantiser {
    sigma: f32,
    one_plane: f32,
    cells: Cells,
    sign_only: Option<f32>,
}

impl Dequantiser {
    #[inline]
    fn magnitude(&self, cell: u8, planes: u8, position: u32) -> f32 {
        match (planes, self.sign_only) {
            (0, _) => 0.0,
            (1..PLANES, Some(scale)) => scale,
            (1, None) => self.one_plane,
            (2..=BIT_PLANES, None) => self.sigma * quantiser::centroid(cell, planes),
            _ => {
                let open_bits = 8 * u32::from(PLANES - planes.min(PLANES));
                let known = position >> open_bits << open_bits;
                self.sigma * self.cells.magnitude(cell, known, open_bits)
            }
        }
    }
}

/// Sums over a row from which the two scales follow.
#[derive(Debug, Clone, Copy, Default)]
struct RowWeights {
    /// Coordinates of the row, and of its packets that arrived.
    coordinates: f64,
    arrived: f64,
    /// Σ n σ², and the part of it that survived: Σ n σ² (1 − D_b).
    energy: f64,
    kept: f64,
    /// Σ n σ κ.
    magnitude: f64,
}

impl RowWeights {
    fn of(
        packets: impl Iterator<Item = (usize, Option<Precision>)>,
        coordinates: usize,
        scale: RowScale,
    ) -> Self {
        let mut sums = Self { coordinates: coordinates as f64, ..Self::default() };
        for (n, precision) in packets {
            let Some(Precision { header, planes, more }) = precision else { continue };
            let (n, more) = (n as f64, more as f64);
            let kappa = f64::from(header.kappa) / 255.0;
            let sigma = scale.up64(header.sigma);
            // D_1 = 1 − κ² holds for any distribution; beyond it the normal one's constants (DESIGN §4).
            let kept = |planes| if planes == 1 { kappa * kappa } else { 1.0 - quantiser::distortion(planes) };
            sums.arrived += n;
            sums.energy += n * sigma * sigma;
            sums.kept += sigma * sigma * (more * kept(planes + 1) + (n - more) * kept(planes));
            sums.magnitude += n * sigma * kappa;
        }
        sums
    }

    /// λ = 1 / (1 − Σ p_b D_b). Packets that arrived are weighed by their energy, which makes the projection on the
    /// true row exact; a missing one by the mean of the others, since the rotation spreads a row's energy evenly.
    fn lambda(&self) -> f64 {
        if self.kept > 0.0 { self.energy * self.coordinates / self.arrived / self.kept } else { 0.0 }
    }

    /// f = ‖V‖² / ‖R(V)‖₁.
    fn paper_scale(&self) -> f64 {
        if self.magnitude > 0.0 { self.energy / self.magnitude } else { 0.0 }
    }
}
