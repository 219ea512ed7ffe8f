// SPDX-License-Identifier: Apache-2.0
//! How ports and queues are served, and what they may hold.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU8;
use std::str::FromStr;

/// Most queues a port has; the highest number is served first. v1model's `priority` has three bits.
pub const QUEUES: usize = 8;

/// Depths that v1model's `enq_qdepth` and `deq_qdepth` can hold: both have 19 bits.
pub(super) const MOST_DEPTH: u64 = (1 << 19) - 1;

/// Bytes of a cell, the unit in which Broadcom's and others' shared buffers are allocated.
pub(super) const CELL: u64 = 80;

/// One port's line and buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortConfig {
    /// Line rate, bit/s; 0 serves at once, as BMv2 does.
    pub rate_bps: u64,
    /// A queue takes no packet that would lift it above this many bytes, unless it has a limit of
    /// its own.
    pub queue_limit_bytes: u64,
}

impl Default for PortConfig {
    fn default() -> Self {
        Self { rate_bps: 0, queue_limit_bytes: 4 << 20 }
    }
}

/// How a queue competes with the others of its port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Service {
    /// Before every queue of a lower number, and before all weighted ones.
    #[default]
    Strict,
    /// What strict queues leave is shared by deficit round robin (Shreedhar and Varghese 1995) in
    /// proportion to the weights of the queues that wait.
    Weighted(NonZeroU8),
}

/// One queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueConfig {
    /// Most bytes that wait; without it the port's `queue_limit_bytes` holds.
    pub limit_bytes: Option<u64>,
    /// Strict or weighted.
    pub service: Service,
    /// While others wait, the queue gets no more than this share of the line; what nobody else
    /// wants it may have.
    pub cap: Option<Share>,
    /// Dynamic threshold in the shared buffer.
    pub alpha: Option<Alpha>,
}

/// The unit of `enq_qdepth` and `deq_qdepth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DepthUnit {
    /// Packets, as BMv2 has it.
    #[default]
    Packets,
    /// Bytes.
    Bytes,
    /// Cells of 80 bytes; every packet begins one.
    Cells,
}

/// Everything about queues that is not a single port's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficConfig {
    /// Queues a port has, 1 to 8. A packet for another one is dropped, as BMv2 does.
    pub priority_queues: u8,
    /// Unit of `enq_qdepth` and `deq_qdepth`.
    pub depth_unit: DepthUnit,
    /// Most bytes that wait in all queues of all ports together.
    pub buffer_bytes: Option<u64>,
    /// Queues of every port.
    pub default_queues: [QueueConfig; QUEUES],
    /// Queues, by port and queue, that are unlike those of other ports.
    pub queues: BTreeMap<(u16, u8), QueueConfig>,
}

impl Default for TrafficConfig {
    fn default() -> Self {
        Self {
            priority_queues: QUEUES as u8,
            depth_unit: DepthUnit::default(),
            buffer_bytes: None,
            default_queues: [QueueConfig::default(); QUEUES],
            queues: BTreeMap::new(),
        }
    }
}

/// A share of a line in steps of 0.1 %, above 0 and below all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// From per mille, 1 to 999.
    pub fn from_permille(permille: u32) -> Option<Self> {
        (1..1000).contains(&permille).then_some(Self(permille as u16))
    }

    /// In per mille.
    pub fn permille(self) -> u16 {
        self.0
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no share of a line; expected 0.1% to 99.9%, such as 50%");
        let (whole, tenth) = match text.strip_suffix('%').ok_or_else(wrong)?.split_once('.') {
            None => (text.trim_end_matches('%'), "0"),
            Some(parts) => parts,
        };
        let digits = |text: &str| text.parse::<u16>().ok().filter(|_| !text.starts_with('+'));
        match (digits(whole), digits(tenth)) {
            (Some(whole), Some(tenth)) if whole < 100 && tenth < 10 => {
                Self::from_permille(u32::from(whole) * 10 + u32::from(tenth)).ok_or_else(wrong)
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}%"),
            (whole, tenth) => write!(f, "{whole}.{tenth}%"),
        }
    }
}

/// The factor of a dynamic threshold (Choudhury and Hahne 1998): a queue takes a packet while it
/// holds less than `alpha` times what is free in the shared buffer. A ratio, so that comparisons
/// are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alpha {
    numerator: u32,
    denominator: u32,
}

impl Alpha {
    /// `numerator / denominator`, both above 0.
    pub fn new(numerator: u32, denominator: u32) -> Option<Self> {
        (numerator > 0 && denominator > 0).then_some(Self { numerator, denominator })
    }

    /// The ratio.
    pub fn ratio(self) -> (u32, u32) {
        (self.numerator, self.denominator)
    }

    /// Whether a queue of `depth` bytes is below its threshold when `free` bytes of the buffer are.
    pub(super) fn admits(self, depth: u64, free: u64) -> bool {
        u128::from(depth) * u128::from(self.denominator) < u128::from(free) * u128::from(self.numerator)
    }
}

impl FromStr for Alpha {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is no alpha; expected a number or a ratio above 0, such as 8 or 1/4");
        let digits = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
        let (numerator, denominator) = match (text.split_once('/'), text.split_once('.')) {
            (Some((above, below)), _) => (digits(above), digits(below)),
            (None, Some((whole, fraction))) if !fraction.is_empty() && fraction.len() <= 6 => {
                let scale = 10u32.pow(fraction.len() as u32);
                let all =
                    digits(whole).and_then(|whole| whole.checked_mul(scale)?.checked_add(digits(fraction)?));
                (all, Some(scale))
            }
            (None, Some(_)) => return Err(wrong()),
            (None, None) => (digits(text), Some(1)),
        };
        numerator.zip(denominator).and_then(|(above, below)| Self::new(above, below)).ok_or_else(wrong)
    }
}

impl fmt::Display for Alpha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            below => write!(f, "{}/{below}", self.numerator),
        }
    }
}

impl FromStr for DepthUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "packets" => Ok(Self::Packets),
            "bytes" => Ok(Self::Bytes),
            "cells" => Ok(Self::Cells),
            _ => Err(format!("'{text}' is no unit of depth; expected packets, bytes or cells")),
        }
    }
}

impl fmt::Display for DepthUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Cells => "cells",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_alphas_are_read_exactly_and_written_back() {
        for (text, permille) in [("50%", 500), ("0.1%", 1), ("99.9%", 999), ("12.5%", 125)] {
            assert_eq!(text.parse::<Share>().map(Share::permille), Ok(permille));
            assert_eq!(Share::from_permille(u32::from(permille)).unwrap().to_string(), text);
        }
        for (text, ratio) in [("8", (8, 1)), ("1/128", (1, 128)), ("0.25", (25, 100))] {
            assert_eq!(text.parse::<Alpha>().map(Alpha::ratio), Ok(ratio));
        }
        for bad in ["", "%", "50", "100%", "0%", "0.0%", "12.55%", "+5%", "-5%", "5 %"] {
            assert!(bad.parse::<Share>().unwrap_err().contains("50%"), "{bad}");
        }
        for bad in ["", "0", "1/0", "0/1", "x", "1/", "-1", "1.", ".5", "99999999999"] {
            assert!(bad.parse::<Alpha>().unwrap_err().contains("1/4"), "{bad}");
        }
    }
}
