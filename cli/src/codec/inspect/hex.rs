// SPDX-License-Identifier: Apache-2.0
//! Hex as people paste it.

use anyhow::{Result, bail, ensure};

/// Reads hex digits; blanks, colons, commas, dashes and `0x` between bytes are passed over.
pub(super) fn parse(text: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '-'));
    for word in words.filter(|word| !word.is_empty()) {
        let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")).unwrap_or(word);
        let mut high = None;
        for c in digits.chars() {
            let Some(digit) = c.to_digit(16) else { bail!("{c:?} is no hex digit (in {word:?})") };
            let digit = digit as u8;
            match high.take() {
                None => high = Some(digit),
                Some(first) => bytes.push(first << 4 | digit),
            }
        }
        ensure!(high.is_none(), "{word:?} has an odd number of hex digits");
    }
    ensure!(!bytes.is_empty(), "no hex digits");
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hex_is_read_however_it_is_pasted() {
        for text in ["10ff0a", "10 ff 0a", "10:FF:0A", "0x10, 0xff, 0x0a", "10ff\n0a\n"] {
            assert_eq!(parse(text).unwrap(), [0x10, 0xff, 0x0a], "{text}");
        }
    }

    #[test]
    fn what_is_not_hex_is_named() {
        for (text, message) in [
            ("", "no hex digits"),
            ("12 3", "\"3\" has an odd"),
            ("12g4", "'g' is no hex digit (in \"12g4\")"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            let _ = parse(&text);
        }
    }
}
