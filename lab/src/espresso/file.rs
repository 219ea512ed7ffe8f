// SPDX-License-Identifier: Apache-2.0
//! Model and cluster files.

use super::cluster::{Cluster, ClusterError};
use super::model::{Model, ModelError};
use super::name::{SHOWN, is_unseen, printable};

/// Bytes of a file at most: ten thousand tensors take a tenth of that.
pub const LARGEST: u64 = 16 << 20;
/// Brackets and braces open at a time, at most: a reader of YAML takes time with their square, and
/// a file here needs four.
const DEEPEST: usize = 1000;

/// Why a file was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// More than [`LARGEST`].
    #[error("{file}: {bytes} bytes; valid are up to {LARGEST}")]
    Large {
        /// Its name.
        file: String,
        /// How large it is.
        bytes: u64,
    },
    /// More than [`DEEPEST`] brackets within each other.
    #[error("{file}: line {line}: more than {DEEPEST} brackets within each other")]
    Deep {
        /// Its name.
        file: String,
        /// Where.
        line: usize,
    },
    /// Not YAML, a key that there is not, or a value of another kind.
    #[error("{file}: {words}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong, with line and column.
        words: String,
    },
    /// A model that makes no sense.
    #[error("{file}: {error}")]
    Model {
        /// Its name.
        file: String,
        /// What is wrong.
        error: ModelError,
    },
    /// A cluster that makes no sense.
    #[error("{file}: {error}")]
    Cluster {
        /// Its name.
        file: String,
        /// What is wrong.
        error: ClusterError,
    },
}

impl Model {
    /// Reads a model file; `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let model: Self = read(text, file)?;
        model.check().map_err(|error| FileError::Model { file: file.to_owned(), error })
    }
}

impl Cluster {
    /// Reads a cluster file; `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let cluster: Self = read(text, file)?;
        cluster.check().map_err(|error| FileError::Cluster { file: file.to_owned(), error })?;
        Ok(cluster)
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str, file: &str) -> Result<T, FileError> {
    let file = || file.to_owned();
    if text.len() as u64 > LARGEST {
        return Err(FileError::Large { file: file(), bytes: text.len() as u64 });
    }
    let mut depth = 0_usize;
    for (line, text) in text.lines().enumerate() {
        for byte in text.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
        if depth > DEEPEST {
            return Err(FileError::Deep { file: file(), line: line + 1 });
        }
    }
    yaml_serde::from_str(text)
        .map_err(|error| FileError::Yaml { file: file(), words: shown(&error.to_string()) })
}

/// A message whose end says where: its middle is what goes.
fn shown(words: &str) -> String {
    let count = words.chars().count();
    if count <= 2 * SHOWN {
        return words.chars().map(|c| if is_unseen(c) { ' ' } else { c }).collect();
    }
    let end: String = words.chars().skip(count - SHOWN).collect();
    printable(words) + " " + &printable(&end)
}
