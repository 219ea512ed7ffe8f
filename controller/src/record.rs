// SPDX-License-Identifier: Apache-2.0
//! Who applied what, when, and what became of it; and the files themselves, so that a good state
//! can be gone back to.
//!
//! A folder of small files, each written whole: under another name first, then renamed. Who gives a
//! record its number locks the folder. Nothing in it is secret but what the fabric file says.

mod changes;
mod drained;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::Fabric;
use crate::program::Artifacts;
use crate::report::Report;

/// Records that are kept.
const KEPT: usize = 100;

/// How a roll-out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It did not: it is under way, or was cut off.
    Begun,
    /// Every switch that was meant holds what it should.
    Succeeded,
    /// Some do not.
    Failed,
}

/// One roll-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// From 1.
    pub number: u64,
    /// When it began, seconds since 1970.
    pub at: u64,
    /// `user@machine`.
    pub who: String,
    /// `apply`, `rollback to 3`, or `run, SIGHUP`.
    pub command: String,
    /// The controller's version.
    pub version: String,
    /// Of the fabric file, SHA-256.
    pub content: String,
    /// What it says otherwise than the file of the record before: lines that went, with a minus,
    /// and that came, with a plus.
    #[serde(default)]
    pub changes: Vec<String>,
    /// Cookies of the programs, by switch.
    pub programs: BTreeMap<String, String>,
    /// Those that were meant; empty for all.
    pub only: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
    /// Switches in place at its end.
    pub in_place: usize,
    /// Switches that are not, and why.
    pub failed: BTreeMap<String, String>,
    /// Switches that nothing was done to.
    pub not_begun: Vec<String>,
}

/// Why a record cannot be kept or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The folder, or a file in it.
    #[error("{path}: {source}; --state DIR keeps records elsewhere")]
    Io {
        /// Which.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file that this controller did not write, or one that cannot be written.
    #[error("{path} is no record: {source}")]
    Content {
        /// Which.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The kept file is not what was applied.
    #[error("{path} was changed since it was kept")]
    Changed {
        /// Which.
        path: String,
    },
    /// No roll-out to go back to.
    #[error("no earlier roll-out of all switches succeeded ({0} in {1}); history shows them")]
    NothingGood(usize, String),
    /// No such record.
    #[error("there is no record {number} in {path}; history shows those that there are")]
    Unknown {
        /// As asked for.
        number: u64,
        /// The folder.
        path: String,
    },
}

/// A folder of records.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
}

impl Records {
    /// Those of a fabric file: in `.trimwire/<its name>` beside it, or in `state`.
    pub fn of(file: &Path, state: Option<&Path>) -> Self {
        let name = file.file_name().unwrap_or_default();
        let beside = || file.parent().unwrap_or(Path::new("")).join(".trimwire");
        Self { folder: state.map_or_else(beside, Path::to_path_buf).join(name) }
    }

