// SPDX-License-Identifier: Apache-2.0
//! Instructions to Cranelift's.

use super::super::code::Code;
use super::module::{fields, limbs, signature};
use super::parts::Parts;
use super::places::Places;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I32, I64};
use cranelift_codegen::ir::{
    Block, BlockArg, BlockCall, Endianness, FuncRef, Function, InstBuilder as _, JumpTableData, Type, Value,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;
use cranelift_module::{Linkage, Module as _};

/// What a step gives where the packet goes on behind it.
pub(super) const AS_USUAL: u32 = u32::MAX;

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

/// Functions that machine code calls.
pub(super) struct Calls {
    pub(super) step: FuncRef,
    pub(super) apply: FuncRef,
    pub(super) apply_word: FuncRef,
    pub(super) read: FuncRef,
    pub(super) write: FuncRef,
    pub(super) count: FuncRef,
    pub(super) hash: FuncRef,
}

pub(super) struct Translator<'a, 'f> {
    pub(super) builder: FunctionBuilder<'f>,
    pub(super) code: &'a Code,
    pub(super) program: &'a Parts<'a>,
    pub(super) at: &'a Layouts,
    /// By place, where a block begins there.
    pub(super) blocks: Vec<Option<Block>>,
    /// Goes to a place by its number.
    pub(super) dispatch: Block,
    pub(super) end: Block,
    pub(super) calls: Calls,
    /// Machine words are stored with the least significant byte first.
    pub(super) little: bool,
    pub(super) context: Value,
    pub(super) phv: Value,
    pub(super) packet: Value,
    pub(super) frame: Value,
    pub(super) length: Value,
}

/// Makes the function of the whole code, and gives the number of each place that it can be told to
/// go to; others, and one behind the last, have 0.
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
        apply_word: call("apply_word", &[I32, I64], Some(I32))?,
        read: call("read", &[I32, I32, I32, I64], Some(I64))?,
        write: call("write", &[I32, I32, I32, I64], None)?,
        count: call("count", &[I32, I32], None)?,
        hash: call("hash", &[I32, pointer, pointer], Some(I64))?,
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
    let mut numbers = vec![0; code.insns.len() + 1].into_boxed_slice();
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

    pub(super) fn limb(&mut self, at: u32) -> Result<Value, String> {
        let place = self.place_of(at, 1)?;
        if at as usize >= self.code.constants {
            let value = self.code.frame[at as usize];
            return Ok(self.builder.ins().iconst(I64, value as i64));
        }
        Ok(self.builder.ins().load(I64, limbs(), self.phv, place))
    }

    pub(super) fn set(&mut self, at: u32, value: Value) -> Result<(), String> {
        let place = self.place_of(at, 1)?;
        if at as usize >= self.code.constants {
            return Err(format!("limb {at} is a constant"));
        }
        self.builder.ins().store(limbs(), value, self.phv, place);
        Ok(())
    }

    pub(super) fn number(&mut self, value: u64) -> Value {
        self.builder.ins().iconst(I64, value as i64)
    }

    /// The value without its `drop` highest bits.
    pub(super) fn kept(&mut self, drop: u8, value: Value) -> Value {
        let mask = match drop & 63 {
            0 => return value,
            drop => self.number(u64::MAX >> drop),
        };
        self.builder.ins().band(value, mask)
    }

    /// The block of a place.
    pub(super) fn to(&self, place: u32) -> Block {
        self.blocks.get(place as usize).copied().flatten().unwrap_or(self.end)
    }

    /// Goes to `to` where the condition holds, and on where it does not.
    pub(super) fn go_if(&mut self, condition: Value, to: Block) {
        let next = self.builder.create_block();
        self.builder.ins().brif(condition, to, &[], next, &[]);
        self.builder.switch_to_block(next);
    }

    pub(super) fn compare(&mut self, compare: IntCC, left: u32, right: u32) -> Result<Value, String> {
        let (left, right) = (self.limb(left)?, self.limb(right)?);
        Ok(self.builder.ins().icmp(compare, left, right))
    }

    /// The interpreter carries the instruction out; the number of the place to go on at.
    pub(super) fn call(&mut self, place: u32) -> Value {
        let place = self.builder.ins().iconst(I32, i64::from(place));
        let call = self.builder.ins().call(self.calls.step, &[self.context, place]);
        self.builder.inst_results(call)[0]
    }

    pub(super) fn dispatch(&mut self, number: Value) {
        self.builder.ins().jump(self.dispatch, &[BlockArg::Value(number)]);
    }

    /// The interpreter carries out an instruction behind which the packet may go on elsewhere.
    pub(super) fn call_and_go(&mut self, place: u32) {
        let number = self.call(place);
        let usual = self.builder.ins().icmp_imm(IntCC::Equal, number, i64::from(AS_USUAL as i32));
        let (elsewhere, next) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(usual, next, &[], elsewhere, &[]);
        self.builder.switch_to_block(elsewhere);
        self.builder.set_cold_block(elsewhere);
        self.dispatch(number);
        self.builder.switch_to_block(next);
    }

    pub(super) fn field(&mut self, at: usize) -> Value {
        self.builder.ins().load(I64, fields(), self.packet, at as i32)
    }

    pub(super) fn exits(&mut self) -> Value {
        let exit = self.builder.ins().load(I8, fields(), self.packet, self.at.exit as i32);
        self.builder.ins().icmp_imm(IntCC::NotEqual, exit, 0)
    }

    pub(super) fn go_back(&mut self) {
        let back = self.builder.ins().load(I32, fields(), self.context, self.at.back as i32);
        let back = self.builder.ins().uextend(I64, back);
        let numbers = self.builder.ins().load(I64, fields(), self.context, self.at.numbers as i32);
        let place = self.builder.ins().ishl_imm(back, 2);
        let place = self.builder.ins().iadd(numbers, place);
        let number = self.builder.ins().load(I32, fields(), place, 0);
        self.dispatch(number);
    }
}
