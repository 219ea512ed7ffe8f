// SPDX-License-Identifier: Apache-2.0
//! What a switch counts and holds at one moment: the one reader of counters and of what waits, for
//! `show`, `watch`, `run` and health checks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::{Client, ClientError};
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::{CounterEntry, Entity, RegisterEntry, p4_data};

use crate::model::PortPolicy;
use crate::{program::names, target};
use serde::Serialize;

/// Queues of a port, and so cells of the program's arrays per port.
const QUEUES: u16 = 8;
/// Filters of a Read: `trimwire-switch` takes no more unless told otherwise.
const FILTERS: usize = 1_024;

/// A counter by port and queue (`p4/README.md`, "Counters and registers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Put in their own queue whole.
    Admitted,
    /// Trimmed and put in the trim queue.
    Trimmed,
    /// Left the switch trimmed: SONiC's TRIM_TX_PKTS.
    TrimTransmitted,
    /// Dropped because the trimmed packet found no room: TRIM_DRP_PKTS.
    TrimDropped,
    /// On Tofino: admitted, but the traffic manager had no room, and egress trimmed them.
    Deflected,
    /// Less important ones at `shallow_at`.
    SelectiveDropped,
    /// At `drop_at`.
    TailDropped,
    /// Met `mark_at`.
    Marked,
    /// Left the switch.
    Transmitted,
}

impl Counter {
    /// Those that SONiC's TRIM_PKTS counts together, at the queue that had no room: packets
    /// trimmed, whether their heads found room or not (SAI_QUEUE_STAT_TRIM_PACKETS).
    pub const SONIC_TRIM: [Self; 3] = [Self::Trimmed, Self::TrimDropped, Self::Deflected];

    /// All of them, in their order: [`Counts`] goes by it.
    pub const ALL: [Self; 9] = [
        Self::Admitted,
        Self::Trimmed,
        Self::TrimTransmitted,
        Self::TrimDropped,
        Self::Deflected,
        Self::SelectiveDropped,
        Self::TailDropped,
        Self::Marked,
        Self::Transmitted,
    ];

    /// Without the control that it stands in.
    pub(crate) fn short_name(self) -> &'static str {
        self.name().rsplit('.').next().unwrap_or_default()
    }

    fn name(self) -> &'static str {
        match self {
            Self::Admitted => "Ingress.admitted",
            Self::Trimmed => "Ingress.trimmed",
            Self::TrimTransmitted => "Egress.trim_transmitted",
            Self::TrimDropped => "Ingress.trim_dropped",
            Self::Deflected => "Egress.deflected",
            Self::SelectiveDropped => "Ingress.selective_dropped",
            Self::TailDropped => "Ingress.tail_dropped",
            Self::Marked => "Ingress.marked",
            Self::Transmitted => "Egress.transmitted",
        }
    }
}

/// What a counter holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Count {
    /// Packets.
    pub packets: i64,
    /// Bytes of frames as they arrived.
    pub bytes: i64,
}

/// What the counters of one queue hold; those that a target's program does not have, hold nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts([Option<Count>; Counter::ALL.len()]);

impl Counts {
    /// What a counter holds.
    pub fn get(&self, counter: Counter) -> Option<Count> {
        self.0.get(counter as usize).copied().flatten()
    }

    /// Those that there are, in the order of [`Counter::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Counter, Count)> {
        Counter::ALL.into_iter().zip(self.0).filter_map(|(counter, count)| Some((counter, count?)))
    }

    fn set(&mut self, counter: Counter, count: Count) {
        if let Some(held) = self.0.get_mut(counter as usize) {
            *held = Some(count);
        }
    }
}

impl FromIterator<(Counter, Count)> for Counts {
    fn from_iter<T: IntoIterator<Item = (Counter, Count)>>(counts: T) -> Self {
        let mut all = Self::default();
        counts.into_iter().for_each(|(counter, count)| all.set(counter, count));
        all
    }
}

/// One queue of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Since the switch started.
    pub counts: Counts,
    /// Bytes waiting; `None` where the target does not let registers be read.
    pub waiting: Option<Waiting>,
}

