// SPDX-License-Identifier: Apache-2.0
//! The deparser as machine code: all valid headers in one function.

use super::super::code::Code;
use super::module::{bytes, limbs, signature};
use super::parts::Parts;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64, Type};
use cranelift_codegen::ir::{BlockArg, Endianness, Function, InstBuilder as _};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::JITModule;
use cranelift_module::Module as _;

/// Makes the function of a frame, bytes and their length: whether the valid headers fill them,
/// which it writes as far as they do.
pub(super) fn write_headers(
    code: &Code,
    program: &Parts<'_>,
    module: &JITModule,
    function: &mut Function,
    room: &mut FunctionBuilderContext,
) -> Result<(), String> {
    function.signature = signature(module, &[I64, I64, I64], Some(I32));
    let little = module.isa().endianness() == Endianness::Little;
    let mut builder = FunctionBuilder::new(function, room);
    let (entry, wrong) = (builder.create_block(), builder.create_block());
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let [phv, data, length] = [0, 1, 2].map(|number| builder.block_params(entry)[number]);
    let place_of = |limb: u32| {
        let inside = (limb as usize) < code.frame.len();
        let place = i32::try_from(u64::from(limb) * 8).ok().filter(|_| inside);
        place.ok_or_else(|| format!("limb {limb} is outside the frame"))
    };
    let mut at = builder.ins().iconst(I64, 0);
    for header in program.deparser.order() {
        let header = &program.layout.headers[header as usize];
        let valid = builder.ins().load(I64, limbs(), phv, place_of(header.valid() as u32)?);
        let (there, next) = (builder.create_block(), builder.create_block());
        builder.append_block_param(next, I64);
        builder.ins().brif(valid, there, &[], next, &[BlockArg::Value(at)]);
        builder.switch_to_block(there);
        let Some(words) = &header.words else {
            builder.ins().jump(wrong, &[]);
            builder.switch_to_block(next);
            at = builder.block_params(next)[0];
            continue;
        };
        let end = builder.ins().iadd_imm(at, words.bytes() as i64);
        let room = builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, end, length);
        let inside = builder.create_block();
        builder.ins().brif(room, inside, &[], wrong, &[]);
        builder.switch_to_block(inside);
        let to = builder.ins().iadd(data, at);
        for (byte, count, parts) in words.windows() {
            let mut window = builder.ins().iconst(I64, 0);
            for part in parts {
                let limb = builder.ins().load(I64, limbs(), phv, place_of(part.limb)?);
                let limb = builder.ins().band_imm(limb, (u64::MAX >> (part.drop & 63)) as i64);
                let limb = builder.ins().ishl_imm(limb, i64::from(part.shift & 63));
                window = builder.ins().bor(window, limb);
            }
            // The word's bytes and no more, from its most significant one on.
            let mut done = 0;
            while done < count {
                let bytes_here = [8, 4, 2, 1].into_iter().find(|here| *here <= count - done).unwrap_or(1);
                let value = builder.ins().ushr_imm(window, i64::from(64 - 8 * (done + bytes_here)));
                let of = Type::int(bytes_here as u16 * 8).unwrap_or(I64);
                let value = if of == I64 { value } else { builder.ins().ireduce(of, value) };
                let value = if little && bytes_here > 1 { builder.ins().bswap(value) } else { value };
                builder.ins().store(bytes(), value, to, (byte + done) as i32);
                done += bytes_here;
            }
        }
        builder.ins().jump(next, &[BlockArg::Value(end)]);
        builder.switch_to_block(next);
        at = builder.block_params(next)[0];
    }
    let all = builder.ins().icmp(IntCC::Equal, at, length);
    let all = builder.ins().uextend(I32, all);
    builder.ins().return_(&[all]);
    builder.switch_to_block(wrong);
    let no = builder.ins().iconst(I32, 0);
    builder.ins().return_(&[no]);
    builder.seal_all_blocks();
    builder.finalize();
    Ok(())
}
