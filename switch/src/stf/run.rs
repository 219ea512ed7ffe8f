// SPDX-License-Identifier: Apache-2.0
//! Runs a script on a switch in virtual time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::compare::{Mismatch, Pattern};
use super::error::{StfError, hint};
use super::names::{find, find_key};
use super::number::{anything, match_value, plain};
use super::replication::Tree;
use super::script::{Call, Command, Condition, CounterIndex, MeterRate, Script, Statement};
use crate::device::Switch;
use crate::engine::Control;
use crate::engine::entity::{
    ActionCall, ActionSpec, CounterValue, MatchKind, MatchValue, Member, MeterConfig, Owner, TableEntry,
    Value,
};
use crate::engine::trace::Record;

type Result<T> = std::result::Result<T, String>;

/// Virtual time between two packets: queues and meters of a microsecond's grain see them apart.
const STEP_NS: u64 = 1_000_000;
/// Virtual time of a `wait`.
const WAIT_NS: u64 = 1_000_000_000;
/// Times that the switch may ask to be called for one packet: ends a program that recirculates for
/// ever.
const MOST_TURNS: usize = 64;

/// What a `…_read` or `…_get` statement found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The line of the statement, from 1.
    pub line: usize,
    /// What it holds, in words.
    pub text: String,
}

/// What became of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Packets sent.
    pub packets: usize,
    /// Frames that left through a port that the file names.
    pub frames: usize,
    /// Frames that left through other ports.
    pub elsewhere: usize,
    /// Everything that is not as the file says; empty for a pass.
    pub mismatches: Vec<Mismatch>,
    /// In the order of the file.
    pub readings: Vec<Reading>,
    /// What happened to the packets, where the switch traces.
    pub trace: Vec<Record>,
}

impl Outcome {
    /// Everything was as the file says.
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty()
    }
}

struct Expected {
    line: usize,
    pattern: Option<Pattern>,
}

struct Got {
    line: usize,
    frame: Vec<u8>,
}

/// An entry that `add … = NAME` named.
#[derive(Clone)]
struct Entry {
    table: String,
    matches: Vec<MatchValue>,
    priority: i32,
}

struct Runner<'a> {
    switch: &'a mut Switch,
    now_ns: u64,
    expected: BTreeMap<u16, Vec<Expected>>,
    got: BTreeMap<u16, VecDeque<Got>>,
    /// Frames of the last packet, on any port.
    latest: Vec<(u16, Vec<u8>)>,
    ports: BTreeSet<u16>,
    tree: Tree,
    entries: Vec<(Option<String>, Entry)>,
    outcome: Outcome,
}

/// Runs a script on a switch that has a program and whose clock stands at 0.
///
/// # Errors
/// A statement that the program does not allow: the first one, with its line and the valid choices.
pub fn run(script: &Script, switch: &mut Switch) -> std::result::Result<Outcome, StfError> {
    let mut runner = Runner {
        switch,
        now_ns: STEP_NS,
        expected: BTreeMap::new(),
        got: BTreeMap::new(),
        latest: Vec::new(),
        ports: script.ports(),
        tree: Tree::default(),
        entries: Vec::new(),
        outcome: Outcome::default(),
    };
    for Statement { line, command } in &script.statements {
        runner.execute(*line, command).map_err(|message| StfError { line: *line, message })?;
    }
    runner.compare();
    Ok(runner.outcome)
}

