// SPDX-License-Identifier: Apache-2.0
//! A cluster, as its file describes it: machines, links, devices, compressor, congestion.

use serde::{Deserialize, Serialize};
use trimwire_encoder::{Codec, Decoding, expected_nmse};

use super::collective::Affine;
use super::name::{is_name, printable};
use super::task::Device;

/// Machines of equal make, with equally many GPUs each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cluster {
    /// Its name.
    pub cluster: String,
    /// How many.
    pub machines: u32,
    /// GPUs of each.
    pub gpus: u32,
    /// Between the GPUs of a machine; the rate is a GPU's.
    pub intra: LinkCost,
    /// Between machines; the rate is a machine's.
    pub inter: LinkCost,
    /// The compressor.
    pub compressor: CompressorCost,
    /// What of the inter-machine bandwidth is left, and how often; without it, all of it always.
    #[serde(default)]
    pub congestion: Vec<Congestion>,
    /// Whether switches between machines trim packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trimming: Option<Trimming>,
}

/// A link.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkCost {
    /// Gbit/s.
    pub gbps: f64,
    /// Of a message, µs.
    pub latency_us: f64,
}

/// What compression costs and saves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressorCost {
    /// Its name, for tables.
    pub name: String,
    /// Compressed bytes over those of f32.
    pub share: f64,
    /// On a GPU; none where none compresses, as nobody measured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<DeviceCost>,
    /// On a machine's processors, all GPUs' tensors together.
    pub cpu: DeviceCost,
}

/// What a device takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceCost {
    /// f32 into compressed.
    pub compress: Rate,
    /// Compressed into f32, each copy that is added up counting.
    pub decompress: Rate,
}

/// A constant and a slope.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Of every call, µs: a kernel's launch, a thread's waking.
    pub launch_us: f64,
    /// GB of f32 a second.
    pub gbytes_per_s: f64,
}

impl Rate {
    /// ns of a tensor's elements, of each of which so many f32 are worked on.
    pub(super) fn line(&self, elements: f64) -> Affine {
        Affine { constant: self.launch_us * 1e3, slope: elements * 4.0 / self.gbytes_per_s }
    }
}

/// A state of the network between machines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Congestion {
    /// How often, a share of the time; shares add up to 1.
    pub share: f64,
    /// What is left of the bandwidth, above 0 to 1.
    pub bandwidth: f64,
}

/// Switches that trim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trimming {
    /// Planes with which packets may be sent; each makes options of its own.
    pub planes: Vec<u8>,
    /// What a trim leaves.
    pub floor_planes: u8,
    /// Greatest mean error that an option may have, ‖got − exact‖² / ‖exact‖².
    pub max_nmse: f64,
    /// The codec on a GPU.
    pub gpu: DeviceCost,
    /// On a machine's processors.
    pub cpu: DeviceCost,
}

/// Coordinates of a packet of default size.
const COORDINATES: usize = trimwire_encoder::DEFAULT_COORDINATES_PER_PACKET;

impl Trimming {
    /// Bytes of a packet of so many planes over those of its f32s, headers of UDP, IPv4 and
    /// Ethernet included.
    pub fn share(planes: u8) -> f64 {
        (42 + Codec::Rht.packet_len(planes, COORDINATES, false)) as f64 / (4 * COORDINATES) as f64
    }

    /// Share of packets that is trimmed while `bandwidth` of the link is left.
    pub fn trimmed_share(&self, planes: u8, bandwidth: f64) -> f64 {
        let head = Self::share(self.floor_planes.min(planes)) / Self::share(planes);
        if head >= 1.0 { 0.0 } else { ((1.0 - bandwidth) / (1.0 - head)).clamp(0.0, 1.0) }
    }

    /// Expected error of one hop while `bandwidth` of the link is left.
    pub fn nmse(&self, planes: u8, bandwidth: f64) -> f64 {
        let trimmed = self.trimmed_share(planes, bandwidth);
        let mix = [(planes, 1.0 - trimmed), (self.floor_planes.min(planes), trimmed)];
        expected_nmse(Codec::Rht, Decoding::Unbiased, &mix)
    }
}

/// What is wrong with a cluster.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{key}: {value}; valid are {valid}")]
pub struct ClusterError {
    /// Which value.
    pub key: String,
    /// What it is.
    pub value: String,
    /// What may be.
    pub valid: &'static str,
}

impl Cluster {
    /// The states of the network between machines.
    pub fn states(&self) -> Vec<Congestion> {
        if self.congestion.is_empty() {
            vec![Congestion { share: 1.0, bandwidth: 1.0 }]
        } else {
            self.congestion.clone()
        }
    }

