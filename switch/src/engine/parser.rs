//! The parser: states, extraction, selects; and the deparser, which puts the packet together again.

mod compile;

pub(super) use compile::{Deparser, Parser, ValueSet};

use super::action::{Machine, Op, set_slot};
use super::bits::{BitWriter, limbs_for, read_limbs, read_u64};
use super::calculation::{Checksum, write_header};
use super::expression::{Env, Expr, HeaderRef, store};
use super::layout::{Header, Layout, Slot};
use super::packet::Packet;

/// State transitions allowed beyond one per frame byte: ends a parser loop that consumes nothing.
const SPARE_TRANSITIONS: usize = 4096;

/// Widest value that a parser looks ahead for, in bits: as wide as any field.
const LONGEST_LOOKAHEAD: u32 = 1 << 14;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Extract(u32),
    /// The next element of a stack.
    ExtractNext(u32),
    /// A header whose variable-length field takes `bits`.
    ExtractVariable {
        header: u32,
        bits: Expr,
    },
    ExtractNextVariable {
        stack: u32,
        bits: Expr,
    },
    /// A member of the next union of a stack; `bits` for its variable-length field.
    ExtractNextMember {
        stack: u32,
        member: u32,
        bits: Option<Expr>,
    },
    Set {
        to: Slot,
        value: Expr,
    },
    SetLookahead {
        to: Slot,
        offset: u32,
        width: u32,
    },
    Verify {
        condition: Expr,
        error: Expr,
    },
    /// Skips this many bits.
    Advance(Expr),
    Primitive(Op),
}

#[derive(Clone, Debug)]
pub(super) enum KeyPart {
    Field(Slot),
    /// A field of a stack's last element.
    Last {
        header: HeaderRef,
        field: u32,
        width: u32,
    },
    Lookahead {
        offset: u32,
        width: u32,
    },
}

