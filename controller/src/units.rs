// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write them: `10Gbps`, `1us`, `512KiB`, `1bdp`, `4 planes`.
//!
//! All arithmetic is exact: a decimal is a whole number over a power of ten, and what does not come
//! out whole in the unit of the result is an error (times, rates) or is rounded down (sizes derived
//! from a time and a rate).

use std::collections::BTreeSet;
use std::fmt;

use trimwire_encoder::wire::{BIT_PLANES, DEFAULT_ROW_LOG2, HEADER_LEN, TAG_LEN, plane_offset};
use trimwire_encoder::{Codec, Layout};

/// Suffixes and how many of the base unit they stand for.
type Units = &'static [(&'static str, u64)];

const SIZES: Units = &[
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

const TIMES: Units =
    &[("ns", 1), ("us", 1_000), ("µs", 1_000), ("μs", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

const RATES: Units =
    &[("bps", 1), ("kbps", 1_000), ("Mbps", 1_000_000), ("Gbps", 1_000_000_000), ("Tbps", 1_000_000_000_000)];

const SIZES_WORDS: &str = "B, KB, KiB, MB, MiB, GB, GiB";
const TIMES_WORDS: &str = "ns, us, ms, s";
const RATES_WORDS: &str = "bps, kbps, Mbps, Gbps, Tbps";

/// A decimal: `digits` / 10^`places`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// The number and the unit behind it. `None` when there is no number in front.
    fn split(text: &str) -> Option<(Self, &str)> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = text.split_at(end);
        let number = number.replace('_', "");
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        // 38 digits is what u128 holds; more are no quantity of anything here.
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some((Self { digits, places: u32::try_from(fraction.len()).ok()? }, unit.trim()))
    }

    /// This many times `scale`, if whole and within u64.
    fn times(self, scale: u64) -> Option<u64> {
        let divisor = 10_u128.checked_pow(self.places)?;
        let product = self.digits.checked_mul(u128::from(scale))?;
        (product % divisor == 0).then(|| u64::try_from(product / divisor).ok()).flatten()
    }
}

fn scale(units: Units, unit: &str) -> Option<u64> {
    // Exact first: only then is a typing slip in capitals forgiven, which changes no meaning (no
    // two differ in case alone).
    units
        .iter()
        .find(|(name, _)| *name == unit)
        .or_else(|| units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)))
        .map(|(_, scale)| *scale)
}

fn quantity(
    text: &str,
    what: &str,
    units: Units,
    words: &str,
    example: &str,
    base: &str,
) -> Result<u64, String> {
    let Some((number, unit)) = Decimal::split(text) else {
        return Err(format!("'{text}' is no {what}; write a number and a unit, as in {example}"));
    };
    if unit.is_empty() {
        return Err(format!("'{text}' has no unit; write {what}s as in {example} (units: {words})"));
    }
    let Some(scale) = scale(units, unit) else {
        return Err(format!("'{text}': unknown unit '{unit}' for a {what} (units: {words})"));
    };
    number.times(scale).ok_or_else(|| format!("'{text}' is not a whole number of {base} below 2^64"))
}

/// A speed, bit/s. Not zero.
pub fn rate(text: &str) -> Result<u64, String> {
    let bits = quantity(text, "speed", RATES, RATES_WORDS, "10Gbps", "bit/s")?;
    if bits == 0 {
        Err(format!("'{text}': a link's speed is not zero; mark it with state: down"))
    } else {
        Ok(bits)
    }
}

/// A time as people write it (`15us`), in ns. Errors are for people.
pub fn time(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    quantity(text, "time", TIMES, TIMES_WORDS, "15us", "nanoseconds")
}

/// A ratio, `3:1` or `1.5`, as a fraction. Not zero.
pub(crate) fn ratio(text: &str) -> Result<(u128, u128), String> {
    let wrong = || format!("'{text}' is no ratio; write one as in 3:1 or 1.5");
    let (over, under) = text.split_once(':').unwrap_or((text, "1"));
    let part = |part: &str| match Decimal::split(part) {
        // Far beyond any fabric, and small enough for products to stay exact.
        Some((number, "")) if number.digits > 0 && number.digits < 1 << 40 && number.places <= 9 => {
            Ok(number)
        }
        _ => Err(wrong()),
    };
    let (over, under) = (part(over)?, part(under)?);
    let scale = |places: u32| 10_u128.pow(places);
    Ok((over.digits * scale(under.places), under.digits * scale(over.places)))
}

