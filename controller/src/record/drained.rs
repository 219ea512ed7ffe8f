// SPDX-License-Identifier: Apache-2.0
//! Switches that a person has taken out of routes: a small file beside the records, which `run`
//! reads every second, and `plan` and `apply` whenever they work.

use std::collections::BTreeMap;
use std::io;

use super::{RecordError, Records, io_error};

/// Not `.json`: it is no record.
const NAME: &str = "drained";

impl Records {
    /// Drained switches, and why each is.
    pub fn drained(&self) -> Result<BTreeMap<String, String>, RecordError> {
        let path = self.folder.join(NAME);
        match crate::files::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(source) => Err(io_error(&path, source)),
            Ok(text) => serde_json::from_slice(&text)
                .map_err(|source| RecordError::Content { path: path.display().to_string(), source }),
        }
    }

    /// Drains these from now on, and no others.
    pub fn set_drained(&self, drained: &BTreeMap<String, String>) -> Result<(), RecordError> {
        let text = serde_json::to_vec_pretty(drained)
            .map_err(|source| RecordError::Content { path: self.folder.display().to_string(), source })?;
        self.write(NAME, &text)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_drained_is_kept_beside_the_records_and_is_none_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::of(Path::new("fabric.yaml"), Some(folder.path()));
        assert!(records.drained().unwrap().is_empty());
        let drained = BTreeMap::from([("s1".to_owned(), "optics".to_owned())]);
        records.set_drained(&drained).unwrap();
        assert_eq!(records.drained().unwrap(), drained);
        assert!(records.all().unwrap().is_empty());
        std::fs::write(folder.path().join("fabric.yaml").join(NAME), "[").unwrap();
        assert!(records.drained().unwrap_err().to_string().contains("drained is no record"));
    }
}
