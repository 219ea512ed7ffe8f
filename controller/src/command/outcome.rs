// SPDX-License-Identifier: Apache-2.0
//! How a subcommand ends, and printing what it found.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;
use trimwire_controller::printable;

/// Something on a switch is not as it should be.
pub(crate) const FAILED: u8 = 1;
/// The command line asks for what is not there.
pub(crate) const USAGE: u8 = 2;
/// A file that was given is wrong.
pub(crate) const BAD_INPUT: u8 = 3;
/// `plan --detailed-exitcode`: there is something to change. Terraform has 2 here, which all of our
/// programs have for usage.
pub(crate) const DIFFERS: u8 = 4;

/// The exit code, or why there was nothing to print.
pub(crate) type Outcome = Result<u8, Failure>;

pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

pub(crate) fn bad_input(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: BAD_INPUT, error: error.into() }
}

/// Nothing was done, and not because of a file.
pub(crate) fn failed(error: impl Into<anyhow::Error>) -> Failure {
    Failure { code: FAILED, error: error.into() }
}

/// An error and its causes in one line, each said once: libraries' errors name their causes, too.
pub(crate) fn in_words(error: &anyhow::Error) -> String {
    let mut words = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !words.contains(&cause) {
            words = format!("{words}: {cause}");
        }
    }
    words
}

/// Says something beside that, to stderr.
pub(crate) fn say(words: impl Display) {
    eprintln!("{}", printable(&words.to_string()));
}

/// Prints to stdout. A reader that has seen enough (`| head`) is no failure; false then.
pub(crate) fn print(text: &str) -> Result<bool, Failure> {
    draw(&printable(text))
}

/// The same, where control characters are meant.
pub(crate) fn draw(text: &str) -> Result<bool, Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// The same, as a table or as JSON.
pub(crate) fn print_value(value: &(impl Serialize + Display), json: bool) -> Outcome {
    print(&if json { serde_json::to_string_pretty(value).map_err(failed)? } else { value.to_string() })?;
    Ok(0)
}