impl QueueCounters {
    pub(crate) fn has_counted(&self) -> bool {
        self.counts.iter().any(|(_, count)| count != Count::default())
    }
}

/// Bytes in a queue, as the program counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// At the moment.
    pub now: u64,
    /// Most in the last 8 to 17 seconds in which packets came, where the program keeps that.
    pub peak: Option<u64>,
}

/// What one switch counts and holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// By port and queue.
    pub queues: BTreeMap<(u16, u8), QueueCounters>,
    /// Packets without a route, of the whole switch.
    pub unroutable: i64,
    /// Packets that came where they should not have, by the port that they came in at, with the
    /// word for it ([`names::STRAYS`]); other ports have none.
    pub strays: BTreeMap<(u16, &'static str), i64>,
}

/// Of how many looks a cell that was zero gets one.
const TURNS: u32 = 6;

/// One of many looks at the same switch: what has counted is read each time, what has been zero
/// each sixth time. Most queues of a large fabric never have a packet, and most others no drop.
#[derive(Debug, Clone, Default)]
pub(crate) struct Look {
    /// What is known; nothing before the first look, which reads everything.
    pub last: Arc<Counters>,
    /// How many were taken before.
    pub number: u32,
}

/// A queue that is looked at.
struct Asked<'l> {
    place: (u16, u8),
    known: Option<&'l QueueCounters>,
}

/// Of which queues; `None` for all that the arrays have.
type Which<'q> = Option<&'q [Asked<'q>]>;

impl Look {
    fn is_due(&self, array: u32, place: (u16, u8), was: i64) -> bool {
        let turn = array.wrapping_add(u32::from(place.0)).wrapping_add(u32::from(place.1));
        was > 0 || self.last.queues.is_empty() || turn.wrapping_add(self.number).is_multiple_of(TURNS)
    }

    fn counted(&self, array: u32, counter: Counter, asked: &Asked<'_>) -> bool {
        let was = asked.known.and_then(|queue| queue.counts.get(counter));
        self.is_due(array, asked.place, was.map_or(0, |count| count.packets))
    }

    fn waited(&self, asked: &Asked<'_>) -> bool {
        let was = asked.known.and_then(|queue| queue.waiting);
        let bytes = was.map_or(0, |waiting| waiting.peak.unwrap_or(waiting.now));
        self.is_due(0, asked.place, i64::from(bytes > 0))
    }
}

/// Reads the counters of these ports' queues that have a policy, or of all that the arrays have,
/// and what waits in them. What a target's program does not count, or does not let be read, is not
/// in it. What is not due at this [`Look`] is as it was.
pub(crate) async fn read(
    client: &Client,
    index: &Index,
    ports: Option<&BTreeMap<u16, Arc<PortPolicy>>>,
    look: &Look,
) -> Result<Counters, ClientError> {
    let asked = ports.map(|ports| -> Vec<Asked<'_>> {
        let queues = |(port, policy): (&u16, &Arc<PortPolicy>)| -> Vec<Asked<'_>> {
            let places = policy.queues.keys().map(|queue| (*port, *queue));
            places.map(|place| Asked { place, known: look.last.queues.get(&place) }).collect()
        };
        ports.iter().flat_map(queues).collect()
    });
    if asked.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Counters::default());
    }
    let mut counters = (*look.last).clone();
    count(client, index, asked.as_deref(), look, &mut counters).await?;
    match wait(client, index, asked.as_deref(), look, &mut counters).await {
        // BMv2 does not read registers over P4Runtime.
        Err(ClientError::Refused { status, .. }) if status.code() == Code::Unimplemented => {}
        outcome => outcome?,
    }
    if let (Some(asked), Some(ports)) = (asked, ports) {
        let has =
            |(port, queue): &(u16, u8)| ports.get(port).is_some_and(|port| port.queues.contains_key(queue));
        counters.queues.retain(|place, _| has(place));
        for Asked { place, .. } in asked {
            counters.queues.entry(place).or_default();
        }
    }
    Ok(counters)
}

