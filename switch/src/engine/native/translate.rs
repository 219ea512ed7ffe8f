// SPDX-License-Identifier: Apache-2.0
//! Instructions to Cranelift's.

use super::super::calculation::Checksum;
use super::super::code::{Code, Insn, Next, Select};
use super::super::expression::Compare;
use super::Parts;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{
    AbiParam, AliasRegion, Block, BlockArg, BlockCall, Endianness, FuncRef, Function, InstBuilder as _,
    JumpTableData, MemFlags, Signature, Type, Value,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;
use cranelift_module::{Linkage, Module as _};

/// What a step gives where the packet goes on behind it.
pub(super) const AS_USUAL: u32 = u32::MAX;
/// Limbs of a run that are copied one by one.
const MOST_COPIED: u16 = 16;

/// Where fields lie in a context and in a packet, in bytes.
pub(super) struct Layouts {
    pub(super) phv: usize,
    pub(super) frame: usize,
    pub(super) length: usize,
    pub(super) packet: usize,
    pub(super) numbers: usize,
    pub(super) back: usize,
    pub(super) fuel: usize,
    pub(super) transitions: usize,
    pub(super) payload_at: usize,
    pub(super) extracted: usize,
    pub(super) exit: usize,
    pub(super) checksum_error: usize,
}

/// Places at which an instruction begins a block, and those that only a run tells.
struct Places {
    begins: Vec<bool>,
    asked_for: Vec<bool>,
}

impl Places {
    fn of(code: &Code) -> Self {
        let count = code.insns.len();
        let mut places = Self { begins: vec![false; count], asked_for: vec![false; count] };
        let Code { parse, rejected, ingress, egress, deparse, .. } = *code;
        let mut ask = |place: u32| {
            if let Some(asked) = places.asked_for.get_mut(place as usize) {
                *asked = true;
            }
        };
        [parse, rejected, ingress, egress, deparse]
            .into_iter()
            .chain(code.actions.iter().copied())
            .for_each(&mut ask);
        for next in &code.next {
            match next {
                Next::HitMiss { hit, miss } => [*hit, *miss].into_iter().for_each(&mut ask),
                Next::ByAction { actions, otherwise } => {
                    actions.iter().map(|(_, next)| *next).chain([*otherwise]).for_each(&mut ask);
                }
            }
        }
        for select in &code.set_selects {
            select.cases.iter().map(|case| case.next).chain([select.default]).for_each(&mut ask);
        }
        for (place, insn) in (0..).zip(&code.insns) {
            if let Insn::Remember = insn {
                ask(place + 1);
            }
        }
        places.begins.clone_from(&places.asked_for);
        let mut begin = |place: u32| {
            if let Some(begins) = places.begins.get_mut(place as usize) {
                *begins = true;
            }
        };
        for insn in &code.insns {
            match *insn {
                Insn::Jump { to }
                | Insn::Loop { to }
                | Insn::IfZero { to, .. }
                | Insn::IfNotZero { to, .. }
                | Insn::IfEqual { to, .. }
                | Insn::IfUnequal { to, .. }
                | Insn::IfLess { to, .. }
                | Insn::IfNotLess { to, .. }
                | Insn::Branch { to, .. } => begin(to),
                _ => {}
            }
        }
        for Select { cases, default, .. } in &code.selects {
            cases.iter().map(|case| case.next).chain([*default]).for_each(&mut begin);
        }
        places
    }
}

/// Functions that machine code calls.
struct Calls {
    step: FuncRef,
    apply: FuncRef,
    read: FuncRef,
    write: FuncRef,
    count: FuncRef,
}

pub(super) fn signature(module: &JITModule, parameters: &[Type], result: Option<Type>) -> Signature {
    let mut signature = module.make_signature();
    signature.params = parameters.iter().map(|&of| AbiParam::new(of)).collect();
    signature.returns = result.into_iter().map(AbiParam::new).collect();
    signature
}

struct Translator<'a, 'f> {
    builder: FunctionBuilder<'f>,
    code: &'a Code,
    program: &'a Parts<'a>,
    at: &'a Layouts,
    /// By place, where a block begins there.
    blocks: Vec<Option<Block>>,
    /// Goes to a place by its number.
    dispatch: Block,
    end: Block,
    calls: Calls,
    /// Machine words are stored with the least significant byte first.
    little: bool,
    context: Value,
    phv: Value,
    packet: Value,
    frame: Value,
    length: Value,
}

/// Limbs; the context and the packet; the frame: none of them reaches into another.
pub(super) fn limbs() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Heap))
}

