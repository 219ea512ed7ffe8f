// SPDX-License-Identifier: Apache-2.0
//! YAML as a tree whose nodes know their lines, so that errors can name them. Scalars stay text:
//! what one means depends on its key.

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Deepest nesting that is read; settings need five levels.
const DEEPEST: usize = 16;

/// A value and the line it starts on, from 1.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// Nothing after the key.
    Null,
    /// Text, a number, a quantity.
    Scalar(String),
    List,
    /// In the file's order; keys may repeat, which the reader reports.
    Mapping(Vec<(usize, String, Node)>),
}

enum Open {
    List(usize),
    Mapping { line: usize, entries: Vec<(usize, String, Node)>, key: Option<(usize, String)> },
}

/// Reads one document; an error is its line and the reason.
pub(super) fn parse(text: &str) -> Result<Node, (usize, String)> {
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| (error.marker().line(), error.info().to_owned()))?;
        let line = span.start.line().max(1);
        let node = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err((line, "a second document; one file sets up one switch".to_owned()));
                }
                continue;
            }
            Event::Scalar(text, style, ..) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if null { Value::Null } else { Value::Scalar(text.into_owned()) };
                Node { line, value }
            }
            Event::Alias(_) => {
                return Err((line, "aliases are not read here; repeat the settings".to_owned()));
            }
            Event::SequenceStart(..) | Event::MappingStart(..) if open.len() >= DEEPEST => {
                return Err((line, format!("nested deeper than {DEEPEST} levels")));
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(line));
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Mapping { line, entries: Vec::new(), key: None });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::Mapping { line, entries, .. }) => Node { line, value: Value::Mapping(entries) },
                Some(Open::List(line)) => Node { line, value: Value::List },
                None => continue,
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
        };
        match open.last_mut() {
            None => root = Some(node),
            Some(Open::List(_)) => {}
            Some(Open::Mapping { entries, key, .. }) => match (key.take(), node.value) {
                (Some((line, key)), value) => entries.push((line, key, Node { line: node.line, value })),
                (None, Value::Scalar(name)) => *key = Some((node.line, name)),
                (None, _) => return Err((line, "expected a word as key".to_owned())),
            },
        }
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Null }))
}
