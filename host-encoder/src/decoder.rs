//! Packets in, gradient out: any prefix, any order, duplicates and repairs.

use crate::dequantiser::Dequantiser;
use crate::layout::Layout;
use crate::packet::{BIT_PLANES, BLOCK, Header, PLANES, PacketError, PacketView, plane_offset};
use crate::quantiser;
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
    /// Bytes held of each plane, from its beginning. Kept per plane, so that the order of arrival does not matter.
    bytes: [u16; PLANES as usize],
}

impl Held {
    fn leading(&self) -> u8 {
        let n = self.header.coordinates;
        let whole = |&plane: &u8| self.held_of(plane) >= plane_offset(plane + 1, n) - plane_offset(plane, n);
        (0..PLANES).take_while(whole).count() as u8
    }

    fn held_of(&self, plane: u8) -> usize {
        self.bytes.get(usize::from(plane)).copied().unwrap_or_default().into()
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
        let mut duplicate = self.held[index].is_some();
        let held = self.held[index].get_or_insert(Held { header, bytes: [0; PLANES as usize] });
        let scale = |h: &Header| (h.sigma.to_bits(), h.kappa, h.peak);
        if scale(&held.header) != scale(&header) {
            return Err(PacketError::Contradiction(header.index));
        }
        let planes_before = held.leading();
        let mut rest = view.body();
        for plane in header.first_plane..PLANES {
            let (start, end) = (plane_offset(plane, n), plane_offset(plane + 1, n));
            let (bytes, tail) = rest.split_at(rest.len().min(end - start));
            if bytes.len() > held.held_of(plane) {
                slot[start..start + bytes.len()].copy_from_slice(bytes);
                held.bytes[usize::from(plane)] = bytes.len() as u16;
                duplicate = false;
            }
            rest = tail;
        }
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
                put(slot, if scale.is_one() { *value } else { scale.down(f64::from(*value)) });
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
        let lambda = if self.decoding == Decoding::Unbiased { weights.lambda() as f32 } else { 1.0 };
        for index in packets {
            let place = self.layout.packet_range(index);
            let coordinates = &mut buffer[place.start - range.start..place.end - range.start];
            if let Some(precision) = self.precision(index).1 {
                self.decode_packet(index, precision, &weights, lambda, scale, coordinates);
            }
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
            let bytes = if leading < limit { held.held_of(leading) } else { 0 };
            let more = if leading < BIT_PLANES { bytes * 8 } else { bytes };
            Precision { header: held.header, planes: leading.min(limit), more: more.min(n) }
        });
        (n, precision)
    }

    /// Writes λ times a packet's coordinates.
    fn decode_packet(
        &self,
        index: usize,
        precision: Precision,
        weights: &RowWeights,
        lambda: f32,
        scale: RowScale,
        coordinates: &mut [f32],
    ) {
        let n = coordinates.len();
        let body = &self.bodies[index * self.layout.body_capacity()..][..plane_offset(PLANES, n)];
        let header = precision.header;
        let sign_only = (self.decoding == Decoding::Paper).then_some(weights.paper_scale() as f32);
        let sigma = scale.up64(header.sigma) as f32;
        // A packet cut within a plane holds its first coordinates at one plane more than the rest.
        let dequantiser = |planes| Dequantiser::new(sigma, header.kappa, header.peak, planes, sign_only);
        let (deep, shallow) = coordinates.split_at_mut(precision.more.div_ceil(BLOCK) * BLOCK);
        if !deep.is_empty() {
            dequantiser(precision.planes + 1).decode(body, n, 0, lambda, deep);
        }
        let (keep, dequantiser) = (precision.more % BLOCK, dequantiser(precision.planes));
        if keep > 0 {
            let block = precision.more / BLOCK;
            let mut mixed = [0.0; BLOCK];
            dequantiser.decode(body, n, block, lambda, &mut mixed);
            deep[precision.more..].copy_from_slice(&mixed[keep..]);
        }
        dequantiser.decode(body, n, deep.len() / BLOCK, lambda, shallow);
    }
}

/// At what precision a packet is decoded: its first `more` coordinates at `planes + 1` planes, the rest at `planes`.
#[derive(Debug, Clone, Copy)]
struct Precision {
    header: Header,
    planes: u8,
    more: usize,
}

/// Largest λ and f. No encoder's packets come near it; headers made up by others must not overflow a row into NaN.
const LARGEST_SCALE: f64 = (1u64 << 30) as f64;

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
            let kept = |planes| {
                if Dequantiser::decodes_by_sign(header.kappa, planes) {
                    kappa * kappa
                } else {
                    1.0 - quantiser::distortion(planes)
                }
            };
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
        if self.kept > 0.0 {
            (self.energy * self.coordinates / self.arrived / self.kept).min(LARGEST_SCALE)
        } else {
            0.0
        }
    }

    /// f = ‖V‖² / ‖R(V)‖₁.
    fn paper_scale(&self) -> f64 {
        if self.magnitude > 0.0 { (self.energy / self.magnitude).min(LARGEST_SCALE) } else { 0.0 }
    }
}
