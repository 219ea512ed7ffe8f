// SPDX-License-Identifier: Apache-2.0
//! Limbs into words and back as machine code: what the flow cache does with each packet.
#![expect(unsafe_code, reason = "machine code is called through a pointer")]

use super::super::flow_cache::packing::Packing;
use super::module::{Memory, bytes, define, limbs, new_module, signature};
use cranelift_codegen::Context as Compilation;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Function, InstBuilder as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;
use cranelift_module::FuncId;

/// Limbs of a plan: where there are more, compiling would hold packets up.
const MOST_PACKED: usize = 1 << 10;

type Take = unsafe extern "C" fn(*const u64, *mut u64) -> u64;
type Put = unsafe extern "C" fn(*const u64, *mut u64);

/// A flow cache's plan as machine code.
pub(crate) struct NativePacking {
    take: Take,
    /// Words that `take` fills.
    words: usize,
    /// By result, with the words that it reads.
    puts: Vec<(Put, usize)>,
    /// Limbs of the frame that they work on, at least.
    limbs: usize,
    _memory: Memory,
}

impl std::fmt::Debug for NativePacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativePacking").field("words", &self.words).finish_non_exhaustive()
    }
}

impl NativePacking {
    /// Of what is taken as a key, and what is put back as a result; `None` where nothing can be
    /// compiled, or it would take long.
    pub(crate) fn compile(key: &Packing, results: &[Packing]) -> Option<Self> {
        let all =
            || std::iter::once(key).chain(results).flat_map(Packing::parts).flat_map(|(_, limbs)| limbs);
        if all().count() > MOST_PACKED {
            return None;
        }
        let limbs = all().max().map_or(0, |limb| *limb as usize + 1);
        let mut module = new_module(&[]).ok()?;
        let Ok((take, puts)) = Self::define(key, results, &mut module) else {
            drop(Memory::new(module));
            return None;
        };
        // SAFETY: these are the functions' signatures.
        let take = unsafe { std::mem::transmute::<*const u8, Take>(take) };
        let put = |put| unsafe { std::mem::transmute::<*const u8, Put>(put) };
        let puts = puts.into_iter().map(put).zip(results.iter().map(Packing::words)).collect();
        Some(Self { take, words: key.words(), puts, limbs, _memory: Memory::new(module) })
    }

    fn define(
        key: &Packing,
        results: &[Packing],
        module: &mut JITModule,
    ) -> Result<(*const u8, Vec<*const u8>), String> {
        let (mut room, mut compilation) = (FunctionBuilderContext::new(), Compilation::new());
        take_function(key, module, &mut compilation.func, &mut room)?;
        let take = define("take", module, &mut compilation)?;
        let mut puts = Vec::new();
        for (number, result) in results.iter().enumerate() {
            put_function(result, module, &mut compilation.func, &mut room)?;
            puts.push(define(&format!("put{number}"), module, &mut compilation)?);
        }
        module.finalize_definitions().map_err(|error| error.to_string())?;
        let address = |function: FuncId| module.get_finalized_function(function);
        Ok((address(take), puts.into_iter().map(address).collect()))
    }

    /// [`Packing::take`] of the key.
    pub(crate) fn take(&self, phv: &[u64], words: &mut [u64]) -> bool {
        assert!(phv.len() >= self.limbs && words.len() >= self.words, "a frame and a key of this program");
        // SAFETY: it reads limbs and writes words that are there.
        unsafe { (self.take)(phv.as_ptr(), words.as_mut_ptr()) == 0 }
    }

    /// [`Packing::put`] of a result, by number.
    pub(crate) fn put(&self, result: usize, words: &[u64], phv: &mut [u64]) {
        let (put, least) = self.puts[result];
        assert!(phv.len() >= self.limbs && words.len() >= least, "a frame and a result of this program");
        // SAFETY: it reads words and writes limbs that are there.
        unsafe { put(words.as_ptr(), phv.as_mut_ptr()) };
    }
}

fn place(at: usize) -> Result<i32, String> {
    i32::try_from(at * 8).map_err(|error| error.to_string())
}

/// Makes the function of a frame and words that takes limbs of the frame, and gives what of them
/// did not fit.
fn take_function(
    packing: &Packing,
    module: &JITModule,
    function: &mut Function,
    room: &mut FunctionBuilderContext,
) -> Result<(), String> {
    function.signature = signature(module, &[I64, I64], Some(I64));
    let mut builder = FunctionBuilder::new(function, room);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [phv, words] = [0, 1].map(|number| builder.block_params(entry)[number]);
    let mut beyond = builder.ins().iconst(I64, 0);
    for (word, (bits, limbs_of)) in packing.parts().enumerate() {
        let mut packed = builder.ins().iconst(I64, 0);
        let mut all = packed;
        for (number, limb) in (0..).zip(limbs_of) {
            let limb = builder.ins().load(I64, limbs(), phv, place(*limb as usize)?);
            let shifted = builder.ins().ishl_imm(limb, i64::from(bits * number));
            packed = builder.ins().bor(packed, shifted);
            all = builder.ins().bor(all, limb);
        }
        builder.ins().store(bytes(), packed, words, place(word)?);
        if bits < 64 {
            let all = builder.ins().ushr_imm(all, i64::from(bits));
            beyond = builder.ins().bor(beyond, all);
        }
    }
    builder.ins().return_(&[beyond]);
    builder.seal_all_blocks();
    builder.finalize();
    Ok(())
}

/// Makes the function of words and a frame that puts the limbs back.
fn put_function(
    packing: &Packing,
    module: &JITModule,
    function: &mut Function,
    room: &mut FunctionBuilderContext,
) -> Result<(), String> {
    function.signature = signature(module, &[I64, I64], None);
    let mut builder = FunctionBuilder::new(function, room);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [words, phv] = [0, 1].map(|number| builder.block_params(entry)[number]);
    for (word, (bits, limbs_of)) in packing.parts().enumerate() {
        let packed = builder.ins().load(I64, bytes(), words, place(word)?);
        for (number, limb) in (0..).zip(limbs_of) {
            let value = builder.ins().ushr_imm(packed, i64::from(bits * number));
            let value = builder.ins().band_imm(value, (u64::MAX >> (64 - bits)).cast_signed());
            builder.ins().store(limbs(), value, phv, place(*limb as usize)?);
        }
    }
    builder.ins().return_(&[]);
    builder.seal_all_blocks();
    builder.finalize();
    Ok(())
}
