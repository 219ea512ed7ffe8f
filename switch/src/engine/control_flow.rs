// SPDX-License-Identifier: Apache-2.0
//! Control flow: tables and conditionals, each with the node that comes next.

use std::collections::BTreeMap;

use serde_json::Value;

use super::action::Action;
use super::expression::{self, Expr, Scope};
use super::json::{self, Result, malformed};
use super::table::{self, Table};

#[derive(Clone, Debug)]
pub(super) enum Node {
    Table(u32),
    If {
        condition: Expr,
        then: Option<u32>,
        otherwise: Option<u32>,
    },
    /// An action outside any table, or in a table without keys whose default action is constant.
    Call {
        action: u32,
        params: Box<[u64]>,
        next: Option<u32>,
    },
}

/// One pipeline's nodes are part of the program's; this is where it starts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Start(pub(super) Option<u32>);

/// The numbers of all nodes, by name, in the order in which `load_nodes` makes them.
pub(super) fn number_nodes(root: &Value) -> Result<BTreeMap<String, u32>> {
    let mut numbers = BTreeMap::new();
    for pipeline in json::list(root, "pipelines")? {
        for kind in ["tables", "conditionals", "action_calls"] {
            for node in json::list(pipeline, kind)? {
                let number = numbers.len() as u32;
                let name = json::text(node, "name")?;
                if numbers.insert(name.to_owned(), number).is_some() {
                    return Err(malformed(node, format!("two tables or conditionals are called `{name}`")));
                }
            }
        }
    }
    Ok(numbers)
}

/// The nodes of all pipelines and where each pipeline starts. Tables are numbered in the same
/// order.
pub(super) fn load_nodes(
    root: &Value,
    scope: &Scope<'_>,
    actions: &[Action],
    numbers: &BTreeMap<String, u32>,
) -> Result<(Vec<Node>, BTreeMap<String, Start>)> {
    let find = |at: &Value, key: &str| -> Result<Option<u32>> {
        match at.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(name)) => match numbers.get(name) {
                Some(number) => Ok(Some(*number)),
                None => Err(malformed(at, format!("there is no table or conditional `{name}`"))),
            },
            Some(other) => Err(malformed(at, format!("{} is not a node", json::excerpt(other)))),
        }
    };
    let mut nodes = Vec::new();
    let mut starts = BTreeMap::new();
    let mut tables = 0;
    let mut without_params = BTreeMap::new();
    for (number, action) in (0_u32..).zip(actions).filter(|(_, action)| action.params.is_empty()) {
        without_params.entry(action.id).or_insert(number);
    }
    for pipeline in json::list(root, "pipelines")? {
        for _ in json::list(pipeline, "tables")? {
            nodes.push(Node::Table(tables));
            tables += 1;
        }
        for node in json::list(pipeline, "conditionals")? {
            let condition = json::member(node, "expression");
            let condition = condition.and_then(|condition| expression::boolean(condition, scope));
            nodes.push(Node::If {
                condition: json::located(node, condition)?,
                then: find(node, "true_next")?,
                otherwise: find(node, "false_next")?,
            });
        }
        for node in json::list(pipeline, "action_calls")? {
            let id = json::number(node, "action_id")?;
            let action = without_params.get(&id).copied();
            let action = action.ok_or_else(|| malformed(node, format!("there is no action {id}")))?;
            nodes.push(Node::Call { action, params: Box::default(), next: find(node, "next_node")? });
        }
        let start = Start(find(pipeline, "init_table")?);
        starts.insert(json::text(pipeline, "name")?.to_owned(), start);
    }
    Ok((nodes, starts))
}

/// Replaces tables that can only ever do one thing (p4c makes one of every statement outside a
/// table) by that.
pub(super) fn inline_constant_tables(nodes: &mut [Node], tables: &[Table]) {
    for node in nodes {
        let Node::Table(table) = node else { continue };
        let Some(table) = tables.get(*table as usize) else { continue };
        if let (true, true, Some(table::call::Target::Call(call))) =
            (table.keys.is_empty(), table.default_is_const, &table.default)
        {
            let next = table.next(false, Some(call.action));
            *node = Node::Call { action: call.action, params: call.params.clone(), next };
        }
    }
}

/// Refuses a program whose control flow runs in a circle: it would never end.
pub(super) fn check_acyclic(nodes: &[Node], tables: &[Table]) -> Result<()> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; nodes.len()];
    for start in 0..nodes.len() {
        let mut path = vec![(start, false)];
        while let Some((node, leaving)) = path.pop() {
            if leaving {
                marks[node] = Mark::Done;
                continue;
            }
            match marks[node] {
                Mark::Done => continue,
                Mark::Open => {
                    return Err(malformed(&Value::Null, "the control flow runs in a circle"));
                }
                Mark::New => {}
            }
            marks[node] = Mark::Open;
            path.push((node, true));
            for next in successors(&nodes[node], tables) {
                match marks[next as usize] {
                    Mark::Open => return Err(malformed(&Value::Null, "the control flow runs in a circle")),
                    Mark::New => path.push((next as usize, false)),
                    Mark::Done => {}
                }
            }
        }
    }
    Ok(())
}

fn successors(node: &Node, tables: &[Table]) -> Vec<u32> {
    let next: Vec<Option<u32>> = match node {
        Node::If { then, otherwise, .. } => vec![*then, *otherwise],
        Node::Call { next, .. } => vec![*next],
        Node::Table(table) => {
            let Some(table) = tables.get(*table as usize) else { return Vec::new() };
            let mut next = vec![table.base_next];
            match &table.next {
                table::NextNodes::HitMiss { hit, miss } => next.extend([*hit, *miss]),
                table::NextNodes::ByAction(nodes) => next.extend(nodes.iter().map(|(_, next)| *next)),
            }
            next
        }
    };
    next.into_iter().flatten().collect()
}