    /// All that can be read, the oldest first. A damaged one says nothing of the others: the log
    /// names it.
    pub fn all(&self) -> Result<Vec<Record>, RecordError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|source| io_error(&self.folder, source))?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(|source| io_error(&self.folder, source))?.path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let text = crate::files::read(&path).map_err(|source| io_error(&path, source))?;
            match serde_json::from_slice::<Record>(&text) {
                Ok(record) if path.file_name() == Some(name(record.number).as_ref()) => records.push(record),
                Ok(record) => tracing::warn!("{} says that it is record {}", path.display(), record.number),
                Err(error) => tracing::warn!("{} is no record: {error}", path.display()),
            }
        }
        records.sort_by_key(|record| record.number);
        Ok(records)
    }

    /// Writes down that a roll-out of this file begins, and keeps the file.
    pub fn begin(
        &self,
        command: &str,
        text: &str,
        fabric: &Fabric,
        artifacts: &Artifacts,
        only: &[String],
    ) -> Result<Record, RecordError> {
        let _locked = self.lock().map_err(|source| io_error(&self.folder, source))?;
        let mut records = self.all()?;
        let mut number = records.last().map_or(0, |record| record.number).saturating_add(1);
        // A damaged one keeps its name.
        while self.folder.join(name(number)).exists() {
            number = number.saturating_add(1);
        }
        let last = records.last();
        let content = digest(text);
        self.write(&kept(&content), text.as_bytes())?;
        let programs = programs(fabric, artifacts);
        // A file that is not there any more says nothing of what changed.
        let mut changes = Vec::new();
        if let Some(last) = last {
            changes.extend(self.text(last).ok().into_iter().flat_map(|before| changes::of(&before, text)));
            changes.extend(changes::of_programs(last, &programs));
        }
        let record = Record {
            number,
            at: unix_time(),
            who: who(),
            command: command.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            content,
            changes,
            programs,
            only: only.to_vec(),
            outcome: Outcome::Begun,
            in_place: 0,
            failed: BTreeMap::new(),
            not_begun: Vec::new(),
        };
        self.keep(&record)?;
        records.push(record.clone());
        self.forget(&records)?;
        Ok(record)
    }

    /// Writes down how it ended.
    pub fn end(&self, record: Record, report: &Report) -> Result<(), RecordError> {
        let in_place = report.switches.iter().filter(|switch| switch.is_ok()).count();
        let (mut failed, mut not_begun) = (BTreeMap::new(), Vec::new());
        for switch in report.switches.iter().filter(|switch| !switch.is_ok()) {
            if switch.not_begun {
                not_begun.push(switch.switch.clone());
            } else {
                let why = switch.error.clone().unwrap_or_else(|| "refused updates".to_owned());
                failed.insert(switch.switch.clone(), why);
            }
        }
        self.close(record, in_place, failed, not_begun)
    }

    /// The same: how many switches are in place, which are not and why, and to which nothing was
    /// done.
    pub fn close(
        &self,
        mut record: Record,
        in_place: usize,
        failed: BTreeMap<String, String>,
        not_begun: Vec<String>,
    ) -> Result<(), RecordError> {
        let is_ok = failed.is_empty() && not_begun.is_empty();
        record.outcome = if is_ok { Outcome::Succeeded } else { Outcome::Failed };
        (record.in_place, record.failed, record.not_begun) = (in_place, failed, not_begun);
        self.keep(&record)
    }

    /// Whether the last record is of this file and these programs, on all switches, and succeeded.
    pub fn is_last_good(&self, text: &str, fabric: &Fabric, artifacts: &Artifacts) -> bool {
        let last = self.all().ok().and_then(|mut records| records.pop());
        last.is_some_and(|last| {
            let whole = last.outcome == Outcome::Succeeded && last.only.is_empty();
            whole && last.content == digest(text) && last.programs == programs(fabric, artifacts)
        })
    }

    /// The file of a record.
    pub fn text(&self, record: &Record) -> Result<String, RecordError> {
        let path = self.folder.join(kept(&record.content));
        let text = std::fs::read_to_string(&path).map_err(|source| io_error(&path, source))?;
        if digest(&text) == record.content {
            Ok(text)
        } else {
            Err(RecordError::Changed { path: path.display().to_string() })
        }
    }

    /// What to go back to: the newest roll-out of all switches that succeeded, of another file than
    /// the last roll-out's; or the one that is asked for.
    pub fn good(&self, number: Option<u64>) -> Result<Record, RecordError> {
        let records = self.all()?;
        let path = self.folder.display().to_string();
        if let Some(number) = number {
            let found = records.into_iter().find(|record| record.number == number);
            return found.ok_or(RecordError::Unknown { number, path });
        }
        last_good(&records).cloned().ok_or(RecordError::NothingGood(records.len(), path))
    }

    fn keep(&self, record: &Record) -> Result<(), RecordError> {
        let text = serde_json::to_vec_pretty(record)
            .map_err(|source| RecordError::Content { path: self.folder.display().to_string(), source })?;
        self.write(&name(record.number), &text)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.folder.join(name);
        let write = || {
            std::fs::create_dir_all(&self.folder)?;
            // Another process may write the same file.
            let new = self.folder.join(format!("{name}.{}.new", std::process::id()));
            let mut file = File::create(&new)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        write().map_err(|source| io_error(&path, source))
    }

    /// Held until it is dropped.
    fn lock(&self) -> io::Result<File> {
        std::fs::create_dir_all(&self.folder)?;
        let folder = File::open(&self.folder)?;
        folder.lock()?;
        Ok(folder)
    }

    /// Removes the oldest of these records beyond those that are kept, and files that none is of.
    /// The last good one stays.
    fn forget(&self, records: &[Record]) -> Result<(), RecordError> {
        let (old, new) = records.split_at(records.len().saturating_sub(KEPT));
        let good = last_good(records);
        let stays = |record: &&Record| good.is_none_or(|good| good.number != record.number);
        for record in old.iter().filter(stays) {
            let path = self.folder.join(name(record.number));
            std::fs::remove_file(&path).map_err(|source| io_error(&path, source))?;
            let used = new.iter().chain(good).any(|other| other.content == record.content);
            if !used {
                // Another old record may have been of the same file.
                let _ = std::fs::remove_file(self.folder.join(kept(&record.content)));
            }
        }
        Ok(())
    }
}

/// The newest roll-out of all switches that succeeded, of another file than the last one's.
fn last_good(records: &[Record]) -> Option<&Record> {
    let last = records.last().map(|record| &record.content);
    records.iter().rfind(|record| {
        let whole = record.outcome == Outcome::Succeeded && record.only.is_empty();
        whole && Some(&record.content) != last
    })
}

fn name(number: u64) -> String {
    format!("{number:08}.json")
}

/// Cookies, by switch.
fn programs(fabric: &Fabric, artifacts: &Artifacts) -> BTreeMap<String, String> {
    let cookie = |name: &String| (name.clone(), format!("{:#018x}", artifacts.of(name).cookie()));
    fabric.switches.keys().map(cookie).collect()
}

