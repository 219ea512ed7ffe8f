// SPDX-License-Identifier: Apache-2.0
//! The answer to a Write, kept within what gRPC clients take.
//!
//! What became of each update travels in the trailers, and clients refuse trailers beyond a limit,
//! tonic by closing the connection with everything else on it. gRPC's own libraries advise 8 KiB.

use tonic::{Code, Status};
use trimwire_p4runtime::{status, v1};

/// Most bytes of message and encoded details; the rest of 8 KiB is left to other trailers.
const MOST_TRAILER_BYTES: usize = 7 * 1024;
/// Most characters of the message of the first update that failed.
const MOST_FIRST: usize = 400;

/// The answer from the outcomes of all updates. Where they take too much space, messages are
/// shortened first, except for the first failure's; then the details as a whole are left out, and
/// the message says so. The code is then the one that a gRPC server gives when trailers are too
/// large (P4Runtime, "gRPC Metadata Maximum Size"): clients look for details in an `UNKNOWN`.
pub(super) fn answer(mut outcomes: Vec<v1::Error>) -> Result<(), Status> {
    let Err(mut answer) = status::from_updates(&outcomes) else { return Ok(()) };
    for most in [120, 40, 0] {
        if fits(&answer) {
            return Err(answer);
        }
        let mut failures = outcomes.iter_mut().filter(|outcome| outcome.canonical_code != 0);
        if let Some(first) = failures.next() {
            shorten(&mut first.message, MOST_FIRST);
        }
        failures.for_each(|outcome| shorten(&mut outcome.message, most));
        answer = status::from_updates(&outcomes).err().unwrap_or(answer);
    }
    if fits(&answer) {
        return Err(answer);
    }
    let mut message = answer.message().to_owned();
    shorten(&mut message, 2 * MOST_FIRST);
    message.push_str("; the others are left out, too many to report: write smaller batches");
    Err(Status::new(Code::ResourceExhausted, message))
}

fn shorten(message: &mut String, most: usize) {
    if let Some((end, _)) = message.char_indices().nth(most) {
        message.truncate(end);
    }
}

fn fits(answer: &Status) -> bool {
    let details = answer.details().len().div_ceil(3) * 4;
    // gRPC writes other bytes as %XX.
    let message = answer.message().bytes().map(|byte| if matches!(byte, b' '..=b'~') { 1 } else { 3 });
    details + message.sum::<usize>() <= MOST_TRAILER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(count: usize, length: usize) -> Status {
        answer(vec![status::error(Code::NotFound, "ü".repeat(length)); count]).unwrap_err()
    }

    #[test]
    fn details_stay_whole_while_they_fit_and_then_lose_words_before_codes() {
        let whole = status::to_updates(&refused(3, 30)).unwrap();
        assert!(whole.len() == 3 && whole[2].message.chars().count() == 30, "{whole:?}");
        let shortened = status::to_updates(&refused(60, 300)).unwrap();
        assert!(shortened.len() == 60 && shortened.iter().all(|update| update.canonical_code == 5));
        assert!(!shortened[0].message.is_empty());
        let left_out = refused(5000, 300);
        assert!(left_out.details().is_empty() && left_out.message().contains("smaller batches"));
        assert!(left_out.message().contains("5000 of 5000"));
    }

    #[test]
    fn every_answer_fits() {
        for count in [1, 10, 100, 140, 200, 10_000] {
            for length in [0, 10, 100, 10_000] {
                assert!(fits(&refused(count, length)), "{count} updates of {length} characters");
            }
        }
    }
}
