// SPDX-License-Identifier: Apache-2.0
//! One primary for a fabric: who leads it, by what its switches tell of their primaries. A core
//! without sockets or a clock, and a handle on it that all drivers share.
//!
//! Each switch has a primary of its own (P4Runtime). A controller *follows* while another is
//! primary of most of the switches that it reaches, and then writes nowhere: not to a switch that
//! came back and happened to take it for primary, and not to one of which nobody is. Who has
//! followed a controller with another file does not take its work over unless a person says so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::board::Board;
use super::faults::Detector;
use super::status::{Leader, View};

/// What follows from all views.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lead {
    /// We lead.
    Ours,
    /// Another controller does.
    Theirs {
        /// Its election id, the highest of several.
        id: Option<u128>,
        /// Switches that hold something else than our file says.
        differing: Vec<String>,
    },
    /// Nobody does: who did had another file, and is gone.
    Nobody,
}

/// The core.
#[derive(Debug, Default)]
pub(crate) struct Election {
    own: u128,
    views: BTreeMap<String, View>,
    /// Who leads, or led last, has another file than we.
    estranged: bool,
}

impl Election {
    /// What we bid with, and the fabric's switches. Those that are known keep their views.
    pub(crate) fn of<'n>(&mut self, own: u128, switches: impl Iterator<Item = &'n String>) {
        let view = |name: &String| (name.clone(), self.views.get(name).copied().unwrap_or(View::Unreached));
        (self.own, self.views) = (own, switches.map(view).collect());
    }

    /// How a switch of the fabric stands by now.
    pub(crate) fn see(&mut self, switch: &str, view: View) {
        if let Some(known) = self.views.get_mut(switch) {
            *known = view;
        }
        if let Lead::Theirs { differing, .. } = self.lead() {
            // As the other goes, its switches become vacant one by one: that says nothing of its
            // file.
            let all_agree =
                |view: &View| matches!(view, View::Unreached | View::Theirs { agrees: Some(true), .. });
            if !differing.is_empty() {
                self.estranged = true;
            } else if self.views.values().all(all_agree) {
                self.estranged = false;
            }
        }
    }

    /// A person has said that our file is the one.
    pub(crate) fn insist(&mut self) {
        self.estranged = false;
    }

    pub(crate) fn lead(&self) -> Lead {
        let reached = self.views.values().filter(|view| **view != View::Unreached).count();
        let (mut theirs, mut highest, mut differing) = (0, None, Vec::new());
        for (name, view) in &self.views {
            let View::Theirs { id, agrees } = view else { continue };
            theirs += 1;
            highest = highest.max(*id);
            if *agrees == Some(false) {
                differing.push(name.clone());
            }
        }
        // Of halves the higher bid's leads.
        if 2 * theirs > reached || theirs > 0 && 2 * theirs == reached && highest > Some(self.own) {
            Lead::Theirs { id: highest, differing }
        } else if self.estranged {
            Lead::Nobody
        } else {
            Lead::Ours
        }
    }
}

/// The drivers' common [`Election`]; clones are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Elections {
    election: Arc<Mutex<(Election, Lead)>>,
    leads: watch::Sender<bool>,
    detector: Detector,
    board: Board,
}

impl Elections {
    pub(crate) fn new(detector: Detector, board: Board) -> Self {
        let election = Arc::new(Mutex::new((Election::default(), Lead::Ours)));
        Self { election, leads: watch::Sender::new(true), detector, board }
    }

    /// Changes to whether we lead.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    /// Changes the election, and tells all drivers and the log what comes of it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Election)) {
        let mut locked = self.election.lock().unwrap_or_else(PoisonError::into_inner);
        let (election, before) = &mut *locked;
        change(election);
        let lead = election.lead();
        if lead == *before {
            return;
        }
        tell(before, &lead);
        self.board.change(|status| {
            (status.leader, status.another_file) = match &lead {
                Lead::Ours => (Leader::This, Vec::new()),
                Lead::Theirs { differing, .. } => (Leader::Another, differing.clone()),
                Lead::Nobody => (Leader::Nobody, Vec::new()),
            };
        });
        let leads = lead == Lead::Ours;
        if *self.leads.borrow() != leads {
            // Before any driver writes because of it.
            self.detector.change(|faults, _| faults.leads(leads));
            self.leads.send_replace(leads);
        }
        *before = lead;
    }
}

