// SPDX-License-Identifier: Apache-2.0
//! What chips make of a trim size and a trim queue, as far as it is public.

use std::str::FromStr;

use super::Present;
use super::notes::Fidelity;
use crate::model::Fabric;

/// A switch's chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Asic {
    /// NVIDIA Spectrum-4: sizes in a range, in steps (Cumulus Linux 5.14, Packet Trimming).
    Spectrum4,
    /// Broadcom Tomahawk 5: one size and one queue, whatever is written (sonic-mgmt#21439).
    Th5 {
        /// Set by the model's `.bcm` file.
        queue: u8,
    },
    /// Of which nothing is known here.
    #[default]
    Unknown,
}

const SPECTRUM_SIZES: std::ops::RangeInclusive<u16> = 256..=1024;
const SPECTRUM_STEP: u16 = 4;
const TH5_SIZE: u16 = 206;
const TH5_QUEUE: u8 = 9;
/// Models whose trim queue is another (sonic-mgmt#21439, `PacketTrimmingConfig.get_trim_queue`).
const TH5_QUEUES: [(&str, u8); 2] = [("Arista-7060X6-64PE-B-C448O16", 4), ("Arista-7060X6-64PE-B-C512S2", 4)];
/// How models begin that have a chip.
const MODELS: [(&str, &str); 5] = [
    ("Arista-7060X6", "th5"),
    ("Mellanox-SN5400", "spectrum4"),
    ("Mellanox-SN5600", "spectrum4"),
    ("Mellanox-SN5610", "spectrum4"),
    ("ACS-SN5600", "spectrum4"),
];

impl FromStr for Asic {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "spectrum4" => Ok(Self::Spectrum4),
            "th5" => Ok(Self::Th5 { queue: TH5_QUEUE }),
            _ => Err(format!("'{name}': expected spectrum4 or th5; leave it out for others")),
        }
    }
}

impl Asic {
    /// What `asked` says, else the model (`hwsku`) in the switch's own configuration.
    #[must_use]
    pub fn of(asked: Option<Self>, present: Option<&Present>) -> Self {
        let model = present.and_then(|present| present.text("DEVICE_METADATA", "localhost", "hwsku"));
        let model = model.unwrap_or_default();
        let by_model = MODELS.iter().find(|(prefix, _)| model.starts_with(prefix));
        let found = asked.or_else(|| by_model.and_then(|(_, name)| name.parse().ok()));
        match (found, TH5_QUEUES.iter().find(|(known, _)| *known == model)) {
            (Some(Self::Th5 { .. }), Some((_, queue))) => Self::Th5 { queue: *queue },
            (found, _) => found.unwrap_or_default(),
        }
    }

    /// What is written for a size of the file, how near that is, and why.
    pub(super) fn size(self, size: u16) -> (u16, Fidelity, String) {
        match self {
            Self::Th5 { .. } if size != TH5_SIZE => {
                let why = format!(
                    "Tomahawk 5 trims to {TH5_SIZE} bytes and to nothing else; the file says {size}. Any trim decodes"
                );
                (TH5_SIZE, Fidelity::Near, why)
            }
            Self::Spectrum4 => {
                let nearest = size.clamp(*SPECTRUM_SIZES.start(), *SPECTRUM_SIZES.end());
                let nearest = nearest.next_multiple_of(SPECTRUM_STEP);
                if nearest == size {
                    return (size, Fidelity::Exact, format!("{size} bytes"));
                }
                let why = format!(
                    "{nearest} bytes instead of {size}: Spectrum-4 takes {} to {} in steps of {SPECTRUM_STEP}. Any trim decodes",
                    SPECTRUM_SIZES.start(),
                    SPECTRUM_SIZES.end()
                );
                (nearest, Fidelity::Near, why)
            }
            Self::Th5 { .. } => (size, Fidelity::Exact, format!("{size} bytes")),
            Self::Unknown => {
                let why = format!(
                    "{size} bytes: whether this chip takes them is not known; --asic names one, as the model (hwsku) in --config-db does"
                );
                (size, Fidelity::Check, why)
            }
        }
    }

    /// The queue of what was trimmed, if it is not to be chosen.
    pub(super) fn fixed_queue(self) -> Option<u8> {
        match self {
            Self::Th5 { queue } => Some(queue),
            Self::Spectrum4 | Self::Unknown => None,
        }
    }

    /// The fabric with the chip's trim queue instead of the file's; `None` where that is another
    /// queue of the file, or the same.
    pub(super) fn moved(self, fabric: &Fabric, switch: &str) -> Option<Fabric> {
        let (from, to) = (fabric.queues.trimmed, self.fixed_queue()?);
        if fabric.queues.named().iter().any(|(_, queue)| *queue == to) {
            return None;
        }
        let mut fabric = fabric.clone();
        fabric.queues.trimmed = to;
        for policy in fabric.policies.get_mut(switch)?.values_mut() {
            let policy = std::sync::Arc::make_mut(policy);
            if let Some(queue) = policy.queues.remove(&from) {
                policy.queues.insert(to, queue);
            }
        }
        Some(fabric)
    }
}
