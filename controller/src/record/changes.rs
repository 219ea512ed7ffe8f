// SPDX-License-Identifier: Apache-2.0
//! What a fabric file says otherwise than the one before, in a few of its own lines.

use std::collections::BTreeMap;

use super::Record;

/// Lines that are kept.
const KEPT: usize = 20;
/// Characters of each.
const WIDTH: usize = 80;
/// Lines that are shown.
const SHOWN: usize = 4;

/// Lines that went, with a minus, and that came, with a plus. Where a line stands says nothing, and
/// neither do comments.
pub(super) fn of(before: &str, now: &str) -> Vec<String> {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    let (before, now) = (lines(before), lines(now));
    let went = beyond(&before, &now).map(|line| format!("- {line}"));
    let came = beyond(&now, &before).map(|line| format!("+ {line}"));
    let mut changes: Vec<String> = went.chain(came).map(|line| line.chars().take(WIDTH).collect()).collect();
    if changes.len() > KEPT {
        let more = changes.len() - KEPT;
        changes.truncate(KEPT);
        changes.push(format!("{more} more lines"));
    }
    changes
}

/// Lines of one text that the other has not, or not as often.
fn beyond<'l>(lines: &'l [String], other: &[String]) -> impl Iterator<Item = &'l String> {
    let mut left: BTreeMap<String, usize> = BTreeMap::new();
    for line in other {
        *left.entry(line.clone()).or_default() += 1;
    }
    lines.iter().filter(move |line| match left.get_mut(*line) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    })
}

/// How many switches have another program than then.
pub(super) fn of_programs(before: &Record, now: &BTreeMap<String, String>) -> Option<String> {
    let differs =
        |(name, cookie): &(&String, &String)| before.programs.get(*name).is_some_and(|was| was != *cookie);
    let count = now.iter().filter(differs).count();
    (count > 0).then(|| format!("another program for {count} switches"))
}

/// The first few, for people.
pub(super) fn in_words(changes: &[String]) -> String {
    let shown: Vec<&str> = changes.iter().take(SHOWN).map(String::as_str).collect();
    let more = changes.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if shown.is_empty() { String::new() } else { format!("; changed: {}{more}", shown.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_went_and_came_are_told_and_those_that_moved_are_not() {
        let (before, now) = ("a: 1\nb: 2\n# c\nd: 4\nd: 4\n", "  b: 2\na: 3\nd: 4\n");
        assert_eq!(of(before, now), ["- a: 1", "- d: 4", "+ a: 3"]);
        assert_eq!(of(before, before), Vec::<String>::new());
        let many = (0..100).fold(String::new(), |text, number| text + &format!("host{number}: 1\n"));
        let changes = of("", &many);
        assert_eq!((changes.len(), changes[20].as_str()), (21, "80 more lines"));
        assert_eq!(
            in_words(&changes[..5]),
            "; changed: + host0: 1, + host1: 1, + host2: 1, + host3: 1 and 1 more"
        );
        assert_eq!((in_words(&[]).as_str(), of("", &"ü".repeat(200))[0].chars().count()), ("", 80));
    }
}
