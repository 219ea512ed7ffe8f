// SPDX-License-Identifier: Apache-2.0
//! Canonical byte strings (P4Runtime, "Bytestrings").
//!
//! Integers travel as big-endian byte strings. The canonical form is the shortest that holds the
//! value, at least one byte; receivers take any amount of padding, and refuse the empty string and
//! values that do not fit the bit width. Values are of any width: IPv6 addresses fill a `u128`, but
//! nothing stops a program from matching on 200 bits.

use std::borrow::Cow;
use std::fmt::Write as _;

use tonic::Code;

/// Why a byte string or number is no value of a `bit<W>` or `int<W>`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BytesError {
    /// A byte string without bytes.
    #[error("empty byte string for {}; zero is one byte, 0x00", type_name(*.bitwidth, *.signed))]
    Empty {
        /// Bits of the type.
        bitwidth: u32,
        /// `int<W>` rather than `bit<W>`.
        signed: bool,
    },
    /// A value outside of the type.
    #[error("value {value} does not fit {}", type_name(*.bitwidth, *.signed))]
    Overflow {
        /// In hex, shortened when very long.
        value: String,
        /// Bits of the type.
        bitwidth: u32,
        /// `int<W>` rather than `bit<W>`.
        signed: bool,
    },
    /// Text for a number.
    #[error("text {text:?} for {}, which takes a number or bytes", type_name(*.bitwidth, false))]
    Text {
        /// As given.
        text: String,
        /// Bits of the type.
        bitwidth: u32,
    },
    /// A value that is wanted as a 128-bit integer but is wider.
    #[error("value {value} is wider than 128 bits")]
    TooWide {
        /// In hex, shortened when very long.
        value: String,
    },
}

impl BytesError {
    /// The code that a server answers with where no other rule applies. For match fields and action
    /// parameters one does: `INVALID_ARGUMENT` ("Match Format", "Action Specification").
    pub fn code(&self) -> Code {
        Code::OutOfRange
    }
}

fn type_name(bitwidth: u32, signed: bool) -> String {
    format!("{}<{bitwidth}>", if signed { "int" } else { "bit" })
}

/// The shortest byte string for `value`.
pub fn encode(value: u128) -> Vec<u8> {
    shortest(&value.to_be_bytes()).to_vec()
}

/// The shortest byte string for `value`, which must fit `bit<bitwidth>`.
pub fn encode_width(value: u128, bitwidth: u32) -> Result<Vec<u8>, BytesError> {
    check(&value.to_be_bytes(), bitwidth).map(<[u8]>::to_vec)
}

/// The shortest byte string for `value`, which must fit `int<bitwidth>`.
pub fn encode_signed(value: i128, bitwidth: u32) -> Result<Vec<u8>, BytesError> {
    check_signed(&value.to_be_bytes(), bitwidth).map(<[u8]>::to_vec)
}

/// `value` without its padding. The empty string, which is no value, stays as it is.
pub fn shortest(value: &[u8]) -> &[u8] {
    match value.iter().position(|byte| *byte != 0) {
        Some(first) => value.get(first..).unwrap_or_default(),
        // All zeros: the last of them.
        None => value.last_chunk::<1>().map_or(&[], |zero| zero),
    }
}

/// The canonical form of a received `bit<bitwidth>`.
pub fn check(value: &[u8], bitwidth: u32) -> Result<&[u8], BytesError> {
    let canonical = shortest(value);
    if canonical.is_empty() {
        return Err(BytesError::Empty { bitwidth, signed: false });
    }
    if bits(canonical) > u64::from(bitwidth).max(1) {
        return Err(BytesError::Overflow { value: hex(canonical), bitwidth, signed: false });
    }
    Ok(canonical)
}

/// The canonical form of a received `int<bitwidth>`: two's complement without needless sign bytes.
pub fn check_signed(value: &[u8], bitwidth: u32) -> Result<&[u8], BytesError> {
    let mut canonical = value;
    while let [sign @ (0 | 0xff), rest @ ..] = canonical {
        match rest.first() {
            Some(next) if next >> 7 == sign >> 7 => canonical = rest,
            _ => break,
        }
    }
    let Some(first) = canonical.first() else { return Err(BytesError::Empty { bitwidth, signed: true }) };
    // All bits but the copies of the sign, of which one stays.
    let copies = if first >> 7 == 1 { first.leading_ones() } else { first.leading_zeros() };
    let needed = canonical.len() as u64 * 8 - u64::from(copies) + 1;
    if needed > u64::from(bitwidth).max(1) {
        return Err(BytesError::Overflow { value: hex(canonical), bitwidth, signed: true });
    }
    Ok(canonical)
}

