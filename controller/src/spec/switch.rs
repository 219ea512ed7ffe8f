// SPDX-License-Identifier: Apache-2.0
//! One switch: where it is, what it is, and the files of its program.

use super::addresses::socket;
use super::keys;
use crate::model::{GnmiAt, PipelineFiles, Target};
use crate::yaml::fields::{Fields, integer, word};
use crate::yaml::problem::{Located, Problems};

pub(super) fn target(fields: &Fields<'_>, problems: &mut Problems) -> Option<Located<Target>> {
    fields.parsed("target", problems, word(&Target::ALL.map(|target| (target.word(), target))))
}

/// Where it tells of its ports: `on`, `off` or `HOST:PORT`.
pub(super) fn gnmi(text: &str) -> Result<GnmiAt, String> {
    match text {
        "on" | "true" => Ok(GnmiAt::Same),
        "off" | "false" => Ok(GnmiAt::Off),
        address => socket(address).map(GnmiAt::Address).map_err(|error| format!("{error}; or on, or off")),
    }
}

/// Which files a target's device config is made of.
fn needed(target: Target) -> &'static [&'static str] {
    if target.is_stratum() { &["p4info", "bfrt", "context", "binary"] } else { &["p4info", "json"] }
}

/// Reads `pipeline`. Reports what the target lacks and what it has no use for.
pub(super) fn pipeline(
    fields: &Fields<'_>,
    target: Target,
    problems: &mut Problems,
) -> Option<PipelineFiles> {
    let node = fields.node("pipeline")?;
    let path = fields.path("pipeline");
    let fields = Fields::of(node, &path, keys::PIPELINE, problems);
    let mut file = |key: &'static str| {
        let file = |text: &str| {
            if text.trim().is_empty() {
                Err("is empty; a file's path is wanted")
            } else {
                Ok(text.to_owned())
            }
        };
        if needed(target).contains(&key) {
            fields.required(key, "FILE", problems, file)
        } else {
            if let Some(node) = fields.node(key) {
                problems.add(
                    node.line,
                    fields.path(key),
                    format!(
                        "{} has no use for this; its files: {}",
                        target.word(),
                        needed(target).join(", ")
                    ),
                );
            }
            None
        }
    };
    let (p4info, json) = (file("p4info"), file("json"));
    let (bfrt, context, binary) = (file("bfrt"), file("context"), file("binary"));
    let text = |text: &str| -> Result<String, String> {
        if text.is_empty() { Err("is empty".to_owned()) } else { Ok(text.to_owned()) }
    };
    let name = fields.parsed("name", problems, text).map_or_else(|| "trimwire".to_owned(), |name| name.value);
    let profile = fields.parsed("profile", problems, text).map_or_else(|| "pipe".to_owned(), |p| p.value);
    let pipes = fields.list("pipes", problems, integer(0_u32..=3)).map_or_else(
        || (0..4).collect(),
        |pipes: Vec<Located<u32>>| pipes.into_iter().map(|pipe| pipe.value).collect(),
    );
    Some(PipelineFiles {
        line: node.line,
        path,
        p4info: p4info?,
        json,
        bfrt,
        context,
        binary,
        name,
        profile,
        pipes,
    })
}

/// What is said of a Stratum switch without files: its binary is compiled by whoever has the chip's
/// SDE.
pub(super) fn no_pipeline(target: Target) -> String {
    format!(
        "target {} needs the files that its compiler wrote; write pipeline: {{ p4info: FILE, bfrt: FILE, context: FILE, \
         binary: FILE }}",
        target.word()
    )
}
