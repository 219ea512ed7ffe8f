// SPDX-License-Identifier: Apache-2.0
//! From the text of an STF file to statements.

use super::compare::Pattern;
use super::cursor::Cursor;
use super::error::{StfError, hint};

type Result<T> = std::result::Result<T, String>;

/// A parsed file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// In the order of the file.
    pub statements: Vec<Statement>,
}

/// A statement and the line on which it begins, from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Counts from 1.
    pub line: usize,
    /// What to do.
    pub command: Command,
}

/// An action with arguments by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// As written.
    pub action: String,
    /// Names and numbers, as written.
    pub arguments: Vec<(String, String)>,
}

/// What `check_counter` looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CounterIndex {
    /// A cell.
    Cell(u64),
    /// The counter of an entry that `add … = NAME` named.
    Entry(String),
}

/// What `check_counter` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Bytes, not packets.
    pub bytes: bool,
    /// One of `==`, `!=`, `<`, `<=`, `>`, `>=`.
    pub operator: &'static str,
    /// The number on the right.
    pub number: u64,
}

/// A meter's rate as BMv2 takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterRate {
    /// Packets or bytes per microsecond.
    pub per_microsecond: f64,
    /// Packets or bytes.
    pub burst: u64,
}

/// What a statement does.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the words of the language, which p4c documents")]
pub enum Command {
    Packet {
        port: u16,
        data: Vec<u8>,
    },
    Expect {
        port: u16,
        pattern: Option<Pattern>,
    },
    NoPacket,
    Add {
        table: String,
        priority: Option<u32>,
        keys: Vec<(String, String)>,
        call: Call,
        name: Option<String>,
    },
    /// One named entry, or all.
    Remove(Option<String>),
    SetDefault {
        table: String,
        call: Call,
    },
    CheckCounter {
        counter: String,
        index: CounterIndex,
        condition: Option<Condition>,
    },
    Wait,
    MirroringAdd {
        session: u16,
        port: u16,
    },
    MirroringAddMc {
        session: u16,
        group: u16,
    },
    MirroringGet {
        session: u16,
    },
    McMgrpCreate {
        group: u16,
    },
    McNodeCreate {
        instance: u16,
        ports: Vec<u16>,
    },
    McNodeAssociate {
        group: u16,
        node: usize,
    },
    RegisterRead {
        register: String,
        index: u64,
    },
    RegisterWrite {
        register: String,
        index: u64,
        value: String,
    },
    RegisterReset {
        register: String,
    },
    MeterGetRates {
        meter: String,
        index: u64,
    },
    MeterSetRates {
        meter: String,
        index: u64,
        rates: Vec<MeterRate>,
    },
    MeterArraySetRates {
        meter: String,
        rates: Vec<MeterRate>,
    },
}

const KEYWORDS: [&str; 20] = [
    "packet",
    "expect",
    "no_packet",
    "add",
    "remove",
    "setdefault",
    "check_counter",
    "wait",
    "mirroring_add",
    "mirroring_add_mc",
    "mirroring_get",
    "mc_mgrp_create",
    "mc_node_create",
    "mc_node_associate",
    "register_read",
    "register_write",
    "register_reset",
    "meter_get_rates",
    "meter_set_rates",
    "meter_array_set_rates",
];

const OPERATORS: [&str; 6] = ["==", "!=", "<=", ">=", "<", ">"];

impl Script {
    /// Parses a file.
    ///
    /// # Errors
    /// The first statement that is none, with its line and the nearest valid word.
    pub fn parse(text: &str) -> std::result::Result<Self, StfError> {
        let mut statements = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((at, line)) = lines.next() {
            let mut statement = without_comment(line).to_owned();
            if statement.trim().is_empty() {
                continue;
            }
            // A table entry goes on over lines until the action's parentheses are closed.
            let word = statement.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
            while matches!(word.as_str(), "add" | "setdefault") && !statement.contains(')') {
                let Some((_, more)) = lines.next() else { break };
                statement.push(' ');
                statement.push_str(without_comment(more));
            }
            let line = at + 1;
            let command = command(&statement).map_err(|message| StfError { line, message })?;
            statements.push(Statement { line, command });
        }
        Ok(Self { statements })
    }

