// SPDX-License-Identifier: Apache-2.0
//! Machine code against the interpreter, with code that no program has.

use super::super::Pipeline;
use super::super::arrays::Arrays;
use super::super::code::form::{Select, SelectCase};
use super::super::code::{Code, Insn, WideOp};
use super::super::expression::{Compare, Ring};
use super::super::flow_cache::Resume;
use super::super::layout::Layout;
use super::super::machine::Machine;
use super::super::packet::Packet;
use super::super::parser::Deparser;
use super::super::run;
use super::call::{MOST_INSTRUCTIONS, Native};
use super::parts::Parts;
use proptest::prelude::*;

/// Limbs that code writes, and constants behind them.
const LIMBS: u32 = 10;
const CONSTANTS: [u64; 5] = [0, 1, 0xffff, 1 << 63, u64::MAX];
/// Instructions of a program before its end.
const LENGTH: u32 = 24;

fn layout() -> Layout {
    Layout::load(&serde_json::json!({ "header_types": [], "headers": [] }), 1024).unwrap()
}

fn code(insns: Vec<Insn>, selects: Vec<Select>, limbs: &[u64]) -> Code {
    Code {
        insns,
        selects,
        frame: [limbs, &CONSTANTS].concat(),
        arguments: limbs.len(),
        scratch: limbs.len(),
        constants: limbs.len(),
        ..Code::default()
    }
}

fn native(code: &Code) -> Result<Native, String> {
    let (layout, deparser) = (layout(), Deparser::default());
    let parts = Parts {
        layout: &layout,
        deparser: &deparser,
        calculations: &[],
        checksums: &[],
        tables: &[],
        arrays: &Arrays::default(),
    };
    Native::of(code, &parts)
}

/// The limbs and the packet's exit behind the code.
fn run(pipeline: &mut Pipeline, code: &Code, native: Option<&Native>) -> (Vec<u64>, bool) {
    let Pipeline { program, control, work, .. } = pipeline;
    let mut packet = Packet { phv: code.frame.clone(), frame: vec![0; 64], ..Packet::default() };
    let mut machine = Machine { program, code, control, work, now_ns: 0 };
    run::run(&mut machine, native, 0, &mut packet);
    (packet.phv, packet.exit)
}

fn pipeline() -> Pipeline {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    Pipeline::load(&std::fs::read(path).unwrap()).unwrap()
}

/// One instruction at a place, of any kind that machine code has of its own and goes nowhere but
/// on.
fn insns(place: u32) -> impl Strategy<Value = Insn> {
    let to = 0..LIMBS;
    let from = || 0..LIMBS + CONSTANTS.len() as u32;
    let compare = prop::sample::select(vec![
        Compare::Eq,
        Compare::Ne,
        Compare::Lt,
        Compare::Le,
        Compare::Gt,
        Compare::Ge,
    ]);
    let what = (0..27_u8, to, from(), from(), place + 1..=LENGTH);
    (what, 0..64_u8, 0..64_u8, compare, any::<bool>()).prop_map(
        |((kind, to, left, right, place), drop, shift, compare, signed)| match kind {
            0 => Insn::Copy { to, from: left },
            1 => Insn::Low { drop, to, from: left },
            2 => Insn::CopyRun { count: 1, to, from: left },
            3 => Insn::Bits { drop, shift, to, from: left },
            4 => Insn::Shifted { drop, shift, to, from: left },
            5 => Insn::Add { drop, to, left, right },
            6 => Insn::Sub { drop, to, left, right },
            7 => Insn::And { to, left, right },
            8 => Insn::Or { drop, to, left, right },
            9 => Insn::Xor { drop, to, left, right },
            10 => Insn::Not { drop, to, from: left },
            11 => Insn::Mul { drop, to, left, right },
            12 => Insn::Saturate { width: shift.max(1), from_signed: signed, to, from: left },
            13 => Insn::Test { signed, compare, to, left, right },
            14 => Insn::ShiftLeft { drop, to, value: left, by: right },
            15 => Insn::Divide { drop, to, left, right },
            16 => Insn::SignExtend { drop, width: shift.max(1), to, from: left },
            17 => Insn::IfZero { to: place, value: left },
            18 => Insn::IfNotZero { to: place, value: left },
            19 if signed => Insn::IfEqual { to: place, left, right },
            19 => Insn::IfUnequal { to: place, left, right },
            20 if signed => Insn::IfLess { to: place, left, right },
            20 => Insn::IfNotLess { to: place, left, right },
            21 => Insn::Branch { compare, to: place, left, right },
            // Of numbers of two limbs, from an even limb to one.
            22..=24 => {
                let pair = |at: u32| at.min(LIMBS + CONSTANTS.len() as u32 - 2);
                let (to, left, right) = (to & !1, pair(left), pair(right));
                Insn::Wide {
                    op: wide_op(drop, shift, signed),
                    words: 2,
                    to,
                    left,
                    right: width_or(drop, right, shift),
                }
            }
            25 => {
                let (limbs, words) = (1 + u16::from(signed), 1 + u16::from(shift % 2));
                Insn::Extend {
                    signed: drop.is_multiple_of(2),
                    limbs,
                    words,
                    to: to & !1,
                    from: left.min(LIMBS),
                }
            }
            26 => Insn::Store {
                to: to & !1,
                from: left.min(LIMBS),
                width: 1 + u32::from(drop) + u32::from(shift),
            },
            _ => Insn::Exit,
        },
    )
}

