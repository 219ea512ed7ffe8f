// SPDX-License-Identifier: Apache-2.0
//! A table meets a packet.

use super::super::code::Next;
use super::super::packet::Packet;
use super::super::slot::store;
use super::super::table::call::Target;
use super::super::table::{self, Hit};
use super::Machine;

impl Machine<'_> {
    /// Looks up; gives where the action begins, with its arguments in the frame, and where to go on
    /// behind it.
    pub(crate) fn apply(
        &mut self,
        number: usize,
        phv: &mut [u64],
        packet: &mut Packet,
    ) -> (Option<u32>, u32) {
        let hit = self.control.tables[number].lookup(phv, &mut self.work.key, &mut self.work.masked);
        self.meet(number, hit, phv, packet)
    }

    /// The same of a table whose keys are one word together, which is this.
    #[cfg(feature = "native")]
    pub(crate) fn apply_word(
        &mut self,
        number: usize,
        word: u64,
        phv: &mut [u64],
        packet: &mut Packet,
    ) -> (Option<u32>, u32) {
        let hit = self.control.tables[number].lookup_word(word, &mut self.work.masked);
        self.meet(number, hit, phv, packet)
    }

    #[inline]
    fn meet(&mut self, number: usize, hit: Hit, phv: &mut [u64], packet: &mut Packet) -> (Option<u32>, u32) {
        let code = self.code;
        let table = &self.control.tables[number];
        if table.notes_packets() {
            self.work.flows.note(number, hit);
            self.note_packet(number, hit, phv, packet);
        }
        let table = &*self.control.tables[number];
        let entry = hit.and_then(|handle| table.entries.get(handle as usize)).and_then(Option::as_ref);
        let target = entry.map_or(table.default.as_ref(), |entry| Some(&entry.target));
        let profile = table.profile.and_then(|profile| self.control.profiles.get(profile as usize));
        let call = match target {
            Some(Target::Call(call)) => Some(call),
            Some(chosen) => {
                let inputs = packet.inputs(&self.program.layout, phv);
                table::resolve(chosen, profile, &inputs, &mut self.work.scratch)
            }
            None => None,
        };
        if let Some(trace) = &mut self.work.trace {
            trace.note_table(packet.trace, phv, table, hit, call, &self.control.actions);
        }
        if let Some(call) = call {
            // Few: no call of memcpy pays.
            let arguments = &mut phv[code.arguments..];
            arguments.iter_mut().zip(&call.params).for_each(|(limb, value)| *limb = *value);
        }
        let after = match &code.next[number] {
            Next::HitMiss { hit: next, .. } if entry.is_some() => *next,
            Next::HitMiss { miss, .. } => *miss,
            Next::ByAction { actions, otherwise } => {
                let called = call.map(|call| call.action);
                let next = actions.iter().find(|(action, _)| Some(*action) == called);
                next.map_or(*otherwise, |(_, next)| *next)
            }
        };
        (call.map(|call| code.actions[call.action as usize]), after)
    }

    /// What an entry with a counter, a meter or an age keeps of a packet.
    pub(crate) fn note_packet(&mut self, number: usize, hit: Hit, phv: &mut [u64], packet: &Packet) {
        let table = &mut *self.control.tables[number];
        let (counted, meter) = (table.info.has_counter, table.direct_meter);
        if let Some(handle) = hit {
            let aging = table.info.has_idle_timeout;
            if let Some(entry) = table.entries.get_mut(handle as usize).and_then(Option::as_mut) {
                if counted {
                    entry.direct.counter.count(packet.ingress_length);
                }
                if aging {
                    entry.idle.last_hit_ns = self.now_ns;
                }
                if let Some((unit, slot)) = meter {
                    let color = entry.direct.meter.color(self.now_ns, unit, packet.ingress_length);
                    store(phv, slot, u128::from(color));
                }
            }
        } else {
            if counted {
                table.default_direct.counter.count(packet.ingress_length);
            }
            // BMv2 has no meter for a miss, and leaves the colour as it was.
            if let Some((unit, slot)) = meter
                && table.default_direct.meter.config().is_some()
            {
                let color = table.default_direct.meter.color(self.now_ns, unit, packet.ingress_length);
                store(phv, slot, u128::from(color));
            }
        }
    }
}