/// A part of a whole, `50%`, in millionths; 1 to 100 %.
pub(crate) fn share(text: &str) -> Result<u32, String> {
    let wrong = || format!("'{text}' is no share; write one from 1% to 100%, or never");
    let (number, unit) = Decimal::split(text).ok_or_else(wrong)?;
    let millionths = number.times(10_000).filter(|share| (10_000..=1_000_000).contains(share));
    millionths.filter(|_| unit == "%").and_then(|share| u32::try_from(share).ok()).ok_or_else(wrong)
}

/// A point in a queue's filling, before the link's speed is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threshold {
    /// Bytes.
    Bytes(u64),
    /// Nanoseconds that the egress port's line takes to send them.
    Time(u64),
    /// Millionths of the bandwidth-delay product: the egress port's line rate × the fabric's `rtt`.
    Bdp(u64),
    /// Not reached by any queue.
    Never,
}

/// The threshold of a table entry that no occupancy reaches: the largest `bit<32>`.
pub const NEVER: u32 = u32::MAX;

impl Threshold {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str =
            "bytes (512KiB), a time at line rate (15us), a bandwidth-delay product (1bdp), or never";
        if text.trim() == "never" {
            return Ok(Self::Never);
        }
        let Some((number, unit)) = Decimal::split(text) else {
            return Err(format!("'{text}' is no threshold; write {FORMS}"));
        };
        let whole = |value: Option<u64>| value.ok_or_else(|| format!("'{text}' is too fine or too large"));
        if unit.is_empty() {
            whole(number.times(1)).map(Self::Bytes)
        } else if unit.eq_ignore_ascii_case("bdp") {
            whole(number.times(1_000_000)).map(Self::Bdp)
        } else if let Some(scale) = scale(TIMES, unit) {
            whole(number.times(scale)).map(Self::Time)
        } else if let Some(scale) = scale(SIZES, unit) {
            whole(number.times(scale)).map(Self::Bytes)
        } else {
            Err(format!(
                "'{text}': unknown unit '{unit}'; write {FORMS} (units: {SIZES_WORDS}, {TIMES_WORDS}, bdp)"
            ))
        }
    }

    /// Bytes in a queue that a line of `rate_bps` serves, rounded down. `None` beyond u64.
    pub fn bytes(self, rate_bps: u64, rtt_ns: u64) -> Option<u64> {
        let per_time =
            |ns: u128, rate: u64| ns.checked_mul(u128::from(rate)).map(|bits| bits / 8 / 1_000_000_000);
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Time(ns) => u64::try_from(per_time(ns.into(), rate_bps)?).ok(),
            Self::Bdp(millionths) => {
                let ns = u128::from(millionths).checked_mul(rtt_ns.into())?;
                u64::try_from(per_time(ns, rate_bps)? / 1_000_000).ok()
            }
            Self::Never => Some(u64::from(NEVER)),
        }
    }
}

impl std::str::FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text)
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&bytes_text(*bytes)),
            Self::Time(ns) => f.write_str(&time_text(*ns)),
            Self::Bdp(millionths) => write!(f, "{}bdp", *millionths as f64 / 1e6),
            Self::Never => f.write_str("never"),
        }
    }
}

/// What is left of a trimmed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrimSize {
    /// Frame bytes, as the switch counts them.
    Bytes(u64),
    /// Head and this many of the eight bit-planes.
    Planes(u8),
}

/// Ethernet + IPv4 + UDP.
pub(crate) const FRAME_HEAD: u64 = 42;
/// What an IPv6 header is longer than an IPv4 one.
const IPV6_EXTRA: u64 = 20;
/// DATA's head.
const DATA_HEAD: u64 = HEADER_LEN as u64;

/// Frame bytes in front of a DATA packet's first plane; a trim that leaves less leaves nothing.
pub(crate) fn head(ipv6: bool) -> u64 {
    FRAME_HEAD + DATA_HEAD + if ipv6 { IPV6_EXTRA } else { 0 }
}

/// The full DATA packets of a fabric, by which planes become bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataPacket {
    /// Of the fullest packets of eight planes or fewer, which have the most: 1376 at 1500 bytes,
    /// three to a row. Zero when not even 32 fit the MTU.
    pub coordinates: u64,
    /// Tags lie between the planes (docs/reference/wire-format.md §12).
    pub sealed: bool,
    /// They may travel over IPv6: a trim leaves its planes of those, too, and a few bytes more of
    /// the others.
    pub ip6: bool,
}