fn fields() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Vmctx))
}

pub(super) fn bytes() -> MemFlags {
    let mut flags = MemFlags::new();
    flags.set_notrap();
    flags.with_alias_region(Some(AliasRegion::Table))
}

/// Makes the function of the whole code, and gives the number of each place that it can be told to go to; others have 0.
pub(super) fn translate(
    code: &Code,
    program: &Parts<'_>,
    at: &Layouts,
    module: &mut JITModule,
    function: &mut Function,
    room: &mut FunctionBuilderContext,
) -> Result<Box<[u32]>, String> {
    let pointer = module.target_config().pointer_type();
    if pointer != I64 {
        return Err("this machine's pointers have no 64 bits".into());
    }
    function.signature = signature(module, &[pointer, I32], None);
    let mut call = |name: &str, parameters: &[Type], result: Option<Type>| {
        let signature = signature(module, &[&[pointer], parameters].concat(), result);
        let id =
            module.declare_function(name, Linkage::Import, &signature).map_err(|error| error.to_string())?;
        Ok::<_, String>(module.declare_func_in_func(id, function))
    };
    let calls = Calls {
        step: call("step", &[I32], Some(I32))?,
        apply: call("apply", &[I32], Some(I32))?,
        read: call("read", &[I32, I32, I64], Some(I64))?,
        write: call("write", &[I32, I32, I64], None)?,
        count: call("count", &[I32, I32], None)?,
    };
    let mut builder = FunctionBuilder::new(function, room);
    let places = Places::of(code);
    let blocks: Vec<Option<Block>> =
        places.begins.iter().map(|begins| begins.then(|| builder.create_block())).collect();
    let (entry, dispatch, end) = (builder.create_block(), builder.create_block(), builder.create_block());
    builder.append_block_param(dispatch, I32);
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let (context, number) = (builder.block_params(entry)[0], builder.block_params(entry)[1]);
    let mut load = |at: usize| builder.ins().load(I64, fields().with_readonly(), context, at as i32);
    let (phv, packet, frame, length) = (load(at.phv), load(at.packet), load(at.frame), load(at.length));
    builder.ins().jump(dispatch, &[BlockArg::Value(number)]);
    // Number 0 and whatever is not there is the end.
    let mut numbers = vec![0; code.insns.len()].into_boxed_slice();
    let mut table = vec![BlockCall::new(end, [], &mut builder.func.dfg.value_lists)];
    for (place, _) in places.asked_for.iter().enumerate().filter(|(_, asked)| **asked) {
        numbers[place] = table.len() as u32;
        let block = blocks[place].unwrap_or(end);
        table.push(BlockCall::new(block, [], &mut builder.func.dfg.value_lists));
    }
    let table = builder.create_jump_table(JumpTableData::new(table[0], &table));
    builder.switch_to_block(dispatch);
    let number = builder.block_params(dispatch)[0];
    builder.ins().br_table(number, table);
    let little = module.isa().endianness() == Endianness::Little;
    let mut translator = Translator {
        builder,
        code,
        program,
        at,
        blocks,
        dispatch,
        end,
        calls,
        little,
        context,
        phv,
        packet,
        frame,
        length,
    };
    translator.all()?;
    translator.builder.switch_to_block(end);
    translator.builder.ins().return_(&[]);
    translator.builder.seal_all_blocks();
    translator.builder.finalize();
    Ok(numbers)
}