/// The number that a received byte string of a `bit<bitwidth>` stands for.
pub fn decode(value: &[u8], bitwidth: u32) -> Result<u128, BytesError> {
    let canonical = check(value, bitwidth)?;
    if canonical.len() > 16 {
        return Err(BytesError::TooWide { value: hex(canonical) });
    }
    Ok(canonical.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte)))
}

/// Bits from the most significant one of `value` down; 0 for zero.
pub fn bits(value: &[u8]) -> u64 {
    let value = shortest(value);
    value.first().map_or(0, |first| value.len() as u64 * 8 - u64::from(first.leading_zeros()))
}

/// `value` padded with zeros in front, or shortened in front, to the bytes that `bitwidth` takes.
pub fn padded(value: &[u8], bitwidth: u32) -> Vec<u8> {
    let length = bitwidth.div_ceil(8) as usize;
    let mut padded = vec![0; length.saturating_sub(value.len())];
    padded.extend_from_slice(value.get(value.len().saturating_sub(length)..).unwrap_or_default());
    padded
}

/// A mask of `bitwidth` bits whose first `prefix` are ones, `bitwidth.div_ceil(8)` bytes long.
pub fn prefix_mask(prefix: u32, bitwidth: u32) -> Vec<u8> {
    let length = bitwidth.div_ceil(8);
    // Bits of the first byte that are not part of the value.
    let unused = length * 8 - bitwidth;
    (0..length)
        .map(|byte| {
            (0..8).fold(0, |mask, bit| {
                let position = byte * 8 + bit;
                let one = position >= unused && position - unused < prefix;
                (mask << 1) | u8::from(one)
            })
        })
        .collect()
}

/// Whether `value` has ones only where `mask` has. Padding does not matter.
pub fn within_mask(value: &[u8], mask: &[u8]) -> bool {
    let mut mask = mask.iter().rev();
    value.iter().rev().all(|byte| byte & !mask.next().copied().unwrap_or(0) == 0)
}

/// `value` in hex, `0x0a000100`; the middle of very long ones is left out.
pub fn hex(value: &[u8]) -> String {
    const ENDS: usize = 16;
    let digits = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    if value.len() <= 3 * ENDS {
        return format!("0x{}", digits(value));
    }
    let head = value.get(..ENDS).unwrap_or_default();
    let tail = value.get(value.len() - ENDS..).unwrap_or_default();
    format!("0x{}…{} ({} bytes)", digits(head), digits(tail), value.len())
}

/// A value given by a person or a program, on its way to a byte string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An unsigned number.
    Number(u128),
    /// Big-endian bytes of any length, for numbers wider than 128 bits and for addresses.
    Bytes(Vec<u8>),
    /// The controller's name for something, of a type translated to `sdn_string`.
    Text(String),
}

impl Value {
    /// The canonical byte string of this value as a `bit<bitwidth>`. Width 0 is P4Info's for
    /// `sdn_string` types, whose values are names and go as they are.
    pub fn to_canonical(&self, bitwidth: u32) -> Result<Vec<u8>, BytesError> {
        let bytes = match self {
            Self::Number(number) => Cow::Owned(number.to_be_bytes().to_vec()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes.as_slice()),
            Self::Text(text) => Cow::Borrowed(text.as_bytes()),
        };
        match (bitwidth, self) {
            (0, Self::Number(_)) => {
                Err(BytesError::Overflow { value: hex(shortest(&bytes)), bitwidth, signed: false })
            }
            (0, _) if bytes.is_empty() => Err(BytesError::Empty { bitwidth, signed: false }),
            (0, _) => Ok(bytes.into_owned()),
            (_, Self::Text(text)) => Err(BytesError::Text { text: text.clone(), bitwidth }),
            _ => check(&bytes, bitwidth).map(<[u8]>::to_vec),
        }
    }
}

macro_rules! value_from {
    ($($number:ty),*) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Self {
                Self::Number(number.into())
            }
        }
    )*};
}

value_from!(bool, u8, u16, u32, u64, u128, std::net::Ipv6Addr);

impl From<std::net::Ipv4Addr> for Value {
    fn from(address: std::net::Ipv4Addr) -> Self {
        Self::Number(u32::from(address).into())
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

#[cfg(test)]
mod tests;