    /// The ports that packets enter or are expected on.
    pub fn ports(&self) -> std::collections::BTreeSet<u16> {
        let port = |statement: &Statement| match statement.command {
            Command::Packet { port, .. } | Command::Expect { port, .. } => Some(port),
            _ => None,
        };
        self.statements.iter().filter_map(port).collect()
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

fn command(text: &str) -> Result<Command> {
    let mut at = Cursor::new(text);
    let written = at.identifier()?;
    let word = written.to_ascii_lowercase();
    let command = match word.as_str() {
        "packet" => Command::Packet { port: at.integer("port")?, data: packet(&mut at)? },
        "expect" => Command::Expect { port: at.integer("port")?, pattern: Pattern::parse(&mut at)? },
        "no_packet" => Command::NoPacket,
        "add" => add(&mut at)?,
        "remove" => {
            let name = at.identifier()?;
            Command::Remove((!name.eq_ignore_ascii_case("all")).then(|| name.to_owned()))
        }
        "setdefault" => Command::SetDefault { table: at.qualified()?, call: call(&mut at)? },
        "check_counter" => check_counter(&mut at)?,
        "wait" => Command::Wait,
        _ => direct(&mut at, &word, written)?,
    };
    at.end()?;
    Ok(command)
}

/// Commands that p4c's runner passes on to BMv2's own command line.
fn direct(at: &mut Cursor<'_>, word: &str, written: &str) -> Result<Command> {
    let session = |at: &mut Cursor<'_>| at.integer("clone session");
    let group = |at: &mut Cursor<'_>| at.integer("multicast group");
    let index = |at: &mut Cursor<'_>| at.integer("index");
    Ok(match word {
        "mirroring_add" => Command::MirroringAdd { session: session(at)?, port: at.integer("port")? },
        "mirroring_add_mc" => Command::MirroringAddMc { session: session(at)?, group: group(at)? },
        "mirroring_get" => Command::MirroringGet { session: session(at)? },
        "mc_mgrp_create" => Command::McMgrpCreate { group: group(at)? },
        "mc_node_create" => {
            Command::McNodeCreate { instance: at.integer("replica's instance")?, ports: ports(at)? }
        }
        "mc_node_associate" => Command::McNodeAssociate { group: group(at)?, node: at.integer("node")? },
        "register_read" => Command::RegisterRead { register: at.qualified()?, index: index(at)? },
        "register_write" => Command::RegisterWrite {
            register: at.qualified()?,
            index: index(at)?,
            value: at.number()?.to_owned(),
        },
        "register_reset" => Command::RegisterReset { register: at.qualified()? },
        "meter_get_rates" => Command::MeterGetRates { meter: at.qualified()?, index: index(at)? },
        "meter_set_rates" => {
            Command::MeterSetRates { meter: at.qualified()?, index: index(at)?, rates: rates(at)? }
        }
        "meter_array_set_rates" => Command::MeterArraySetRates { meter: at.qualified()?, rates: rates(at)? },
        _ => {
            let known: Vec<String> = KEYWORDS.iter().map(|&word| word.to_owned()).collect();
            return Err(format!("'{written}' is no statement{}", hint(word, &known)));
        }
    })
}

fn packet(at: &mut Cursor<'_>) -> Result<Vec<u8>> {
    let pattern =
        Pattern::parse(at)?.ok_or_else(|| at.expected("the packet's bytes in hexadecimal digits"))?;
    pattern.bytes()
}

fn ports(at: &mut Cursor<'_>) -> Result<Vec<u16>> {
    let mut ports = vec![at.integer("port")?];
    while !at.is_at_end() {
        ports.push(at.integer("port")?);
    }
    Ok(ports)
}

fn rates(at: &mut Cursor<'_>) -> Result<Vec<MeterRate>> {
    let mut rates = Vec::new();
    while rates.is_empty() || !at.is_at_end() {
        let per_microsecond = at.decimal()?;
        at.need(":")?;
        rates.push(MeterRate { per_microsecond, burst: at.integer("burst")? });
    }
    Ok(rates)
}

fn add(at: &mut Cursor<'_>) -> Result<Command> {
    let table = at.qualified()?;
    let priority = match at.peek() {
        Some(c) if c.is_ascii_digit() => Some(at.integer("priority")?),
        _ => None,
    };
    let mut keys = Vec::new();
    loop {
        let name = at.qualified()?;
        if at.peek() == Some('(') {
            let call = Call { action: name, arguments: arguments(at)? };
            let name = if at.eat("=") { Some(at.identifier()?.to_owned()) } else { None };
            return Ok(Command::Add { table, priority, keys, call, name });
        }
        if !at.eat(":") {
            return Err(
                at.expected(&format!("':' and a value, or '(' and the action's arguments, behind '{name}'"))
            );
        }
        let mut value = at.number()?.to_owned();
        for between in ["/", "&&&", "..", "->"] {
            if at.eat(between) {
                value.push_str(between);
                value.push_str(at.number()?);
            }
        }
        keys.push((name, value));
    }
}

fn call(at: &mut Cursor<'_>) -> Result<Call> {
    Ok(Call { action: at.qualified()?, arguments: arguments(at)? })
}

fn arguments(at: &mut Cursor<'_>) -> Result<Vec<(String, String)>> {
    at.need("(")?;
    let mut arguments = Vec::new();
    while !at.eat(")") {
        if !arguments.is_empty() {
            at.need(",")?;
        }
        let name = at.identifier()?.to_owned();
        at.need(":")?;
        arguments.push((name, at.number()?.to_owned()));
    }
    Ok(arguments)
}

fn check_counter(at: &mut Cursor<'_>) -> Result<Command> {
    let counter = at.qualified()?;
    at.need("(")?;
    let index = match at.peek() {
        Some(c) if c.is_ascii_digit() => CounterIndex::Cell(at.integer("index")?),
        _ => CounterIndex::Entry(at.identifier()?.trim_start_matches('$').to_owned()),
    };
    at.need(")")?;
    if at.is_at_end() {
        return Ok(Command::CheckCounter { counter, index, condition: None });
    }
    let bytes = match at.peek() {
        Some(c) if c.is_ascii_alphabetic() => match at.identifier()?.to_ascii_lowercase().as_str() {
            "bytes" => true,
            "packets" => false,
            other => return Err(format!("'{other}' is not counted; 'packets' and 'bytes' are")),
        },
        _ => false,
    };
    let operator = OPERATORS.into_iter().find(|operator| at.eat(operator));
    let operator = operator.ok_or_else(|| at.expected("one of == != <= >= < >"))?;
    let number = at.integer("count")?;
    Ok(Command::CheckCounter { counter, index, condition: Some(Condition { bytes, operator, number }) })
}
