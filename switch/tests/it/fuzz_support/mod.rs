// SPDX-License-Identifier: Apache-2.0
//! Valid things, and what damages them.

pub(crate) mod dice;

pub(crate) use dice::Dice;

use dice::number;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata};

/// `usual` runs, or as many times that as the environment asks for.
pub(crate) fn runs(usual: u64) -> std::ops::Range<u64> {
    0..usual * number("TRIMWIRE_FUZZ_RUNS").unwrap_or(1)
}

/// Names and contents of the files in a folder and those within, in order.
pub(crate) fn files(folder: &str, ending: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        let mut paths: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.push((name, std::fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// Bytes with a few of them changed, left out or doubled.
pub(crate) fn damaged(dice: &mut Dice, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => drop(bytes.remove(at)),
            2 => bytes.insert(at, dice.roll() as u8),
            3 if !bytes.is_empty() => bytes[at] = *dice.one(&[0, 1, 0x7f, 0x80, 0xff]),
            4 if !bytes.is_empty() => {
                let end = at + dice.below(bytes.len() - at).min(64);
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            _ => {}
        }
    }
    bytes
}

/// The frames that a recording has.
pub(crate) fn frames(recording: &[u8]) -> Vec<Vec<u8>> {
    let words = recording.split(u8::is_ascii_whitespace);
    let hexadecimal = words.filter(|word| word.len() >= 20 && word.len() % 2 == 0);
    hexadecimal.filter_map(|word| of_hex(std::str::from_utf8(word).ok()?)).collect()
}

/// What became of a frame: the frames that left and their ports.
pub(crate) type Left = Vec<(u16, Vec<u8>)>;

/// One frame through a program, with queues that are empty. Programs that make ever more copies end
/// early.
pub(crate) fn forward(pipeline: &mut Pipeline, now_ns: u64, port: u16, frame: &[u8]) -> Left {
    let (mut queue, mut left): (Vec<Enqueue>, _) = (Vec::new(), Vec::new());
    pipeline.ingress(now_ns, port, frame, &mut queue);
    for _ in 0..64 {
        let Some(mut packet) = queue.pop() else { break };
        if packet.length % 2 == 0 {
            pipeline.pack(&mut packet);
        }
        let out = pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue);
        if let EgressOutcome::Transmit { port, frame, .. } = out {
            left.push((port, frame.clone()));
            pipeline.recycle(frame);
        }
    }
    queue.drain(..).for_each(|packet| pipeline.recycle_packet(packet));
    left
}

/// A small program that has its own corner of the language, and frames for it.
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) root: Value,
    pub(crate) frames: Vec<Vec<u8>>,
}

impl Program {
    pub(crate) fn load(&self) -> Pipeline {
        Pipeline::load(self.root.to_string().as_bytes()).unwrap()
    }
}

pub(crate) fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for (jsons, recordings) in
        [("testdata/engine", "testdata/engine"), ("tests/programs/build", "tests/programs/recorded")]
    {
        let recordings = files(recordings, ".bmv2.txt");
        let frames: Vec<_> = recordings.iter().flat_map(|(_, file)| frames(file)).collect();
        for (name, json) in files(jsons, ".json") {
            let root: Value = serde_json::from_slice(&json).unwrap();
            if json.len() < 120_000 && root.get("__meta__").is_some() {
                programs.push(Program { name, root, frames: frames.clone() });
            }
        }
    }
    assert!(programs.len() > 12, "{} programs", programs.len());
    programs
}

/// A change to one value of a program, so that the rest of it still makes sense, mostly.
#[derive(Debug, Clone)]
pub(crate) enum Bend {
    Set(String, Value),
    Remove(String),
    Double(String),
    ToFront(String),
}

