// SPDX-License-Identifier: Apache-2.0
//! BMv2's replication tree (nodes, groups, mirroring sessions), kept as the engine's groups and
//! sessions.

use std::collections::BTreeMap;

use crate::engine::Control;
use crate::engine::entity::Replica;

type Result<T> = std::result::Result<T, String>;

#[derive(Clone, Debug)]
struct Node {
    instance: u16,
    ports: Vec<u16>,
    group: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Session {
    Port(u16),
    Group(u16),
}

/// What the file has made so far. BMv2 numbers the nodes from 0.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    groups: BTreeMap<u16, Vec<usize>>,
    sessions: BTreeMap<u16, Session>,
}

impl Tree {
    fn replicas(&self, group: u16) -> Vec<Replica> {
        let nodes = self.groups.get(&group).into_iter().flatten().filter_map(|&node| self.nodes.get(node));
        let mut replicas: Vec<Replica> = nodes
            .flat_map(|node| node.ports.iter().map(|&port| Replica { instance: node.instance, port }))
            .collect();
        replicas.sort_unstable();
        replicas.dedup();
        replicas
    }

    fn check_group(&self, group: u16) -> Result<()> {
        if self.groups.contains_key(&group) {
            return Ok(());
        }
        let known: Vec<String> = self.groups.keys().map(u16::to_string).collect();
        Err(format!("there is no multicast group {group}; there are: {}", or_none(&known)))
    }

    fn node(&mut self, node: usize) -> Result<&mut Node> {
        let count = self.nodes.len();
        self.nodes.get_mut(node).ok_or_else(|| {
            format!("there is no node {node}; mc_node_create has made {count}, numbered from 0")
        })
    }

    pub(super) fn create_group(&mut self, control: &mut Control, group: u16) -> Result<()> {
        control.multicast_insert(group, &[]).map_err(|error| error.message)?;
        self.groups.insert(group, Vec::new());
        self.update(control)
    }

    pub(super) fn create_node(&mut self, instance: u16, ports: &[u16]) {
        self.nodes.push(Node { instance, ports: ports.to_vec(), group: None });
    }

    pub(super) fn associate(&mut self, control: &mut Control, group: u16, node: usize) -> Result<()> {
        self.check_group(group)?;
        let place = self.node(node)?;
        if let Some(other) = place.group {
            return Err(format!("node {node} is in multicast group {other} already"));
        }
        place.group = Some(group);
        self.groups.entry(group).or_default().push(node);
        self.update(control)
    }

    pub(super) fn mirror_to_port(&mut self, control: &mut Control, session: u16, port: u16) -> Result<()> {
        self.sessions.insert(session, Session::Port(port));
        self.update(control)
    }

    pub(super) fn mirror_to_group(&mut self, control: &mut Control, session: u16, group: u16) -> Result<()> {
        self.sessions.insert(session, Session::Group(group));
        self.update(control)
    }

    pub(super) fn describe_session(&self, session: u16) -> Result<String> {
        let known = || {
            let known: Vec<String> = self.sessions.keys().map(u16::to_string).collect();
            format!("there is no mirroring session {session}; there are: {}", or_none(&known))
        };
        Ok(match self.sessions.get(&session).ok_or_else(known)? {
            Session::Port(port) => format!("port {port}"),
            Session::Group(group) => format!("multicast group {group}"),
        })
    }

    /// Writes every group and session anew: a session on a group follows it.
    fn update(&self, control: &mut Control) -> Result<()> {
        for &group in self.groups.keys() {
            control.multicast_modify(group, &self.replicas(group)).map_err(|error| error.message)?;
        }
        let existing: Vec<u16> = control.clone_sessions().into_iter().map(|(id, _)| id).collect();
        for (&id, session) in &self.sessions {
            let replicas = match *session {
                Session::Port(port) => vec![Replica { instance: 0, port }],
                Session::Group(group) => self.replicas(group),
            };
            if existing.contains(&id) {
                control.clone_session_modify(id, &replicas)
            } else {
                control.clone_session_insert(id, &replicas)
            }
            .map_err(|error| error.message)?;
        }
        Ok(())
    }
}

fn or_none(known: &[String]) -> String {
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}
