// SPDX-License-Identifier: Apache-2.0
//! The way into machine code and out of it: the engine's only unsafe code.
#![expect(unsafe_code, reason = "machine code has raw pointers and is called through one")]

use super::super::code::Code;
use super::super::flow_cache::{Packing, Resume};
use super::super::machine::{Going, Machine};
use super::super::packet::Packet;
use super::headers::write_headers;
use super::packing::{self, MOST_PACKED};
use super::translate::{AS_USUAL, Layouts, translate};
use super::{MOST_INSTRUCTIONS, Parts};
use cranelift_codegen::Context as Compilation;
use cranelift_codegen::settings::{self, Configurable as _};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module as _, default_libcall_names};
use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::Mutex;

/// Everything that machine code touches, for as long as it runs.
#[repr(C)]
struct Context {
    phv: *mut u64,
    limbs: usize,
    frame: *const u8,
    length: usize,
    packet: *mut Packet,
    /// A [`Machine`], of whatever lifetime.
    machine: *mut c_void,
    /// By place: its number among those that machine code can be told to go to. One more than there are places.
    numbers: *const u32,
    places: usize,
    going: Going,
}

/// Where the fields lie that machine code reads and writes.
const LAYOUTS: Layouts = Layouts {
    phv: offset_of!(Context, phv),
    frame: offset_of!(Context, frame),
    length: offset_of!(Context, length),
    packet: offset_of!(Context, packet),
    numbers: offset_of!(Context, numbers),
    back: offset_of!(Context, going) + offset_of!(Going, back),
    fuel: offset_of!(Context, going) + offset_of!(Going, fuel),
    transitions: offset_of!(Context, going) + offset_of!(Going, transitions),
    payload_at: offset_of!(Packet, payload_at),
    extracted: offset_of!(Packet, extracted),
    exit: offset_of!(Packet, exit),
    checksum_error: offset_of!(Packet, checksum_error),
};

type Run = unsafe extern "C" fn(*mut Context, u32);
type Headers = unsafe extern "C" fn(*const u64, *mut u8, usize) -> u32;

/// A program's machine code.
pub(crate) struct Native {
    run: Run,
    headers: Headers,
    numbers: Box<[u32]>,
    /// Limbs of the frame that it runs on.
    limbs: usize,
    _memory: Memory,
}

impl std::fmt::Debug for Native {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Native").field("places", &self.numbers.len()).finish_non_exhaustive()
    }
}

/// Machine code, which goes when this does.
struct Memory(Mutex<Option<JITModule>>);

impl Memory {
    fn new(module: JITModule) -> Self {
        Self(Mutex::new(Some(module)))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let module = self.0.get_mut().ok().and_then(Option::take);
        // SAFETY: nobody runs it: whoever does holds a reference to what owns this, and before that nothing of it was run.
        module.into_iter().for_each(|module| unsafe { module.free_memory() });
    }
}

/// An empty module for functions that may call [`CALLS`].
fn new_module() -> Result<JITModule, String> {
    let mut flags = settings::builder();
    for (name, value) in [("opt_level", "speed"), ("enable_verifier", "false"), ("is_pic", "false")] {
        flags.set(name, value).map_err(|error| error.to_string())?;
    }
    let isa = cranelift_native::builder()?.finish(settings::Flags::new(flags));
    let isa = isa.map_err(|error| error.to_string())?;
    let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
    CALLS.iter().for_each(|(name, call)| _ = builder.symbol(*name, call.cast()));
    Ok(JITModule::new(builder))
}

