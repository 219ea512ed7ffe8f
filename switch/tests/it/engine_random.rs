// SPDX-License-Identifier: Apache-2.0
//! Small random programs, in the form that p4c compiles to: whatever way one is run, it does the
//! same. And a fault that is planted in one way is found.

use crate::engine_flows::{results, same, state, ways};
use crate::engine_support::{direct, entry, exact, ternary};
use crate::fuzz_support::{Dice, damaged, runs, to_hex};
use crate::server_support::program;
use serde_json::{Value, json};
use trimwire_switch::engine::Pipeline;

/// Widths that end at, before and behind bytes, words and what fits a register.
const WIDTHS: [u32; 14] = [1, 3, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 128];

struct Field {
    header: &'static str,
    name: String,
    width: u32,
}

impl Field {
    fn json(&self) -> Value {
        json!({ "type": "field", "value": [self.header, self.name] })
    }
}

struct Maker<'d> {
    dice: &'d mut Dice,
    fields: Vec<Field>,
}

fn hex(number: u128) -> Value {
    json!({ "type": "hexstr", "value": format!("0x{number:x}") })
}

/// All ones.
fn ones(width: u32) -> u128 {
    u128::MAX >> (128 - width.clamp(1, 128))
}

impl Maker<'_> {
    fn number(&mut self) -> u128 {
        let word = u128::from(self.dice.roll()) << 64 | u128::from(self.dice.roll());
        word & ones(*self.dice.one(&WIDTHS))
    }

    fn field(&mut self) -> &Field {
        let at = self.dice.below(self.fields.len());
        &self.fields[at]
    }

    fn binary(&mut self, op: &str, depth: usize) -> Value {
        let (left, right) = (self.value(depth), self.value(depth));
        json!({ "type": "expression", "value": { "op": op, "left": left, "right": right } })
    }

    /// A number. Where p4c would see to its width with a mask, there is one.
    fn value(&mut self, depth: usize) -> Value {
        if depth == 0 || self.dice.below(5) == 0 {
            return if self.dice.below(3) == 0 { hex(self.number()) } else { self.field().json() };
        }
        let depth = depth - 1;
        let mask = hex(ones(*self.dice.one(&WIDTHS)));
        let masked = |value: Value| json!({ "type": "expression", "value": { "op": "&", "left": value, "right": mask } });
        match self.dice.below(9) {
            0 => self.binary("&", depth),
            1 => self.binary("|", depth),
            2 => self.binary("^", depth),
            3 => masked(self.binary("+", depth)),
            4 => masked(self.binary("-", depth)),
            5 => masked(self.binary("*", depth)),
            6 => {
                let (op, by) = (*self.dice.one(&["<<", ">>"]), self.dice.below(70) as u128);
                let left = self.value(depth);
                masked(json!({ "type": "expression", "value": { "op": op, "left": left, "right": hex(by) } }))
            }
            7 => {
                let (condition, left, right) = (self.boolean(depth), self.value(depth), self.value(depth));
                json!({ "type": "expression", "value": { "op": "?", "left": left, "right": right, "cond": condition } })
            }
            _ => {
                let right = self.value(depth);
                masked(json!({ "type": "expression", "value": { "op": "~", "left": null, "right": right } }))
            }
        }
    }

    fn boolean(&mut self, depth: usize) -> Value {
        match self.dice.below(if depth == 0 { 6 } else { 8 }) {
            op @ 0..6 => self.binary(["==", "!=", "<", "<=", ">", ">="][op], depth.saturating_sub(1)),
            op => {
                let (left, right) = (self.boolean(depth - 1), self.boolean(depth - 1));
                json!({ "type": "expression", "value": { "op": (["and", "or"][op - 6]), "left": left, "right": right } })
            }
        }
    }

    fn primitive(&mut self) -> Value {
        let to = self.field().json();
        let value = self.value(3);
        let value = if value["type"] == "expression" {
            json!({ "type": "expression", "value": value })
        } else {
            value
        };
        let index = hex(self.dice.below(8) as u128);
        match self.dice.below(10) {
            0 => {
                let register = json!({ "type": "register_array", "value": "I.register" });
                json!({ "op": "register_write", "parameters": [register, index, value] })
            }
            1 => {
                let register = json!({ "type": "register_array", "value": "I.register" });
                json!({ "op": "register_read", "parameters": [to, register, index] })
            }
            2 => {
                let counter = json!({ "type": "counter_array", "value": "I.counter" });
                json!({ "op": "count", "parameters": [counter, index] })
            }
            3 => {
                let op = *self.dice.one(&["add_header", "remove_header"]);
                json!({ "op": op, "parameters": [{ "type": "header", "value": "b" }] })
            }
            _ => json!({ "op": "assign", "parameters": [to, value] }),
        }
    }

    /// A header type whose fields end with a byte.
    fn header_type(&mut self, header: &'static str, id: usize) -> Value {
        let mut fields = Vec::new();
        let mut bits = 0;
        for number in 0..=2 + self.dice.below(4) {
            let (name, width) = (format!("f{number}"), *self.dice.one(&WIDTHS));
            bits += width;
            fields.push(json!([name, width, false]));
            self.fields.push(Field { header, name, width });
        }
        if bits % 8 != 0 {
            fields.push(json!(["pad", 8 - bits % 8, false]));
        }
        json!({ "name": format!("{header}_t"), "id": id, "fields": fields })
    }
}