impl Bend {
    /// As a line of a corpus.
    pub(crate) fn line(&self) -> String {
        match self {
            Self::Set(at, value) => format!("set {at} {value}"),
            Self::Remove(at) => format!("remove {at}"),
            Self::Double(at) => format!("double {at}"),
            Self::ToFront(at) => format!("front {at}"),
        }
    }

    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let (what, rest) = line.split_once(' ')?;
        Some(match (what, rest.split_once(' ')) {
            ("set", Some((at, value))) => Self::Set(at.to_owned(), serde_json::from_str(value).ok()?),
            ("remove", _) => Self::Remove(rest.to_owned()),
            ("double", _) => Self::Double(rest.to_owned()),
            ("front", _) => Self::ToFront(rest.to_owned()),
            _ => return None,
        })
    }

    /// Changes nothing where there is no such value.
    pub(crate) fn apply(&self, root: &mut Value) {
        let (Self::Set(at, _) | Self::Remove(at) | Self::Double(at) | Self::ToFront(at)) = self;
        if let Self::Set(_, value) = self {
            root.pointer_mut(at).into_iter().for_each(|node| *node = value.clone());
            return;
        }
        let Some((parent, last)) = at.rsplit_once('/') else { return };
        let last = last.replace("~1", "/").replace("~0", "~");
        match root.pointer_mut(parent) {
            Some(Value::Object(members)) => drop(members.remove(&last)),
            Some(Value::Array(items)) => {
                let Some(at) = last.parse().ok().filter(|at| *at < items.len()) else { return };
                match self {
                    Self::Remove(_) => drop(items.remove(at)),
                    Self::Double(_) => items.push(items[at].clone()),
                    _ => items.swap(0, at),
                }
            }
            _ => {}
        }
    }

    /// A change to any value of a tree.
    pub(crate) fn any(dice: &mut Dice, root: &Value) -> Self {
        let mut places = Vec::new();
        collect(root, String::new(), &mut places);
        let graft = dice.one(&places).1.clone();
        let (at, node) = dice.one(&places).clone();
        match node {
            Value::Number(number) => {
                let number = number.as_i64().unwrap_or(0);
                let near = [
                    number.wrapping_sub(1),
                    number.wrapping_add(1),
                    number.wrapping_neg(),
                    number << 7,
                    0,
                    1,
                    63,
                    64,
                    65,
                    512,
                    i64::MAX,
                ];
                Self::Set(at, (*dice.one(&near)).into())
            }
            Value::String(text) if text.starts_with("0x") => {
                let digits = "f".repeat(dice.below(20));
                Self::Set(at, format!("0x{}{digits}", &text[2..]).into())
            }
            Value::Bool(value) => Self::Set(at, (!value).into()),
            Value::Array(items) if !items.is_empty() => {
                let item = format!("{at}/{}", dice.below(items.len()));
                match dice.below(4) {
                    0 => Self::Remove(item),
                    1 => Self::Double(item),
                    2 => Self::ToFront(item),
                    _ => Self::Set(item, graft.clone()),
                }
            }
            Value::Object(members) if !members.is_empty() => {
                let names: Vec<&String> = members.keys().collect();
                let name = dice.one(&names).replace('~', "~0").replace('/', "~1");
                let member = format!("{at}/{name}");
                match dice.below(3) {
                    0 => Self::Remove(member),
                    1 => Self::Set(member, graft.clone()),
                    _ => Self::Set(member, Value::Null),
                }
            }
            _ => Self::Set(at, graft.clone()),
        }
    }
}

/// The values of a tree with their places (RFC 6901).
fn collect<'a>(node: &'a Value, at: String, places: &mut Vec<(String, &'a Value)>) {
    match node {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| collect(item, format!("{at}/{i}"), places));
        }
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(member, format!("{at}/{name}"), places);
            }
        }
        _ => {}
    }
    places.push((at, node));
}

/// The shortest input of each kind that a run has met; `TRIMWIRE_FUZZ_CORPUS` makes a corpus of
/// them.
pub(crate) struct Finds {
    name: &'static str,
    wanted: bool,
    by_kind: BTreeMap<String, String>,
}

impl Finds {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, wanted: std::env::var_os("TRIMWIRE_FUZZ_CORPUS").is_some(), by_kind: BTreeMap::new() }
    }

    /// `kind` and `line` are only made while a corpus is.
    pub(crate) fn note(&mut self, kind: impl FnOnce() -> String, line: impl FnOnce() -> String) {
        const LONGEST: usize = 160;
        if self.wanted {
            let (kind, line) = (kind(), line());
            let shorter = self.by_kind.get(&kind).is_none_or(|other| line.len() < other.len());
            if shorter && line.len() < LONGEST {
                self.by_kind.insert(kind, line);
            }
        }
    }

    pub(crate) fn write(self) {
        if self.wanted {
            let lines: BTreeSet<&String> = self.by_kind.values().collect();
            let lines: Vec<&str> = lines.into_iter().map(String::as_str).chain([""]).collect();
            std::fs::write(path_of(self.name), lines.join("\n")).unwrap();
        }
    }
}

fn path_of(name: &str) -> String {
    format!("{}/tests/corpus/{name}.txt", env!("CARGO_MANIFEST_DIR"))
}

/// The lines of a corpus.
pub(crate) fn corpus(name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(path_of(name)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A message without its names and numbers: they tell inputs apart, not kinds of inputs.
pub(crate) fn kind_of(message: &str) -> String {
    let mut quoted = false;
    let keep = |letter: char| {
        quoted ^= letter == '`' || letter == '\'';
        if quoted || letter.is_ascii_hexdigit() { None } else { Some(letter) }
    };
    message.chars().filter_map(keep).take(40).collect()
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(crate) fn of_hex(text: &str) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|nibble| nibble as u8);
    text.as_bytes().chunks(2).map(|two| Some(nibble(two[0])? << 4 | nibble(*two.get(1)?)?)).collect()
}

/// One frame through a program as it is and one with notes, which leave out nothing of what is
/// known on the way.
pub(crate) fn alike(ways: &mut [Pipeline; 2], now_ns: u64, port: u16, frame: &[u8], name: &str) {
    let [plain, traced] = ways.each_mut().map(|way| (forward(way, now_ns, port, frame), way.take_digests()));
    assert_eq!(plain, traced, "{name}: {} on port {port}", to_hex(frame));
}

/// Both.
pub(crate) fn ways(load: impl Fn() -> Pipeline) -> [Pipeline; 2] {
    let mut traced = load();
    traced.set_tracing(true);
    [load(), traced]
}
