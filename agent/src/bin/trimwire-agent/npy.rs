// SPDX-License-Identifier: Apache-2.0
//! NumPy's .npy, as much of it as one vector of f32 needs (numpy/lib/format.py, versions 1.0 to 3.0).

use anyhow::{Context as _, bail};

const MAGIC: &[u8] = b"\x93NUMPY";
/// What a header, magic and length included, is padded to a multiple of.
const ALIGNMENT: usize = 64;

/// A file of one vector, version 1.0.
pub(crate) fn write(values: &[f32]) -> Vec<u8> {
    let dictionary = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let before = MAGIC.len() + 4;
    let whole = (before + dictionary.len() + 1).next_multiple_of(ALIGNMENT);
    let mut file = Vec::with_capacity(whole + values.len() * 4);
    file.extend_from_slice(MAGIC);
    file.extend_from_slice(&[1, 0]);
    file.extend_from_slice(&((whole - before) as u16).to_le_bytes());
    file.extend_from_slice(dictionary.as_bytes());
    file.resize(whole - 1, b' ');
    file.push(b'\n');
    file.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    file
}

/// The numbers of a file, still as bytes, where it is a .npy; `None` where it is none.
///
/// # Errors
/// When its array is of another type than little-endian f32, or the file is cut off.
pub(crate) fn data(file: &[u8]) -> anyhow::Result<Option<&[u8]>> {
    let Some(rest) = file.strip_prefix(MAGIC) else { return Ok(None) };
    let cut = "it ends inside its header";
    let ([major, minor], rest) = rest.split_first_chunk().context(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_le_bytes(*length)), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => bail!("version {major}.{minor} of .npy (valid: 1.0, 2.0, 3.0)"),
    }
    .context(cut)?;
    let (header, data) = rest.split_at_checked(length).context(cut)?;
    let header: String = String::from_utf8_lossy(header).split_whitespace().collect();
    let has = |entry: &str| header.replace('"', "'").contains(entry);
    if !has("'descr':'<f4'") {
        bail!("no little-endian float32 (`array.astype('<f4')` makes one): {header}");
    }
    if has("'fortran_order':True") && header.matches(',').count() > 3 {
        bail!("columns before rows (`numpy.ascontiguousarray` mends that): {header}");
    }
    Ok(Some(data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_is_numpys_to_the_byte() {
        // numpy.save of numpy.array([1.5], '<f4'), NumPy 2.
        let mut expected =
            b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }".to_vec();
        expected.resize(127, b' ');
        expected.extend_from_slice(b"\n\x00\x00\xc0\x3f");
        assert_eq!(write(&[1.5]), expected);
    }

    #[test]
    fn another_type_is_refused_and_raw_numbers_are_none() {
        let file = |text: &str| {
            [b"\x93NUMPY\x01\x00", &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat()
        };
        let doubles = file("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n");
        assert!(data(&doubles).unwrap_err().to_string().contains("float32"));
        let columns = file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n");
        assert!(data(&columns).unwrap_err().to_string().contains("columns"));
        assert!(data(b"\x93NUMPY\x01\x00\xff").unwrap_err().to_string().contains("header"));
        assert_eq!(data(&1.5_f32.to_le_bytes()).unwrap(), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(values in prop::collection::vec(any::<f32>(), 0..200)) {
            let file = write(&values);
            let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            prop_assert_eq!(data(&file).unwrap(), Some(&bytes[..]));
        }

        #[test]
        fn damaged_files_are_read_or_refused(at in 0_usize..132, to: u8, cut in 0_usize..132) {
            let mut file = write(&[1.5]);
            file[at] = to;
            let _ = data(&file[..cut]);
            let _ = data(&file);
        }
    }
}
