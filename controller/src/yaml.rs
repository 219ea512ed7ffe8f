// SPDX-License-Identifier: Apache-2.0
//! YAML with line numbers.
//!
//! Semantic errors name the line of what they complain about, so every node keeps where it stood;
//! serde-based readers lose that. Scalars stay text: what `10Gbps` or `off` means depends on the
//! key, not on YAML's guess at a type.

pub(crate) mod fields;
pub(crate) mod problem;

use std::cell::Cell;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// Deepest nesting that is read. The schema needs seven levels.
const DEEPEST: usize = 32;

/// Most memory that a file's values take, aliases expanded: a few lines of nested aliases could
/// otherwise stand for gigabytes.
const MOST_MIB: usize = 24;
const MOST_BYTES: usize = MOST_MIB << 20;

/// Of a node or a key, without its text: vectors have room for up to twice what they hold.
const NODE_BYTES: usize = 2 * size_of::<Node>();
/// Of an anchor, with its name in the parser.
const ANCHOR_BYTES: usize = 256;

/// Of a text: an allocator gives pieces of 16 bytes, with a head of 8, and of 32 at least.
fn text_bytes(text: &str) -> usize {
    if text.is_empty() { 0 } else { (text.len() + 8).next_multiple_of(16).max(32) }
}

/// Most marks ([`is_mark`]) between two events. The parser keeps all of a bracket in tokens of a
/// hundred bytes until it ends, since it may turn out to be a key.
const MOST_MARKS: usize = 100_000;
const MARKS: &str = "commas, colons and brackets in one bracket or comment";

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
    let mut anchors: BTreeMap<usize, (Node, Extent)> = BTreeMap::new();
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    let mut documents = 0;
    let mut bytes = 0_usize;
    let marks = Cell::new(0_usize);
    let bounded = text.chars().take_while(|c| {
        marks.set(marks.get() + usize::from(is_mark(*c)));
        marks.get() <= MOST_MARKS
    });
    for event in Parser::new_from_iter(bounded) {
        let (event, span) = event
            .map_err(|error| SyntaxError { line: error.marker().line(), reason: error.info().to_owned() })?;
        let line = span.start.line().max(1);
        let fail = |reason: String| SyntaxError { line, reason };
        if marks.replace(0) > MOST_MARKS {
            return Err(fail(format!("more than {MOST_MARKS} {MARKS}")));
        }
        let mut deeper = 0;
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
                bytes = bytes.saturating_add(text_bytes(&text));
                let value = if null { Value::Null } else { Value::Scalar(text.into_owned()) };
                Some((Node { line, value }, anchor))
            }
            Event::Alias(id) => {
                let Some((node, extent)) = anchors.get(&id) else {
                    return Err(fail("an alias to an anchor that is not complete yet".to_owned()));
                };
                bytes = bytes.saturating_add(extent.bytes);
                deeper = extent.depth;
                // Complaints about the content belong to where it is written, so the node keeps its
                // own line.
                let fits = bytes <= MOST_BYTES && open.len() + deeper <= DEEPEST;
                fits.then(|| (node.clone(), 0))
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
        bytes = bytes.saturating_add(NODE_BYTES);
        if bytes > MOST_BYTES {
            return Err(fail(format!("values of more than {MOST_MIB} MiB in memory, aliases expanded")));
        }
        if open.len() + deeper > DEEPEST {
            return Err(fail(format!("nested deeper than {DEEPEST} levels")));
        }
        let Some((node, anchor)) = complete else { continue };
        if anchor != 0 {
            let extent = Extent::of(&node);
            bytes = bytes.saturating_add(extent.bytes + ANCHOR_BYTES);
            anchors.insert(anchor, (node.clone(), extent));
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
    if marks.get() > MOST_MARKS {
        return Err(SyntaxError { line: 1, reason: format!("more than {MOST_MARKS} {MARKS}") });
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Null }))
}

/// Whether a character makes a token of its own, or ends one, inside a bracket.
fn is_mark(c: char) -> bool {
    matches!(c, '[' | ']' | '{' | '}' | ',' | ':')
}

/// What a tree takes.
struct Extent {
    /// Of memory.
    bytes: usize,
    /// Collections inside each other, at most [`DEEPEST`].
    depth: usize,
}

impl Extent {
    fn of(node: &Node) -> Self {
        let text = |text: &String| Self { bytes: NODE_BYTES + text_bytes(text), depth: 0 };
        let parts: Box<dyn Iterator<Item = Self> + '_> = match &node.value {
            Value::Null => return Self { bytes: NODE_BYTES, depth: 0 },
            Value::Scalar(scalar) => return text(scalar),
            Value::Sequence(items) => Box::new(items.iter().map(Self::of)),
            Value::Mapping(entries) => {
                Box::new(entries.iter().flat_map(move |(key, value)| [text(&key.name), Self::of(value)]))
            }
        };
        parts.fold(Self { bytes: NODE_BYTES, depth: 1 }, |sum, part| Self {
            bytes: sum.bytes + part.bytes,
            depth: sum.depth.max(part.depth + 1),
        })
    }
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
        assert!(parse(&bomb).unwrap_err().reason.contains("more than 24 MiB in memory"));
        // Long texts are counted, not values alone.
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(1_000));
        assert!(parse(&long).unwrap_err().reason.contains("more than 24 MiB in memory"));
        // Nor are anchors free that nobody uses, nor texts of a byte.
        let anchors: Vec<String> = (0..100_000).map(|number| format!("- &a{number} b\n")).collect();
        assert!(parse(&anchors.concat()).unwrap_err().reason.contains("more than 24 MiB in memory"));
        assert!(parse(&"- a: b\n".repeat(150_000)).unwrap_err().reason.contains("more than 24 MiB"));
        // Aliases of aliases are as deep as what they stand for.
        let mut deep = "a0: &a0 [x]\n".to_owned();
        for level in 1..40 {
            deep = format!("{deep}a{level}: &a{level} [*a{}]\n", level - 1);
        }
        assert!(parse(&deep).unwrap_err().reason.contains("nested deeper than 32 levels"));
        assert!(parse(&"[".repeat(1000)).is_err());
        assert_eq!(parse("a: 1\n---\nb: 2\n").unwrap_err().line, 2);
    }
    #[test]
    fn a_long_bracket_is_refused_before_it_is_kept_and_ten_thousand_hosts_in_one_are_read() {
        let bracket = |hosts: usize| {
            let hosts: Vec<String> = (0..hosts)
                .map(|host| format!("h{host}: {{ switch: leaf{host}, port: 1, ip: 10.0.0.1 }}"))
                .collect();
            format!("{{hosts: {{{}}}}}", hosts.join(", "))
        };
        assert!(parse(&bracket(10_000)).is_ok());
        let error = parse(&bracket(20_000)).unwrap_err();
        assert!(error.reason.contains("in one bracket"), "{error:?}");
        // What is left out of a comment is none of the document either.
        let comment = format!("a: 1\n#{}\nb: 2\n", ",".repeat(MOST_MARKS + 100));
        assert!(parse(&comment).is_err());
    }
}
