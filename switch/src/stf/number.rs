// SPDX-License-Identifier: Apache-2.0
//! Numbers of any width with wildcards, and the match values made of them.

use crate::engine::entity::{KeyInfo, MatchKind, MatchValue, Value};

type Result<T> = std::result::Result<T, String>;

/// Wider numbers are typing errors.
const MOST_BITS: usize = 1 << 14;

/// Bits, most significant first; `None` where a `*` stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Bits {
    bits: Vec<Option<bool>>,
    /// Written with a prefix such as `0x`: the number of digits says something.
    sized: bool,
}

impl Bits {
    fn parse(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        let bad = || {
            format!(
                "'{text}' is no number; decimal, 0x…, 0o… or 0b… are, with '*' for any digit behind 0x, 0o and 0b"
            )
        };
        for (prefix, width) in [("0x", 4), ("0o", 3), ("0b", 1)] {
            let Some(digits) = lower.strip_prefix(prefix) else { continue };
            if digits.is_empty() || digits.len() * width > MOST_BITS {
                return Err(bad());
            }
            let mut bits = Vec::with_capacity(digits.len() * width);
            for digit in digits.chars() {
                if digit == '*' {
                    bits.extend(std::iter::repeat_n(None, width));
                    continue;
                }
                let value = digit.to_digit(1 << width).ok_or_else(bad)?;
                bits.extend((0..width).rev().map(|bit| Some(value >> bit & 1 == 1)));
            }
            return Ok(Self { bits, sized: true });
        }
        if lower.is_empty() || lower.len() > MOST_BITS / 8 {
            return Err(bad());
        }
        let mut bytes: Vec<u8> = Vec::new();
        for digit in lower.chars() {
            let mut carry = digit.to_digit(10).ok_or_else(bad)?;
            for byte in &mut bytes {
                carry += u32::from(*byte) * 10;
                *byte = (carry & 0xff) as u8;
                carry >>= 8;
            }
            if carry > 0 {
                bytes.push(carry as u8);
            }
        }
        let bits =
            bytes.iter().rev().flat_map(|byte| (0..8).rev().map(move |bit| Some(byte >> bit & 1 == 1)));
        Ok(Self { bits: bits.collect(), sized: false })
    }

    /// As wide as the field; what is added in front is `fill`.
    fn fit(&self, text: &str, width: u16, fill: Option<bool>) -> Result<Vec<Option<bool>>> {
        let width = usize::from(width);
        let excess = self.bits.len().saturating_sub(width);
        if self.bits.iter().take(excess).any(|bit| *bit == Some(true)) {
            return Err(format!("{text} does not fit {width} bits"));
        }
        let mut bits = vec![fill; width.saturating_sub(self.bits.len())];
        bits.extend(self.bits.iter().skip(excess));
        Ok(bits)
    }
}

fn bytes(bits: impl DoubleEndedIterator<Item = bool>) -> Value {
    let mut bytes = Vec::new();
    for (at, bit) in bits.rev().enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        if let Some(last) = bytes.last_mut() {
            *last |= u8::from(bit) << (at % 8);
        }
    }
    let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    bytes.truncate((bytes.len() - zeros).max(1));
    if bytes.is_empty() {
        bytes.push(0);
    }
    bytes.reverse();
    bytes
}

/// A number without wildcards.
pub(super) fn plain(text: &str, width: u16) -> Result<Value> {
    let bits = Bits::parse(text)?.fit(text, width, Some(false))?;
    if bits.contains(&None) {
        return Err(format!("{text}: a '*' stands where every digit is needed"));
    }
    Ok(bytes(bits.into_iter().map(|bit| bit == Some(true))))
}