impl Translator<'_, '_> {
    fn all(&mut self) -> Result<(), String> {
        // Whether the packet comes to the next instruction from the one before.
        let mut open = false;
        for (place, insn) in (0..).zip(&self.code.insns) {
            if let Some(block) = self.blocks[place as usize] {
                if open {
                    self.builder.ins().jump(block, &[]);
                }
                self.builder.switch_to_block(block);
                open = true;
            }
            if open {
                open = self.insn(place, *insn)?;
            }
        }
        if open {
            self.builder.ins().jump(self.end, &[]);
        }
        Ok(())
    }

    /// Where `count` limbs from `at` on lie, in bytes.
    fn place_of(&self, at: u32, count: u32) -> Result<i32, String> {
        if at as usize + count as usize > self.code.frame.len() {
            return Err(format!("limb {} is outside the frame", u64::from(at) + u64::from(count) - 1));
        }
        i32::try_from(u64::from(at) * 8).map_err(|error| error.to_string())
    }

    fn limb(&mut self, at: u32) -> Result<Value, String> {
        let place = self.place_of(at, 1)?;
        if at as usize >= self.code.constants {
            let value = self.code.frame[at as usize];
            return Ok(self.builder.ins().iconst(I64, value as i64));
        }
        Ok(self.builder.ins().load(I64, limbs(), self.phv, place))
    }

    fn set(&mut self, at: u32, value: Value) -> Result<(), String> {
        let place = self.place_of(at, 1)?;
        if at as usize >= self.code.constants {
            return Err(format!("limb {at} is a constant"));
        }
        self.builder.ins().store(limbs(), value, self.phv, place);
        Ok(())
    }

