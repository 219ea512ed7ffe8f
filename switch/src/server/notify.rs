// SPDX-License-Identifier: Apache-2.0
//! What the switch tells its controllers by itself: packet-ins, digests, idle entries (P4Runtime,
//! "P4Runtime Stream Messages").

use super::digests::List;
use super::entities::{Target, entry_of};
use super::role::Access;
use super::state::{Service, State, timestamp};
use super::{p4data, packet_io};
use crate::Switch;
use crate::device::SwitchEvent;
use crate::engine::Pipeline;
use crate::engine::entity::IdleEntry;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trimwire_p4runtime::config::P4TypeInfo;
use trimwire_p4runtime::p4info::{Index, Named as _};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;

/// How soon the switch is looked at again when it had something to tell; twice as late each time
/// that it had not, up to the second figure. (Hundreds of software switches on one machine are
/// mostly idle, and looking costs each of them.)
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_millis(32);

/// What the switch had to tell, taken under its lock and made into messages outside: others wait
/// for the lock, and nobody for these.
struct Taken {
    index: Arc<Index>,
    frames: Vec<Vec<u8>>,
    lists: Vec<List>,
    /// Whether there was anything, or messages wait for others.
    any: bool,
}

impl Service {
    /// Tells primaries what the switch has for them, for as long as the server runs.
    pub(super) async fn pump(self) {
        let mut wait = SOON;
        loop {
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(LATE);
            let Some(Taken { index, frames, lists, any }) = self.take() else { continue };
            if any {
                wait = SOON;
            }
            for frame in frames {
                let packet = packet_io::packet_in(&index, &frame);
                let heard = self.tell(&index, |access| {
                    access.takes_packet_in(&packet).then(|| Told::Packet(packet.clone()))
                });
                if !heard {
                    tracing::debug!("packet-in lost: no primary that reads");
                }
                tokio::task::yield_now().await;
            }
            for list in lists {
                let (digest_id, list_id) = (list.digest_id, list.list_id);
                let told = digest_list(&index, list);
                let heard =
                    self.tell(&index, |access| access.has(digest_id).then(|| Told::Digest(told.clone())));
                if !heard {
                    // Nobody will acknowledge it: the next of its kind may go out.
                    self.state().digests.handle_ack(digest_id, list_id);
                }
                tokio::task::yield_now().await;
            }
        }
    }

    fn take(&self) -> Option<Taken> {
        let mut state = self.state();
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        let mut frames = Vec::new();
        let (mut any, mut more_idle) = (false, false);
        while let Some(event) = switch.poll_event() {
            any = true;
            match event {
                SwitchEvent::PacketIn(frame) => frames.push(frame),
                SwitchEvent::Idle(entries) => {
                    idle(&mut state, &mut switch, now_ns, &entries);
                    more_idle = true;
                }
            }
        }
        let digests = switch.pipeline().map(Pipeline::take_digests).unwrap_or_default();
        drop(switch);
        if more_idle {
            // Others may have waited until these were taken.
            self.wake();
        }
        let state = &mut *state;
        let index = Arc::clone(&state.running.as_ref()?.index);
        for digest in digests {
            any = true;
            if let Ok(known) = index.digest(digest.name.as_str()) {
                state.digests.handle_digest(now_ns, known.id(), digest.fields.into());
            }
        }
        state.digests.handle_timeout(now_ns);
        let lists = std::iter::from_fn(|| state.digests.poll_list()).collect();
        any |= state.digests.is_waiting();
        Some(Taken { index, frames, lists, any })
    }

    /// Tells primaries, if the pipeline that a message is about still runs.
    fn tell(&self, index: &Arc<Index>, message: impl FnMut(&Access) -> Option<Told>) -> bool {
        let state = self.state();
        state.running.as_ref().is_some_and(|realm| Arc::ptr_eq(&realm.index, index))
            && state.arbitration.tell_primaries(message)
    }
}

fn digest_list(index: &Index, List { digest_id, list_id, messages }: List) -> v1::DigestList {
    let info = index.p4info();
    let none = P4TypeInfo::default();
    let types = info.type_info.as_ref().unwrap_or(&none);
    let mut data = Vec::with_capacity(messages.len());
    if let Ok(digest) = index.digest(digest_id)
        && let Some(spec) = &digest.type_spec
    {
        data.extend(messages.iter().filter_map(|fields| p4data::from_fields(types, spec, fields)));
        if data.len() < messages.len() {
            tracing::warn!("digest {}: the program's fields do not fit the P4Info's type", digest.name());
        }
    }
    v1::DigestList { digest_id, list_id, data, timestamp: timestamp() }
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
    for (table_id, table_entry) in entries {
        let told = v1::IdleTimeoutNotification { table_entry, timestamp: timestamp() };
        state.arbitration.tell_primaries(|access| {
            access.has(table_id).then(|| Told::IdleTimeoutNotification(told.clone()))
        });
    }
}
