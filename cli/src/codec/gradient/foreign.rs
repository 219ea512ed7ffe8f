// SPDX-License-Identifier: Apache-2.0
//! Files that are no gradients: read as raw numbers, they would give figures without meaning.

use anyhow::{Result, bail};

/// As much of a file as tells text from numbers.
const LOOKED_AT: usize = 4096;

/// What other formats begin with, what they are, and what to do.
const OTHERS: [(&[u8], &str); 6] = [
    (b"\x89HDF\r\n\x1a\n", "HDF5: save the array with numpy.save instead"),
    (
        b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20",
        "a checkpoint of torch.save: use safetensors.torch.save_file instead",
    ),
    (b"GGUF", "GGUF: its weights are quantised"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\x7fELF", "a program"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
];

/// Refuses text and formats that are something else.
pub(super) fn refuse(bytes: &[u8], formats: &str) -> Result<()> {
    if bytes.starts_with(b"version https://git-lfs") {
        bail!("it is a pointer of Git LFS, not the file itself (get that with `git lfs pull`)");
    }
    if is_text(bytes) {
        bail!("it looks like text, not like numbers (read are: {formats})");
    }
    if let Some((_, what)) = OTHERS.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        bail!("it looks like {what} (read are: {formats})");
    }
    // Two bytes alone are the beginning of one file of numbers in 65,536. Three bits behind the method are reserved, and zero (RFC 1952,
    // 2.3.1).
    if matches!(bytes, [0x1f, 0x8b, 0x08, 0..0x20, ..]) {
        bail!("it looks like gzip: unpack it first (read are: {formats})");
    }
    // A pickle names its protocol at first and ends with a full stop.
    if let [0x80, 2..=5, .., b'.'] = bytes {
        bail!("it looks like a Python pickle: save the array with numpy.save instead (read are: {formats})");
    }
    Ok(())
}

/// Whether the beginning is text in UTF-8 or, behind a byte order mark, UTF-16. Numbers have zeros, control characters or bytes
/// that are no UTF-8 within their first few; those that do not are bytes that people typed.
fn is_text(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(LOOKED_AT)];
    let printable = |c: char| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c');
    // Most pairs of bytes are some character; those of tables and settings are ASCII's for the greater part.
    let pairs = |from: fn([u8; 2]) -> u16| {
        let units = || start.as_chunks::<2>().0.iter().map(|pair| from(*pair));
        2 * units().filter(|unit| *unit < 0x80).count() > units().count()
            && char::decode_utf16(units()).flatten().all(printable)
    };
    match start {
        [0xff, 0xfe, ..] => return pairs(u16::from_le_bytes),
        [0xfe, 0xff, ..] => return pairs(u16::from_be_bytes),
        _ => {}
    }
    match str::from_utf8(start) {
        Ok(text) => text.chars().all(printable),
        // A character that the end of what is looked at cuts through.
        Err(error) if error.error_len().is_none() && start.len() < bytes.len() => {
            str::from_utf8(&start[..error.valid_up_to()]).is_ok_and(|text| text.chars().all(printable))
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_of_any_kind_is_refused() {
        let wide: Vec<u8> = "\u{feff}0.5;0.25\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let long = format!("{}é", "x".repeat(LOOKED_AT - 1)).repeat(2);
        for text in
            ["0.1,0.2\n".as_bytes(), b"{\"w\": [1]}", "naïve = 1\n".as_bytes(), long.as_bytes(), &wide]
        {
            assert!(refuse(text, "f32").unwrap_err().to_string().contains("looks like text"));
        }
    }

    #[test]
    fn other_formats_are_named_with_what_to_do() {
        for (bytes, said) in [
            (&b"\x1f\x8b\x08\x00"[..], "gzip"),
            (b"\x80\x04\x95\x00.", "pickle"),
            (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        ] {
            let error = refuse(bytes, "f32").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    proptest! {
        /// Not even where the first of them begins as a format does.
        #[test]
        fn numbers_are_not_taken_for_text(
            values in proptest::collection::vec(-10.0_f32..10.0, 16..200),
            begins in prop_oneof![Just(None), any::<[u8; 2]>().prop_map(Some), Just(Some([0x1f, 0x8b])), Just(Some([0xff, 0xfe])), Just(Some([0xfe, 0xff]))],
        ) {
            let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            if let Some(begins) = begins {
                bytes[..2].copy_from_slice(&begins);
            }
            prop_assert!(refuse(&bytes, "f32").is_ok());
        }
    }
}
