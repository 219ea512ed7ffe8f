// SPDX-License-Identifier: Apache-2.0
//! Expected packets, and what differs.

use std::fmt;
use std::fmt::Write as _;

use super::cursor::Cursor;

/// Half bytes of an expected packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// 0 to 15, or `None` for a `*`.
    pub nibbles: Vec<Option<u8>>,
    /// A `$` stands at the end: nothing may follow.
    pub exact: bool,
}

impl Pattern {
    /// The rest of a statement; `None` where nothing stands.
    pub(super) fn parse(at: &mut Cursor<'_>) -> Result<Option<Self>, String> {
        let mut pattern = Self { nibbles: Vec::new(), exact: false };
        if at.is_at_end() {
            return Ok(None);
        }
        while let Some(c) = at.peek() {
            if pattern.exact {
                return Err(at.expected("nothing behind '$', the packet's end"));
            }
            match (c, c.to_digit(16)) {
                ('*', _) => pattern.nibbles.push(None),
                ('$', _) => pattern.exact = true,
                (_, Some(digit)) => pattern.nibbles.push(Some(digit as u8)),
                _ => {
                    return Err(
                        at.expected("hexadecimal digits, '*' for any digit, or '$' for the packet's end")
                    );
                }
            }
            at.eat(c.encode_utf8(&mut [0; 4]));
        }
        Ok(Some(pattern))
    }

    /// The bytes, where the pattern is a whole packet.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, String> {
        if self.exact || self.nibbles.contains(&None) {
            return Err("a packet that is sent has neither '*' nor '$'".to_owned());
        }
        let digits = self.nibbles.len();
        if !digits.is_multiple_of(2) {
            return Err(format!("{digits} hexadecimal digits do not make whole bytes"));
        }
        let byte = |pair: &[Option<u8>]| pair.iter().fold(0, |byte, digit| byte << 4 | digit.unwrap_or(0));
        Ok(self.nibbles.chunks(2).map(byte).collect())
    }

    /// Half bytes at which a frame differs. A frame that goes on behind the pattern does not
    /// differ, unless the pattern ends in `$`.
    pub fn differences(&self, frame: &[u8]) -> Vec<usize> {
        let got = nibbles(frame);
        let longer = self.nibbles.len().max(if self.exact { got.len() } else { 0 });
        let differs = |at: &usize| match (self.nibbles.get(*at), got.get(*at)) {
            (Some(Some(expected)), Some(got)) => expected != got,
            (Some(None), Some(_)) => false,
            _ => true,
        };
        (0..longer).filter(differs).collect()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for nibble in &self.nibbles {
            match nibble {
                Some(nibble) => write!(f, "{nibble:x}")?,
                None => f.write_char('*')?,
            }
        }
        if self.exact { f.write_char('$') } else { Ok(()) }
    }
}

fn nibbles(frame: &[u8]) -> Vec<u8> {
    frame.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect()
}

/// A frame in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Something that is not as the file says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The next frame of the port is another.
    Differs {
        /// Line of the expectation.
        line: usize,
        /// Egress port.
        port: u16,
        /// What the file expects.
        expected: Pattern,
        /// What left.
        got: Vec<u8>,
    },
    /// No frame left.
    Missing {
        /// Line of the expectation.
        line: usize,
        /// Egress port.
        port: u16,
        /// What the file expects.
        expected: Option<Pattern>,
    },
    /// A frame left that no line expects.
    Unexpected {
        /// Line of the packet that caused it, or of the `no_packet`.
        line: usize,
        /// Egress port.
        port: u16,
        /// What left.
        got: Vec<u8>,
    },
    /// A counter does not hold what the file says.
    Counter {
        /// Line of the check.
        line: usize,
        /// Counter and place, and what was asked for.
        what: String,
        /// What it holds.
        got: u64,
    },
}

impl Mismatch {
    /// The line of the file, from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::Differs { line, .. }
            | Self::Missing { line, .. }
            | Self::Unexpected { line, .. }
            | Self::Counter { line, .. } => *line,
        }
    }
}

/// Hexadecimal digits of a line of a difference: 16 bytes.
const DIGITS: usize = 32;

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { port, expected, .. } => {
                write!(f, "port {port}: a packet is expected, none left")?;
                match expected {
                    Some(expected) => write!(f, "\n  expected  {expected}"),
                    None => Ok(()),
                }
            }
            Self::Unexpected { port, got, .. } => {
                write!(f, "port {port}: a packet left that nothing expects\n  got       {}", hex(got))
            }
            Self::Counter { what, got, .. } => write!(f, "{what}: it is {got}"),
            Self::Differs { port, expected, got, .. } => difference(f, *port, expected, got),
        }
    }
}

fn difference(f: &mut fmt::Formatter<'_>, port: u16, expected: &Pattern, got: &[u8]) -> fmt::Result {
    let differences = expected.differences(got);
    let first = differences.first().map_or(0, |at| at / 2);
    let (wanted, length) = (expected.nibbles.len().div_ceil(2), got.len());
    let least = if expected.exact { "" } else { "at least " };
    write!(
        f,
        "port {port}: the packet differs from byte {first} on; {least}{wanted} bytes expected, {length} bytes got"
    )?;
    let got: Vec<char> = hex(got).chars().collect();
    let expected: Vec<char> = expected.to_string().chars().collect();
    let rows: std::collections::BTreeSet<usize> = differences.iter().map(|at| at / DIGITS).collect();
    for row in rows {
        let (from, to) = (row * DIGITS, (row + 1) * DIGITS);
        let part = |digits: &[char]| -> String {
            let part = digits.get(from..to.min(digits.len())).unwrap_or_default();
            part.chunks(2).map(|pair| pair.iter().collect::<String>()).collect::<Vec<_>>().join(" ")
        };
        let mut marks = String::new();
        for at in from..to {
            if at > from && at % 2 == 0 {
                marks.push(' ');
            }
            marks.push(if differences.binary_search(&at).is_ok() { '^' } else { ' ' });
        }
        let offset = from / 2;
        write!(f, "\n  {offset:>5}  expected  {}", part(&expected))?;
        write!(f, "\n         got       {}", part(&got))?;
        write!(f, "\n                   {}", marks.trim_end())?;
    }
    Ok(())
}
