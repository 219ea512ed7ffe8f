// SPDX-License-Identifier: Apache-2.0
//! The compiled program: P4Info, device config, and the cookie that tells whether a switch runs
//! them.

pub(crate) mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use trimwire_p4runtime::p4info::{Index, IndexError, Named, P4Info, P4InfoError};

use crate::model::{Fabric, PipelineFiles, Target};
use crate::target;
use crate::yaml::problem::{Located, Problems, SpecError};

/// The program that this controller was built with.
const EMBEDDED_P4INFO: &str = trimwire_p4::P4INFO;
const EMBEDDED_JSON: &[u8] = trimwire_p4::BMV2_JSON;

/// A compiled program, checked to be one, and the ones of switches that run another build.
#[derive(Debug, Clone)]
pub struct Artifacts {
    p4info: P4Info,
    index: Index,
    device_config: Vec<u8>,
    cookie: u64,
    switches: BTreeMap<String, Arc<Artifacts>>,
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
    /// The P4Info is of a program for another kind of switch.
    #[error("the P4Info is of a program for {found}; {target} runs programs for {wanted}")]
    Architecture {
        /// The kind of switch.
        target: &'static str,
        /// The P4Info's.
        found: String,
        /// The target's.
        wanted: &'static str,
    },
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
        Ok(Self::whole(p4info, index, json))
    }

    /// From the text or binary of a P4Info, and the device config of a Tofino.
    fn of_tofino(p4info: &[u8], target: Target, device_config: Vec<u8>) -> Result<Self, ArtifactsError> {
        let p4info = P4Info::from_bytes(p4info)?;
        let found = p4info.pkg_info.as_ref().map_or("", |package| package.arch.as_str());
        if found != target.architecture() {
            let found =
                if found.is_empty() { "no architecture that it names".to_owned() } else { found.to_owned() };
            let (target, wanted) = (target.word(), target.architecture());
            return Err(ArtifactsError::Architecture { target, found, wanted });
        }
        let index = Index::new(&p4info)?;
        Ok(Self::whole(p4info, index, device_config))
    }

    fn whole(p4info: P4Info, index: Index, device_config: Vec<u8>) -> Self {
        // The text form is what both forms have in common and has one spelling.
        let mut hash = Sha256::new();
        hash.update(p4info.to_text().as_bytes());
        hash.update([0]);
        hash.update(&device_config);
        let cookie = hash.finalize().iter().take(8).fold(0, |cookie, byte| (cookie << 8) | u64::from(*byte));
        Self { p4info, index, device_config, cookie, switches: BTreeMap::new() }
    }

    /// A program that no device config goes with.
    #[cfg(test)]
    pub(crate) fn unchecked(p4info: P4Info) -> Self {
        let index = Index::new(&p4info).unwrap();
        Self::whole(p4info, index, Vec::new())
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

    /// The device config: BMv2's JSON, or Stratum's message.
    pub fn device_config(&self) -> &[u8] {
        &self.device_config
    }

    /// The program of a switch: its own, if the fabric file gives it one.
    pub fn of(&self, switch: &str) -> &Self {
        self.switches.get(switch).map_or(self, Arc::as_ref)
    }

    /// Reads the programs that a fabric's switches bring along. Paths are relative to `folder`, the
    /// fabric file's. What is wrong with a file is a mistake of the line that names it.
    pub fn for_fabric(mut self, fabric: &Fabric, folder: &Path) -> Result<Self, SpecError> {
        let mut problems = Problems::default();
        // Hundreds of generated switches name the same files.
        let mut read: Vec<(Target, &PipelineFiles, Option<Arc<Self>>)> = Vec::new();
        for (name, switch) in &fabric.switches {
            let Some(files) = &switch.pipeline else { continue };
            let known = read.iter().find(|(target, known, _)| *target == switch.target && *known == files);
            let program = if let Some((.., program)) = known {
                program.clone()
            } else {
                let program = program(switch.target, files, folder, &mut problems).map(Arc::new);
                read.push((switch.target, files, program.clone()));
                program
            };
            if let Some(program) = program {
                self.switches.insert(name.clone(), program);
            }
        }
        if problems.is_empty() { Ok(self) } else { Err(problems.into_error(&fabric.file)) }
    }

    /// A hash of both. A switch that reports it runs this program.
    pub fn cookie(&self) -> u64 {
        self.cookie
    }
}

fn program(
    target: Target,
    files: &PipelineFiles,
    folder: &Path,
    problems: &mut Problems,
) -> Option<Artifacts> {
    let PipelineFiles { p4info, json, bfrt, context, binary, name, profile, pipes, line, path } = files;
    let mut file = |named: &Located<String>, is_json: bool| {
        let bytes = match crate::files::read(&folder.join(&named.value)) {
            Ok(bytes) if bytes.is_empty() => Err("is empty".to_owned()),
            Ok(bytes) => Ok(bytes),
            Err(error) => Err(format!("cannot be read: {error}")),
        };
        let checked = bytes.and_then(|bytes| match serde_json::from_slice::<serde::de::IgnoredAny>(&bytes) {
            Err(error) if is_json => Err(format!("is not JSON: {error}")),
            _ => Ok(bytes),
        });
        checked
            .map_err(|error| problems.add(named.line, &named.path, format!("'{}' {error}", named.value)))
            .ok()
    };
    let built = if target.is_stratum() {
        let (p4info, bfrt) = (file(p4info, false), file(bfrt.as_ref()?, true));
        let (context, binary) = (file(context.as_ref()?, true), file(binary.as_ref()?, false));
        let config = target::stratum_device_config((name, profile, pipes), bfrt?, context?, binary?);
        Artifacts::of_tofino(&p4info?, target, config)
    } else {
        let (p4info, json) = (file(p4info, false), file(json.as_ref()?, true));
        Artifacts::new(&p4info?, json?)
    };
    built.map_err(|error| problems.add(*line, path, error.to_string())).ok()
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