    fn number(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value as i64)
    }

    /// The value without its `drop` highest bits.
    fn kept(&mut self, drop: u8, value: Value) -> Value {
        if drop & 63 == 0 {
            return value;
        }
        let mask = self.number(u64::MAX >> (drop & 63));
        self.builder.ins().band(value, mask)
    }

    /// The block of a place.
    fn to(&self, place: u32) -> Block {
        self.blocks.get(place as usize).copied().flatten().unwrap_or(self.end)
    }

    /// Goes to `to` where the condition holds, and on where it does not.
    fn go_if(&mut self, condition: Value, to: Block) {
        let next = self.builder.create_block();
        self.builder.ins().brif(condition, to, &[], next, &[]);
        self.builder.switch_to_block(next);
    }

    fn compare(&mut self, compare: IntCC, left: u32, right: u32) -> Result<Value, String> {
        let (left, right) = (self.limb(left)?, self.limb(right)?);
        Ok(self.builder.ins().icmp(compare, left, right))
    }

    /// The interpreter carries the instruction out; the number of the place to go on at.
    fn call(&mut self, place: u32) -> Value {
        let place = self.builder.ins().iconst(I32, i64::from(place));
        let call = self.builder.ins().call(self.calls.step, &[self.context, place]);
        self.builder.inst_results(call)[0]
    }

    fn dispatch(&mut self, number: Value) {
        self.builder.ins().jump(self.dispatch, &[BlockArg::Value(number)]);
    }

    /// The interpreter carries out an instruction behind which the packet may go on elsewhere.
    fn call_and_go(&mut self, place: u32) {
        let number = self.call(place);
        let usual = self.builder.ins().icmp_imm(IntCC::Equal, number, i64::from(AS_USUAL as i32));
        let (elsewhere, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(usual, next, &[], elsewhere, &[]);
        self.builder.switch_to_block(elsewhere);
        self.builder.set_cold_block(elsewhere);
        self.dispatch(number);
        self.builder.switch_to_block(next);
    }

    fn field(&mut self, at: usize) -> Value {
        self.builder.ins().load(I64, fields(), self.packet, at as i32)
    }

    fn exits(&mut self) -> Value {
        let exit = self.builder.ins().load(I8, fields(), self.packet, self.at.exit as i32);
        self.builder.ins().icmp_imm(IntCC::NotEqual, exit, 0)
    }

    fn go_back(&mut self) {
        let back = self.builder.ins().load(I32, fields(), self.context, self.at.back as i32);
        let back = self.builder.ins().uextend(I64, back);
        let numbers = self.builder.ins().load(I64, fields(), self.context, self.at.numbers as i32);
        let place = self.builder.ins().ishl_imm(back, 2);
        let place = self.builder.ins().iadd(numbers, place);
        let number = self.builder.ins().load(I32, fields(), place, 0);
        self.dispatch(number);
    }

    /// Whether the packet may come to the instruction behind this one.
    fn insn(&mut self, place: u32, insn: Insn) -> Result<bool, String> {
        match insn {
            Insn::Copy { to, from } => {
                let value = self.limb(from)?;
                self.set(to, value)?;
            }
            Insn::Low { drop, to, from } => {
                let value = self.limb(from)?;
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::CopyRun { count, to, from } if count <= MOST_COPIED => {
                for limb in 0..u32::from(count) {
                    let value = self.limb(from + limb)?;
                    self.set(to + limb, value)?;
                }
            }
            Insn::Bits { drop, shift, to, from } => {
                let value = self.limb(from)?;
                let value = self.builder.ins().ushr_imm(value, i64::from(shift & 63));
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Shifted { drop, shift, to, from } => {
                let value = self.limb(from)?;
                let value = self.builder.ins().ishl_imm(value, i64::from(shift & 63));
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Add { drop, to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().iadd(left, right);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Sub { drop, to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().isub(left, right);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Mul { drop, to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().imul(left, right);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::And { to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().band(left, right);
                self.set(to, value)?;
            }
            Insn::Or { drop, to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().bor(left, right);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Xor { drop, to, left, right } => {
                let (left, right) = (self.limb(left)?, self.limb(right)?);
                let value = self.builder.ins().bxor(left, right);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Not { drop, to, from } => {
                let value = self.limb(from)?;
                let value = self.builder.ins().bnot(value);
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::Saturate { width, from_signed, to, from } => {
                let value = self.limb(from)?;
                let most = self.number(u64::MAX >> (64 - width & 63));
                let mut least = self.builder.ins().umin(value, most);
                if from_signed {
                    let zero = self.number(0);
                    let negative = self.builder.ins().icmp(IntCC::SignedLessThan, value, zero);
                    least = self.builder.ins().select(negative, zero, least);
                }
                self.set(to, least)?;
            }
            Insn::Test { signed, compare, to, left, right } => {
                let holds = self.compare(condition(compare, signed), left, right)?;
                let holds = self.builder.ins().uextend(I64, holds);
                self.set(to, holds)?;
            }
            Insn::IfZero { to, value } => {
                let value = self.limb(value)?;
                let zero = self.builder.ins().icmp_imm(IntCC::Equal, value, 0);
                let to = self.to(to);
                self.go_if(zero, to);
            }
            Insn::IfNotZero { to, value } => {
                let value = self.limb(value)?;
                let to = self.to(to);
                self.go_if(value, to);
            }
            Insn::IfEqual { to, left, right } => self.branch(IntCC::Equal, to, left, right)?,
            Insn::IfUnequal { to, left, right } => self.branch(IntCC::NotEqual, to, left, right)?,
            Insn::IfLess { to, left, right } => self.branch(IntCC::UnsignedLessThan, to, left, right)?,
            Insn::IfNotLess { to, left, right } => {
                self.branch(IntCC::UnsignedGreaterThanOrEqual, to, left, right)?;
            }
            Insn::Branch { compare, to, left, right } => {
                self.branch(condition(compare, true), to, left, right)?;
            }
            Insn::Jump { to } => {
                let to = self.to(to);
                self.builder.ins().jump(to, &[]);
                return Ok(false);
            }
            Insn::Loop { to } => {
                let taken = i64::from(place + 1 - to);
                let fuel = self.builder.ins().load(I32, fields(), self.context, self.at.fuel as i32);
                let too_little = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, fuel, taken);
                let out = self.builder.create_block();
                self.go_if(too_little, out);
                let left = self.builder.ins().iadd_imm(fuel, -taken);
                self.builder.ins().store(fields(), left, self.context, self.at.fuel as i32);
                let to = self.to(to);
                self.builder.ins().jump(to, &[]);
                self.builder.switch_to_block(out);
                self.builder.set_cold_block(out);
                let number = self.call(place);
                self.dispatch(number);
                return Ok(false);
            }
            Insn::State { .. } => {
                let left = self.builder.ins().load(I64, fields(), self.context, self.at.transitions as i32);
                let (none, some) = (self.builder.create_block(), self.builder.create_block());
                self.builder.ins().brif(left, some, &[], none, &[]);
                self.builder.switch_to_block(none);
                self.builder.set_cold_block(none);
                let number = self.call(place);
                self.dispatch(number);
                self.builder.switch_to_block(some);
                let left = self.builder.ins().iadd_imm(left, -1);
                self.builder.ins().store(fields(), left, self.context, self.at.transitions as i32);
            }
            Insn::End => {
                self.builder.ins().jump(self.end, &[]);
                return Ok(false);
            }
            Insn::EndIfExit => {
                let exit = self.exits();
                self.go_if(exit, self.end);
            }
            Insn::Return => {
                self.go_back();
                return Ok(false);
            }
            Insn::ReturnUnlessExit => {
                let exit = self.exits();
                self.go_if(exit, self.end);
                self.go_back();
                return Ok(false);
            }
            Insn::Apply { table } => {
                let table = self.builder.ins().iconst(I32, i64::from(table));
                let call = self.builder.ins().call(self.calls.apply, &[self.context, table]);
                let number = self.builder.inst_results(call)[0];
                self.dispatch(number);
                return Ok(false);
            }
            Insn::SelectSet { .. } => {
                let number = self.call(place);
                if let Some(next) = self.blocks.get(place as usize + 1).copied().flatten() {
                    let usual = self.builder.ins().icmp_imm(IntCC::Equal, number, i64::from(AS_USUAL as i32));
                    self.go_if(usual, next);
                }
                self.dispatch(number);
                return Ok(false);
            }
            Insn::ReadRegister { drop, to, register, index } => {
                let (register, index) =
                    (self.builder.ins().iconst(I32, i64::from(register)), self.index(index)?);
                let otherwise = self.limb(to)?;
                let call =
                    self.builder.ins().call(self.calls.read, &[self.context, register, index, otherwise]);
                let value = self.builder.inst_results(call)[0];
                let value = self.kept(drop, value);
                self.set(to, value)?;
            }
            Insn::WriteRegister { register, index, value } => {
                let (register, index) =
                    (self.builder.ins().iconst(I32, i64::from(register)), self.index(index)?);
                let value = self.limb(value)?;
                self.builder.ins().call(self.calls.write, &[self.context, register, index, value]);
            }
            Insn::Count { counter, index } => {
                let (counter, index) =
                    (self.builder.ins().iconst(I32, i64::from(counter)), self.index(index)?);
                self.builder.ins().call(self.calls.count, &[self.context, counter, index]);
            }
            Insn::Verify { checksum } => self.verify(place, checksum)?,
            Insn::Update { checksum } => self.update(place, checksum)?,
            Insn::Select { select } => {
                let Select { key, cases, default } = &self.code.selects[select as usize];
                let key = self.limb(*key)?;
                for case in cases {
                    let masked = match case.mask {
                        u64::MAX => key,
                        mask => {
                            let mask = self.number(mask);
                            self.builder.ins().band(key, mask)
                        }
                    };
                    let value = self.number(case.value);
                    let fits = self.builder.ins().icmp(IntCC::Equal, masked, value);
                    let to = self.to(case.next);
                    self.go_if(fits, to);
                }
                let to = self.to(*default);
                self.builder.ins().jump(to, &[]);
                return Ok(false);
            }
            Insn::Extract { header } => self.extract(place, header)?,
            Insn::Exit => {
                let exit = self.builder.ins().iconst(I8, 1);
                self.builder.ins().store(fields(), exit, self.packet, self.at.exit as i32);
            }
            // Whatever the parser may reject.
            Insn::ExtractNext { .. }
            | Insn::ExtractVariable { .. }
            | Insn::ExtractNextVariable { .. }
            | Insn::ExtractNextMember { .. }
            | Insn::Lookahead { .. }
            | Insn::Advance { .. }
            | Insn::Reject { .. } => self.call_and_go(place),
            _ => _ = self.call(place),
        }
        Ok(true)
    }

    fn branch(&mut self, compare: IntCC, to: u32, left: u32, right: u32) -> Result<(), String> {
        let holds = self.compare(compare, left, right)?;
        let to = self.to(to);
        self.go_if(holds, to);
        Ok(())
    }

    /// The low 32 bits, as BMv2 converts to an index.
    fn index(&mut self, at: u32) -> Result<Value, String> {
        let value = self.limb(at)?;
        Ok(self.builder.ins().ireduce(I32, value))
    }

    /// The value of a checksum over limbs of known headers. `otherwise` is where it goes if one of them is left out; `None` if it is not of that kind.
    fn sum(&mut self, checksum: &Checksum, otherwise: Block) -> Result<Option<Value>, String> {
        let Some(sum) = self.program.calculations[checksum.calculation as usize].sum_of_limbs() else {
            return Ok(None);
        };
        if checksum.target.signed {
            return Ok(None);
        }
        for &valid in &sum.valid {
            let valid = self.limb(valid as u32)?;
            let next = self.builder.create_block();
            self.builder.ins().brif(valid, next, &[], otherwise, &[]);
            self.builder.switch_to_block(next);
        }
        for &absent in &sum.absent {
            let there = self.limb(absent as u32)?;
            self.go_if(there, otherwise);
        }
        let mut all = self.number(sum.constant);
        for &(limb, shift) in &sum.narrow {
            let limb = self.limb(limb)?;
            let limb = self.builder.ins().ishl_imm(limb, i64::from(shift & 15));
            all = self.builder.ins().iadd(all, limb);
        }
        for &(limb, shift) in &sum.wide {
            let limb = self.limb(limb)?;
            let low = self.kept(32, limb);
            let low = self.builder.ins().ishl_imm(low, i64::from(shift));
            let high = self.builder.ins().ushr_imm(limb, 32);
            let high = self.builder.ins().ishl_imm(high, i64::from(shift));
            let both = self.builder.ins().iadd(low, high);
            all = self.builder.ins().iadd(all, both);
        }
        // 64 bits to 33, 18, 17 and 16: what is not 0 stays so, as in `fold`.
        for bits in [32, 16, 16, 16] {
            let low = self.kept(64 - bits, all);
            let high = self.builder.ins().ushr_imm(all, i64::from(bits));
            all = self.builder.ins().iadd(low, high);
        }
        let value = self.builder.ins().bnot(all);
        Ok(Some(self.kept(48, value)))
    }

    fn verify(&mut self, place: u32, number: u32) -> Result<(), String> {
        let checksum = &self.program.checksums[number as usize];
        let (slow, next) = (self.builder.create_block(), self.builder.create_block());
        let found = self.builder.ins().load(I8, fields(), self.packet, self.at.checksum_error as i32);
        self.go_if(found, next);
        let header = &self.program.layout.headers[checksum.header as usize];
        if !header.metadata {
            let valid = self.limb(header.valid() as u32)?;
            let there = self.builder.create_block();
            self.builder.ins().brif(valid, there, &[], next, &[]);
            self.builder.switch_to_block(there);
        }
        if let Some(sum) = self.sum(checksum, slow)? {
            let held = self.limb(checksum.target.at)?;
            let wrong = self.builder.ins().icmp(IntCC::NotEqual, held, sum);
            self.builder.ins().store(fields(), wrong, self.packet, self.at.checksum_error as i32);
            self.builder.ins().jump(next, &[]);
        } else {
            self.builder.ins().jump(slow, &[]);
        }
        self.slowly(place, slow, next);
        Ok(())
    }

    fn update(&mut self, place: u32, number: u32) -> Result<(), String> {
        let checksum = &self.program.checksums[number as usize];
        let (slow, next) = (self.builder.create_block(), self.builder.create_block());
        if let Some(sum) = self.sum(checksum, slow)? {
            let sum = self.kept((64 - checksum.target.width) as u8, sum);
            self.set(checksum.target.at, sum)?;
            self.builder.ins().jump(next, &[]);
        } else {
            self.builder.ins().jump(slow, &[]);
        }
        self.slowly(place, slow, next);
        Ok(())
    }

    /// In `slow` the interpreter carries the instruction out; then the packet goes to `next`, where translation goes on.
    fn slowly(&mut self, place: u32, slow: Block, next: Block) {
        self.builder.switch_to_block(slow);
        self.builder.set_cold_block(slow);
        self.call(place);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
    }

    fn extract(&mut self, place: u32, number: u32) -> Result<(), String> {
        let header = &self.program.layout.headers[number as usize];
        let (Some(words), None) = (&header.words, header.length) else {
            self.call_and_go(place);
            return Ok(());
        };
        // Words are read eight bytes at a time: the last bytes of a packet are the interpreter's.
        let bytes_left = i64::from(header.fixed_bits / 8) + 7;
        let at = self.field(self.at.payload_at);
        let end = self.builder.ins().iadd_imm(at, bytes_left);
        let enough = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, self.length);
        let (fast, slow, next) =
            (self.builder.create_block(), self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(enough, fast, &[], slow, &[]);
        self.builder.switch_to_block(slow);
        self.builder.set_cold_block(slow);
        self.call_and_go(place);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(fast);
        let from = self.builder.ins().iadd(self.frame, at);
        for (byte, _, parts) in words.windows() {
            let window = self.builder.ins().load(I64, bytes(), from, byte as i32);
            let window = if self.little { self.builder.ins().bswap(window) } else { window };
            for part in parts {
                let value = self.builder.ins().ushr_imm(window, i64::from(part.shift & 63));
                let value = self.kept(part.drop, value);
                self.set(part.limb, value)?;
            }
        }
        let zero = self.number(0);
        for &flag in &header.unsigned_flags {
            self.set(flag as u32, zero)?;
        }
        let siblings = header.union.map_or(&[][..], |union| &self.program.layout.unions[union as usize]);
        for &sibling in siblings {
            self.set(self.program.layout.headers[sibling as usize].valid() as u32, zero)?;
        }
        let one = self.number(1);
        self.set(header.valid() as u32, one)?;
        let behind = self.builder.ins().iadd_imm(at, i64::from(header.fixed_bits / 8));
        self.builder.ins().store(fields(), behind, self.packet, self.at.payload_at as i32);
        let extracted = self.field(self.at.extracted);
        let own = self.number(1 << (number & 63));
        let extracted = self.builder.ins().bor(extracted, own);
        self.builder.ins().store(fields(), extracted, self.packet, self.at.extracted as i32);
        self.builder.ins().jump(next, &[]);
        self.builder.switch_to_block(next);
        Ok(())
    }
}

fn condition(compare: Compare, signed: bool) -> IntCC {
    match (compare, signed) {
        (Compare::Eq, _) => IntCC::Equal,
        (Compare::Ne, _) => IntCC::NotEqual,
        (Compare::Lt, false) => IntCC::UnsignedLessThan,
        (Compare::Le, false) => IntCC::UnsignedLessThanOrEqual,
        (Compare::Gt, false) => IntCC::UnsignedGreaterThan,
        (Compare::Ge, false) => IntCC::UnsignedGreaterThanOrEqual,
        (Compare::Lt, true) => IntCC::SignedLessThan,
        (Compare::Le, true) => IntCC::SignedLessThanOrEqual,
        (Compare::Gt, true) => IntCC::SignedGreaterThan,
        (Compare::Ge, true) => IntCC::SignedGreaterThanOrEqual,
    }
}
