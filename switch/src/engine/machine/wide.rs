//! Numbers of several limbs.

use super::super::bits::{limbs_for, trim};
use super::super::code::{Insn, WideOp};
use super::super::expression::Ring;
use super::super::wide::Wide;

/// Carries out an instruction on several limbs; `false` where it is none.
pub(super) fn execute(insn: Insn, phv: &mut [u64]) -> bool {
    match insn {
        Insn::Wide { op, words, to, left, right } => {
            operate(op, usize::from(words), to as usize, left as usize, right as usize, phv);
        }
        Insn::Extend { signed, limbs, words, to, from } => {
            let (to, from) = (to as usize, from as usize);
            let (limbs, words) = (usize::from(limbs), usize::from(words));
            let sign = if signed && phv[from + limbs - 1] >> 63 != 0 { u64::MAX } else { 0 };
            let shared = limbs.min(words);
            phv.copy_within(from..from + shared, to);
            phv[to + shared..to + words].fill(sign);
        }
        Insn::LoadSigned { words, to, from, width } => {
            load(phv, to as usize, usize::from(words), from as usize, width, true);
        }
        Insn::Store { to, from, width } => {
            let (to, from, limbs) = (to as usize, from as usize, limbs_for(width));
            phv.copy_within(from..from + limbs, to);
            trim(&mut phv[to..to + limbs], width);
        }
        Insn::StoreSigned { words, to, from, width } => {
            store_signed(phv, to as usize, from as usize, usize::from(words), width);
        }
        _ => return false,
    }
    true
}

/// A field's value in `words` limbs. Behind a signed field stands whether it holds its bits as an unsigned number.
pub(super) fn load(phv: &mut [u64], to: usize, words: usize, from: usize, width: u32, signed: bool) {
    let limbs = limbs_for(width);
    let top = phv[from + limbs - 1];
    let negative = signed && phv[from + limbs] == 0 && top >> ((width - 1) % 64) & 1 != 0;
    let shared = limbs.min(words);
    phv.copy_within(from..from + shared, to);
    if negative {
        if words >= limbs && !width.is_multiple_of(64) {
            phv[to + limbs - 1] |= u64::MAX << (width % 64);
        }
        phv[to + shared..to + words].fill(u64::MAX);
    } else {
        phv[to + shared..to + words].fill(0);
    }
}

/// The low bits of a number to a signed field, and whether the number is one that the field's type does not have.
pub(super) fn store_signed(phv: &mut [u64], to: usize, from: usize, words: usize, width: u32) {
    let limbs = limbs_for(width);
    let top = (width as usize - 1) / 64;
    let sign_bit = (width - 1) % 64;
    let rest = &phv[from + limbs..from + words.max(limbs)];
    let unsigned = phv[from + top] >> sign_bit == 1
        && rest.iter().all(|&limb| limb == 0)
        && (words > limbs || sign_bit < 63);
    phv.copy_within(from..from + limbs, to);
    trim(&mut phv[to..to + limbs], width);
    phv[to + limbs] = u64::from(unsigned);
}

fn operate(op: WideOp, words: usize, to: usize, left: usize, right: usize, phv: &mut [u64]) {
    let number = |at: usize| Wide::from_limbs(&phv[at..at + words], words);
    let amount = |at: usize| u32::try_from(phv[at]).unwrap_or(u32::MAX);
    let value = number(left);
    let result = match op {
        WideOp::Ring(ring) => {
            let right = number(right);
            match ring {
                Ring::Add => value.add(&right, false),
                Ring::Sub => value.sub(&right),
                Ring::Mul => value.mul(&right),
                Ring::And => value.limbwise(&right, |left, right| left & right),
                Ring::Or => value.limbwise(&right, |left, right| left | right),
                Ring::Xor => value.limbwise(&right, |left, right| left ^ right),
            }
        }
        WideOp::Not => value.complement(),
        WideOp::ShiftLeft => value.shifted_left(amount(right)),
        WideOp::ShiftRight => value.shifted_right(amount(right), false),
        WideOp::ShiftRightSigned => value.shifted_right(amount(right), true),
        WideOp::Divide => value.divided(&number(right)).0,
        WideOp::Modulo => value.divided(&number(right)).1,
        WideOp::SignExtend => value.sign_extended(right as u32),
        WideOp::Saturate { to_signed, from_signed } => value.saturated(right as u32, to_signed, from_signed),
        WideOp::Order { signed } => {
            phv[to] = match value.compared(&number(right), signed) {
                std::cmp::Ordering::Less => 0,
                std::cmp::Ordering::Equal => 1,
                std::cmp::Ordering::Greater => 2,
            };
            return;
        }
        WideOp::Clamp => {
            let limbs = value.limbs();
            phv[to] = if limbs[1..].iter().all(|&limb| limb == 0) { limbs[0] } else { u64::MAX };
            return;
        }
    };
    phv[to..to + words].copy_from_slice(result.limbs());
}
