// SPDX-License-Identifier: Apache-2.0
//! A value for each packet of a message, in a fraction of a bit where they are mostly alike: a table of the values, and an adaptive binary arithmetic code of places in it
//! (docs/reference/transcript.md, "A series").

use super::bytes::{Body, Malformed, put, put_bytes};
use crate::wire::cut_map::MAX_PACKETS;
use std::collections::BTreeMap;

/// Places in the table that have a decision of their own; the rest share one, and then go by their bits.
const NAMED: usize = 3;
/// A chance of one half.
const EVEN: u16 = 1 << 15;
/// Decisions after which a chance moves by 1/64 of the rest of the way.
const SETTLED: u16 = 62;

/// How likely a decision is to be 1, of 2^16, and how often it was taken, up to [`SETTLED`].
#[derive(Clone, Copy)]
struct Chance {
    one: u16,
    taken: u16,
}

impl Chance {
    const NEW: Self = Self { one: EVEN, taken: 0 };

    /// Moves towards what came: by half of the way the first time, by less and less of it then.
    fn learn(&mut self, bit: bool) {
        let divisor = self.taken + 2;
        if bit {
            self.one += (u16::MAX - self.one) / divisor;
        } else {
            self.one -= self.one / divisor;
        }
        // Nothing is impossible.
        self.one = self.one.clamp(32, u16::MAX - 32);
        self.taken = (self.taken + 1).min(SETTLED);
    }
}

/// The interval of an arithmetic code, both ends included.
struct Interval {
    low: u32,
    high: u32,
}

impl Interval {
    const WHOLE: Self = Self { low: 0, high: u32::MAX };

    /// Where the part ends that a 1 takes.
    fn split(&self, chance: Chance) -> u32 {
        let width = u64::from(self.high - self.low);
        self.low + ((width * u64::from(chance.one)) >> 16) as u32
    }

    fn narrow(&mut self, split: u32, bit: bool) {
        if bit {
            self.high = split;
        } else {
            self.low = split + 1;
        }
    }

    /// The next byte, once both ends agree on it.
    fn settled(&mut self) -> Option<u8> {
        let byte = self.low >> 24;
        if byte != self.high >> 24 {
            return None;
        }
        self.low <<= 8;
        self.high = self.high << 8 | 0xff;
        Some(byte as u8)
    }
}

/// Takes decisions one by one: an encoder is told them, a decoder tells them.
trait Decide {
    fn decide(&mut self, chance: &mut Chance, bit: bool) -> bool;
}

struct Coder {
    interval: Interval,
    out: Vec<u8>,
}

impl Decide for Coder {
    fn decide(&mut self, chance: &mut Chance, bit: bool) -> bool {
        let split = self.interval.split(*chance);
        self.interval.narrow(split, bit);
        chance.learn(bit);
        while let Some(byte) = self.interval.settled() {
            self.out.push(byte);
        }
        bit
    }
}

struct Decoder<'a> {
    interval: Interval,
    /// Bytes that the interval is about; zeros follow the last one.
    window: u32,
    bytes: std::slice::Iter<'a, u8>,
}

impl Decoder<'_> {
    fn shift_in(&mut self) {
        self.window = self.window << 8 | u32::from(self.bytes.next().copied().unwrap_or(0));
    }
}

impl Decide for Decoder<'_> {
    fn decide(&mut self, chance: &mut Chance, _: bool) -> bool {
        let split = self.interval.split(*chance);
        let bit = self.window <= split;
        self.interval.narrow(split, bit);
        chance.learn(bit);
        while self.interval.settled().is_some() {
            self.shift_in();
        }
        bit
    }
}

/// What is known of the next place from the two before it: cuts come in bursts.
struct Model {
    named: [[Chance; NAMED]; (NAMED + 1) * (NAMED + 1)],
    bits: [Chance; 32],
    before: [usize; 2],
    places: usize,
}

impl Model {
    fn new(places: usize) -> Self {
        Self {
            named: [[Chance::NEW; NAMED]; (NAMED + 1) * (NAMED + 1)],
            bits: [Chance::NEW; 32],
            before: [0; 2],
            places,
        }
    }

    /// Codes a place; a decoder's is not looked at.
    fn code(&mut self, coder: &mut impl Decide, place: usize) -> usize {
        let [last, second] = self.before;
        let place = self.choose(coder, last * (NAMED + 1) + second, place);
        self.before = [place.min(NAMED), last];
        place
    }

    fn choose(&mut self, coder: &mut impl Decide, context: usize, place: usize) -> usize {
        for candidate in 0..NAMED.min(self.places - 1) {
            if coder.decide(&mut self.named[context][candidate], place == candidate) {
                return candidate;
            }
        }
        let (rest, left) = (place.saturating_sub(NAMED), self.places.saturating_sub(NAMED + 1));
        if left == 0 {
            return self.places - 1;
        }
        let width = usize::BITS - left.leading_zeros();
        let coded = (0..width).rev().fold(0, |high, bit| {
            high << 1 | usize::from(coder.decide(&mut self.bits[bit as usize], rest >> bit & 1 == 1))
        });
        NAMED + coded
    }
}

