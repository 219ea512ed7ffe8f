//! What a switch counts and holds at one moment, of the ports that have a link and the queues that have a policy.
//!
//! Cells are asked for one by one: a fabric's ports use few of the 4,096 cells of each array.

use std::collections::BTreeMap;
use std::sync::Arc;

use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::client::{Client, ClientError};
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::{Entity, p4_data};

use crate::device::DeviceError;
use crate::model::PortPolicy;
use crate::program as names;
use serde::Serialize;

/// Queues of a port, and so cells of the program's arrays per port.
const QUEUES: u16 = 8;

/// A counter by port and queue (`p4/README.md`, "Counters and registers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// Put in their own queue whole.
    Admitted,
    /// Cut and put in the trim queue.
    Trimmed,
    /// Left the switch cut: SONiC's TRIM_TX_PKTS.
    TrimTransmitted,
    /// Dropped, and cut if the head had found room: TRIM_DRP_PKTS.
    TrimDropped,
    /// On Tofino: admitted, but the traffic manager had no room, and egress cut them.
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
    /// Those that SONiC's TRIM_PKTS counts together, at the queue that had no room: packets trimmed, whether their heads found
    /// room or not (SAI_QUEUE_STAT_TRIM_PACKETS).
    pub const SONIC_TRIM: [Self; 3] = [Self::Trimmed, Self::TrimDropped, Self::Deflected];

    /// All of them.
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

/// One queue of one port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueSample {
    /// Since the switch started.
    pub counters: BTreeMap<Counter, Count>,
    /// Bytes waiting; `None` where the target does not let registers be read.
    pub occupancy: Option<u64>,
}

/// By port and queue.
pub type Sample = BTreeMap<(u16, u8), QueueSample>;

/// Takes a sample. What a target's program does not count, or does not let be read, is not in it.
pub(crate) async fn sample(
    client: &Client,
    index: &Index,
    ports: &BTreeMap<u16, Arc<PortPolicy>>,
) -> Result<Sample, DeviceError> {
    let places = || ports.iter().flat_map(|(port, policy)| policy.queues.keys().map(|queue| (*port, *queue)));
    let mut sample: Sample = places().map(|place| (place, QueueSample::default())).collect();
    if sample.is_empty() {
        return Ok(sample);
    }
    let mut filters: Vec<Entity> = Vec::new();
    let mut kinds = BTreeMap::new();
    for counter in Counter::ALL {
        for place in places() {
            let Ok(entry) = entity::counter(index, counter.name(), Some(cell(place))) else { break };
            kinds.insert(entry.counter_id, counter);
            filters.push(entry.into());
        }
    }
    for entity in read(client, filters).await? {
        let Some(Kind::CounterEntry(entry)) = entity.entity else { continue };
        let (Some(counter), Some(data), Some(cell)) = (kinds.get(&entry.counter_id), entry.data, entry.index)
        else {
            continue;
        };
        if let Some(queue) = place(cell.index).and_then(|place| sample.get_mut(&place)) {
            let count = Count { packets: data.packet_count, bytes: data.byte_count };
            queue.counters.insert(*counter, count);
        }
    }
    let filters = places().map(|place| entity::register(index, names::OCCUPANCY, Some(cell(place))));
    let registers = match read(client, filters.flatten().map(Entity::from).collect()).await {
        Ok(registers) => registers,
        // BMv2 does not read registers over P4Runtime.
        Err(ClientError::Refused { status, .. }) if status.code() == Code::Unimplemented => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    for entity in registers {
        let Some(Kind::RegisterEntry(entry)) = entity.entity else { continue };
        let (Some(cell), Some(p4_data::Data::Bitstring(value))) =
            (entry.index, entry.data.and_then(|data| data.data))
        else {
            continue;
        };
        if let Some(queue) = place(cell.index).and_then(|place| sample.get_mut(&place)) {
            queue.occupancy = bytes::decode(&value, 64).ok().and_then(|value| u64::try_from(value).ok());
        }
    }
    Ok(sample)
}

/// No filters are no question.
async fn read(client: &Client, filters: Vec<Entity>) -> Result<Vec<Entity>, ClientError> {
    if filters.is_empty() { Ok(Vec::new()) } else { client.read(filters).await }
}

fn cell((port, queue): (u16, u8)) -> i64 {
    i64::from(port) * i64::from(QUEUES) + i64::from(queue)
}

fn place(cell: i64) -> Option<(u16, u8)> {
    let cell = u16::try_from(cell).ok()?;
    Some((cell / QUEUES, (cell % QUEUES) as u8))
}
