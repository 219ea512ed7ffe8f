//! The compiled program: P4Info, device config, and the cookie that tells whether a switch runs them.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};
use trimwire_p4runtime::p4info::{Index, IndexError, Named, P4Info, P4InfoError};

/// The program that this controller was built with.
const EMBEDDED_P4INFO: &str = include_str!("../../p4/build/bmv2/trimwire.p4info.txtpb");
const EMBEDDED_JSON: &[u8] = include_bytes!("../../p4/build/bmv2/trimwire.json");

/// A compiled program, checked to be one.
#[derive(Debug, Clone)]
pub struct Artifacts {
    p4info: P4Info,
    index: Index,
    json: Vec<u8>,
    cookie: u64,
}

/// Why files are not a compiled program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArtifactsError {
    /// The P4Info cannot be read.
    #[error("{0}")]
    P4Info(#[from] P4InfoError),
    /// The P4Info contradicts itself.
    #[error("{0}")]
    Index(#[from] IndexError),
    /// The device config is not JSON.
    #[error("pipeline JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// P4Info and device config are of different programs.
    #[error("P4Info and pipeline JSON do not match: table {table} is in the P4Info but not in the JSON (there: {})", .tables.join(", "))]
    Mismatch {
        /// Of the P4Info.
        table: String,
        /// Of the JSON.
        tables: Vec<String>,
    },
}

impl Artifacts {
    /// From the text or binary of a P4Info and BMv2's JSON.
    pub fn new(p4info: &[u8], json: Vec<u8>) -> Result<Self, ArtifactsError> {
        let p4info = P4Info::from_bytes(p4info)?;
        let index = Index::new(&p4info)?;
        let parsed: serde_json::Value = serde_json::from_slice(&json)?;
        let tables = table_names(&parsed);
        for table in &p4info.tables {
            // p4c drops tables that nothing applies from the JSON, but from the P4Info too.
            if !tables.contains(table.name()) {
                return Err(ArtifactsError::Mismatch {
                    table: table.name().to_owned(),
                    tables: tables.into_iter().map(str::to_owned).collect(),
                });
            }
        }
        // The text form is what both forms have in common and has one spelling.
        let mut hash = Sha256::new();
        hash.update(p4info.to_text().as_bytes());
        hash.update([0]);
        hash.update(&json);
        let cookie = hash.finalize().iter().take(8).fold(0, |cookie, byte| (cookie << 8) | u64::from(*byte));
        Ok(Self { p4info, index, json, cookie })
    }

    /// The program that comes with this crate.
    pub fn embedded() -> Result<Self, ArtifactsError> {
        Self::new(EMBEDDED_P4INFO.as_bytes(), EMBEDDED_JSON.to_vec())
    }

    /// The program's interface.
    pub fn p4info(&self) -> &P4Info {
        &self.p4info
    }

    /// Names to ids and back.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The device config.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// A hash of both. A switch that reports it runs this program.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

fn table_names(json: &serde_json::Value) -> BTreeSet<&str> {
    let pipelines = json.get("pipelines").and_then(serde_json::Value::as_array);
    pipelines
        .into_iter()
        .flatten()
        .filter_map(|pipeline| pipeline.get("tables")?.as_array())
        .flatten()
        .filter_map(|table| table.get("name")?.as_str())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_program_is_whole() {
        let artifacts = Artifacts::embedded().unwrap();
        assert!(artifacts.index().table("Ingress.queue_policy.policy").is_ok());
    }

    #[test]
    fn a_change_of_either_file_changes_the_cookie() {
        let own = Artifacts::embedded().unwrap();
        let mut json = EMBEDDED_JSON.to_vec();
        json.push(b'\n');
        let other_json = Artifacts::new(EMBEDDED_P4INFO.as_bytes(), json).unwrap();
        let text = EMBEDDED_P4INFO.replace("size: 64", "size: 63");
        let other_p4info = Artifacts::new(text.as_bytes(), EMBEDDED_JSON.to_vec()).unwrap();
        assert_ne!(own.cookie(), other_json.cookie());
        assert_ne!(own.cookie(), other_p4info.cookie());
        let reformatted = EMBEDDED_P4INFO.replace('\n', "\n\n");
        let same = Artifacts::new(reformatted.as_bytes(), EMBEDDED_JSON.to_vec()).unwrap();
        assert_eq!(own.cookie(), same.cookie());
    }

    #[test]
    fn files_of_two_programs_are_refused_by_the_tables_name() {
        let text = EMBEDDED_P4INFO.replace("\"Ingress.classify\"", "\"Ingress.sort\"");
        let error = Artifacts::new(text.as_bytes(), EMBEDDED_JSON.to_vec()).unwrap_err().to_string();
        assert!(error.contains("table Ingress.sort is in the P4Info but not in the JSON"), "{error}");
        assert!(
            Artifacts::new(EMBEDDED_P4INFO.as_bytes(), b"{".to_vec())
                .unwrap_err()
                .to_string()
                .contains("JSON")
        );
    }
}