    /// What a device takes for the compressor, or for the codec.
    pub(super) fn device(&self, device: Device, codec: bool) -> DeviceCost {
        let (gpu, cpu) = match &self.trimming {
            Some(trimming) if codec => (trimming.gpu, trimming.cpu),
            // Nothing asks a GPU that is not there: such options are not usable.
            _ => (self.compressor.gpu.unwrap_or(self.compressor.cpu), self.compressor.cpu),
        };
        match device {
            Device::Gpu => gpu,
            Device::Cpu => cpu,
        }
    }

    /// Whether all values make sense; the error names the first that does not.
    pub fn check(&self) -> Result<(), ClusterError> {
        let wrong = |key: &str, value: String, valid| Err(ClusterError { key: key.to_owned(), value, valid });
        if !(1..=65_536).contains(&self.machines) {
            return wrong("machines", self.machines.to_string(), "1 to 65536");
        }
        if !(1..=1024).contains(&self.gpus) {
            return wrong("gpus", self.gpus.to_string(), "1 to 1024");
        }
        for (key, name) in [("cluster", &self.cluster), ("compressor.name", &self.compressor.name)] {
            if !is_name(name) {
                return wrong(key, printable(name), "names of 1 to 1000 characters that can be printed");
            }
        }
        let mut rates = vec![("compressor.cpu", self.compressor.cpu)];
        rates.extend(self.compressor.gpu.map(|gpu| ("compressor.gpu", gpu)));
        if let Some(trimming) = &self.trimming {
            rates.extend([("trimming.gpu", trimming.gpu), ("trimming.cpu", trimming.cpu)]);
        }
        for (key, link) in [("intra", self.intra), ("inter", self.inter)] {
            if !(link.gbps > 0.0 && link.gbps <= 1e6) {
                return wrong(
                    &format!("{key}.gbps"),
                    link.gbps.to_string(),
                    "bandwidths above 0, up to 1000000",
                );
            }
            if !(0.0..=1e9).contains(&link.latency_us) {
                return wrong(&format!("{key}.latency_us"), link.latency_us.to_string(), "0 to 1000000000");
            }
        }
        for (key, device) in rates {
            for (name, rate) in [("compress", device.compress), ("decompress", device.decompress)] {
                if !(rate.gbytes_per_s > 0.0 && rate.gbytes_per_s <= 1e6) {
                    let key = format!("{key}.{name}.gbytes_per_s");
                    return wrong(&key, rate.gbytes_per_s.to_string(), "rates above 0, up to 1000000");
                }
                if !(0.0..=1e9).contains(&rate.launch_us) {
                    let key = format!("{key}.{name}.launch_us");
                    return wrong(&key, rate.launch_us.to_string(), "0 to 1000000000");
                }
            }
        }
        if !(self.compressor.share > 0.0 && self.compressor.share <= 2.0) {
            return wrong("compressor.share", self.compressor.share.to_string(), "shares above 0, up to 2");
        }
        for (i, state) in self.congestion.iter().enumerate() {
            if !(state.bandwidth > 0.0 && state.bandwidth <= 1.0) {
                let key = format!("congestion[{i}].bandwidth");
                return wrong(&key, state.bandwidth.to_string(), "shares above 0, up to 1");
            }
            if !(0.0..=1.0).contains(&state.share) {
                return wrong(
                    &format!("congestion[{i}].share"),
                    state.share.to_string(),
                    "shares from 0 to 1",
                );
            }
        }
        let shares: f64 = self.congestion.iter().map(|state| state.share).sum();
        if self.congestion.len() > 16 {
            return wrong("congestion", format!("{} states", self.congestion.len()), "at most 16");
        }
        if !self.congestion.is_empty() && (shares - 1.0).abs() > 1e-6 {
            return wrong("congestion", format!("shares add up to {shares}"), "shares that add up to 1");
        }
        if let Some(trimming) = &self.trimming {
            if trimming.planes.is_empty() || trimming.planes.iter().any(|planes| !(1..=10).contains(planes)) {
                return wrong("trimming.planes", format!("{:?}", trimming.planes), "one or more of 1 to 10");
            }
            if !(1..=10).contains(&trimming.floor_planes) {
                return wrong("trimming.floor_planes", trimming.floor_planes.to_string(), "1 to 10");
            }
            if !(trimming.max_nmse >= 0.0 && trimming.max_nmse.is_finite()) {
                return wrong("trimming.max_nmse", trimming.max_nmse.to_string(), "0 or more");
            }
        }
        Ok(())
    }
}
