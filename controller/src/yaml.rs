// SPDX-License-Identifier: Apache-2.0
//! YAML with line numbers.
//!
//! Semantic errors name the line of what they complain about, so every node keeps where it stood;
//! serde-based readers lose that. Scalars stay text: what `10Gbps` or `off` means depends on the
//! key, not on YAML's guess at a type.

pub(crate) mod fields;
pub(crate) mod problem;

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Deepest nesting that is read. The schema needs seven levels.
const DEEPEST: usize = 32;

/// Most nodes, aliases expanded: a few lines of nested aliases could otherwise stand for billions.
const MOST_NODES: usize = 1_000_000;

/// A value and the line it starts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// From 1.
    pub line: usize,
    pub value: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Nothing after the key, `~` or `null`.
    Null,
    /// Text, a number, a quantity: the key decides.
    Scalar(String),
    Sequence(Vec<Node>),
    /// In the file's order; keys may repeat, which the reader reports.
    Mapping(Vec<(Key, Node)>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    pub line: usize,
    pub name: String,
}

impl Node {
    /// What the node is, in words.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Scalar(_) => "a single value",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }
}

/// Why a text is not YAML that can be read: the line and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub line: usize,
    pub reason: String,
}

/// A collection whose end has not come yet.
enum Open {
    Sequence { line: usize, anchor: usize, items: Vec<Node> },
    Mapping { line: usize, anchor: usize, entries: Vec<(Key, Node)>, key: Option<Key> },
}

/// Reads one document.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut anchors: BTreeMap<usize, (Node, usize)> = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    let mut documents = 0;
    let mut nodes = 0_usize;
    for event in Parser::new_from_str(text) {
        let (event, span) = event
            .map_err(|error| SyntaxError { line: error.marker().line(), reason: error.info().to_owned() })?;
        let line = span.start.line().max(1);
        let fail = |reason: String| SyntaxError { line, reason };
        let complete = match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return Err(fail("a second document; one file describes one fabric".to_owned()));
                }
                continue;
            }
            Event::Scalar(text, style, anchor, _) => {
                let null = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                let value = if null { Value::Null } else { Value::Scalar(text.into_owned()) };
                Some((Node { line, value }, anchor))
            }
            Event::Alias(id) => {
                let Some((node, size)) = anchors.get(&id) else {
                    return Err(fail("an alias to an anchor that is not complete yet".to_owned()));
                };
                nodes = nodes.saturating_add(*size);
                // Complaints about the content belong to where it is written, so the node keeps its
                // own line.
                if nodes > MOST_NODES { None } else { Some((node.clone(), 0)) }
            }
            Event::SequenceStart(anchor, _) => {
                open.push(Open::Sequence { line, anchor, items: Vec::new() });
                None
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open::Mapping { line, anchor, entries: Vec::new(), key: None });
                None
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::Sequence { line, anchor, items }) => {
                    Some((Node { line, value: Value::Sequence(items) }, anchor))
                }
                Some(Open::Mapping { line, anchor, entries, .. }) => {
                    Some((Node { line, value: Value::Mapping(entries) }, anchor))
                }
                None => None,
            },
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
        };
        nodes += 1;
        if nodes > MOST_NODES {
            return Err(fail(format!("more than {MOST_NODES} values, aliases expanded")));
        }
        if open.len() > DEEPEST {
            return Err(fail(format!("nested deeper than {DEEPEST} levels")));
        }
        let Some((node, anchor)) = complete else { continue };
        if anchor != 0 {
            anchors.insert(anchor, (node.clone(), size(&node)));
        }
        match open.last_mut() {
            None => root = Some(node),
            Some(Open::Sequence { items, .. }) => items.push(node),
            Some(Open::Mapping { entries, key, .. }) => {
                if let Some(key) = key.take() {
                    entries.push((key, node));
                } else {
                    let name = match node.value {
                        Value::Scalar(name) => name,
                        Value::Null => String::new(),
                        _ => return Err(fail(format!("{} as a key; keys are single words", node.kind()))),
                    };
                    *key = Some(Key { line: node.line, name });
                }
            }
        }
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Null }))
}

/// Nodes of a tree, itself included. Depth is bounded by [`DEEPEST`] per alias level, and their
/// number by [`MOST_NODES`].
fn size(node: &Node) -> usize {
    let mut count = 0;
    let mut stack = vec![node];
    while let Some(node) = stack.pop() {
        count += 1;
        match &node.value {
            Value::Sequence(items) => stack.extend(items),
            Value::Mapping(entries) => stack.extend(entries.iter().map(|(_, value)| value)),
            Value::Null | Value::Scalar(_) => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Our tree as the YAML organisation's serde reader would have it, all scalars text.
    fn agrees(ours: &Node, theirs: &yaml_serde::Value) -> bool {
        use yaml_serde::Value as Theirs;
        match (&ours.value, theirs) {
            (Value::Null, Theirs::Null) => true,
            (Value::Scalar(text), Theirs::String(other)) => text == other,
            (Value::Sequence(items), Theirs::Sequence(others)) => {
                items.len() == others.len() && items.iter().zip(others).all(|(a, b)| agrees(a, b))
            }
            (Value::Mapping(entries), Theirs::Mapping(others)) => {
                entries.len() == others.len()
                    && entries.iter().zip(others).all(|((key, value), (other_key, other))| {
                        other_key.as_str() == Some(&key.name) && agrees(value, other)
                    })
            }
            _ => false,
        }
    }

    fn tree() -> impl Strategy<Value = yaml_serde::Value> {
        use yaml_serde::Value as Theirs;
        let leaf = prop_oneof![
            Just(Theirs::Null),
            "[ -~]{0,12}".prop_map(Theirs::String),
            "[a-z]{1,4}: [0-9]{1,3}us".prop_map(Theirs::String),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Theirs::Sequence),
                proptest::collection::btree_map("[a-z_0-9]{1,8}", inner, 0..4).prop_map(|entries| {
                    Theirs::Mapping(entries.into_iter().map(|(k, v)| (Theirs::String(k), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_another_implementation_writes_reads_back_the_same(value in tree()) {
            let text = yaml_serde::to_string(&value).unwrap();
            let node = parse(&text).unwrap();
            prop_assert!(agrees(&node, &value), "{text}\n{node:?}");
        }

        #[test]
        fn any_text_gives_a_tree_or_an_error(text in "[-:{}\\[\\]&*a-c \n'\"|>!%@,#?]{0,60}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn every_node_knows_its_line() {
        let node = parse("a: 1\nb:\n  - x\n  - y: z\n").unwrap();
        let Value::Mapping(entries) = node.value else { panic!() };
        assert_eq!(entries[1].0, Key { line: 2, name: "b".into() });
        let Value::Sequence(items) = &entries[1].1.value else { panic!() };
        assert_eq!((items[0].line, items[1].line), (3, 4));
    }

    #[test]
    fn aliases_repeat_what_they_name_but_not_without_bound() {
        let node = parse("a: &x {k: v}\nb: *x\n").unwrap();
        let Value::Mapping(entries) = node.value else { panic!() };
        assert_eq!(entries[0].1, entries[1].1);

        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = level - 1;
            let items = vec![format!("*a{below}"); 10].join(", ");
            bomb = format!("{bomb}a{level}: &a{level} [{items}]\n");
        }
        assert!(parse(&bomb).unwrap_err().reason.contains("more than 1000000 values"));
        assert!(parse(&"[".repeat(1000)).is_err());
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().line, 2);
    }
}
