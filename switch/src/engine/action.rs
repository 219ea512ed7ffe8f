//! Actions: primitives compiled to operations over slots.

mod compile;
mod stack;

pub(super) use compile::{Action, Names, assign, compile_primitive, load_all};

use super::bits::trim;
use super::calculation::Calculation;
use super::expression::{Env, Expr, HeaderRef, StackRef, UnionRef, store};
use super::layout::{Layout, Slot};
use super::packet::Packet;
use super::random::Random;
use super::stateful::{Counter, MeterArray, Register};
use super::trace::{DropReason, Recorder};
use stack::Elements;

/// v1model's "no port": BMv2's default `--drop-port`.
pub const DROP_PORT: u16 = 511;

/// Operations that one action may run: ends a program's endless loop, and lets two nested ones over all of `bit<8>` come to
/// their end.
const FUEL: u32 = 1 << 22;

/// Where a result goes.
#[derive(Clone, Debug)]
pub(super) enum Target {
    Slot(Slot),
    /// A field of a header found at run time; ignored where there is none.
    Dynamic {
        header: HeaderRef,
        field: u32,
    },
}

/// The field that holds a variable-length value, and the limb that holds its width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Varbit {
    pub(super) slot: Slot,
    pub(super) length: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Assign {
        to: Target,
        value: Expr,
    },
    /// A constant to a field of at most 64 bits.
    Set64 {
        at: u32,
        value: u64,
    },
    /// A field of at most 64 bits to another.
    Copy64 {
        at: u32,
        from: u32,
        mask: u64,
    },
    /// To a field of at most 64 bits.
    Assign64 {
        at: u32,
        mask: u64,
        value: Expr,
    },
    /// To a field of more than 128 bits.
    AssignWide {
        to: Target,
        value: Expr,
    },
    /// `to = from` where either is wider than 128 bits and both are unsigned.
    CopyField {
        to: Slot,
        from: Slot,
    },
    CopyParam {
        to: Slot,
        from: Slot,
    },
    SetWide {
        to: Slot,
        value: Box<[u64]>,
    },
    CopyVarbit {
        to: Varbit,
        from: Varbit,
    },
    AddHeader(HeaderRef),
    RemoveHeader(HeaderRef),
    CopyHeader {
        to: HeaderRef,
        from: HeaderRef,
    },
    CopyStack {
        to: u32,
        from: u32,
    },
    CopyUnionStack {
        to: u32,
        from: u32,
    },
    CopyUnion {
        to: UnionRef,
        from: UnionRef,
    },
    Push {
        stack: StackRef,
        count: Expr,
    },
    Pop {
        stack: StackRef,
        count: Expr,
    },
    /// Marks the standard metadata that it is given.
    Drop {
        egress_spec: Target,
        mcast_grp: Option<Target>,
    },
    Count {
        counter: u32,
        index: Expr,
    },
    ReadRegister {
        to: Target,
        register: u32,
        index: Expr,
    },
    ReadRegisterWide {
        to: Target,
        register: u32,
        index: Expr,
    },
    WriteRegister {
        register: u32,
        index: Expr,
        value: Expr,
    },
    WriteRegisterWide {
        register: u32,
        index: Expr,
        value: Expr,
    },
    Meter {
        meter: u32,
        index: Expr,
        to: Target,
    },
    Hash {
        to: Target,
        base: Expr,
        calculation: u32,
        size: Expr,
    },
    Random {
        to: Target,
        low: Expr,
        high: Expr,
    },
    Clone {
        session: Expr,
        list: Expr,
    },
    Resubmit {
        list: Expr,
    },
    Recirculate {
        list: Expr,
    },
    Digest {
        list: Expr,
    },
    Truncate {
        length: Expr,
    },
    Exit,
    Assert {
        holds: Expr,
        place: Box<str>,
    },
    Log {
        format: Box<str>,
        values: Vec<Expr>,
    },
    Jump(u32),
    JumpIfZero {
        value: Expr,
        to: u32,
    },
    Nothing,
}

/// Everything an action may touch besides the packet.
pub(super) struct Machine<'a> {
    pub(super) layout: &'a Layout,
    pub(super) calculations: &'a [Calculation],
    pub(super) counters: &'a mut [Counter],
    pub(super) registers: &'a mut [Register],
    pub(super) meters: &'a mut [MeterArray],
    pub(super) random: &'a mut Random,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) now_ns: u64,
    /// Present while tracing is on.
    pub(super) trace: Option<&'a mut Recorder>,
}