/// Makes the function that was written into `compilation`, which is empty then.
fn define(name: &str, module: &mut JITModule, compilation: &mut Compilation) -> Result<FuncId, String> {
    let text = |error: cranelift_module::ModuleError| error.to_string();
    let function =
        module.declare_function(name, Linkage::Local, &compilation.func.signature).map_err(text)?;
    module.define_function(function, compilation).map_err(text)?;
    module.clear_context(compilation);
    Ok(function)
}

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
    /// Of what is taken as a key, and what is put back as a result; `None` where nothing can be compiled, or it would take long.
    pub(crate) fn compile(key: &Packing, results: &[Packing]) -> Option<Self> {
        let all =
            || std::iter::once(key).chain(results).flat_map(Packing::parts).flat_map(|(_, limbs)| limbs);
        if all().count() > MOST_PACKED {
            return None;
        }
        let limbs = all().max().map_or(0, |limb| *limb as usize + 1);
        let mut module = new_module().ok()?;
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
        packing::take(key, module, &mut compilation.func, &mut room)?;
        let take = define("take", module, &mut compilation)?;
        let mut puts = Vec::new();
        for (number, result) in results.iter().enumerate() {
            packing::put(result, module, &mut compilation.func, &mut room)?;
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

/// What a context says, while machine code waits.
struct Waiting<'a> {
    machine: &'a mut Machine<'a>,
    going: &'a mut Going,
    phv: &'a mut [u64],
    packet: &'a mut Packet,
}

impl<'a> Waiting<'a> {
    /// # Safety
    /// `context` is one of [`Native::run`]'s, which has not returned, and nothing else is made of it for as long as this lives.
    unsafe fn of(context: *mut Context) -> (Self, &'a [u32]) {
        // SAFETY: `run` made all of this of references that it does not use until it returns, and machine code uses none while it waits.
        unsafe {
            let context = &mut *context;
            let waiting = Self {
                machine: &mut *context.machine.cast(),
                going: &mut context.going,
                phv: std::slice::from_raw_parts_mut(context.phv, context.limbs),
                packet: &mut *context.packet,
            };
            (waiting, std::slice::from_raw_parts(context.numbers, context.places))
        }
    }
}

/// The number of the place to go on at: 0 for the end.
fn number(numbers: &[u32], place: u32) -> u32 {
    numbers.get(place as usize).copied().unwrap_or(0)
}

/// Carries out the instruction at `place`, and gives the number of the place to go on at: [`AS_USUAL`] for the next one.
unsafe extern "C" fn step(context: *mut Context, place: u32) -> u32 {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, going, phv, packet }, numbers) = unsafe { Waiting::of(context) };
    match machine.step(place, going, phv, packet) {
        None => 0,
        Some(next) if next == place + 1 => AS_USUAL,
        Some(next) => number(numbers, next),
    }
}

/// The number of the place where a packet that meets a table goes on.
unsafe extern "C" fn apply(context: *mut Context, table: u32) -> u32 {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, going, phv, packet }, numbers) = unsafe { Waiting::of(context) };
    going.behind(machine.apply(table as usize, phv, packet), numbers)
}

/// The same of a table whose keys are one word together.
unsafe extern "C" fn apply_word(context: *mut Context, table: u32, key: u64) -> u32 {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, going, phv, packet }, numbers) = unsafe { Waiting::of(context) };
    going.behind(machine.apply_word(table as usize, key, phv, packet), numbers)
}

impl Going {
    /// The number of the place to go on at behind a table.
    fn behind(&mut self, (action, after): (Option<u32>, u32), numbers: &[u32]) -> u32 {
        if action.is_some() {
            // Machine code looks its number up, and checks nothing: the last one is the end.
            self.back = after.min(numbers.len() as u32 - 1);
        }
        number(numbers, action.unwrap_or(after))
    }
}

/// A register's cell, or `otherwise` where there is none.
unsafe extern "C" fn read(context: *mut Context, rows: u32, at: u32, index: u32, otherwise: u64) -> u64 {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, .. }, _) = unsafe { Waiting::of(context) };
    machine.control.arrays.word_at(rows, at, index).unwrap_or(otherwise)
}

unsafe extern "C" fn write(context: *mut Context, rows: u32, at: u32, index: u32, value: u64) {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, .. }, _) = unsafe { Waiting::of(context) };
    machine.control.arrays.set_word_at(rows, at, index, value);
}

unsafe extern "C" fn count(context: *mut Context, counter: u32, index: u32) {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, packet, .. }, _) = unsafe { Waiting::of(context) };
    machine.control.arrays.count(counter as usize, index, packet.ingress_length);
}

