// SPDX-License-Identifier: Apache-2.0
//! Numbers of several limbs.

use super::super::bits::{limbs_for, trim};
use super::super::code::{Insn, WideOp};
use super::super::expression::Ring;
use super::super::wide::Wide;

/// Carries out an instruction on several limbs.
pub(super) fn execute(insn: Insn, phv: &mut [u64]) {
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
        other => debug_assert!(false, "{other:?} is of another part"),
    }
}

/// A field's value in `words` limbs. Behind a signed field stands whether it holds its bits as an
/// unsigned number.
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

/// The low bits of a number to a signed field, and whether the number is one that the field's type
/// does not have.
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

/// [`operate`] on two limbs, which is what sums and products of fields of up to 64 bits take: the
/// same results by the processor's own arithmetic. `None` for what is left to the general way.
fn operate_on_two(op: WideOp, left: usize, right: usize, phv: &[u64]) -> Option<u128> {
    let number = |at: usize| u128::from(phv[at]) | u128::from(phv[at + 1]) << 64;
    let amount = |at: usize| u32::try_from(phv[at]).unwrap_or(u32::MAX);
    let value = number(left);
    Some(match op {
        WideOp::Ring(ring) => {
            let right = number(right);
            match ring {
                Ring::Add => value.wrapping_add(right),
                Ring::Sub => value.wrapping_sub(right),
                Ring::Mul => value.wrapping_mul(right),
                Ring::And => value & right,
                Ring::Or => value | right,
                Ring::Xor => value ^ right,
            }
        }
        WideOp::Not => !value,
        WideOp::ShiftLeft => value.checked_shl(amount(right)).unwrap_or(0),
        WideOp::ShiftRight => value.checked_shr(amount(right)).unwrap_or(0),
        WideOp::ShiftRightSigned => (value.cast_signed() >> amount(right).min(127)).cast_unsigned(),
        WideOp::Divide => value.checked_div(number(right)).unwrap_or(0),
        WideOp::Modulo => value.checked_rem(number(right)).unwrap_or(0),
        WideOp::SignExtend => {
            let above = 128_u32.saturating_sub(right as u32);
            (value.cast_signed() << above >> above).cast_unsigned()
        }
        WideOp::Saturate { .. } | WideOp::Order { .. } | WideOp::Clamp => return None,
    })
}

fn operate(op: WideOp, words: usize, to: usize, left: usize, right: usize, phv: &mut [u64]) {
    if words == 2
        && let Some(result) = operate_on_two(op, left, right, phv)
    {
        (phv[to], phv[to + 1]) = (result as u64, (result >> 64) as u64);
        return;
    }
    operate_on_many(op, words, to, left, right, phv);
}

fn operate_on_many(op: WideOp, words: usize, to: usize, left: usize, right: usize, phv: &mut [u64]) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ops() -> impl Strategy<Value = WideOp> {
        prop::sample::select(vec![
            WideOp::Ring(Ring::Add),
            WideOp::Ring(Ring::Sub),
            WideOp::Ring(Ring::Mul),
            WideOp::Ring(Ring::And),
            WideOp::Ring(Ring::Or),
            WideOp::Ring(Ring::Xor),
            WideOp::Not,
            WideOp::ShiftLeft,
            WideOp::ShiftRight,
            WideOp::ShiftRightSigned,
            WideOp::Divide,
            WideOp::Modulo,
            WideOp::Order { signed: true },
            WideOp::Order { signed: false },
            WideOp::Clamp,
        ])
    }

    fn limb() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0_u64..200, Just(u64::MAX), Just(1 << 63)]
    }

    proptest! {
        #[test]
        fn two_limbs_give_what_many_give(op in ops(), limbs in prop::array::uniform4(limb())) {
            let mut fast = [limbs[0], limbs[1], limbs[2], limbs[3], 0, 0];
            if matches!(op, WideOp::Divide | WideOp::Modulo) {
                // Of numbers that are not negative.
                (fast[1], fast[3]) = (limbs[1] >> 1, limbs[3] >> 1);
            }
            let mut general = fast;
            operate(op, 2, 4, 0, 2, &mut fast);
            operate_on_many(op, 2, 4, 0, 2, &mut general);
            prop_assert_eq!(fast, general, "{:?}", op);
        }

        #[test]
        fn two_limbs_are_sign_extended_as_many_are(limbs in prop::array::uniform2(limb()), width in 1_usize..130) {
            let mut fast = [limbs[0], limbs[1], 0, 0];
            let mut general = fast;
            operate(WideOp::SignExtend, 2, 2, 0, width, &mut fast);
            operate_on_many(WideOp::SignExtend, 2, 2, 0, width, &mut general);
            prop_assert_eq!(fast, general);
        }
    }
}