/// All that was counted, without what waits.
pub(crate) async fn read_counters(client: &Client, index: &Index) -> Result<Counters, ClientError> {
    let mut counters = Counters::default();
    count(client, index, None, &Look::default(), &mut counters).await?;
    Ok(counters)
}

async fn count(
    client: &Client,
    index: &Index,
    which: Which<'_>,
    look: &Look,
    counters: &mut Counters,
) -> Result<(), ClientError> {
    // An entity is hundreds of bytes: it is not moved each time that there is one more.
    let mut filters: Vec<Entity> = Vec::with_capacity(which.map_or(0, |asked| asked.len() * 2).min(FILTERS));
    let mut kinds = BTreeMap::new();
    for (number, counter) in (0..).zip(Counter::ALL) {
        let Ok(whole) = entity::counter(index, counter.name(), None) else { continue };
        kinds.insert(whole.counter_id, counter);
        filters.extend(
            cells(index, which, |asked| look.counted(number, counter, asked))
                .map(|index| Entity::from(CounterEntry { index, ..whole })),
        );
    }
    let unroutable = entity::counter(index, names::UNROUTABLE, None).ok();
    filters.extend(unroutable.map(Entity::from));
    let mut strays = BTreeMap::new();
    let ports: Option<BTreeSet<u16>> = which.map(|asked| asked.iter().map(|asked| asked.place.0).collect());
    for (number, (name, word)) in (0..).zip(names::STRAYS) {
        let Ok(whole) = entity::counter(index, name, None) else { continue };
        strays.insert(whole.counter_id, word);
        let is_due = |port: &&u16| {
            look.is_due(number, (**port, 0), look.last.strays.get(&(**port, word)).copied().unwrap_or(0))
        };
        let due = ports.iter().flatten().filter(is_due).map(|port| Some(i64::from(*port)));
        for port in due.chain(ports.is_none().then_some(None)) {
            let index = port.map(|index| trimwire_p4runtime::v1::Index { index });
            filters.push(Entity::from(CounterEntry { index, ..whole }));
        }
    }
    counters.unroutable = 0;
    for entity in read_entities(client, filters).await? {
        let Some(Kind::CounterEntry(entry)) = entity.entity else { continue };
        let (Some(data), Some(cell)) = (entry.data, entry.index) else { continue };
        if unroutable.as_ref().is_some_and(|unroutable| unroutable.counter_id == entry.counter_id) {
            counters.unroutable = counters.unroutable.saturating_add(data.packet_count);
        } else if let (Some(word), Ok(port)) = (strays.get(&entry.counter_id), u16::try_from(cell.index)) {
            if data.packet_count > 0 {
                counters.strays.insert((port, *word), data.packet_count);
            } else {
                counters.strays.remove(&(port, *word));
            }
        } else if let (Some(counter), Some(place)) = (kinds.get(&entry.counter_id), place(cell.index)) {
            let count = Count { packets: data.packet_count, bytes: data.byte_count };
            counters.queues.entry(place).or_default().counts.set(*counter, count);
        }
    }
    Ok(())
}

/// Bytes that wait and that waited; an error where the target does not let registers be read.
async fn wait(
    client: &Client,
    index: &Index,
    which: Which<'_>,
    look: &Look,
    counters: &mut Counters,
) -> Result<(), ClientError> {
    let (mut filters, mut occupancy) = (Vec::new(), None);
    for name in names::WAITING {
        let Ok(whole) = entity::register(index, name, None) else { continue };
        if name == names::OCCUPANCY {
            occupancy = Some(whole.register_id);
        }
        filters.extend(
            cells(index, which, |asked| look.waited(asked))
                .map(|index| Entity::from(RegisterEntry { index, ..whole.clone() })),
        );
    }
    let mut waiting: BTreeMap<(u16, u8), Waiting> = BTreeMap::new();
    for entity in read_entities(client, filters).await? {
        let Some(Kind::RegisterEntry(entry)) = entity.entity else { continue };
        let Some(place) = entry.index.and_then(|cell| place(cell.index)) else { continue };
        let Some(p4_data::Data::Bitstring(value)) = entry.data.and_then(|data| data.data) else { continue };
        if let Some(bytes) = bytes::decode(&value, 64).ok().and_then(|value| u64::try_from(value).ok()) {
            let queue = waiting.entry(place).or_default();
            if occupancy == Some(entry.register_id) {
                queue.now = bytes;
            } else {
                queue.peak = queue.peak.max(Some(bytes));
            }
        }
    }
    for (place, waiting) in waiting {
        counters.queues.entry(place).or_default().waiting = Some(waiting);
    }
    Ok(())
}

