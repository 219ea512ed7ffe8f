//! A run: domains in windows as long as the shortest link between them, by any number of threads.
//!
//! ```text
//!  next event of all ─► window: [next, next + lookahead) ─► each domain by itself ─► frames to others change hands ─► next event …
//! ```
//!
//! What a domain does in a window can reach another one after it at the earliest, so nobody waits for anybody inside of one. Domains and windows do not depend on the
//! number of threads, and frames are taken in by the number of the domain that they come from: so results do not either.

use super::discipline::{Counts, Rule};
use super::domain::{Domain, Event};
use super::network::{LinkChange, Network, Totals};
use super::program::Programs;
use super::topology::Topology;
use super::transport::Transport;
use super::workload::Demand;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};

/// Windows are no longer than this, so that a run ends soon after its last flow and tells how far it is.
const LONGEST_WINDOW_NS: u64 = 100_000;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Hosts, switches, links.
    pub topology: Topology,
    /// Flows.
    pub demands: Vec<Demand>,
    /// Bytes of payload of a whole packet.
    pub payload: u32,
    /// Of all hosts.
    pub transport: Transport,
    /// Of all ports of all plain switches.
    pub rule: Rule,
    /// Switches that run the P4 program instead.
    pub programs: Option<Programs>,
    /// Links that change.
    pub changes: Vec<LinkChange>,
    /// So long after a change all plain switches have other ways, as if a controller had written them; none: they avoid links of their own that are down, and nobody tells the others.
    pub reroute_ns: Option<u64>,
    /// Of every coin.
    pub seed: u64,
    /// Virtual time at which the run ends, whatever is not over, ns.
    pub limit_ns: u64,
    /// Whether [`Outcome::planes`] is wanted: a byte a packet.
    pub keep_planes: bool,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time, ns.
    pub now_ns: u64,
    /// Flows of the foreground that are over.
    pub finished: u64,
    /// Of so many.
    pub flows: u64,
}

/// A flow's life.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowOutcome {
    /// Its place in the demands.
    pub demand: usize,
    /// When its sender began, ns.
    pub began_ns: u64,
    /// From then until its receiver had what it asked for, ns.
    pub duration_ns: u64,
    /// The share of the gradient's energy that arrived.
    pub share_kept: f64,
}

/// What came out.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Flows that are over, by demand.
    pub flows: Vec<FlowOutcome>,
    /// Of flows of which not everything arrived, if they were to be kept: the planes of each packet, 0 to 10, by demand.
    pub planes: BTreeMap<usize, Box<[u8]>>,
    /// Flows of the foreground that are not over.
    pub unfinished: u64,
    /// Virtual time of the last event, ns.
    pub end_ns: u64,
    /// Frames handed from node to node.
    pub packet_hops: u64,
    /// DATA packets that senders sent, again ones included.
    pub sent: u64,
    /// Of these, again.
    pub repairs: u64,
    /// Time-outs of senders.
    pub timeouts: u64,
    /// DATA packets lost on links that are down or gray.
    pub lost: u64,
    /// What switches did.
    pub switches: Counts,
    /// Bytes that calendars and packets on their way took at most.
    pub memory: usize,
}

impl Outcome {
    /// Takes in what came out of the same demands, begun so much later; what it kept of packets is left out. Flows of other demands are the caller's to leave out.
    pub fn add(&mut self, later: &Self, after_ns: u64) {
        let moved =
            later.flows.iter().map(|flow| FlowOutcome { began_ns: flow.began_ns + after_ns, ..*flow });
        self.flows.extend(moved);
        self.unfinished += later.unfinished;
        self.end_ns = self.end_ns.max(later.end_ns + after_ns);
        self.packet_hops += later.packet_hops;
        self.sent += later.sent;
        self.repairs += later.repairs;
        self.timeouts += later.timeouts;
        self.lost += later.lost;
        self.switches.add(&later.switches);
        self.memory = self.memory.max(later.memory);
    }
}

type Inbox = Mutex<Vec<(usize, Vec<(u64, Event)>)>>;

/// Simulates with up to `threads` threads; `progress` hears how far it is, now and then.
pub fn run(setup: &Setup, threads: usize, progress: impl FnMut(Progress)) -> Outcome {
    let (network, limit_ns) = (Arc::new(Network::new(setup)), setup.limit_ns);
    let mut domains = Domain::all(&network);
    let threads = threads.clamp(1, domains.len());
    let window_ns = network.lookahead_ns.min(LONGEST_WINDOW_NS);
    let foreground = network.flows.iter().filter(|planned| planned.foreground).count() as u64;

    // Of this round and of the next: who is ahead already writes the next one's.
    let inboxes: [Vec<Inbox>; 2] =
        std::array::from_fn(|_| domains.iter().map(|_| Inbox::default()).collect());
    let reports: [Vec<Report>; 2] =
        std::array::from_fn(|_| (0..threads).map(|_| Report::default()).collect());
    let shared = Shared { inboxes, reports, barrier: Barrier::new(threads), window_ns, limit_ns, foreground };
    // Every nth domain: racks come first and are what takes time.
    let mut parts: Vec<Vec<(usize, &mut Domain)>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, domain) in domains.iter_mut().enumerate() {
        parts[number % threads].push((number, domain));
    }
    std::thread::scope(|scope| {
        let shared = &shared;
        let mut parts = parts.into_iter().enumerate();
        let first = parts.next();
        for (thread, part) in parts {
            scope.spawn(move || work(thread, part, shared, |_| {}));
        }
        if let Some((thread, part)) = first {
            work(thread, part, shared, progress);
        }
    });
    outcome(&network, &domains)
}