impl Machine<'_> {
    pub(super) fn run(&mut self, packet: &mut Packet, ops: &[Op], params: &[u64]) {
        let mut next = 0;
        let mut fuel = FUEL;
        while let Some(op) = ops.get(next) {
            next += 1;
            match op {
                Op::Set64 { at, value } => packet.phv[*at as usize] = *value,
                Op::Copy64 { at, from, mask } => packet.phv[*at as usize] = packet.phv[*from as usize] & mask,
                Op::Assign64 { at, mask, value } => {
                    let value = value.low64(&self.env(packet, params));
                    packet.phv[*at as usize] = value & mask;
                }
                Op::Jump(to) => next = *to as usize,
                Op::JumpIfZero { value, to } => {
                    if self.eval(packet, params, value) == 0 {
                        next = *to as usize;
                    }
                }
                op => self.execute(packet, op, params),
            }
            fuel -= 1;
            if fuel == 0 {
                // BMv2 would never be done with it.
                tracing::error!("an action ran {FUEL} operations without an end, packet dropped");
                packet.failed = Some(DropReason::EndlessLoop);
                packet.exit = true;
                break;
            }
        }
    }

    fn env<'a>(&'a self, packet: &'a Packet, params: &'a [u64]) -> Env<'a> {
        Env { layout: self.layout, phv: &packet.phv, params, registers: self.registers }
    }

    fn eval(&self, packet: &Packet, params: &[u64], expr: &Expr) -> u128 {
        expr.eval(&self.env(packet, params))
    }

    /// As BMv2 converts to an index: the low 32 bits.
    fn index(&self, packet: &Packet, params: &[u64], expr: &Expr) -> usize {
        expr.low64(&self.env(packet, params)) as u32 as usize
    }

    /// Bytes or elements: more than there can be is the most there can be.
    fn count(&self, packet: &Packet, params: &[u64], expr: &Expr) -> usize {
        usize::try_from(self.eval(packet, params, expr)).unwrap_or(usize::MAX)
    }

    /// Where a result goes; `None` for a header that does not exist.
    fn place(&self, packet: &Packet, params: &[u64], to: &Target) -> Option<Slot> {
        match to {
            Target::Slot(slot) => Some(*slot),
            Target::Dynamic { header, field } => {
                let header = header.resolve(&self.env(packet, params))?;
                let fields = &self.layout.headers[header as usize].fields;
                fields.get(*field as usize).map(|field| field.slot)
            }
        }
    }

    fn write(&self, packet: &mut Packet, params: &[u64], to: &Target, value: u128) {
        if let Some(slot) = self.place(packet, params, to) {
            store(&mut packet.phv, slot, value);
        }
    }

    /// Apart, so that the common operations need few registers.
    #[inline(never)]
    fn execute(&mut self, packet: &mut Packet, op: &Op, params: &[u64]) {
        match op {
            Op::Assign { to: Target::Slot(slot), value } => {
                let value = self.eval(packet, params, value);
                store(&mut packet.phv, *slot, value);
            }
            Op::Assign { to, value } => {
                let value = self.eval(packet, params, value);
                self.write(packet, params, to, value);
            }
            Op::AddHeader(header) => {
                if let Some(header) = header.resolve(&self.env(packet, params)) {
                    self.add_header(packet, header);
                }
            }
            Op::RemoveHeader(header) => {
                if let Some(header) = header.resolve(&self.env(packet, params)) {
                    let header = &self.layout.headers[header as usize];
                    if packet.phv[header.valid()] != 0 {
                        packet.length = packet.length.wrapping_sub(header.bytes(&packet.phv) as u64);
                        packet.phv[header.valid()] = 0;
                    }
                }
            }
            Op::Drop { egress_spec, mcast_grp } => {
                self.write(packet, params, egress_spec, u128::from(DROP_PORT));
                if let Some(mcast_grp) = mcast_grp {
                    self.write(packet, params, mcast_grp, 0);
                }
            }
            Op::Count { counter, index } => {
                let index = self.index(packet, params, index);
                if let Some(cell) = self.counters[*counter as usize].cells.get_mut(index) {
                    cell.packets = cell.packets.wrapping_add(1);
                    cell.bytes = cell.bytes.wrapping_add(u64::from(packet.ingress_length));
                }
            }
            Op::ReadRegister { to, register, index } => {
                let index = self.index(packet, params, index);
                if let Some(value) = self.registers[*register as usize].load(index as u128) {
                    self.write(packet, params, to, value);
                }
            }
            Op::WriteRegister { register, index, value } => {
                let index = self.index(packet, params, index);
                let value = self.eval(packet, params, value);
                self.registers[*register as usize].store(index as u128, value);
            }
            Op::Hash { to, base, calculation, size } => {
                let base = self.eval(packet, params, base) as u64;
                let size = (self.eval(packet, params, size) as u64).max(1);
                let calculation = &self.calculations[*calculation as usize];
                let hash = calculation.compute(&packet.inputs(self.layout), self.scratch);
                self.write(packet, params, to, u128::from((hash % size).wrapping_add(base)));
            }
            Op::Truncate { length } => {
                packet.truncate = packet.truncate.min(self.count(packet, params, length));
            }
            other => self.execute_rare(packet, other, params),
        }
    }

    #[inline(never)]
    fn execute_rare(&mut self, packet: &mut Packet, op: &Op, params: &[u64]) {
        match op {
            Op::AssignWide { to, value } => {
                let value = value.whole(&self.env(packet, params));
                if let Some(slot) = self.place(packet, params, to) {
                    value.store_in(&mut packet.phv, slot);
                }
            }
            Op::CopyField { to, from } => {
                copy_limbs(&mut packet.phv, *to, *from);
            }
            Op::CopyParam { to, from } => {
                set_slot(&mut packet.phv, *to, &params[from.limbs()]);
            }
            Op::SetWide { to, value } => set_slot(&mut packet.phv, *to, value),
            Op::CopyVarbit { to, from } => {
                copy_limbs(&mut packet.phv, to.slot, from.slot);
                packet.phv[to.length] = packet.phv[from.length].min(u64::from(to.slot.width));
            }
            Op::CopyHeader { to, from } => {
                let env = self.env(packet, params);
                if let (Some(to), Some(from)) = (to.resolve(&env), from.resolve(&env)) {
                    self.layout.copy_header(&mut packet.phv, to, from);
                }
            }
            Op::CopyStack { to, from } => {
                let (to, from) = (&self.layout.stacks[*to as usize], &self.layout.stacks[*from as usize]);
                packet.phv[to.next] = packet.phv[from.next];
                self.copy_headers(packet, &to.headers, &from.headers);
            }
            Op::CopyUnionStack { to, from } => {
                let stack = |stack: u32| &self.layout.union_stacks[stack as usize];
                let (to, from) = (stack(*to), stack(*from));
                packet.phv[to.next] = packet.phv[from.next];
                for (&to, &from) in to.unions.iter().zip(&from.unions) {
                    self.copy_union(packet, to, from);
                }
            }
            Op::CopyUnion { to, from } => {
                let env = self.env(packet, params);
                if let (Some(to), Some(from)) = (to.resolve(&env), from.resolve(&env)) {
                    self.copy_union(packet, to, from);
                }
            }
            Op::Push { stack, count } => {
                let count = self.count(packet, params, count);
                Elements::new(self.layout, *stack).push(packet, count);
            }
            Op::Pop { stack, count } => {
                let count = self.count(packet, params, count);
                Elements::new(self.layout, *stack).pop(packet, count);
            }
            Op::ReadRegisterWide { to, register, index } => {
                let index = self.index(packet, params, index);
                let to = self.place(packet, params, to);
                if let (Some(to), Some(cell)) = (to, self.registers[*register as usize].cell(index as u128)) {
                    set_slot(&mut packet.phv, to, cell);
                }
            }
            Op::WriteRegisterWide { register, index, value } => {
                let index = self.index(packet, params, index);
                let value = value.whole(&self.env(packet, params));
                let register = &mut self.registers[*register as usize];
                let width = register.width;
                if let Some(cell) = register.cell_mut(index as u128) {
                    value.store(cell, width);
                }
            }
            Op::Meter { meter, index, to } => {
                let index = self.index(packet, params, index);
                let now_ns = self.now_ns;
                let array = &mut self.meters[*meter as usize];
                let unit = array.unit;
                if let Some(cell) = array.cells.get_mut(index) {
                    let color = cell.color(now_ns, unit, packet.ingress_length);
                    self.write(packet, params, to, u128::from(color));
                }
            }
            Op::Random { to, low, high } => {
                let low = self.eval(packet, params, low) as u64;
                let high = self.eval(packet, params, high) as u64;
                if low <= high {
                    let value = self.random.between(low, high);
                    self.write(packet, params, to, u128::from(value));
                }
            }
            Op::Clone { session, list } => {
                let session = self.eval(packet, params, session) as u16 & 0x7fff;
                packet.requests.clone = Some((session, self.eval(packet, params, list) as u16));
            }
            Op::Resubmit { list } => packet.requests.resubmit = self.eval(packet, params, list) as u16,
            Op::Recirculate { list } => packet.requests.recirculate = self.eval(packet, params, list) as u16,
            Op::Digest { list } => packet.requests.digest = self.eval(packet, params, list) as u16,
            Op::Exit => packet.exit = true,
            Op::Assert { holds, place } if self.eval(packet, params, holds) == 0 => {
                tracing::error!("assertion failed, packet dropped{place}");
                packet.failed = Some(DropReason::Assertion);
                packet.exit = true;
            }
            Op::Log { format, values } => {
                let env = self.env(packet, params);
                let values: Vec<String> = values.iter().map(|value| value.decimal(&env)).collect();
                tracing::info!(target: "p4", "{}", render(format, &values));
            }
            _ => {}
        }
    }

    fn add_header(&self, packet: &mut Packet, header: u32) {
        let layout = &self.layout.headers[header as usize];
        if packet.phv[layout.valid()] == 0 {
            // A variable-length field keeps its length, as in BMv2.
            let length = layout.length.map(|length| (length, packet.phv[length]));
            packet.phv[layout.limbs.clone()].fill(0);
            if let Some((length, bits)) = length {
                packet.phv[length] = bits;
            }
            self.layout.set_valid(&mut packet.phv, header);
            packet.length = packet.length.wrapping_add(layout.bytes(&packet.phv) as u64);
        }
    }

    fn copy_headers(&self, packet: &mut Packet, to: &[u32], from: &[u32]) {
        for (&to, &from) in to.iter().zip(from) {
            self.layout.copy_header(&mut packet.phv, to, from);
        }
    }

    fn copy_union(&self, packet: &mut Packet, to: u32, from: u32) {
        let unions = &self.layout.unions;
        self.copy_headers(packet, &unions[to as usize], &unions[from as usize]);
    }
}

