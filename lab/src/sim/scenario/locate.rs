// SPDX-License-Identifier: Apache-2.0
//! The line on which a value stands, for errors that are found after reading.

/// A value that makes no sense: where it stands in the file, and why.
pub(super) type Wrong = (Vec<&'static str>, String);

pub(super) fn wrong<T>(path: &[&'static str], reason: String) -> Result<T, Wrong> {
    Err((path.to_vec(), reason))
}

use saphyr_parser::{Event, Parser};

/// The line, from 1, of the key at the end of a path of keys, or of as much of the path as there
/// is; lists are entered at `item` (of the first list on the way). 1 where nothing fits.
pub(super) fn line_of(text: &str, path: &[&str], item: Option<usize>) -> usize {
    let mut found = 1;
    // Of each open collection: whether it is a list, items or keys so far, whether a key was read,
    // and how far the path leads here.
    let mut open: Vec<(bool, usize, Option<String>, Option<usize>)> = Vec::new();
    let mut deepest = 0;
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { return found };
        let line = span.start.line().max(1);
        // How far the path leads to this node.
        let mut depth = if open.is_empty() { Some(0) } else { None };
        let begins = matches!(event, Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..));
        if begins && let Some((list, count, key, along)) = open.last_mut() {
            if *list {
                let wanted = item.is_none_or(|item| item == *count);
                depth = along.filter(|_| wanted);
                *count += 1;
                if depth == Some(deepest) && item.is_some() && wanted {
                    found = line;
                }
            } else if key.is_none() {
                if let Event::Scalar(name, ..) = &event {
                    if along.is_some_and(|along| path.get(along) == Some(&name.as_ref()) && along >= deepest)
                    {
                        (found, deepest) = (line, along.unwrap_or(0) + 1);
                    }
                    *key = Some(name.as_ref().to_owned());
                }
                continue;
            } else {
                let name = key.take();
                depth =
                    along.filter(|&along| path.get(along).copied() == name.as_deref()).map(|along| along + 1);
            }
        }
        match event {
            Event::SequenceStart(..) => open.push((true, 0, None, depth)),
            Event::MappingStart(..) => open.push((false, 0, None, depth)),
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_on_its_line_or_its_parents() {
        let text = "scenario: x\nworkload:\n  incast:\n    bytes: 2MB\n    senders: 9\nruns:\n  - name: a\n  - name: b\n    transport:\n      ndp: {}\n";
        assert_eq!(line_of(text, &["workload", "incast", "senders"], None), 5);
        assert_eq!(line_of(text, &["workload", "incast", "jitter"], None), 3);
        assert_eq!(line_of(text, &["runs", "transport"], Some(1)), 9);
        assert_eq!(line_of(text, &["runs", "payload"], Some(1)), 8);
        assert_eq!(line_of(text, &["nothing"], None), 1);
        assert_eq!(line_of("a: [", &["a"], None), 1);
    }
}
