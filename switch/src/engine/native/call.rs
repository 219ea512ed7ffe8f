// SPDX-License-Identifier: Apache-2.0
//! The way into machine code and out of it: the engine's only unsafe code.
#![expect(unsafe_code, reason = "machine code has raw pointers and is called through one")]

use super::super::code::Code;
use super::super::flow_cache::Resume;
use super::super::machine::{Going, Machine};
use super::super::packet::Packet;
use super::super::program::Program;
use super::super::state::InitialState;
use super::headers::write_headers;
use super::module::{Memory, define, new_module};
use super::parts::Parts;
use super::translate::{AS_USUAL, Layouts, translate};
use cranelift_codegen::Context as Compilation;
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::JITModule;
use std::ffi::c_void;
use std::mem::offset_of;

/// More instructions are interpreted: compiling takes some 10 µs for each.
pub(super) const MOST_INSTRUCTIONS: usize = 1 << 14;

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
    /// By place: its number among those that machine code can be told to go to. One more than there
    /// are places.
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

/// What a context says, while machine code waits.
struct Waiting<'a> {
    machine: &'a mut Machine<'a>,
    going: &'a mut Going,
    phv: &'a mut [u64],
    packet: &'a mut Packet,
}

impl<'a> Waiting<'a> {
    /// # Safety
    /// `context` is one of [`Native::run`]'s, which has not returned, and nothing else is made of
    /// it for as long as this lives.
    unsafe fn of(context: *mut Context) -> (Self, &'a [u32]) {
        // SAFETY: `run` made all of this of references that it does not use until it returns, and
        // machine code uses none while it waits.
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

/// Carries out the instruction at `place`, and gives the number of the place to go on at:
/// [`AS_USUAL`] for the next one.
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
    pub(crate) fn compile(code: &Code, program: &Program, state: &InitialState) -> Result<Self, String> {
        Self::of(code, &Parts::new(program, state))
    }

    pub(super) fn of(code: &Code, program: &Parts<'_>) -> Result<Self, String> {
        if code.insns.len() > MOST_INSTRUCTIONS {
            return Err(format!("it has {} instructions, more than {MOST_INSTRUCTIONS}", code.insns.len()));
        }
        let mut module = new_module(&CALLS)?;
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

    /// Writes the valid headers over the beginning of `data`, which is all theirs; `false` where
    /// they take more or less, or are not made of whole words: then what is there is undefined.
    pub(crate) fn write_headers(&self, phv: &[u64], data: &mut [u8]) -> bool {
        assert!(phv.len() >= self.limbs, "a frame of this program");
        // SAFETY: limbs were looked at when it was compiled, and no header is written that ends
        // behind the length.
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
        // SAFETY: the context is what the code was translated for, and its limbs, places and
        // comparisons keep it inside; nothing changes a packet's frame while the packet is in a
        // control.
        unsafe { (self.run)(&raw mut context, number) };
    }
}