/// SHA-256, in hexadecimal digits.
fn digest(text: &str) -> String {
    use std::fmt::Write as _;
    Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn kept(content: &str) -> String {
    format!("{content}.yaml")
}

fn io_error(path: &Path, source: io::Error) -> RecordError {
    RecordError::Io { path: path.display().to_string(), source }
}

#[expect(clippy::disallowed_methods, reason = "people want the time of day")]
fn unix_time() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// As far as the environment tells: a note, not a proof.
fn who() -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let uid = || {
        let own = std::fs::metadata("/proc/self");
        own.map_or_else(|_| "unknown".to_owned(), |own| format!("uid {}", own.uid()))
    };
    format!("{}@{}", user.unwrap_or_else(uid), machine.trim())
}

/// `2026-11-23 02:05:00 UTC`, for seconds since 1970. Howard Hinnant's `civil_from_days`.
pub fn date(at: u64) -> String {
    let (days, seconds) = (at / 86_400, at % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            at,
            who,
            command,
            outcome,
            in_place,
            failed,
            not_begun,
            content,
            changes,
            only,
            ..
        } = self;
        let outcome = match outcome {
            Outcome::Begun => "begun, and no word of its end",
            Outcome::Succeeded => "succeeded",
            Outcome::Failed => "FAILED",
        };
        let part = if only.is_empty() { String::new() } else { format!(" of {}", only.join(", ")) };
        let short = content.get(..12).unwrap_or(content);
        write!(
            f,
            "{number}: {} {who}: {command}{part}: {outcome}; {in_place} in place, file {short}{}",
            date(*at),
            changes::in_words(changes)
        )?;
        for (switch, why) in failed {
            write!(f, "\n  {switch}: {why}")?;
        }
        if !not_begun.is_empty() {
            write!(f, "\n  not begun: {}", not_begun.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_798_761_599), "2026-12-31 23:59:59 UTC");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    fn record(records: &Records, number: u64, content: &str, outcome: Outcome, only: &[&str]) {
        let record = Record {
            number,
            at: number,
            who: "a@b".to_owned(),
            command: "apply".to_owned(),
            version: "0".to_owned(),
            content: content.to_owned(),
            changes: Vec::new(),
            programs: BTreeMap::new(),
            only: only.iter().map(|name| (*name).to_owned()).collect(),
            outcome,
            in_place: 0,
            failed: BTreeMap::new(),
            not_begun: Vec::new(),
        };
        records.keep(&record).unwrap();
    }

    #[test]
    fn the_last_good_state_is_of_all_switches_and_of_another_file_than_the_last_one_tried() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::of(Path::new("fabric.yaml"), Some(folder.path()));
        assert!(matches!(records.good(None), Err(RecordError::NothingGood(0, _))));
        record(&records, 1, "one", Outcome::Succeeded, &[]);
        record(&records, 2, "two", Outcome::Succeeded, &[]);
        assert_eq!(records.good(None).unwrap().number, 1);
        record(&records, 3, "three", Outcome::Failed, &[]);
        assert_eq!(records.good(None).unwrap().number, 2);
        record(&records, 4, "four", Outcome::Succeeded, &["s1"]);
        assert_eq!(records.good(None).unwrap().number, 2);
        assert_eq!(records.good(Some(1)).unwrap().number, 1);
        assert!(matches!(records.good(Some(9)), Err(RecordError::Unknown { number: 9, .. })));
    }

    fn begin(records: &Records, text: &str) -> Record {
        let artifacts = Artifacts::embedded().unwrap();
        let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap();
        records.begin("apply", text, &fabric, &artifacts, &[]).unwrap()
    }

    const TEXT: &str = "version: 1\ntopology: { dumbbell: { hosts_per_side: 1, host_speed: 25Gbps } }\n";

    #[test]
    fn a_damaged_record_is_passed_over_and_keeps_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::of(Path::new("fabric.yaml"), Some(folder.path()));
        record(&records, 1, "one", Outcome::Succeeded, &[]);
        std::fs::write(records.folder.join(name(2)), "").unwrap();
        std::fs::copy(records.folder.join(name(1)), records.folder.join(name(9))).unwrap();
        assert_eq!(begin(&records, TEXT).number, 3);
        let numbers: Vec<u64> = records.all().unwrap().iter().map(|record| record.number).collect();
        assert_eq!((numbers, records.good(None).unwrap().number), (vec![1, 3], 1));
        assert_eq!(std::fs::read(records.folder.join(name(2))).unwrap(), b"");
    }

    #[test]
    fn rollouts_that_begin_at_once_have_a_record_each() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::of(Path::new("fabric.yaml"), Some(folder.path()));
        let mut numbers: Vec<u64> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..5).map(|_| scope.spawn(|| begin(&records, TEXT).number)).collect();
            begun.into_iter().map(|begun| begun.join().unwrap()).collect()
        });
        numbers.sort_unstable();
        assert_eq!((numbers, records.all().unwrap().len()), (vec![1, 2, 3, 4, 5], 5));
    }
}