impl KeyPart {
    fn width(&self) -> u32 {
        match self {
            Self::Field(slot) => slot.width,
            Self::Last { width, .. } | Self::Lookahead { width, .. } => *width,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Case {
    /// `key & mask == value`, limb by limb.
    Value {
        value: Box<[u64]>,
        mask: Option<Box<[u64]>>,
        next: Option<u32>,
    },
    Set {
        set: u32,
        mask: Option<Box<[u64]>>,
        next: Option<u32>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct State {
    steps: Vec<Step>,
    key: Vec<KeyPart>,
    cases: Vec<Case>,
    default: Option<u32>,
}

/// A parser error, by its code in the program.
struct Rejected(u64);

impl Parser {
    /// The program's code of `NoError`.
    pub(super) fn no_error(&self) -> u64 {
        self.errors.no_error
    }

    /// Parses `packet.frame` into its headers. Errors end parsing and are left in `parser_error`.
    pub(super) fn parse(
        &self,
        machine: &mut Machine<'_>,
        packet: &mut Packet,
        value_sets: &[ValueSet],
        key: &mut Vec<u64>,
    ) {
        packet.parser_error = self.errors.no_error;
        packet.payload_at = 0;
        let mut state = self.start;
        let mut transitions = packet.frame.len() + SPARE_TRANSITIONS;
        while let Some(current) = state.and_then(|state| self.states.get(state as usize)) {
            if let (Some(trace), Some(state)) = (&mut machine.trace, state) {
                trace.note_state(packet.trace, state);
            }
            match self.visit(current, machine, packet, value_sets, key) {
                Ok(next) => state = next,
                Err(Rejected(error)) => {
                    packet.parser_error = error;
                    break;
                }
            }
            transitions -= 1;
            if transitions == 0 {
                packet.parser_error = self.errors.parser_timeout;
                break;
            }
        }
    }

    fn visit(
        &self,
        state: &State,
        machine: &mut Machine<'_>,
        packet: &mut Packet,
        value_sets: &[ValueSet],
        key: &mut Vec<u64>,
    ) -> Result<Option<u32>, Rejected> {
        for step in &state.steps {
            self.step(step, machine, packet)?;
        }
        if state.key.is_empty() {
            return Ok(state.default);
        }
        key.clear();
        for part in &state.key {
            self.append(part, machine, packet, key)?;
        }
        let masked = |value: &[u64], mask: &Option<Box<[u64]>>| match mask {
            None => **key == *value,
            Some(mask) => {
                key.iter().zip(value).zip(mask).all(|((key, value), mask)| key & mask == value & mask)
            }
        };
        for case in &state.cases {
            match case {
                Case::Value { value, mask, next } if masked(value, mask) => return Ok(*next),
                Case::Set { set, mask, next } => {
                    let members = value_sets.get(*set as usize).map_or(&[][..], |set| &set.limbs);
                    if members.iter().any(|member| masked(member, mask)) {
                        return Ok(*next);
                    }
                }
                Case::Value { .. } => {}
            }
        }
        Ok(state.default)
    }

    fn append(
        &self,
        part: &KeyPart,
        machine: &Machine<'_>,
        packet: &Packet,
        key: &mut Vec<u64>,
    ) -> Result<(), Rejected> {
        match part {
            KeyPart::Field(slot) if slot.width <= 64 => key.push(packet.phv[slot.at as usize]),
            KeyPart::Field(slot) => key.extend_from_slice(&packet.phv[slot.limbs()]),
            KeyPart::Last { header, field, width } => {
                let env = Env {
                    layout: machine.layout,
                    phv: &packet.phv,
                    params: &[],
                    registers: machine.registers,
                };
                let slot = header
                    .resolve(&env)
                    .and_then(|header| machine.layout.headers[header as usize].fields.get(*field as usize))
                    .map(|field| field.slot);
                match slot {
                    Some(slot) => key.extend_from_slice(&packet.phv[slot.limbs()]),
                    None => key.resize(key.len() + limbs_for(*width), 0),
                }
            }
            KeyPart::Lookahead { offset, width } => {
                self.need(packet, (*offset + *width).div_ceil(8) as usize)?;
                let at = key.len();
                key.resize(at + limbs_for(*width), 0);
                read_limbs(packet.payload(), *offset as usize, *width, &mut key[at..]);
            }
        }
        Ok(())
    }

    fn need(&self, packet: &Packet, bytes: usize) -> Result<(), Rejected> {
        if packet.payload().len() < bytes { Err(Rejected(self.errors.packet_too_short)) } else { Ok(()) }
    }

    fn step(&self, step: &Step, machine: &mut Machine<'_>, packet: &mut Packet) -> Result<(), Rejected> {
        let eval = |packet: &Packet, expr: &Expr| {
            expr.eval(&Env {
                layout: machine.layout,
                phv: &packet.phv,
                params: &[],
                registers: machine.registers,
            })
        };
        match step {
            Step::Extract(header) => self.extract(machine.layout, packet, *header, None),
            Step::ExtractNext(stack) => self.extract_next(machine.layout, packet, *stack, None),
            Step::ExtractVariable { header, bits } => {
                let bits = eval(packet, bits);
                self.extract(machine.layout, packet, *header, Some(bits))
            }
            Step::ExtractNextVariable { stack, bits } => {
                let bits = eval(packet, bits);
                self.extract_next(machine.layout, packet, *stack, Some(bits))
            }
            Step::ExtractNextMember { stack, member, bits } => {
                let bits = bits.as_ref().map(|bits| eval(packet, bits));
                let stack = &machine.layout.union_stacks[*stack as usize];
                let next = packet.phv[stack.next] as usize;
                let union = *stack.unions.get(next).ok_or(Rejected(self.errors.stack_out_of_bounds))?;
                let header = machine.layout.unions[union as usize][*member as usize];
                self.extract(machine.layout, packet, header, bits)?;
                packet.phv[stack.next] += 1;
                Ok(())
            }
            Step::Set { to, value } => {
                let value = eval(packet, value);
                store(&mut packet.phv, *to, value);
                Ok(())
            }
            Step::SetLookahead { to, offset, width } => {
                // BMv2 asks for the bytes of the value alone, not for the offset before them.
                self.need(packet, (*offset + *width).div_ceil(8) as usize)?;
                let mut limbs = [0; LONGEST_LOOKAHEAD as usize / 64];
                let limbs = &mut limbs[..limbs_for(*width)];
                read_limbs(packet.payload(), *offset as usize, *width, limbs);
                set_slot(&mut packet.phv, *to, limbs);
                Ok(())
            }
            Step::Verify { condition, error } => match eval(packet, condition) {
                0 => Err(Rejected(eval(packet, error) as u64)),
                _ => Ok(()),
            },
            Step::Advance(bits) => {
                let bits = usize::try_from(eval(packet, bits)).unwrap_or(usize::MAX);
                if !bits.is_multiple_of(8) {
                    return Err(Rejected(self.errors.invalid_argument));
                }
                self.need(packet, bits / 8)?;
                packet.payload_at += bits / 8;
                Ok(())
            }
            Step::Primitive(op) => {
                machine.run(packet, std::slice::from_ref(op), &[]);
                Ok(())
            }
        }
    }

    fn extract_next(
        &self,
        layout: &Layout,
        packet: &mut Packet,
        stack: u32,
        bits: Option<u128>,
    ) -> Result<(), Rejected> {
        let stack = &layout.stacks[stack as usize];
        let next = packet.phv[stack.next] as usize;
        let header = *stack.headers.get(next).ok_or(Rejected(self.errors.stack_out_of_bounds))?;
        self.extract(layout, packet, header, bits)?;
        packet.phv[stack.next] += 1;
        Ok(())
    }

    fn extract(
        &self,
        layout: &Layout,
        packet: &mut Packet,
        index: u32,
        variable: Option<u128>,
    ) -> Result<(), Rejected> {
        let header = &layout.headers[index as usize];
        let mut total_bits = header.fixed_bits as usize;
        if let (Some(bits), Some(length)) = (variable, header.length) {
            let bits = usize::try_from(bits).unwrap_or(usize::MAX);
            if !bits.is_multiple_of(8) {
                return Err(Rejected(self.errors.invalid_argument));
            }
            total_bits = total_bits.saturating_add(bits);
            self.need(packet, total_bits / 8)?;
            let longest = header.fields.iter().find(|field| field.varbit).map_or(0, |field| field.slot.width);
            if bits > longest as usize {
                return Err(Rejected(self.errors.header_too_short));
            }
            packet.phv[length] = bits as u64;
        } else {
            self.need(packet, total_bits / 8)?;
        }
        read_header(header, packet);
        packet.payload_at += total_bits / 8;
        layout.set_valid(&mut packet.phv, index);
        Ok(())
    }
}

fn read_header(header: &Header, packet: &mut Packet) {
    let Packet { phv, frame, payload_at, .. } = packet;
    let data = frame.get(*payload_at..).unwrap_or(&[]);
    let mut offset = 0;
    for field in &header.fields {
        let width = match header.length {
            Some(length) if field.varbit => phv[length] as u32,
            _ => field.slot.width,
        };
        if field.slot.width <= 64 {
            phv[field.slot.at as usize] = read_u64(data, offset, width);
        } else {
            read_limbs(data, offset, width, &mut phv[field.slot.limbs()]);
        }
        offset += width as usize;
    }
    header.unsigned_flags.iter().for_each(|&flag| phv[flag] = 0);
}

impl Deparser {
    /// Bytes of all valid headers.
    pub(super) fn header_bytes(&self, layout: &Layout, phv: &[u64]) -> usize {
        let valid = |header: &&Header| phv[header.valid()] != 0;
        let headers = self.order.iter().map(|&header| &layout.headers[header as usize]);
        headers.filter(valid).map(|header| header.bytes(phv)).sum()
    }

    /// Updates checksums and appends headers and payload to `out`; truncation is the caller's.
    pub(super) fn deparse(
        &self,
        machine: &mut Machine<'_>,
        packet: &mut Packet,
        checksums: &[Checksum],
        out: &mut Vec<u8>,
    ) {
        for checksum in checksums.iter().filter(|checksum| checksum.update) {
            let (layout, calculations) = (machine.layout, machine.calculations);
            checksum.fill(packet, layout, machine.registers, calculations, machine.scratch);
        }
        machine.run(packet, &self.ops, &[]);
        let mut writer = BitWriter::new(out);
        for &header in &self.order {
            let header = &machine.layout.headers[header as usize];
            if packet.phv[header.valid()] != 0 {
                write_header(header, &packet.phv, &mut writer);
            }
        }
        writer.finish();
    }
}