/// What a key matches when a file does not name it.
pub(super) fn anything(key: &KeyInfo) -> MatchValue {
    let zero = || vec![0];
    match key.kind {
        MatchKind::Exact => MatchValue::Exact(zero()),
        MatchKind::Lpm => MatchValue::Lpm { value: zero(), prefix_len: 0 },
        MatchKind::Ternary => MatchValue::Ternary { value: zero(), mask: zero() },
        MatchKind::Range => {
            let high = bytes(std::iter::repeat_n(true, usize::from(key.width)));
            MatchValue::Range { low: zero(), high }
        }
    }
}

/// The match value that `text` writes for a key.
pub(super) fn match_value(text: &str, key: &KeyInfo) -> Result<MatchValue> {
    let wrong = |form: &str| format!("{text}: a {} key takes {form}", key.kind.name());
    let width = key.width;
    match key.kind {
        MatchKind::Exact => Ok(MatchValue::Exact(plain(text, width)?)),
        MatchKind::Lpm => {
            let (value, prefix_len) = match text.split_once('/') {
                Some((value, length)) => {
                    let length = length.trim();
                    let length: u16 =
                        length.parse().map_err(|_| wrong("VALUE/LENGTH, such as 0x0a000000/8"))?;
                    (value.trim(), length)
                }
                None => (text, prefix_digits(text, width)?),
            };
            if prefix_len > width {
                return Err(format!("{text}: the key has {width} bits, less than {prefix_len}"));
            }
            let kept = usize::from(prefix_len);
            let bits = Bits::parse(value)?.fit(value, width, Some(false))?;
            let bits = bits.into_iter().enumerate().map(|(at, bit)| at < kept && bit == Some(true));
            Ok(MatchValue::Lpm { value: bytes(bits.collect::<Vec<_>>().into_iter()), prefix_len })
        }
        MatchKind::Ternary => {
            if let Some((value, mask)) = text.split_once("&&&") {
                let (value, mask) = (value.trim(), mask.trim());
                let mask_bits = Bits::parse(mask)?.fit(mask, width, Some(false))?;
                let value_bits = Bits::parse(value)?.fit(value, width, Some(false))?;
                let set = |bit: &Option<bool>| *bit == Some(true);
                let both = value_bits.iter().zip(&mask_bits).map(|(value, mask)| set(value) && set(mask));
                return Ok(MatchValue::Ternary {
                    value: bytes(both.collect::<Vec<_>>().into_iter()),
                    mask: bytes(mask_bits.iter().map(set).collect::<Vec<_>>().into_iter()),
                });
            }
            let number = Bits::parse(text)?;
            // p4c's runner: the mask is as long as the digits, what stands before them does not
            // matter.
            let bits = number.fit(text, width, if number.sized { None } else { Some(false) })?;
            Ok(MatchValue::Ternary {
                value: bytes(bits.iter().map(|bit| *bit == Some(true))),
                mask: bytes(bits.iter().map(Option::is_some)),
            })
        }
        MatchKind::Range => {
            let (low, high) = text.split_once("->").or_else(|| text.split_once("..")).unwrap_or((text, text));
            let (low, high) = (plain(low.trim(), width)?, plain(high.trim(), width)?);
            if (low.len(), &low) > (high.len(), &high) {
                return Err(wrong("LOW..HIGH, the lower number first"));
            }
            Ok(MatchValue::Range { low, high })
        }
    }
}

/// p4c's runner: digits in front of the wildcards, times the bits of a digit.
fn prefix_digits(text: &str, width: u16) -> Result<u16> {
    let number = Bits::parse(text)?;
    if !number.sized {
        return Ok(width);
    }
    let known = number.bits.iter().filter(|bit| bit.is_some()).count();
    if number.bits.iter().take(known).any(Option::is_none) {
        return Err(format!("{text}: in an lpm key every '*' stands behind the digits"));
    }
    // A short number such as 0x1 for 12 bits is meant as a prefix of its own length; a longer one
    // holds the field.
    Ok(u16::try_from(known.saturating_sub(number.bits.len().saturating_sub(usize::from(width))))
        .unwrap_or(width))
}