/// An operation on two limbs by a number.
fn wide_op(number: u8, from_signed: u8, signed: bool) -> WideOp {
    let from_signed = from_signed.is_multiple_of(2);
    match number % 15 {
        0 => WideOp::Ring(Ring::Add),
        1 => WideOp::Ring(Ring::Sub),
        2 => WideOp::Ring(Ring::Mul),
        3 => WideOp::Ring(Ring::And),
        4 => WideOp::Ring(Ring::Or),
        5 => WideOp::Ring(Ring::Xor),
        6 => WideOp::Not,
        7 => WideOp::ShiftLeft,
        8 => WideOp::ShiftRight,
        9 => WideOp::ShiftRightSigned,
        10 => WideOp::Saturate { to_signed: signed, from_signed },
        11 => WideOp::Order { signed },
        12 => WideOp::Clamp,
        13 => WideOp::Modulo,
        _ => WideOp::SignExtend,
    }
}

/// What stands where the second operand would: for some operations a width.
fn width_or(number: u8, right: u32, width: u8) -> u32 {
    match number % 15 {
        10 | 14 => 1 + 2 * u32::from(width),
        _ => right,
    }
}

fn values() -> impl Strategy<Value = u64> {
    prop_oneof![any::<u64>(), 0..4_u64, prop::sample::select(CONSTANTS.to_vec())]
}

fn programs() -> impl Strategy<Value = Code> {
    let body: Vec<_> = (0..LENGTH).map(insns).collect();
    let select = (0..LENGTH, 0..LIMBS, prop::collection::vec((values(), values(), 0..LENGTH), 0..4));
    (body, prop::collection::vec(values(), LIMBS as usize), prop::option::of(select), any::<bool>()).prop_map(
        |(mut body, limbs, select, exits)| {
            let mut selects = Vec::new();
            if let Some((at, key, cases)) = select {
                let case = |(value, mask, next): (u64, u64, u32)| SelectCase {
                    value: value & mask,
                    mask,
                    next: next.max(at + 1),
                };
                selects.push(Select { key, cases: cases.into_iter().map(case).collect(), default: LENGTH });
                body[at as usize] = Insn::Select { select: 0 };
            }
            if exits {
                body[LENGTH as usize / 2] = Insn::EndIfExit;
            }
            body.push(Insn::End);
            code(body, selects, &limbs)
        },
    )
}

#[test]
fn any_code_leaves_the_limbs_that_the_interpreter_leaves() {
    let pipeline = std::cell::RefCell::new(pipeline());
    proptest!(|(code in programs())| {
        let native = native(&code).unwrap();
        let pipeline = &mut pipeline.borrow_mut();
        prop_assert_eq!(run(pipeline, &code, Some(&native)), run(pipeline, &code, None));
    });
}

#[test]
fn a_loop_without_an_end_ends_with_its_fuel() {
    let code =
        code(vec![Insn::Add { drop: 0, to: 0, left: 0, right: 3 }, Insn::Loop { to: 0 }], vec![], &[0, 0]);
    let native = native(&code).unwrap();
    let mut pipeline = pipeline();
    let [ours, reference] = [Some(&native), None].map(|native| run(&mut pipeline, &code, native));
    assert!(ours == reference && ours.1 && ours.0[0] > 1 << 20, "{ours:?} {reference:?}");
}

/// Machine code checks no limb: what is outside has to be refused while it is made.
#[test]
fn limbs_outside_the_frame_and_writes_to_constants_are_refused() {
    let outside = LIMBS + CONSTANTS.len() as u32;
    for insn in [
        Insn::Copy { to: 0, from: outside },
        Insn::Copy { to: outside, from: 0 },
        Insn::Copy { to: LIMBS, from: 0 },
        Insn::CopyRun { count: 4, to: 0, from: outside - 3 },
        Insn::IfZero { to: 1, value: u32::MAX },
        Insn::Test { signed: false, compare: Compare::Eq, to: 0, left: 0, right: outside },
    ] {
        let made = native(&code(vec![insn, Insn::End], vec![], &[0; LIMBS as usize]));
        let error = made.map(|_| ()).unwrap_err();
        assert!(error.contains("limb"), "{insn:?}: {error}");
    }
}

#[test]
fn what_is_too_large_to_compile_is_interpreted() {
    let copies = vec![Insn::Copy { to: 0, from: 1 }; MOST_INSTRUCTIONS + 1];
    let error = native(&code(copies, vec![], &[0, 0])).map(|_| ()).unwrap_err();
    assert!(error.contains("16385 instructions, more than 16384"), "{error}");
}

/// Machine code reads where to go back to without a check.
#[test]
fn an_action_that_nobody_called_ends() {
    let code = code(vec![Insn::Copy { to: 0, from: 3 }, Insn::Return], vec![], &[0, 0]);
    let native = native(&code).unwrap();
    let mut pipeline = pipeline();
    for back in [1, 2, 3, u32::MAX] {
        let Pipeline { program, control, work, .. } = &mut pipeline;
        let (mut packet, mut phv) = (Packet::default(), code.frame.clone());
        let mut machine = Machine { program, code: &code, control, work, now_ns: 0 };
        native.run(&mut machine, Resume { back, ..Resume::at(0) }, &mut phv, &mut packet);
        assert_eq!(phv[0], 1, "back to {back}");
    }
}

#[test]
fn code_goes_on_from_where_it_is_told() {
    let mut code = code(
        vec![Insn::Copy { to: 0, from: 3 }, Insn::End, Insn::Copy { to: 1, from: 3 }, Insn::End],
        vec![],
        &[0, 0],
    );
    code.ingress = 2;
    let native = native(&code).unwrap();
    let mut pipeline = pipeline();
    let Pipeline { program, control, work, .. } = &mut pipeline;
    let mut packet = Packet { phv: code.frame.clone(), ..Packet::default() };
    let mut machine = Machine { program, code: &code, control, work, now_ns: 0 };
    run::run(&mut machine, Some(&native), 2, &mut packet);
    assert_eq!(packet.phv[..2], [0, 1]);
}
