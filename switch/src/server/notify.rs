// SPDX-License-Identifier: Apache-2.0
//! What the switch tells its controllers by itself: packet-ins, digests, idle entries (P4Runtime,
//! "P4Runtime Stream Messages").

use super::digests::List;
use super::entities::{Target, entry_of};
use super::state::{Service, State, timestamp};
use super::{p4data, packet_io};
use crate::Switch;
use crate::device::SwitchEvent;
use crate::engine::entity::IdleEntry;
use std::collections::BTreeMap;
use std::time::Duration;
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;

/// How soon the switch is looked at again when it had something to tell; twice as late each time
/// that it had not, up to the second figure. (Hundreds of software switches on one machine are
/// mostly idle, and looking costs each of them.)
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_millis(32);
/// Entries in one notification.
const MOST_IDLE: usize = 512;

impl Service {
    /// Tells primaries what the switch has for them, for as long as the server runs.
    pub(super) async fn pump(self) {
        let mut wait = SOON;
        loop {
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(LATE);
            let mut state = self.state();
            let mut switch = self.switch();
            let now_ns = self.now_ns(&switch);
            while let Some(event) = switch.poll_event() {
                wait = SOON;
                match event {
                    SwitchEvent::PacketIn(frame) => packet_in(&state, &frame),
                    SwitchEvent::Idle(entries) => idle(&mut state, &mut switch, now_ns, &entries),
                }
            }
            if digests(&mut state, &mut switch, now_ns) {
                wait = SOON;
            }
        }
    }
}

fn packet_in(state: &State, frame: &[u8]) {
    let Some(realm) = &state.running else { return };
    let packet = packet_io::packet_in(&realm.index, frame);
    let heard = state
        .arbitration
        .tell_primaries(|access| access.takes_packet_in(&packet).then(|| Told::Packet(packet.clone())));
    if !heard {
        tracing::debug!("packet-in lost: no primary that reads");
    }
}

/// "Table Idle Timeout Notification": told again after another time-out, so that a lost
/// notification does no harm.
fn idle(state: &mut State, switch: &mut Switch, now_ns: u64, idle: &[IdleEntry]) {
    let (Some(realm), Some(pipeline)) = (&mut state.running, switch.pipeline()) else { return };
    let target =
        Target { control: pipeline.control(), ledger: &mut realm.ledger, index: &realm.index, now_ns };
    let mut entries: BTreeMap<u32, Vec<v1::TableEntry>> = BTreeMap::new();
    for IdleEntry { table, row } in idle {
        let Ok(table) = target.index.table(table.as_str()) else { continue };
        let filter = v1::TableEntry {
            time_since_last_hit: Some(v1::table_entry::IdleTimeout::default()),
            ..v1::TableEntry::default()
        };
        let entry = entry_of(&target, table, row, &filter);
        entries.entry(table.id()).or_default().extend(entry.ok());
    }
    for IdleEntry { table, row } in idle {
        let (matches, priority) = (&row.entry.matches, row.entry.priority);
        // One that has been deleted in the meantime needs no timer.
        let _ = target.control.set_idle_timeout(table, matches, priority, row.idle_timeout_ns, now_ns);
    }
    for (table_id, entries) in entries {
        for table_entry in entries.chunks(MOST_IDLE) {
            let told =
                v1::IdleTimeoutNotification { table_entry: table_entry.to_vec(), timestamp: timestamp() };
            state.arbitration.tell_primaries(|access| {
                access.has(table_id).then(|| Told::IdleTimeoutNotification(told.clone()))
            });
        }
    }
}

/// Returns whether there are any, sent or waiting for others.
fn digests(state: &mut State, switch: &mut Switch, now_ns: u64) -> bool {
    let (Some(realm), Some(pipeline)) = (&state.running, switch.pipeline()) else { return false };
    let info = realm.index.p4info();
    let mut any = false;
    for digest in pipeline.take_digests() {
        any = true;
        let Ok(known) = realm.index.digest(digest.name.as_str()) else { continue };
        state.digests.handle_digest(now_ns, known.id(), digest.fields, |fields| {
            let data = p4data::from_fields(
                &info.type_info.clone().unwrap_or_default(),
                known.type_spec.as_ref()?,
                fields,
            );
            if data.is_none() {
                tracing::warn!("digest {}: the program's fields do not fit the P4Info's type", known.name());
            }
            data
        });
    }
    state.digests.handle_timeout(now_ns);
    while let Some(List { digest_id, list_id, data }) = state.digests.poll_list() {
        let list = v1::DigestList { digest_id, list_id, data, timestamp: timestamp() };
        let heard = state
            .arbitration
            .tell_primaries(|access| access.has(digest_id).then(|| Told::Digest(list.clone())));
        if !heard {
            // Nobody will acknowledge it: the next of its kind may go out.
            state.digests.handle_ack(digest_id, list_id);
        }
    }
    any || state.digests.is_waiting()
}