impl DataPacket {
    /// Those of an MTU.
    pub fn new(mtu: u64, sealed: bool, ip6: bool) -> Self {
        let fits = Codec::Rht.coordinates_per_packet(mtu as usize, BIT_PLANES, sealed);
        let row = Layout::new(1 << DEFAULT_ROW_LOG2, fits);
        // A row's first packet is none of the shorter ones.
        let coordinates = row.map_or(0, |row| row.packet_range(0).len() as u64);
        Self { coordinates, sealed, ip6 }
    }

    /// Frame bytes with everything.
    pub fn full_frame(self) -> u64 {
        TrimSize::Planes(BIT_PLANES).bytes(self)
    }
}

impl TrimSize {
    /// As people write it. Errors are for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str = "frame bytes (256B) or planes (4 planes)";
        let Some((number, unit)) = Decimal::split(text) else {
            return Err(format!("'{text}' is no trim size; write {FORMS}"));
        };
        if matches!(unit, "plane" | "planes") {
            return match number.times(1).and_then(|planes| u8::try_from(planes).ok()) {
                Some(planes) if (1..=BIT_PLANES).contains(&planes) => Ok(Self::Planes(planes)),
                _ => Err(format!(
                    "'{text}': trim sizes in planes are 1 to {BIT_PLANES} of the bit-planes that a packet begins with"
                )),
            };
        }
        let scale = if unit.is_empty() { Some(1) } else { scale(SIZES, unit) };
        scale
            .and_then(|scale| number.times(scale))
            .map(Self::Bytes)
            .ok_or_else(|| format!("'{text}' is no trim size; write {FORMS}"))
    }

    /// Frame bytes of such packets. Of a sealed one, the tags are left that lie behind planes that
    /// are: without them those would not be believed.
    pub fn bytes(self, packet: DataPacket) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Planes(planes) => {
                let tagged = Codec::Rht.tagged_planes(0, BIT_PLANES);
                let tags = tagged.planes().iter().filter(|tagged| packet.sealed && **tagged < planes).count();
                head(packet.ip6) + (plane_offset(planes, packet.coordinates as usize) + TAG_LEN * tags) as u64
            }
        }
    }
}

impl fmt::Display for TrimSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => f.write_str(&bytes_text(*bytes)),
            Self::Planes(1) => f.write_str("1 plane"),
            Self::Planes(planes) => write!(f, "{planes} planes"),
        }
    }
}

/// As people write it, in the largest unit that is exact.
pub fn bytes_text(bytes: u64) -> String {
    for (unit, scale) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{}{unit}", bytes / scale);
        }
    }
    format!("{bytes}B")
}

pub(crate) fn time_text(ns: u64) -> String {
    for (unit, scale) in [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)] {
        if ns >= scale && ns.is_multiple_of(scale) {
            return format!("{}{unit}", ns / scale);
        }
    }
    format!("{ns}ns")
}

