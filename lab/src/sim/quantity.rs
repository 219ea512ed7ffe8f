// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them: `10us`, `100Gbps`, `2MB`.

use serde::de::{self, Deserialize, Deserializer, Visitor};
use std::fmt;

/// Time, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duration(pub u64);

/// Speed, bit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Size, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

const TIMES: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATES: &[(&str, f64)] = &[("Kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9), ("Tbps", 1e12), ("bps", 1.0)];
const SIZES: &[(&str, f64)] = &[
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];

const TIME: &str = "a time with its unit (ns, us, ms, s), such as 10us, 1.5ms or 2s";
const RATE: &str = "a speed above 0 with its unit (bps, Kbps, Mbps, Gbps, Tbps), such as 100Gbps";
const SIZE: &str = "a size up to 9000000GB with its unit (B, KB, MB, GB, KiB, MiB, GiB), such as 2MB";

/// Reads a number with a unit; the value in the smallest unit, below 2^53.
fn read(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let (unit, times) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    let number = text.strip_suffix(unit)?.trim_end();
    let number: f64 =
        number.parse().ok().filter(|_| number.starts_with(|first: char| first.is_ascii_digit()))?;
    let value = number * times;
    (value <= 9e15).then(|| value.round() as u64)
}

/// A plain number, or one with any of the units, in the smallest one.
pub fn number(text: &str) -> Option<f64> {
    let with_unit = || [TIMES, RATES, SIZES].iter().find_map(|units| read(text, units));
    text.parse().ok().or_else(|| with_unit().map(|value| value as f64))
}

struct Expecting(&'static [(&'static str, f64)], &'static str);

impl Visitor<'_> for Expecting {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        read(text, self.0).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Expecting(TIMES, TIME)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let rate = from.deserialize_str(Expecting(RATES, RATE))?;
        if rate == 0 {
            return Err(de::Error::custom("a speed of 0; valid are speeds above 0, such as 100Gbps"));
        }
        Ok(Self(rate))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(Expecting(SIZES, SIZE)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_by_their_unit_and_nothing_else() {
        assert_eq!(read("1.5ms", TIMES), Some(1_500_000));
        assert_eq!(read("2s", TIMES), Some(2_000_000_000));
        assert_eq!(read("100Gbps", RATES), Some(100_000_000_000));
        assert_eq!(read("512KiB", SIZES), Some(524_288));
        assert_eq!(read("2 MB", SIZES), Some(2_000_000));
        for bad in ["", "ms", "-1ms", "nanms", "infs", "1e300s", "10", "5 m"] {
            assert_eq!(read(bad, TIMES), None, "{bad}");
        }
    }
}
