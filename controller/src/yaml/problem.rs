// SPDX-License-Identifier: Apache-2.0
//! What is wrong with a file that people write, and where it stands.

use std::fmt;

use crate::printable::in_one_line;

/// One mistake: where it stands and what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Problem {
    /// From 1.
    pub line: usize,
    /// The key's path, `switches.s1.address`; empty for the file as a whole.
    pub path: String,
    /// What is wrong and what would be right.
    pub message: String,
}

/// All mistakes found in a fabric file, in the order of its lines.
///
/// Display gives one a line, `fabric.yaml:12: switches.s1.adress: unknown key; did you mean
/// 'address'? …`, and of very many the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecError {
    pub(crate) file: String,
    pub(crate) problems: Vec<Problem>,
}

impl SpecError {
    /// The file's name, as given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The mistakes, at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl std::error::Error for SpecError {}

/// Mistakes that are shown: a file that is something else altogether has one in every line.
const SHOWN: usize = 200;

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, Problem { line, path, message }) in self.problems.iter().take(SHOWN).enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            write!(f, "{}:{line}: ", self.file)?;
            if !path.is_empty() {
                write!(f, "{}: ", in_one_line(path))?;
            }
            f.write_str(&in_one_line(message))?;
        }
        match self.problems.len().checked_sub(SHOWN) {
            Some(more @ 1..) => write!(f, "\nand {more} more"),
            _ => Ok(()),
        }
    }
}

/// Where problems are collected while the file is read.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<Problem>,
}

impl Problems {
    pub(crate) fn add(&mut self, line: usize, path: impl Into<String>, message: impl Into<String>) {
        self.found.push(Problem { line, path: path.into(), message: message.into() });
    }

    pub(crate) fn len(&self) -> usize {
        self.found.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(crate) fn into_error(mut self, file: &str) -> SpecError {
        self.found.sort();
        self.found.dedup();
        SpecError { file: file.to_owned(), problems: self.found }
    }
}

/// A value that came from the file, with where it stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Located<T> {
    pub value: T,
    /// As written.
    pub text: String,
    pub line: usize,
    pub path: String,
}

/// `; did you mean 'address'? (valid: address, device_id, target)`
pub(crate) fn hint<S: AsRef<str>>(asked: &str, valid: &[S]) -> String {
    const SHOWN: usize = 16;
    // Suggestions only: words this long are no typing slips, and the distance is quadratic.
    const LONGEST: usize = 64;
    let nearest = valid
        .iter()
        .map(AsRef::as_ref)
        .filter(|_| asked.len() <= LONGEST)
        .map(|word: &str| (strsim::damerau_levenshtein(&asked.to_lowercase(), &word.to_lowercase()), word))
        .filter(|(distance, _)| *distance <= (asked.chars().count() / 3).max(1))
        .min();
    let shown: Vec<&str> = valid.iter().take(SHOWN).map(AsRef::as_ref).collect();
    let more = if valid.len() > SHOWN { format!(", … {} in all", valid.len()) } else { String::new() };
    let shown = shown.join(", ");
    match nearest {
        Some((_, word)) => format!("; did you mean '{word}'? (valid: {shown}{more})"),
        None if valid.is_empty() => "; there are none".to_owned(),
        None => format!("; valid: {shown}{more}"),
    }
}