impl Runner<'_> {
    fn control(&mut self) -> Result<&mut Control> {
        Ok(self.switch.pipeline().ok_or("the switch has no program")?.control())
    }

    fn execute(&mut self, line: usize, command: &Command) -> Result<()> {
        match command {
            Command::Packet { port, data } => self.send(line, *port, data)?,
            Command::Expect { port, pattern } => {
                self.expected.entry(*port).or_default().push(Expected { line, pattern: pattern.clone() });
            }
            Command::NoPacket => {
                for (port, got) in std::mem::take(&mut self.latest) {
                    self.outcome.mismatches.push(Mismatch::Unexpected { line, port, got });
                }
            }
            Command::Wait => self.now_ns += WAIT_NS,
            Command::Add { table, priority, keys, call, name } => {
                self.add(table, *priority, keys, call, name.as_deref())?;
            }
            Command::Remove(name) => self.remove(name.as_deref())?,
            Command::SetDefault { table, call } => self.set_default(table, call)?,
            Command::CheckCounter { counter, index, condition } => {
                self.check_counter(line, counter, index, condition.as_ref())?;
            }
            other => {
                if let Some(text) = self.direct(other)? {
                    self.outcome.readings.push(Reading { line, text });
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, line: usize, port: u16, data: &[u8]) -> Result<()> {
        self.now_ns += STEP_NS;
        self.outcome.packets += 1;
        self.latest.clear();
        self.switch.handle_frame(self.now_ns, port, data);
        let mut turns = 0;
        loop {
            while let Some(sent) = self.switch.poll_transmit() {
                self.latest.push((sent.port, sent.frame.clone()));
                if self.ports.contains(&sent.port) {
                    self.outcome.frames += 1;
                    self.got.entry(sent.port).or_default().push_back(Got { line, frame: sent.frame });
                } else {
                    self.outcome.elsewhere += 1;
                    self.switch.recycle(sent.frame);
                }
            }
            let (trace, _) = self.switch.take_trace();
            self.outcome.trace.extend(trace);
            let Some(at_ns) = self.switch.poll_timeout() else { break };
            turns += 1;
            if turns > MOST_TURNS {
                return Err("the program sends this packet round and round".to_owned());
            }
            self.now_ns = self.now_ns.max(at_ns);
            self.switch.handle_timeout(self.now_ns);
        }
        Ok(())
    }

    fn compare(&mut self) {
        let mismatches = &mut self.outcome.mismatches;
        for (&port, expected) in &self.expected {
            let got = self.got.entry(port).or_default();
            for Expected { line, pattern } in expected {
                let (line, pattern) = (*line, pattern.clone());
                match (got.pop_front(), pattern) {
                    (None, expected) => mismatches.push(Mismatch::Missing { line, port, expected }),
                    (Some(got), Some(expected)) if !expected.differences(&got.frame).is_empty() => {
                        mismatches.push(Mismatch::Differs { line, port, expected, got: got.frame });
                    }
                    _ => {}
                }
            }
        }
        for (&port, got) in &mut self.got {
            for Got { line, frame } in got.drain(..) {
                mismatches.push(Mismatch::Unexpected { line, port, got: frame });
            }
        }
        mismatches.sort_by_key(Mismatch::line);
        // `no_packet` and the comparison of a port may both have seen the same frame.
        mismatches.dedup();
    }

    fn add(
        &mut self,
        table: &str,
        priority: Option<u32>,
        keys: &[(String, String)],
        call: &Call,
        name: Option<&str>,
    ) -> Result<()> {
        let table = self.table(table)?;
        let control = self.control()?;
        let info = control.table(&table).map_err(|error| error.message)?;
        let mut matches: Vec<MatchValue> = info.keys.iter().map(anything).collect();
        for (key, value) in keys {
            let at = find_key(&table, key, &info.keys)?;
            if let (Some(place), Some(key)) = (matches.get_mut(at), info.keys.get(at)) {
                *place = match_value(value, key).map_err(|what| format!("key {}: {what}", key.name))?;
            }
        }
        // p4c's runner: larger wins, and tables that need no priority do not mind one. 0 is a
        // priority there.
        let ordered = info.keys.iter().any(|key| matches!(key.kind, MatchKind::Ternary | MatchKind::Range));
        let priority = match (ordered, priority) {
            (false, _) => 0,
            (true, None) => 1,
            (true, Some(priority)) => i32::try_from(u64::from(priority) + 1)
                .map_err(|_| format!("priority {priority} is too large; the largest is {}", i32::MAX - 1))?,
        };
        let call = action_call(control, &table, call)?;
        let action = member_for(control, &table, call)?;
        let entry = TableEntry { matches: matches.clone(), priority, action, metadata: Vec::new() };
        control.table_insert(&table, &entry).map_err(|error| error.message)?;
        self.entries.push((name.map(str::to_owned), Entry { table, matches, priority }));
        Ok(())
    }

    fn remove(&mut self, name: Option<&str>) -> Result<()> {
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.entries.drain(..).partition(|(of, _)| name.is_none() || of.as_deref() == name);
        self.entries = kept;
        if let (Some(name), true) = (name, gone.is_empty()) {
            return Err(format!("no entry is called '{name}'{}", hint(name, &self.entry_names())));
        }
        for (_, Entry { table, matches, priority }) in gone {
            self.control()?.table_delete(&table, &matches, priority).map_err(|error| error.message)?;
        }
        Ok(())
    }

    fn entry_names(&self) -> Vec<String> {
        self.entries.iter().filter_map(|(name, _)| name.clone()).collect()
    }

    fn set_default(&mut self, table: &str, call: &Call) -> Result<()> {
        let table = self.table(table)?;
        let control = self.control()?;
        let call = action_call(control, &table, call)?;
        let action = ActionSpec::Direct(call);
        control.set_default_action(&table, Some(&action)).map_err(|error| error.message)
    }

    fn table(&mut self, asked: &str) -> Result<String> {
        let names: Vec<String> = self.control()?.tables().map(|table| table.name.clone()).collect();
        let at = find("table", asked, &names)?;
        names.get(at).cloned().ok_or_else(|| format!("there is no table '{asked}'"))
    }

    fn check_counter(
        &mut self,
        line: usize,
        counter: &str,
        index: &CounterIndex,
        condition: Option<&Condition>,
    ) -> Result<()> {
        let (what, value) = match index {
            CounterIndex::Cell(index) => {
                let control = self.control()?;
                let name = named("counter", counter, control.counters().map(|(name, _)| name))?;
                let value = control.counter(&name, *index).map_err(|error| error.message)?;
                (format!("counter {name}({index})"), value)
            }
            CounterIndex::Entry(name) => {
                let entry = self.entries.iter().find(|(of, _)| of.as_deref() == Some(name));
                let missing = || format!("no entry is called '{name}'{}", hint(name, &self.entry_names()));
                let Entry { table, matches, priority } = entry.ok_or_else(missing)?.1.clone();
                let owner = Owner::Entry { matches: &matches, priority };
                let direct = self.control()?.direct(&table, owner).map_err(|error| error.message)?;
                let value = direct.counter.ok_or_else(|| format!("table {table} has no counter"))?;
                (format!("counter {counter} of entry '{name}' of table {table}"), value)
            }
        };
        let CounterValue { packets, bytes } = value;
        let Some(Condition { bytes: of_bytes, operator, number }) = condition else {
            let text = format!("{what} = {packets} packets, {bytes} bytes");
            self.outcome.readings.push(Reading { line, text });
            return Ok(());
        };
        let (unit, got) = if *of_bytes { ("bytes", bytes) } else { ("packets", packets) };
        let holds = match *operator {
            "==" => got == *number,
            "!=" => got != *number,
            "<" => got < *number,
            "<=" => got <= *number,
            ">" => got > *number,
            _ => got >= *number,
        };
        if !holds {
            let what = format!("{what}: {unit} {operator} {number} is expected");
            self.outcome.mismatches.push(Mismatch::Counter { line, what, got });
        }
        Ok(())
    }

    /// Commands for the switch's own command line; gives what those that read have read.
    fn direct(&mut self, command: &Command) -> Result<Option<String>> {
        let mut tree = std::mem::take(&mut self.tree);
        let read = direct(self.control()?, &mut tree, command);
        self.tree = tree;
        read
    }
}

fn direct(control: &mut Control, tree: &mut Tree, command: &Command) -> Result<Option<String>> {
    match command {
        Command::MirroringAdd { session, port } => tree.mirror_to_port(control, *session, *port)?,
        Command::MirroringAddMc { session, group } => tree.mirror_to_group(control, *session, *group)?,
        Command::MirroringGet { session } => {
            return Ok(Some(format!("mirroring session {session} = {}", tree.describe_session(*session)?)));
        }
        Command::McMgrpCreate { group } => tree.create_group(control, *group)?,
        Command::McNodeCreate { instance, ports } => tree.create_node(*instance, ports),
        Command::McNodeAssociate { group, node } => tree.associate(control, *group, *node)?,
        Command::RegisterRead { register, index } => {
            let name = named("register", register, control.registers().map(|(name, ..)| name))?;
            let value = control.register(&name, *index).map_err(|error| error.message)?;
            return Ok(Some(format!("register {name}[{index}] = {}", number(&value))));
        }
        Command::RegisterWrite { register, index, value } => {
            let (name, _, width) = register_of(control, register)?;
            let value = plain(value, width)?;
            control.set_register(&name, *index, &value).map_err(|error| error.message)?;
        }
        Command::RegisterReset { register } => {
            let (name, size, _) = register_of(control, register)?;
            for index in 0..size as u64 {
                control.set_register(&name, index, &[0]).map_err(|error| error.message)?;
            }
        }
        Command::MeterGetRates { meter, index } => {
            let name = named("meter", meter, control.meters().map(|(name, _)| name))?;
            let text = match control.meter(&name, *index).map_err(|error| error.message)? {
                None => "not configured".to_owned(),
                Some(MeterConfig { cir, cburst, pir, pburst }) => {
                    format!("{cir}/s burst {cburst}, {pir}/s burst {pburst}")
                }
            };
            return Ok(Some(format!("meter {name}[{index}] = {text}")));
        }
        Command::MeterSetRates { meter, index, rates } => {
            let name = named("meter", meter, control.meters().map(|(name, _)| name))?;
            control.set_meter(&name, *index, Some(meter_config(rates)?)).map_err(|error| error.message)?;
        }
        Command::MeterArraySetRates { meter, rates } => {
            let name = named("meter", meter, control.meters().map(|(name, _)| name))?;
            let size = control.meters().find(|(of, _)| *of == name).map_or(0, |(_, size)| size);
            let config = meter_config(rates)?;
            for index in 0..size as u64 {
                control.set_meter(&name, index, Some(config)).map_err(|error| error.message)?;
            }
        }
        // `execute` has dealt with the others.
        _ => {}
    }
    Ok(None)
}

fn named<'a>(kind: &str, asked: &str, names: impl Iterator<Item = &'a str>) -> Result<String> {
    let names: Vec<String> = names.map(str::to_owned).collect();
    let at = find(kind, asked, &names)?;
    names.get(at).cloned().ok_or_else(|| format!("there is no {kind} '{asked}'"))
}

fn register_of(control: &Control, asked: &str) -> Result<(String, usize, u16)> {
    let name = named("register", asked, control.registers().map(|(name, ..)| name))?;
    let found = control.registers().find(|(of, ..)| *of == name);
    let (_, size, width) = found.ok_or_else(|| format!("there is no register '{asked}'"))?;
    Ok((name, size, width))
}

/// In decimal where it fits 128 bits.
fn number(value: &Value) -> String {
    if value.len() > 16 {
        return format!("0x{}", super::compare::hex(value));
    }
    value.iter().fold(0_u128, |number, byte| number << 8 | u128::from(*byte)).to_string()
}

fn meter_config(rates: &[MeterRate]) -> Result<MeterConfig> {
    let [committed, peak] = rates else {
        return Err(format!("a meter has two rates, RATE:BURST twice; {} given", rates.len()));
    };
    let per_second = |rate: &MeterRate| (rate.per_microsecond * 1e6).round() as u64;
    Ok(MeterConfig {
        cir: per_second(committed),
        cburst: committed.burst,
        pir: per_second(peak),
        pburst: peak.burst,
    })
}

fn action_call(control: &Control, table: &str, call: &Call) -> Result<ActionCall> {
    let info = control.table(table).map_err(|error| error.message)?;
    let names: Vec<String> = info.actions.iter().map(|action| action.name.clone()).collect();
    let at = find(&format!("action of table {table}"), &call.action, &names)?;
    let action =
        info.actions.get(at).ok_or_else(|| format!("table {table} has no action '{}'", call.action))?;
    let mut params = Vec::new();
    for (name, width) in &action.params {
        let given = call.arguments.iter().find(|(given, _)| given == name);
        let (_, text) =
            given.ok_or_else(|| format!("action {}: argument '{name}' is missing", action.name))?;
        let value =
            plain(text, *width).map_err(|what| format!("argument '{name}' of {}: {what}", action.name))?;
        params.push(value);
    }
    let known: Vec<String> = action.params.iter().map(|(name, _)| name.clone()).collect();
    if let Some((unknown, _)) = call.arguments.iter().find(|(name, _)| !known.contains(name)) {
        return Err(format!("action {} has no parameter '{unknown}'{}", action.name, hint(unknown, &known)));
    }
    Ok(ActionCall { action: action.name.clone(), params })
}

/// The call itself, or a member of the table's action profile that makes it.
fn member_for(control: &mut Control, table: &str, call: ActionCall) -> Result<ActionSpec> {
    let info = control.table(table).map_err(|error| error.message)?;
    let Some(profile) = info.action_profile.clone() else { return Ok(ActionSpec::Direct(call)) };
    let members = control.members(&profile).map_err(|error| error.message)?;
    if let Some(Member { id, .. }) = members.iter().find(|member| member.call == call) {
        return Ok(ActionSpec::Member(*id));
    }
    let id = members.iter().map(|member| member.id).max().unwrap_or(0).saturating_add(1);
    control.member_insert(&profile, id, &call).map_err(|error| error.message)?;
    Ok(ActionSpec::Member(id))
}
