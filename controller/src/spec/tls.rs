// SPDX-License-Identifier: Apache-2.0
//! `controller.tls` and `switches.X.tls`: the files behind them, read and looked into.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use trimwire_p4runtime::client::Tls;

use super::keys;
use crate::yaml::fields::{Fields, entries, join};
use crate::yaml::problem::{Located, Problems};
use crate::yaml::{Node, Value};

const CERTIFICATE: &[&str] = &["-----BEGIN CERTIFICATE-----"];
const KEY: &[&str] =
    &["-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----"];

/// What one mapping says.
#[derive(Clone)]
struct TlsSection {
    line: usize,
    path: String,
    ca: Option<Located<Vec<u8>>>,
    cert: Option<Located<Vec<u8>>>,
    key: Option<Located<Vec<u8>>>,
    server_name: Option<Located<String>>,
    /// Something in it is wrong and has been reported: what is missing for that reason is not wrong
    /// as well.
    is_broken: bool,
}

/// TLS by switch; a switch that is not in it is talked to in the clear.
pub(super) fn read<'n>(
    top: &Fields<'_>,
    switches: impl Iterator<Item = &'n String>,
    file: &str,
    problems: &mut Problems,
    warnings: &mut Problems,
) -> BTreeMap<String, Tls> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let general = top.node("controller").and_then(|node| child(node, "tls"));
    let general = general.map(|node| section(node, "controller.tls", folder, problems));
    let listed: BTreeMap<&str, &Node> = match top.node("switches") {
        Some(node) => {
            entries(node, "switches", problems).into_iter().map(|(name, _, node)| (name, node)).collect()
        }
        None => BTreeMap::new(),
    };
    let mut inherited = None;
    let mut all = BTreeMap::new();
    for name in switches {
        let own = listed.get(name.as_str()).and_then(|node| child(node, "tls"));
        let tls = match own {
            None => {
                let general = general.as_ref();
                let general = || general.and_then(|section| whole(section, problems, warnings));
                inherited.get_or_insert_with(general).clone()
            }
            Some(node) if matches!(&node.value, Value::Scalar(word) if word == "off") => None,
            Some(node) => {
                let path = join(&join("switches", name), "tls");
                let section = section(node, &path, folder, problems).over(general.as_ref());
                whole(&section, problems, warnings)
            }
        };
        all.extend(tls.map(|tls| (name.clone(), tls)));
    }
    all
}

/// A key's value in a mapping whose keys are checked elsewhere.
fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    let Value::Mapping(entries) = &node.value else { return None };
    entries
        .iter()
        .find(|(key, _)| key.name == name)
        .map(|(_, value)| value)
        .filter(|v| v.value != Value::Null)
}

fn section(node: &Node, path: &str, folder: &Path, problems: &mut Problems) -> TlsSection {
    let before = problems.len();
    let fields = Fields::of(node, path, keys::TLS, problems);
    let mut file = |key: &str, what: &'static str, markers: &'static [&'static str]| {
        fields.parsed(key, problems, |text| pem(&folder.join(text), what, markers))
    };
    let ca = file("ca", "certificate", CERTIFICATE);
    let cert = file("cert", "certificate", CERTIFICATE);
    let key = file("key", "private key", KEY);
    if let Some(key) = &key {
        check_mode(&folder.join(&key.text), key, problems);
    }
    let server_name = fields.parsed("server_name", problems, |text| {
        let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if !text.is_empty() && text.chars().all(valid) {
            Ok(text.to_owned())
        } else {
            Err(format!("'{text}' is no name of a host, as certificates have it"))
        }
    });
    let is_broken = problems.len() > before;
    TlsSection { line: node.line, path: path.to_owned(), ca, cert, key, server_name, is_broken }
}

/// A key that others can read is theirs, too.
fn check_mode(path: &Path, key: &Located<Vec<u8>>, problems: &mut Problems) {
    let Ok(metadata) = std::fs::metadata(path) else { return };
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let shown = path.display();
        let message = format!(
            "{shown} has mode {mode:04o}: others than its owner can get at the key; chmod 600 {shown}"
        );
        problems.add(key.line, &key.path, message);
    }
}

fn pem(path: &Path, what: &str, markers: &[&str]) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let bytes = crate::files::read(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    let holds = |marker: &&str| bytes.windows(marker.len()).any(|part| part == marker.as_bytes());
    if markers.iter().any(holds) {
        Ok(bytes)
    } else {
        Err(format!("{shown} holds no {what} in PEM form (no line {})", markers.join(" or ")))
    }
}

impl TlsSection {
    /// What this one does not say, the general one does.
    fn over(self, general: Option<&Self>) -> Self {
        let Some(general) = general.cloned() else { return self };
        Self {
            ca: self.ca.or(general.ca),
            cert: self.cert.or(general.cert),
            key: self.key.or(general.key),
            server_name: self.server_name.or(general.server_name),
            is_broken: self.is_broken || general.is_broken,
            ..self
        }
    }

    /// With what may become wrong with it.
    fn tls(&self) -> Result<(Tls, Vec<String>), String> {
        let bytes = |file: &Option<Located<Vec<u8>>>| file.as_ref().map(|file| file.value.clone());
        let identity = match (bytes(&self.cert), bytes(&self.key)) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (Some(_), None) => return Err("'cert' needs its 'key'; write key: controller.key".to_owned()),
            (None, Some(_)) => return Err("'key' needs its 'cert'; write cert: controller.pem".to_owned()),
            (None, None) => None,
        };
        let ca = bytes(&self.ca).ok_or("'ca' is missing; write ca: ca.pem")?;
        let server_name = self.server_name.as_ref().map(|name| name.value.clone());
        let tls = Tls { ca, identity, server_name };
        match tls.check() {
            Ok(doubts) => Ok((tls, doubts)),
            Err(reason) => Err(format!("these files cannot be used together: {reason}")),
        }
    }
}

/// A section that has all it needs; a problem otherwise.
fn whole(section: &TlsSection, problems: &mut Problems, warnings: &mut Problems) -> Option<Tls> {
    if section.is_broken {
        return None;
    }
    let add = |problems: &mut Problems, reason| problems.add(section.line, section.path.clone(), reason);
    let (tls, doubts) = section.tls().map_err(|reason| add(problems, reason)).ok()?;
    doubts.into_iter().for_each(|doubt| add(warnings, doubt));
    Some(tls)
}