/// The same of a line's speed, to a tenth of its unit.
pub fn rate_text(bps: u64) -> String {
    for (unit, scale) in
        [("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000)]
    {
        if bps >= scale && bps.is_multiple_of(scale / 10) {
            let tenths = bps / (scale / 10);
            return if tenths.is_multiple_of(10) {
                format!("{}{unit}", tenths / 10)
            } else {
                format!("{}.{}{unit}", tenths / 10, tenths % 10)
            };
        }
    }
    format!("{bps}bps")
}

/// A rate that need not be exact, in four digits or so: `19.99Mbps`.
pub(crate) fn rounded_rate_text(bps: u64) -> String {
    for (unit, scale) in [("Tbps", 1e12), ("Gbps", 1e9), ("Mbps", 1e6), ("kbps", 1e3)] {
        let value = bps as f64 / scale;
        if value >= 1.0 {
            let digits = if value >= 100.0 { 1 } else { 2 };
            let text = format!("{value:.digits$}");
            let text = text.trim_end_matches('0').trim_end_matches('.');
            return format!("{text}{unit}");
        }
    }
    format!("{bps}bps")
}

/// `1-4,7`.
pub(crate) fn ranges(ports: &BTreeSet<u16>) -> String {
    let ports: Vec<u16> = ports.iter().copied().collect();
    let runs = ports.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .filter_map(|run| match (run.first(), run.last()) {
            (Some(first), Some(last)) if first == last => Some(first.to_string()),
            (Some(first), Some(last)) => Some(format!("{first}-{last}")),
            _ => None,
        })
        .collect();
    texts.join(",")
}

/// A rate in a whole number of a unit that `trimwire-switch` and the fabric file know.
pub(crate) fn exact_rate(bps: u64) -> String {
    let units = [("Gbps", 1_000_000_000), ("Mbps", 1_000_000), ("kbps", 1_000)];
    let unit = units.into_iter().find(|(_, scale)| bps.is_multiple_of(*scale));
    unit.map_or_else(|| format!("{bps}bps"), |(name, scale)| format!("{}{name}", bps / scale))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_in_every_unit() {
        assert_eq!(rate("10Gbps"), Ok(10_000_000_000));
        assert_eq!(rate("2.5 Gbps"), Ok(2_500_000_000));
        assert_eq!(rate("100_000kbps"), Ok(100_000_000));
        assert_eq!(time("1.5us"), Ok(1_500));
        assert_eq!(time("0"), Ok(0));
        assert_eq!(Threshold::parse("512KiB"), Ok(Threshold::Bytes(524_288)));
        assert_eq!(Threshold::parse("30000"), Ok(Threshold::Bytes(30_000)));
        assert_eq!(Threshold::parse("15us"), Ok(Threshold::Time(15_000)));
        assert_eq!(Threshold::parse("0.5bdp"), Ok(Threshold::Bdp(500_000)));
        assert_eq!(TrimSize::parse("4 planes"), Ok(TrimSize::Planes(4)));
        assert_eq!(TrimSize::parse("1 plane"), Ok(TrimSize::Planes(1)));
        assert_eq!(TrimSize::parse("256B"), Ok(TrimSize::Bytes(256)));
    }

    #[test]
    fn a_bad_quantity_is_named_with_the_valid_units() {
        assert_eq!(
            rate("10").unwrap_err(),
            "'10' has no unit; write speeds as in 10Gbps (units: bps, kbps, Mbps, Gbps, Tbps)"
        );
        assert_eq!(
            rate("10Gb").unwrap_err(),
            "'10Gb': unknown unit 'Gb' for a speed (units: bps, kbps, Mbps, Gbps, Tbps)"
        );
        assert_eq!(time("0.1ns").unwrap_err(), "'0.1ns' is not a whole number of nanoseconds below 2^64");
        assert_eq!(
            Threshold::parse("15parsec").unwrap_err(),
            "'15parsec': unknown unit 'parsec'; write bytes (512KiB), a time at line rate (15us), a bandwidth-delay product \
             (1bdp), or never (units: B, KB, KiB, MB, MiB, GB, GiB, ns, us, ms, s, bdp)"
        );
        assert_eq!(
            TrimSize::parse("11 planes").unwrap_err(),
            "'11 planes': trim sizes in planes are 1 to 8 of the bit-planes that a packet begins with"
        );
        for bad in [
            "",
            "-1us",
            "1.us",
            ".5us",
            "1..2us",
            "NaN",
            "1e3us",
            "99999999999999999999999999999999999999999us",
        ] {
            assert!(time(bad).is_err(), "{bad}");
            assert!(Threshold::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ratios_and_shares_are_exact() {
        let same = |text: &str, over: u128, under: u128| {
            let (a, b) = ratio(text).unwrap();
            assert_eq!(a * under, b * over, "{text}");
        };
        same("3:1", 3, 1);
        same("3", 3, 1);
        same("1.5", 3, 2);
        same("3 : 2", 3, 2);
        same("0.75:1.5", 1, 2);
        assert_eq!((share("50%"), share("12.5 %"), share("100%")), (Ok(500_000), Ok(125_000), Ok(1_000_000)));
        for bad in ["", "0:1", "1:0", "3:", ":1", "1:2:3", "3:1x", "-1", "99999999999999999999999"] {
            assert!(ratio(bad).is_err(), "{bad}");
        }
        for bad in ["", "50", "0%", "0.5%", "101%", "fifty%", "12.34567%"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    /// The wire format's frame sizes at a 1500-byte MTU.
    #[test]
    fn planes_are_the_wire_formats_frame_sizes() {
        let packet = DataPacket::new(1500, false, false);
        // 128 blocks of a row in three packets, the mask of whose 43 blocks takes six bytes.
        assert_eq!(packet.coordinates, 43 * 32);
        let sizes = [1, 2, 4, 8].map(|planes| TrimSize::Planes(planes).bytes(packet));
        assert_eq!(sizes, [172, 344, 688, 1376].map(|planes| 42 + 20 + 6 + planes));
        assert_eq!(packet.full_frame(), 1444);
        // 48 bytes of IPv6 and UDP, 20 of the head, 6 of the mask, one a coordinate. Packets
        // of a row are alike, and there is no longer one than a row.
        let coordinates = |mtu| DataPacket::new(mtu, false, false).coordinates;
        assert_eq!([1449, 1450, 2123, 2124].map(coordinates), [1024, 1376, 1376, 2048]);
        assert_eq!([99, 100, 9000].map(coordinates), [0, 32, 4096]);
    }

    #[test]
    fn a_plane_is_whole_over_ipv6_too_where_hosts_have_it() {
        let packet = DataPacket::new(1500, false, true);
        let sizes = [1, 8].map(|planes| TrimSize::Planes(planes).bytes(packet));
        assert_eq!(sizes, [240 + 20, 1444 + 20]);
    }

    /// The wire format's sealed payloads (§12) behind 42 bytes, and what is left of a packet between
    /// its two tags.
    #[test]
    fn planes_of_sealed_packets_keep_the_tags_behind_them() {
        let packet = DataPacket::new(1500, true, false);
        assert_eq!(packet.coordinates, 1376);
        let sizes = [1, 7, 8].map(|planes| TrimSize::Planes(planes).bytes(packet));
        let of = |planes: u64, tags: u64| 42 + 20 + 6 + 172 * planes + 8 * tags;
        assert_eq!(sizes, [of(1, 1), of(7, 1), of(8, 2)]);
        assert_eq!(packet.full_frame(), of(8, 2));
        assert_eq!(TrimSize::Bytes(300).bytes(packet), 300);
        // Two tags more than unsealed packets have.
        assert_eq!([1465, 1466].map(|mtu| DataPacket::new(mtu, true, false).coordinates), [1024, 1376]);
    }

    proptest! {
        /// Exact integer arithmetic against f64, which is good to 15 digits.
        #[test]
        fn thresholds_are_time_times_rate(ns in 0_u64..10_000_000, rate_bps in 1_u64..1_000_000_000_000, rtt in 0_u64..1_000_000) {
            let close = |bytes: u64, expected: f64| (bytes as f64 - expected).abs() <= 1.0 + expected * 1e-12;
            let time = Threshold::Time(ns).bytes(rate_bps, rtt).unwrap();
            prop_assert!(close(time, ns as f64 * rate_bps as f64 / 8e9));
            let bdp = Threshold::Bdp(ns).bytes(rate_bps, rtt).unwrap();
            prop_assert!(close(bdp, ns as f64 / 1e6 * rtt as f64 * rate_bps as f64 / 8e9));
        }

        #[test]
        fn what_is_displayed_reads_back_the_same(value in 0_u64..1 << 40) {
            for threshold in [Threshold::Bytes(value), Threshold::Time(value), Threshold::Bdp(value)] {
                prop_assert_eq!(Threshold::parse(&threshold.to_string()), Ok(threshold));
            }
            if value > 0 {
                prop_assert_eq!(rate(&rate_text(value)), Ok(value));
            }
        }

        #[test]
        fn any_text_is_a_quantity_or_an_error(text in "\\PC{0,24}") {
            let _ = (rate(&text), time(&text), Threshold::parse(&text), TrimSize::parse(&text));
            let _ = (ratio(&text), share(&text));
        }

        #[test]
        fn a_plane_more_is_never_a_smaller_frame(mtu in 0_u64..10_000, planes in 1_u8..BIT_PLANES, sealed: bool) {
            let packet = DataPacket::new(mtu, sealed, false);
            prop_assert!(TrimSize::Planes(planes).bytes(packet) <= TrimSize::Planes(planes + 1).bytes(packet));
            // An Ethernet header less, and an IPv6 header instead of an IPv4 one.
            let n = packet.coordinates;
            prop_assert!(n == 0 || packet.full_frame() - 14 + 20 <= mtu);
            // A packet fewer a row would not fit.
            let packets = if n == 0 { 1 } else { 4096_u64.div_ceil(n) };
            if packets > 1 {
                let longer = DataPacket { coordinates: 128_u64.div_ceil(packets - 1) * 32, ..packet };
                prop_assert!(longer.full_frame() - 14 + 20 > mtu);
            }
        }
    }
}