/// Writes at most [`MAX_PACKETS`] values.
pub(super) fn encode(values: &[u32], out: &mut Vec<u8>) {
    let mut counts = BTreeMap::<u32, u32>::new();
    values.iter().for_each(|&value| *counts.entry(value).or_default() += 1);
    // The most frequent first; of equally frequent ones the least.
    let mut table: Vec<(u32, u32)> = counts.into_iter().collect();
    table.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
    put(out, values.len() as u64);
    put(out, table.len() as u64);
    table.iter().for_each(|&(value, _)| put(out, value.into()));
    if table.len() < 2 {
        return;
    }
    let place: BTreeMap<u32, usize> = table.iter().enumerate().map(|(at, &(value, _))| (value, at)).collect();
    let mut model = Model::new(table.len());
    let mut coder = Coder { interval: Interval::WHOLE, out: Vec::new() };
    for value in values {
        model.code(&mut coder, place.get(value).copied().unwrap_or_default());
    }
    // As few bytes as name the interval, with zeros behind them.
    let Interval { low, high } = coder.interval;
    let keeps = (1..=4).find(|&bytes| {
        let mask = u32::MAX.checked_shl(32 - 8 * bytes).unwrap_or_default();
        high & mask >= low
    });
    let kept = keeps.unwrap_or(4) as usize;
    coder.out.extend_from_slice(&high.to_be_bytes()[..kept]);
    while coder.out.last() == Some(&0) {
        coder.out.pop();
    }
    put_bytes(out, &coder.out);
}

/// Reads what [`encode`] wrote; never more than [`MAX_PACKETS`] values, whatever the bytes.
pub(super) fn decode(body: &mut Body<'_>) -> Result<Vec<u32>, Malformed> {
    let count: usize = body.fits("a number of packets")?;
    let places: usize = body.fits("a number of values")?;
    if count > MAX_PACKETS as usize {
        return Err(Malformed("more packets than a message may have"));
    }
    if places > count || (places == 0 && count > 0) {
        return Err(Malformed("a table of values that does not fit its packets"));
    }
    let table = (0..places).map(|_| body.fits("a value")).collect::<Result<Vec<u32>, _>>()?;
    if places < 2 {
        return Ok(table.iter().flat_map(|&value| std::iter::repeat_n(value, count)).collect());
    }
    let mut decoder = Decoder { interval: Interval::WHOLE, window: 0, bytes: body.bytes()?.iter() };
    (0..4).for_each(|_| decoder.shift_in());
    let mut model = Model::new(places);
    let value = |_| {
        let place = model.code(&mut decoder, usize::MAX);
        table.get(place).copied().ok_or(Malformed("a value that is not in its table"))
    };
    (0..count).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(values: &[u32]) -> usize {
        let mut bytes = Vec::new();
        encode(values, &mut bytes);
        let mut body = Body(&bytes);
        assert_eq!(decode(&mut body).expect("what was written"), values);
        body.end().expect("all of it was read");
        bytes.len()
    }

    /// SplitMix64, in [0, 1).
    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    proptest! {
        #[test]
        fn any_values_come_back(values in prop::collection::vec(prop_oneof![4 => Just(0_u32), 2 => 0_u32..5, 1 => any::<u32>()], 0..2_000)) {
            round_trip(&values);
        }

        #[test]
        fn no_bytes_make_it_panic_or_grow(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(values) = decode(&mut Body(&bytes)) {
                prop_assert!(values.len() <= MAX_PACKETS as usize);
            }
        }

        #[test]
        fn damaged_bytes_make_it_neither_panic_nor_grow(
            values in prop::collection::vec(0_u32..9, 1..300), at in any::<prop::sample::Index>(), mask in 1_u8..=255,
        ) {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            let at = at.index(bytes.len());
            bytes[at] ^= mask;
            if let Ok(values) = decode(&mut Body(&bytes)) {
                prop_assert!(values.len() <= MAX_PACKETS as usize);
            }
        }
    }

    /// The figures of docs/reference/transcript.md: a value costs little more than its entropy.
    #[test]
    fn bits_a_packet_are_near_the_entropy() {
        let mut state = 7;
        for (packets, least) in [(600, 1.25), (10_000, 1.06)] {
            let bits = |values: &[u32]| round_trip(values) as f64 * 8.0 / f64::from(packets);
            assert!(bits(&vec![0; packets as usize]) * f64::from(packets) <= 32.0);
            let tenth: Vec<u32> =
                (0..packets).map(|_| if uniform(&mut state) < 0.1 { 58 } else { 0 }).collect();
            let half: Vec<u32> = (0..packets)
                .map(|_| match uniform(&mut state) {
                    u if u < 0.01 => 1,
                    u if u < 0.26 => 58,
                    u if u < 0.51 => 450,
                    _ => 0,
                })
                .collect();
            let entropy = |shares: &[f64]| shares.iter().map(|p| -p * p.log2()).sum::<f64>();
            let (tenth, half) = (bits(&tenth), bits(&half));
            println!("{packets} packets: {tenth:.3} and {half:.3} bits a packet");
            assert!(tenth < entropy(&[0.1, 0.9]) * least + 0.06, "{tenth}");
            assert!(half < entropy(&[0.01, 0.25, 0.25, 0.49]) * least + 0.06, "{half}");
        }
    }
}
