// SPDX-License-Identifier: Apache-2.0
//! Where the programs under test are.
#![forbid(unsafe_code)]

use crate::{namespace, skip};
use std::path::{Path, PathBuf};

/// Our three programs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `trimwire-switch`.
    pub switch: PathBuf,
    /// `trimwire-controller`.
    pub controller: PathBuf,
    /// `trimwire-agent`.
    pub agent: PathBuf,
}

/// Folders to look in: `TRIMWIRE_BIN_DIR` alone if it is set, otherwise where cargo puts what it
/// builds, the profile of this test first.
fn folders() -> Vec<PathBuf> {
    if let Some(folder) = std::env::var_os("TRIMWIRE_BIN_DIR") {
        return vec![folder.into()];
    }
    // target/PROFILE/deps/test-hash
    let exe = std::env::current_exe().unwrap_or_default();
    let profile = exe.parent().and_then(Path::parent);
    let target = profile.and_then(Path::parent);
    let others = target.into_iter().flat_map(|target| [target.join("release"), target.join("debug")]);
    profile.map(Path::to_owned).into_iter().chain(others).collect()
}

fn find(name: &str) -> Result<PathBuf, String> {
    let folders = folders();
    let candidates = folders.iter().map(|folder| folder.join(name));
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        format!("{name} is not in {} (bmv2-tests/run.sh builds it)", folders.join(" or "))
    })
}

impl Programs {
    /// All of what a test over real interfaces needs, or a line on stderr and `None`.
    pub fn or_skip(test: &str) -> Option<Self> {
        if !namespace::or_skip(test) {
            return None;
        }
        let all = || -> Result<Self, String> {
            let [switch, controller, agent] =
                ["trimwire-switch", "trimwire-controller", "trimwire-agent"].map(find);
            Ok(Self { switch: switch?, controller: controller?, agent: agent? })
        };
        all().map_err(|why| skip(test, &why)).ok()
    }
}

/// `simple_switch_grpc` on PATH.
pub fn bmv2() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("simple_switch_grpc")).find(|f| f.is_file())
}

/// `simple_switch_grpc` on PATH, or a line on stderr and `None`.
pub fn bmv2_or_skip(test: &str) -> Option<PathBuf> {
    let found = bmv2();
    if found.is_none() {
        skip(test, "simple_switch_grpc (BMv2) is not on PATH");
    }
    found
}