/// A calculation's output over so many bytes of machine code's own.
unsafe extern "C" fn hash(context: *mut Context, calculation: u32, bytes: *const u8, length: usize) -> u64 {
    // SAFETY: machine code passes its context, and waits.
    let (Waiting { machine, .. }, _) = unsafe { Waiting::of(context) };
    // SAFETY: it passes the beginning of bytes that it has written, as many as these.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    machine.program.calculations[calculation as usize].of_bytes(bytes)
}

/// What machine code calls, by name and type.
const CALLS: [(&str, *const ()); 7] = [
    ("step", step as *const ()),
    ("apply", apply as *const ()),
    ("apply_word", apply_word as *const ()),
    ("read", read as *const ()),
    ("write", write as *const ()),
    ("count", count as *const ()),
    ("hash", hash as *const ()),
];

impl Native {
    /// Compiles a program without the notes of a trace, or says why it is interpreted.
    pub(crate) fn compile(code: &Code, program: &Parts<'_>) -> Result<Self, String> {
        if code.insns.len() > MOST_INSTRUCTIONS {
            return Err(format!("it has {} instructions, more than {MOST_INSTRUCTIONS}", code.insns.len()));
        }
        let mut module = new_module()?;
        match Self::define(code, program, &mut module) {
            // SAFETY: these are the functions' signatures.
            Ok((numbers, [run, headers])) => Ok(Self {
                run: unsafe { std::mem::transmute::<*const u8, Run>(run) },
                headers: unsafe { std::mem::transmute::<*const u8, Headers>(headers) },
                numbers,
                limbs: code.frame.len(),
                _memory: Memory::new(module),
            }),
            Err(error) => {
                drop(Memory::new(module));
                Err(error)
            }
        }
    }

    /// Numbers of places, and the functions' addresses.
    fn define(
        code: &Code,
        program: &Parts<'_>,
        module: &mut JITModule,
    ) -> Result<(Box<[u32]>, [*const u8; 2]), String> {
        let mut room = FunctionBuilderContext::new();
        let mut compilation = Compilation::new();
        let numbers = translate(code, program, &LAYOUTS, module, &mut compilation.func, &mut room)?;
        let run = define("run", module, &mut compilation)?;
        write_headers(code, program, module, &mut compilation.func, &mut room)?;
        let headers = define("headers", module, &mut compilation)?;
        module.finalize_definitions().map_err(|error| error.to_string())?;
        Ok((numbers, [run, headers].map(|function| module.get_finalized_function(function))))
    }

    /// Writes the valid headers over the beginning of `data`, which is all theirs; `false` where they take more or less, or are not made of whole words:
    /// then what is there is undefined.
    pub(crate) fn write_headers(&self, phv: &[u64], data: &mut [u8]) -> bool {
        assert!(phv.len() >= self.limbs, "a frame of this program");
        // SAFETY: limbs were looked at when it was compiled, and no header is written that ends behind the length.
        unsafe { (self.headers)(phv.as_ptr(), data.as_mut_ptr(), data.len()) != 0 }
    }

    /// Runs the code that `machine` has, from `start` to its end.
    pub(crate) fn run(&self, machine: &mut Machine<'_>, start: Resume, phv: &mut [u64], packet: &mut Packet) {
        let number = self.numbers.get(start.place as usize).copied().unwrap_or(0);
        assert!(
            phv.len() >= self.limbs && number != 0,
            "a frame of this program, and a place where its code begins"
        );
        let last = self.numbers.len() as u32 - 1;
        let going = Going { back: start.back.min(last), ..Going::new(start, packet) };
        let mut context = Context {
            limbs: phv.len(),
            phv: phv.as_mut_ptr(),
            frame: packet.frame.as_ptr(),
            length: packet.frame.len(),
            packet,
            machine: std::ptr::from_mut(machine).cast(),
            numbers: self.numbers.as_ptr(),
            places: self.numbers.len(),
            going,
        };
        // SAFETY: the context is what the code was translated for, and its limbs, places and comparisons keep it inside; nothing changes a packet's frame
        // while the packet is in a control.
        unsafe { (self.run)(&raw mut context, number) };
    }
}