/// A program, and what is written to its tables: table, keys, action.
struct Random {
    root: Value,
    entries: Vec<(String, Vec<trimwire_switch::engine::entity::MatchValue>, String)>,
}

fn random(dice: &mut Dice) -> Random {
    let mut root: Value = serde_json::from_slice(&program("server").1).unwrap();
    let standard = root["header_types"][1].clone();
    let mut maker = Maker { dice, fields: Vec::new() };
    let scalars = maker.header_type("scalars", 0);
    let types = [scalars, standard, maker.header_type("a", 2), maker.header_type("b", 3)];
    root["header_types"] = types.into_iter().collect();
    let header = |id: usize, name: &str, of: &str, metadata: bool| json!({ "name": name, "id": id, "header_type": of, "metadata": metadata, "pi_omit": true });
    root["headers"] = json!([
        header(0, "scalars", "scalars_t", true),
        header(1, "standard_metadata", "standard_metadata", true),
        header(2, "a", "a_t", false),
        header(3, "b", "b_t", false),
    ]);
    let extract =
        |name: &str| json!({ "op": "extract", "parameters": [{ "type": "regular", "value": name }] });
    let default = json!({ "type": "default", "value": null, "mask": null, "next_state": null });
    let selector = maker.fields.iter().find(|field| field.header == "a").unwrap();
    let (width, selector) = (selector.width, selector.json());
    // Half of all packets have it, by the lowest bit of a field.
    let [even, mask] =
        [0, 1].map(|bit| format!("0x{bit:0digits$x}", digits = 2 * width.div_ceil(8) as usize));
    let to_b = json!({ "type": "hexstr", "value": even, "mask": mask, "next_state": "b" });
    root["parsers"][0]["parse_states"] = json!([
        { "name": "start", "id": 0, "parser_ops": [extract("a")], "transitions": [to_b, default], "transition_key": [selector] },
        { "name": "b", "id": 1, "parser_ops": [extract("b")], "transitions": [default], "transition_key": [] },
    ]);
    root["deparsers"][0]["order"] = json!(["a", "b"]);
    for name in ["parse_vsets", "meter_arrays", "learn_lists", "field_lists"] {
        root[name] = json!([]);
    }
    root["counter_arrays"] = json!([{ "name": "I.counter", "id": 0, "size": 8, "is_direct": false }]);
    root["register_arrays"] =
        json!([{ "name": "I.register", "id": 0, "size": 8, "bitwidth": *maker.dice.one(&WIDTHS) }]);
    let mut actions = vec![json!({ "name": "out", "id": 0, "runtime_data": [], "primitives": [{
        "op": "assign",
        "parameters": [{ "type": "field", "value": ["standard_metadata", "egress_spec"] }, hex(1)],
    }] })];
    for id in 1..=4 {
        let primitives: Vec<Value> = (0..=maker.dice.below(4)).map(|_| maker.primitive()).collect();
        actions.push(
            json!({ "name": format!("act{id}"), "id": id, "runtime_data": [], "primitives": primitives }),
        );
    }
    root["actions"] = actions.into();
    let mut entries = Vec::new();
    for (at, control) in ["I", "E"].into_iter().enumerate() {
        let (mut tables, mut conditionals) = (Vec::new(), Vec::new());
        let nodes = 2 + maker.dice.below(5);
        let name_of = |node: usize| format!("{control}.node{node}");
        for node in 0..nodes {
            let name = name_of(node);
            let next = |maker: &mut Maker<'_>| match node + 1 + maker.dice.below(2) {
                next if next < nodes => name_of(next).into(),
                _ => Value::Null,
            };
            let id = 100 * at + node;
            // The first in ingress says where a packet leaves.
            if !(at == 0 && node == 0) && maker.dice.below(3) == 0 {
                let (condition, yes, no) = (maker.boolean(3), next(&mut maker), next(&mut maker));
                conditionals.push(json!({
                    "name": name, "id": id, "expression": condition, "true_next": yes, "false_next": no,
                }));
                continue;
            }
            let act = if at == 0 && node == 0 { 0 } else { 1 + maker.dice.below(4) };
            let other = 1 + (act + maker.dice.below(3)) % 4;
            let names = |act: usize| if act == 0 { "out".to_owned() } else { format!("act{act}") };
            let kind = *maker.dice.one(&["exact", "ternary"]);
            let mut keys = Vec::new();
            if act != 0 && maker.dice.below(2) == 0 {
                let matched = |maker: &mut Maker<'_>| {
                    let field = maker.field();
                    let (width, json) = (field.width, field.json()["value"].clone());
                    let number = maker.number() & ones(width);
                    (json, if kind == "exact" { exact(number) } else { ternary(number & 1, 1) })
                };
                let (target, matches) = matched(&mut maker);
                keys.push(json!({ "match_type": kind, "name": "key", "target": target, "mask": null }));
                entries.push((name.clone(), vec![matches], names(other)));
            }
            let mut following = serde_json::Map::new();
            following.insert(names(act), next(&mut maker));
            following.insert(names(other), next(&mut maker));
            tables.push(json!({
                "name": name, "id": id, "key": keys, "match_type": kind, "type": "simple", "max_size": 16,
                "with_counters": false, "support_timeout": false, "direct_meters": null,
                "action_ids": [act, other], "actions": [names(act), names(other)],
                "base_default_next": null, "next_tables": following,
                "default_entry": { "action_id": act, "action_const": false, "action_data": [], "action_entry_const": false },
            }));
        }
        root["pipelines"][at] = json!({
            "name": (["ingress", "egress"][at]), "id": at, "init_table": name_of(0), "tables": tables,
            "action_profiles": [], "conditionals": conditionals,
        });
    }
    Random { root, entries }
}

