// SPDX-License-Identifier: Apache-2.0
//! Makes records of what an endpoint says.

use super::record::{Held, MapRecord, MessageRecord, OperationRecord, Record, Shape};
use crate::collective::MessageId;
use crate::interface::Event;
use crate::outcome::TransferStats;
use std::collections::{BTreeMap, VecDeque};
use trimwire_encoder::{HEADER_LEN, RowReceiver};

/// Makes records of an endpoint's events. Sans-IO: show it each event before whoever takes it, tell
/// it of operations that are over, and take records out.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Messages of which rows have come.
    messages: BTreeMap<(u16, u32), MessageRecord>,
    records: VecDeque<Record>,
}

/// What a row holds of a packet of so many coordinates.
fn held(row: &RowReceiver, index: usize, coordinates: usize) -> Held {
    let whole = row.codec().packet_len(row.planes(), coordinates, false) - HEADER_LEN;
    match row.held(index) {
        None => Held::Missing,
        Some(bytes) if bytes >= whole => Held::Whole,
        Some(bytes) => Held::Part(bytes as u16),
    }
}

impl Recorder {
    /// Looks at an event.
    pub fn on_event(&mut self, now_ns: u64, event: &Event) {
        match event {
            Event::Row { from, message, row } => self.on_row(*from, *message, row),
            Event::Received { from, message, stats } => {
                self.end(now_ns, (*from, *message), Some(stats));
            }
            Event::Sent { to, message, map: Some(map), .. } => {
                let planes = map.as_slice().to_vec();
                self.records.push_back(Record::Map(MapRecord { to: *to, message: *message, planes }));
            }
            Event::Failed { peer, message, .. } => self.end(now_ns, (*peer, *message), None),
            // What is settled is told by the last report, with which it is sent.
            Event::Sent { .. } | Event::Passed { .. } | Event::Agreed { .. } | Event::Epoch(_) => {}
        }
    }

    fn on_row(&mut self, from: u16, message: u32, row: &RowReceiver) {
        let layout = row.layout();
        let record = self.messages.entry((from, message)).or_insert_with(|| MessageRecord {
            from,
            message,
            shape: Shape::new(layout, row.codec(), row.planes()),
            delivered: false,
            started_ns: 0,
            duration_ns: 0,
            first_ns: None,
            last_ns: None,
            duplicates: 0,
            probes: 0,
            asked: 0,
            held: vec![Held::Missing; layout.packets()],
        });
        for (index, place) in layout.row_places(row.row()) {
            if let Some(slot) = record.held.get_mut(index) {
                *slot = held(row, index, place.len());
            }
        }
    }

    fn end(&mut self, now_ns: u64, key: (u16, u32), stats: Option<&TransferStats>) {
        let Some(mut record) = self.messages.remove(&key) else { return };
        record.delivered = stats.is_some();
        match stats {
            Some(stats) => record.set_stats(now_ns, stats),
            None => record.started_ns = now_ns,
        }
        self.records.push_back(Record::Message(record));
    }

    /// Takes note of an operation that is over, and of those of its messages that will not be.
    pub fn on_operation(&mut self, now_ns: u64, operation: OperationRecord) {
        let number = MessageId::number_key(operation.number);
        let left = self.messages.keys().filter(|(_, id)| MessageId::from_u32(*id).number == number);
        for key in left.copied().collect::<Vec<_>>() {
            self.end(now_ns, key, None);
        }
        self.records.push_back(Record::Operation(operation));
    }

    /// The next record.
    pub fn poll_record(&mut self) -> Option<Record> {
        self.records.pop_front()
    }
}