/// A thread's next event, and its flows of the foreground that are over.
type Report = (AtomicU64, AtomicU64);

/// What threads tell each other.
struct Shared {
    /// By round, and domain.
    inboxes: [Vec<Inbox>; 2],
    /// By round, and thread.
    reports: [Vec<Report>; 2],
    barrier: Barrier,
    window_ns: u64,
    limit_ns: u64,
    foreground: u64,
}

/// Runs a thread's domains, window by window, until all threads see that the run is over. They meet once a window: what one hands over it has counted among what comes next, and all draw the same
/// conclusions from the same reports.
fn work(
    thread: usize,
    mut part: Vec<(usize, &mut Domain)>,
    shared: &Shared,
    mut progress: impl FnMut(Progress),
) {
    let Shared { inboxes, reports, barrier, window_ns, limit_ns, foreground } = shared;
    let mut handed_ns = u64::MAX;
    for round in 0_usize.. {
        let at_ns = part.iter().filter_map(|(_, domain)| domain.next_at()).min().unwrap_or(u64::MAX);
        let over: u64 = part.iter_mut().map(|(_, domain)| domain.count_finished()).sum();
        let (inboxes, next) = (&inboxes[round % 2], &inboxes[(round + 1) % 2]);
        let reports = &reports[round % 2];
        reports[thread].0.store(at_ns.min(handed_ns), Ordering::Release);
        reports[thread].1.store(over, Ordering::Release);
        barrier.wait();
        let now_ns = reports.iter().map(|(next, _)| next.load(Ordering::Acquire)).min().unwrap_or(u64::MAX);
        let finished = reports.iter().map(|(_, finished)| finished.load(Ordering::Acquire)).sum();
        if now_ns > *limit_ns || finished == *foreground {
            return;
        }
        progress(Progress { now_ns, finished, flows: *foreground });
        for (number, domain) in &mut part {
            let mut frames = std::mem::take(&mut *lock(&inboxes[*number]));
            frames.sort_unstable_by_key(|(from, _)| *from);
            frames.into_iter().for_each(|(_, frames)| domain.take(frames.into_iter()));
        }
        handed_ns = window(&mut part, now_ns.saturating_add(*window_ns), next);
    }
}

/// Runs a thread's domains to the end of a window, and hands over what leaves them. Gives when the first of that arrives.
fn window(part: &mut [(usize, &mut Domain)], end_ns: u64, inboxes: &[Inbox]) -> u64 {
    let mut handed_ns = u64::MAX;
    for (number, domain) in part {
        domain.run(end_ns);
        for (to, frames) in domain.leaving.iter_mut().enumerate() {
            if !frames.is_empty() {
                handed_ns = frames.iter().map(|(at_ns, _)| *at_ns).fold(handed_ns, u64::min);
                lock(&inboxes[to]).push((*number, std::mem::take(frames)));
            }
        }
    }
    handed_ns
}

/// A poisoned lock means that another thread has panicked, and that panic is on its way.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn outcome(network: &Network, domains: &[Domain]) -> Outcome {
    let mut began = vec![0; network.flows.len()];
    for (flow, at_ns) in domains.iter().flat_map(|domain| &domain.began) {
        began[*flow as usize] = *at_ns;
    }
    let (mut flows, mut planes) = (Vec::new(), BTreeMap::new());
    for finish in domains.iter().flat_map(|domain| &domain.finished) {
        let demand = finish.flow as usize;
        let began_ns = began[demand];
        flows.push(FlowOutcome {
            demand,
            began_ns,
            duration_ns: finish.at_ns - began_ns,
            share_kept: finish.share_kept,
        });
        if !finish.planes.is_empty() {
            planes.insert(demand, finish.planes.clone());
        }
    }
    flows.sort_unstable_by_key(|flow: &FlowOutcome| flow.demand);
    let mut totals = Totals::default();
    for domain in domains {
        let here = domain.totals();
        totals.hops += here.hops;
        totals.sent += here.sent;
        totals.repairs += here.repairs;
        totals.timeouts += here.timeouts;
        totals.lost += here.lost;
        totals.memory += here.memory;
        totals.switches.add(&here.switches);
    }
    let over = flows.iter().filter(|flow| network.flows[flow.demand].foreground).count();
    let foreground = network.flows.iter().filter(|planned| planned.foreground).count();
    Outcome {
        unfinished: (foreground - over) as u64,
        flows,
        planes,
        end_ns: domains.iter().map(Domain::now_ns).max().unwrap_or(0),
        packet_hops: totals.hops,
        sent: totals.sent,
        repairs: totals.repairs,
        timeouts: totals.timeouts,
        lost: totals.lost,
        switches: totals.switches,
        memory: totals.memory,
    }
}
