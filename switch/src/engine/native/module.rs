// SPDX-License-Identifier: Apache-2.0
//! Functions of machine code: where they are made, how they are called, and what they may alias.
#![expect(unsafe_code, reason = "machine code's memory is freed by hand")]

use cranelift_codegen::Context as Compilation;
use cranelift_codegen::ir::{AbiParam, AliasRegion, MemFlags, Signature, Type};
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module as _, default_libcall_names};
use std::sync::Mutex;

/// Machine code, which goes when this does.
pub(super) struct Memory(Mutex<Option<JITModule>>);

impl Memory {
    pub(super) fn new(module: JITModule) -> Self {
        Self(Mutex::new(Some(module)))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let module = self.0.get_mut().ok().and_then(Option::take);
        // SAFETY: nobody runs it: whoever does holds a reference to what owns this, and before that
        // nothing of it was run.
        module.into_iter().for_each(|module| unsafe { module.free_memory() });
    }
}

/// An empty module for functions that may call these, by name.
pub(super) fn new_module(calls: &[(&str, *const ())]) -> Result<JITModule, String> {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("enable_verifier", "false"), ("is_pic", "false")] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags));
    let isa = isa.map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    calls.iter().for_each(|(name, call)| _ = builder.symbol(*name, call.cast()));
    Ok(JITModule::new(builder))
}

/// Makes the function that was written into `compilation`, which is empty then.
pub(super) fn define(
    name: &str,
    module: &mut JITModule,
    compilation: &mut Compilation,
) -> Result<FuncId, String> {
    let text = |error: cranelift_module::ModuleError| error.to_string();
    let function =
        module.declare_function(name, Linkage::Local, &compilation.func.signature).map_err(text)?;
    module.define_function(function, compilation).map_err(text)?;
    module.clear_context(compilation);
    Ok(function)
}

pub(super) fn signature(module: &JITModule, parameters: &[Type], result: Option<Type>) -> Signature {
    let mut signature = module.make_signature();
    signature.params = parameters.iter().map(|&of| AbiParam::new(of)).collect();
    signature.returns = result.into_iter().map(AbiParam::new).collect();
    signature
}

/// Limbs; the context and the packet; the frame: none of them reaches into another.
pub(super) fn limbs() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Heap))
}

pub(super) fn fields() -> MemFlags {
    MemFlags::trusted().with_alias_region(Some(AliasRegion::Vmctx))
}

pub(super) fn bytes() -> MemFlags {
    let mut flags = MemFlags::new();
    flags.set_notrap();
    flags.with_alias_region(Some(AliasRegion::Table))
}
