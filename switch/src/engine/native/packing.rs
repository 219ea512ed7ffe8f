// SPDX-License-Identifier: Apache-2.0
//! Limbs into words and back as machine code: what the flow cache does with each packet.

use super::super::flow_cache::Packing;
use super::translate::{bytes, limbs, signature};
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{Function, InstBuilder as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;

/// Limbs of a plan: where there are more, compiling would hold packets up.
pub(super) const MOST_PACKED: usize = 1 << 10;

fn place(at: usize) -> Result<i32, String> {
    i32::try_from(at * 8).map_err(|error| error.to_string())
}

/// Makes the function of a frame and words that takes limbs of the frame, and gives what of them did not fit.
pub(super) fn take(
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
pub(super) fn put(
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
