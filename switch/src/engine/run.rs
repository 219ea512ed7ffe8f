// SPDX-License-Identifier: Apache-2.0
//! A packet runs a part of the program's code: what is remembered of its flow, then the code, as
//! machine code where there is any.

use super::flow_cache::Resume;
use super::machine::Machine;
use super::native::call::Native;
use super::packet::Packet;

/// Runs the code from `start` to its end.
pub(super) fn run(machine: &mut Machine<'_>, native: Option<&Native>, start: u32, packet: &mut Packet) {
    let mut phv = std::mem::take(&mut packet.phv);
    execute(machine, native, Resume::at(start), &mut phv, packet);
    packet.phv = phv;
}

/// Ingress of a packet that came from outside: what is remembered of its flow, and then the code.
pub(super) fn run_ingress(machine: &mut Machine<'_>, native: Option<&Native>, packet: &mut Packet) {
    let mut phv = std::mem::take(&mut packet.phv);
    let (generation, interpreted) = (machine.control.generation, native.is_none());
    let flows = &mut machine.work.flows;
    let known = flows.resume(machine.program, generation, packet.extracted, &mut phv, interpreted);
    if let Some(Resume { gained, .. }) = known {
        packet.length = packet.length.wrapping_add(gained);
        let mut number = 0;
        while let Some((table, hit)) = machine.work.flows.hit(number) {
            machine.note_packet(table, hit, &mut phv, packet);
            number += 1;
        }
    }
    let start = known.unwrap_or(Resume::at(machine.code.ingress));
    execute(machine, native, start, &mut phv, packet);
    machine.work.flows.forget();
    packet.phv = phv;
}

fn execute(
    machine: &mut Machine<'_>,
    native: Option<&Native>,
    start: Resume,
    phv: &mut [u64],
    packet: &mut Packet,
) {
    match native {
        Some(native) => native.run(machine, start, phv, packet),
        None => machine.carry_on(start, phv, packet),
    }
}