/// The cells of an array that are asked for: those, or all of the array (`None`).
///
/// A fabric's ports use few of an array's 4,096 cells. On Tofinos the whole array is read from the
/// hardware whatever is asked for (Stratum's `BfrtTableManager::ReadIndirectCounterEntry`), so that
/// asking once is cheaper.
fn cells<'q>(
    index: &Index,
    which: Which<'q>,
    is_due: impl Fn(&Asked<'q>) -> bool + 'q,
) -> impl Iterator<Item = Option<trimwire_p4runtime::v1::Index>> + 'q {
    let asked = which.filter(|_| target::reads_cells(index));
    let whole = asked.is_none().then_some(None);
    let due = asked.unwrap_or_default().iter().filter(move |asked| is_due(asked));
    due.map(|asked| Some(trimwire_p4runtime::v1::Index { index: cell(asked.place) })).chain(whole)
}

/// In as many Reads as it takes; no filters are no question.
async fn read_entities(client: &Client, mut filters: Vec<Entity>) -> Result<Vec<Entity>, ClientError> {
    let mut entities = Vec::new();
    while !filters.is_empty() {
        let rest = filters.split_off(filters.len().min(FILTERS));
        entities.append(&mut client.read(std::mem::replace(&mut filters, rest)).await?);
    }
    Ok(entities)
}

fn cell((port, queue): (u16, u8)) -> i64 {
    i64::from(port) * i64::from(QUEUES) + i64::from(queue)
}

fn place(cell: i64) -> Option<(u16, u8)> {
    let cell = u16::try_from(cell).ok()?;
    Some((cell / QUEUES, (cell % QUEUES) as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(packets: i64) -> Look {
        let counts = [(Counter::Admitted, Count { packets, bytes: packets * 60 })].into_iter().collect();
        let queues = [((3, 5), QueueCounters { counts, waiting: None })].into();
        Look { last: Arc::new(Counters { queues, ..Counters::default() }), number: 0 }
    }

    fn is_asked(look: &Look, array: u32, counter: Counter, place: (u16, u8)) -> bool {
        look.counted(array, counter, &Asked { place, known: look.last.queues.get(&place) })
    }

    #[test]
    fn what_has_counted_is_read_at_each_look_and_what_was_zero_at_each_sixth() {
        let times = |look: &Look, array: u32, counter: Counter| {
            let looks = (0..TURNS).map(|number| Look { number, ..look.clone() });
            looks.filter(|look| is_asked(look, array, counter, (3, 5))).count()
        };
        let (busy, quiet) = (known(7), known(0));
        assert_eq!(times(&busy, 0, Counter::Admitted), 6);
        for (array, counter) in (0..).zip(Counter::ALL).skip(1) {
            assert_eq!((times(&busy, array, counter), times(&quiet, array, counter)), (1, 1), "{counter:?}");
        }
        assert_eq!(times(&Look::default(), 0, Counter::Admitted), 6, "the first look reads everything");
    }

    #[test]
    fn of_many_cells_each_look_has_a_sixth() {
        let cells: Vec<(u16, u8)> =
            (1..=60).flat_map(|port| (0..7).map(move |queue| (port, queue))).collect();
        for number in 0..TURNS {
            let look = Look { number, ..known(0) };
            let due = cells.iter().filter(|place| is_asked(&look, 2, Counter::Marked, **place)).count();
            assert_eq!(due, cells.len() / 6);
        }
    }
}
