//! Model and cluster files.

use super::cluster::{Cluster, ClusterError};
use super::model::{Model, ModelError};

/// Why a file was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Not YAML, a key that there is not, or a value of another kind; the message has line and column.
    #[error("{file}: {source}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong.
        source: yaml_serde::Error,
    },
    /// A model that makes no sense.
    #[error("{file}: {source}")]
    Model {
        /// Its name.
        file: String,
        /// What is wrong.
        source: ModelError,
    },
    /// A cluster that makes no sense.
    #[error("{file}: {source}")]
    Cluster {
        /// Its name.
        file: String,
        /// What is wrong.
        source: ClusterError,
    },
}

impl Model {
    /// Reads a model file; `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let model: Self =
            yaml_serde::from_str(text).map_err(|source| FileError::Yaml { file: file.to_owned(), source })?;
        model.check().map_err(|source| FileError::Model { file: file.to_owned(), source })
    }
}

impl Cluster {
    /// Reads a cluster file; `file` is its name, for messages.
    pub fn from_yaml(text: &str, file: &str) -> Result<Self, FileError> {
        let cluster: Self =
            yaml_serde::from_str(text).map_err(|source| FileError::Yaml { file: file.to_owned(), source })?;
        cluster.check().map_err(|source| FileError::Cluster { file: file.to_owned(), source })?;
        Ok(cluster)
    }
}
