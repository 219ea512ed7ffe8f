// SPDX-License-Identifier: Apache-2.0
//! NumPy's .npz: a zip archive of .npy files, stored or deflated.

use super::npy;
use super::tensor::{Tensor, choose};
use anyhow::{Context as _, Result, ensure};
use std::borrow::Cow;
use std::io::{Cursor, Read as _};
use zip::ZipArchive;

/// What every archive begins with: a file, or the end of an archive that has none.
pub(super) const MAGIC: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// The most that a byte of deflate can stand for, rounded up: 258 bytes for two bits.
const DEFLATE: u64 = 1040;

/// The arrays of an archive, or the one called `wanted` (with or without `.npy`).
pub(super) fn tensors(bytes: &[u8], wanted: Option<&str>) -> Result<Vec<Tensor<'static>>> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).context("no readable zip archive")?;
    let files: Vec<String> =
        archive.file_names().map(|name| Ok(name?.into_owned())).collect::<Result<_>>()?;
    ensure!(
        !files.iter().any(|file| file.ends_with("data.pkl")),
        "it is a checkpoint of torch.save: save tensors with safetensors.torch.save_file instead"
    );
    let names = files.iter().map(|file| {
        file.strip_suffix(".npy")
            .with_context(|| format!("{file:?} in it is no .npy file: this zip archive is no .npz"))
    });
    let names: Vec<&str> = names.collect::<Result<_>>()?;
    // Files that share their bytes could make much out of little, over and over.
    ensure!(!archive.has_overlapping_entries()?, "files in it overlap");
    let wanted = wanted.map(|name| name.strip_suffix(".npy").unwrap_or(name));
    let chosen = choose(&names, wanted)?;
    chosen
        .into_iter()
        .map(|at| {
            let name = names[at];
            let file = unpack(&mut archive, at).with_context(|| name.to_owned())?;
            let array = npy::tensor(&file, name).with_context(|| name.to_owned())?;
            Ok(Tensor { bytes: Cow::Owned(array.bytes.into_owned()), ..array })
        })
        .collect()
}

fn unpack(archive: &mut ZipArchive<Cursor<&[u8]>>, at: usize) -> Result<Vec<u8>> {
    let file = archive.by_index(at)?;
    // Room is made as bytes come, not as the archive announces them.
    let most = file.compressed_size().saturating_mul(DEFLATE).saturating_add(DEFLATE);
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes).context("cannot unpack it")?;
    Ok(bytes)
}