/// Puts the low bits of an unsigned number into a slot of the PHV.
pub(super) fn set_slot(phv: &mut [u64], slot: Slot, source: &[u64]) {
    let target = &mut phv[slot.limbs()];
    for (index, limb) in target.iter_mut().enumerate() {
        *limb = source.get(index).copied().unwrap_or(0);
    }
    trim(target, slot.width);
    if slot.signed {
        let top = (slot.width as usize - 1) / 64;
        let fits = target[top] == source.get(top).copied().unwrap_or(0)
            && source.iter().skip(top + 1).all(|&limb| limb == 0);
        let negative = target[top] >> ((slot.width - 1) % 64) & 1 != 0;
        phv[slot.unsigned_flag()] = u64::from(fits && negative);
    }
}

/// Copies an unsigned field.
fn copy_limbs(phv: &mut [u64], to: Slot, from: Slot) {
    let (target, source) = (to.limbs(), from.limbs());
    let shared = target.len().min(source.len());
    phv.copy_within(source.start..source.start + shared, target.start);
    phv[target.start + shared..target.end].fill(0);
    trim(&mut phv[target], to.width);
}

/// `log_msg`: each pair of braces, whatever is between them, is replaced by the next value; `\{` and `\}` are braces.
fn render(format: &str, values: &[String]) -> String {
    let mut text = String::with_capacity(format.len());
    let mut values = values.iter();
    let mut rest = format;
    while let Some(at) = rest.find(['{', '\\']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let escaped = from.strip_prefix('\\').and_then(|brace| brace.strip_prefix(['{', '}']));
        let closing = from.starts_with('{').then(|| from.find('}')).flatten();
        rest = match (escaped, closing) {
            (Some(rest), _) => {
                text.push_str(&from[1..2]);
                rest
            }
            (None, Some(closing)) => {
                let (placeholder, rest) = from.split_at(closing + 1);
                text.push_str(values.next().map_or(placeholder, String::as_str));
                rest
            }
            (None, None) => {
                text.push_str(&from[..1]);
                &from[1..]
            }
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn a_message_has_a_value_for_each_pair_of_braces_that_is_not_escaped() {
        let render = |format| render(format, &["1".into(), "22".into()]);
        assert_eq!(render("{} and {}"), "1 and 22");
        assert_eq!(render("a {x} {:#} {}"), "a 1 22 {}");
        assert_eq!(render(r"\{a\} \n {} ü{"), r"{a} \n 1 ü{");
        assert_eq!(render("none"), "none");
    }
}