impl Random {
    fn load(&self, root: &Value) -> Pipeline {
        let json = root.to_string();
        let mut pipeline = Pipeline::load(json.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        for (table, matches, action) in &self.entries {
            let priority = i32::from(matches.iter().any(|key| format!("{key:?}").starts_with("Ternary")));
            let row = entry(matches.clone(), priority, direct(action, &[]));
            pipeline.control().table_insert(table, &row).unwrap();
        }
        pipeline
    }
}

fn frames(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut frames = vec![vec![0; 96], vec![0xff; 96]];
    for _ in 0..14 {
        let frame: Vec<u8> = (0..96).map(|_| dice.roll() as u8).collect();
        frames.push(if dice.below(4) == 0 { damaged(dice, &frame) } else { frame });
    }
    frames
}

#[test]
fn a_random_program_does_the_same_whatever_way_it_is_run() {
    let mut dice = Dice::new(50);
    let mut left = 0;
    for number in runs(60) {
        let random = random(&mut dice);
        let mut ways = ways(|| random.load(&random.root), 16_384);
        let mut traced = random.load(&random.root);
        traced.set_tracing(true);
        for (at, frame) in frames(&mut dice).iter().cycle().take(32).enumerate() {
            let what = || format!("program {number}: {}", to_hex(frame));
            let [found, traced] = [&mut ways[3], &mut traced].map(|way| results(way, at as u64, 1, frame));
            left += found.0.len();
            assert_eq!(found, traced, "traced: {}", what());
            let [a, b, c, _] = ways.each_mut();
            let all = [a, b, c].map(|way| results(way, at as u64, 1, frame));
            let [a, b, c] = all;
            same([a, b, c, found], &what());
        }
        same(ways.each_mut().map(state), &format!("program {number}"));
    }
    assert!(left > 200, "{left} frames left: the programs do too little");
}

/// Has every operation of one kind do what another does.
fn fault(node: &mut Value, from: &str, to: &str) {
    match node {
        Value::Array(items) => items.iter_mut().for_each(|item| fault(item, from, to)),
        Value::Object(members) => {
            if members.get("op").is_some_and(|op| op == from) {
                members["op"] = to.into();
            }
            members.values_mut().for_each(|member| fault(member, from, to));
        }
        _ => {}
    }
}

/// What a wrong translation of one operation would be: the programs have to show each.
#[test]
fn random_programs_find_an_operation_that_does_what_another_should() {
    let faults =
        [("+", "|"), ("-", "+"), ("^", "|"), ("<", "<="), ("==", "<="), (">>", "<<"), ("register_write", "")];
    for (from, to) in faults {
        let mut dice = Dice::new(50);
        let found = runs(60).any(|_| {
            let (random, frames) = (random(&mut dice), frames(&mut dice));
            let mut wrong = random.root.clone();
            if to.is_empty() {
                leave_out(&mut wrong, from);
            } else {
                fault(&mut wrong, from, to);
            }
            let [mut right, mut wrong] = [&random.root, &wrong].map(|root| random.load(root));
            let differs = frames
                .iter()
                .any(|frame| results(&mut right, 0, 1, frame) != results(&mut wrong, 0, 1, frame));
            differs || state(&mut right) != state(&mut wrong)
        });
        assert!(found, "{from} that does what '{to}' does");
    }
}

fn leave_out(root: &mut Value, primitive: &str) {
    for action in root["actions"].as_array_mut().unwrap() {
        action["primitives"].as_array_mut().unwrap().retain(|node| node["op"] != primitive);
    }
}