/// In the log: who leads by now, and which switches hold another file's entries.
fn tell(before: &Lead, now: &Lead) {
    let id = |id: &Option<u128>| id.map_or_else(String::new, |id| format!(" with election id {id}"));
    match (before, now) {
        (_, Lead::Ours) => tracing::info!("leading the fabric"),
        (_, Lead::Nobody) => tracing::warn!(
            "the controller that led the fabric is gone, and had another file: nothing is written until SIGHUP, which says that this \
             one's is right, or until a controller leads again"
        ),
        (before, Lead::Theirs { id: highest, differing }) => {
            if !matches!(before, Lead::Theirs { id: known, .. } if known == highest) {
                tracing::warn!(
                    "another controller{} leads the fabric: following, nothing is written",
                    id(highest)
                );
            }
            let known = if let Lead::Theirs { differing, .. } = before { differing.as_slice() } else { &[] };
            if known.is_empty() && !differing.is_empty() {
                tracing::warn!(
                    "the controller{} that leads the fabric has another file: {} hold something else than this one's says; plan shows what",
                    id(highest),
                    shortened(differing)
                );
            }
        }
    }
}

/// The first few of many names.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.get(..names.len() - more).unwrap_or_default().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEIRS: View = View::Theirs { id: Some(2), agrees: Some(true) };

    fn seen(views: &[View]) -> Election {
        let mut election = Election::default();
        let names: Vec<String> = (0..views.len()).map(|number| format!("s{number}")).collect();
        election.of(1, names.iter());
        for (name, view) in names.iter().zip(views) {
            election.see(name, *view);
        }
        election
    }

    fn leads(views: &[View]) -> bool {
        seen(views).lead() == Lead::Ours
    }

    #[test]
    fn who_is_alone_leads_whatever_is_dead() {
        assert!(leads(&[]));
        assert!(leads(&[View::Ours, View::Unreached, View::Unreached]));
        assert!(leads(&[View::Vacant, View::Vacant, View::Unreached]));
    }

    #[test]
    fn another_s_majority_of_what_is_reached_leads() {
        assert!(!leads(&[THEIRS]));
        assert!(!leads(&[THEIRS, THEIRS, View::Ours]), "a switch that came back and took us for primary");
        assert!(!leads(&[THEIRS, THEIRS, View::Vacant]), "a switch of which nobody is primary");
        assert!(!leads(&[THEIRS, View::Unreached, View::Unreached]));
        assert!(leads(&[THEIRS, View::Ours, View::Ours]));
        assert!(leads(&[THEIRS, View::Vacant, View::Vacant]), "it is gone, but for a connection");
    }

    #[test]
    fn of_halves_the_higher_bid_s_leads() {
        assert!(!leads(&[THEIRS, View::Ours]));
        let lower = View::Theirs { id: Some(0), agrees: Some(true) };
        assert!(leads(&[lower, View::Ours]));
    }

    #[test]
    fn two_controllers_that_see_each_other_s_switches_do_not_both_lead() {
        for ours in 0..=8_usize {
            let view = |own: u128, other: u128, primary: &dyn Fn(usize) -> bool| {
                let theirs = View::Theirs { id: Some(other), agrees: None };
                let views: Vec<View> =
                    (0..8).map(|switch| if primary(switch) { View::Ours } else { theirs }).collect();
                let mut election = seen(&views);
                election.own = own;
                election.lead() == Lead::Ours
            };
            let (one, two) = (view(1, 2, &|switch| switch < ours), view(2, 1, &|switch| switch >= ours));
            assert!(one != two, "{ours} of 8: {one} {two}");
        }
    }

    #[test]
    fn who_followed_another_file_takes_nothing_over_until_a_person_says_so() {
        let other = View::Theirs { id: Some(2), agrees: Some(false) };
        let mut election = seen(&[THEIRS, other, THEIRS]);
        assert_eq!(election.lead(), Lead::Theirs { id: Some(2), differing: vec!["s1".to_owned()] });
        for switch in ["s1", "s0", "s2"] {
            election.see(switch, View::Vacant);
        }
        assert_eq!(election.lead(), Lead::Nobody);
        election.insist();
        assert_eq!(election.lead(), Lead::Ours);
    }

    #[test]
    fn who_followed_the_same_file_takes_over_at_once_and_so_does_who_was_given_it() {
        let other = View::Theirs { id: Some(2), agrees: Some(false) };
        let mut election = seen(&[THEIRS, other]);
        // The file was brought up to date.
        election.see("s1", THEIRS);
        for switch in ["s1", "s0"] {
            election.see(switch, View::Vacant);
        }
        assert_eq!(election.lead(), Lead::Ours);
    }
}
