// SPDX-License-Identifier: Apache-2.0
//! Named calculations: fields, constants, headers and payload laid out as bits, then hashed. And
//! the checksums that the parser verifies and the deparser updates with them.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

use super::bits::{BitWriter, limbs_from_bytes, parse_hex};
use super::expression::{self, Expr, Scope};
use super::hash::{Algorithm, fold, sum_of_words};
use super::json::{self, Result, malformed, unsupported};
use super::layout::{Header, Layout, Slot};
use super::wire::Words;

#[derive(Clone, Debug)]
enum Input {
    /// Left out where its header is not valid.
    Field {
        header: u32,
        field: u32,
    },
    Constant {
        limbs: Box<[u64]>,
        width: u32,
    },
    Header(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Calculation {
    algorithm: Algorithm,
    inputs: Vec<Input>,
    with_payload: bool,
    sum: Option<Sum>,
    message: Option<Message>,
    /// Its place among the counts of those that take turns.
    number: usize,
}

/// What calculations keep from packet to packet.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) bytes: Vec<u8>,
    /// How often each calculation was asked that takes turns.
    turns: Vec<u64>,
}

impl Scratch {
    fn turn(&mut self, number: usize) -> u64 {
        if number >= self.turns.len() {
            self.turns.resize(number + 1, 0);
        }
        let turn = self.turns[number];
        self.turns[number] = turn.wrapping_add(1);
        turn
    }
}

/// An Internet checksum as a sum of limbs: 2^16 is 1 modulo 2^16 − 1, so that of a limb's place
/// only its shift within a 16-bit word counts (RFC 1071, section 2).
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    /// Limbs with the validity of the headers: where one is left out, the others are elsewhere.
    pub(super) valid: Vec<usize>,
    /// The same of headers whose length varies, and that have to be left out.
    pub(super) absent: Vec<usize>,
    /// Limbs that stay below 2^48 when they are shifted, and others.
    pub(super) narrow: Vec<(u32, u32)>,
    pub(super) wide: Vec<(u32, u32)>,
    pub(super) constant: u64,
}

/// A limb shifted by less than a word, with the carries over 48 bits left in place.
fn words_of(limb: u64, shift: u32) -> u64 {
    ((limb & 0xffff_ffff) << shift) + (limb >> 32 << shift)
}

impl Sum {
    /// `None` where the inputs' places are not known at load time, or the payload begins in the
    /// middle of a word.
    fn plan(inputs: &[Input], with_payload: bool, layout: &Layout) -> Option<Self> {
        let mut sum = Self::default();
        let mut end = 0;
        let mut place = |width: u32| {
            end += width;
            (16 - end % 16) % 16
        };
        for input in inputs {
            match input {
                Input::Field { header, field } => {
                    let header = &layout.headers[*header as usize];
                    let field = &header.fields[*field as usize];
                    if field.varbit {
                        if header.metadata {
                            return None;
                        }
                        sum.absent.push(header.valid());
                        continue;
                    }
                    if !header.metadata && !sum.valid.contains(&header.valid()) {
                        sum.valid.push(header.valid());
                    }
                    let shift = place(field.slot.width);
                    // Less than 2^48 each: sums of 2^16 of them fit.
                    let narrow = field.slot.width + shift <= 48;
                    let limbs = if narrow { &mut sum.narrow } else { &mut sum.wide };
                    limbs.extend(field.slot.limbs().map(|limb| (limb as u32, shift)));
                }
                Input::Constant { limbs, width } => {
                    let shift = place(*width);
                    sum.constant += limbs.iter().map(|&limb| words_of(limb, shift)).sum::<u64>();
                }
                Input::Header(_) => return None,
            }
        }
        (!with_payload || end.is_multiple_of(16)).then_some(sum)
    }

    fn compute(&self, inputs: &Inputs<'_>, with_payload: bool) -> Option<u64> {
        let valid = |&valid: &usize| inputs.phv[valid] != 0;
        if !self.valid.iter().all(valid) || self.absent.iter().any(valid) {
            return None;
        }
        let narrow = self.narrow.iter().map(|&(limb, shift)| inputs.phv[limb as usize] << (shift & 15));
        let wide = self.wide.iter().map(|&(limb, shift)| words_of(inputs.phv[limb as usize], shift));
        let sum = self.constant + narrow.sum::<u64>() + wide.sum::<u64>();
        let payload = if with_payload { sum_of_words(inputs.payload) } else { 0 };
        Some(u64::from(fold(sum + payload)))
    }
}

/// The bytes that are hashed, as words: fields one after another, of headers that are all valid.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Limbs with the validity of the headers: where one is left out, the others are elsewhere.
    pub(super) valid: Vec<usize>,
    pub(super) words: Words,
}

impl Message {
    /// `None` where the inputs' places are not known at load time.
    fn plan(inputs: &[Input], layout: &Layout) -> Option<Self> {
        let (mut valid, mut fields) = (Vec::new(), Vec::new());
        for input in inputs {
            let Input::Field { header, field } = input else { return None };
            let header = &layout.headers[*header as usize];
            if !header.metadata {
                valid.push(header.valid());
            }
            fields.push(&header.fields[*field as usize]);
        }
        Some(Self { valid, words: Words::plan(fields)? })
    }

    /// Whether the bytes were written.
    fn write(&self, phv: &[u64], bytes: &mut Vec<u8>) -> bool {
        let known = self.valid.iter().all(|&valid| phv[valid] != 0);
        if known {
            self.words.write(phv, bytes);
        }
        known
    }
}

/// What a calculation reads.
pub(super) struct Inputs<'a> {
    pub(super) layout: &'a Layout,
    pub(super) phv: &'a [u64],
    pub(super) payload: &'a [u8],
}

/// Appends a header's fields to `writer`.
pub(super) fn write_header(header: &Header, phv: &[u64], writer: &mut BitWriter<'_>) {
    for field in &header.fields {
        let width = match header.length {
            Some(length) if field.varbit => phv[length] as u32,
            _ => field.slot.width,
        };
        if width <= 64 {
            writer.push(phv[field.slot.at as usize], width);
        } else {
            writer.push_limbs(&phv[field.slot.limbs()], width);
        }
    }
}

impl Calculation {
    pub(super) fn load_inputs(
        node: &Value,
        algorithm: Algorithm,
        layout: &Layout,
        number: usize,
    ) -> Result<Self> {
        let mut inputs = Vec::new();
        let mut with_payload = false;
        for input in json::list(node, "input")? {
            match json::text(input, "type")? {
                "field" => {
                    let (header, field) = json::pair(json::member(input, "value")?)?;
                    let header = layout.header(header)?;
                    let field = layout.field_number(header, field)?;
                    let field = field.ok_or_else(|| unsupported(node, "validity in a calculation"))?;
                    inputs.push(Input::Field { header, field });
                }
                "hexstr" => {
                    let width = json::array_size(input, "bitwidth")? as u32;
                    let limbs = parse_hex(json::text(input, "value")?)
                        .and_then(|(_, bytes)| limbs_from_bytes(&bytes, width))
                        .ok_or_else(|| malformed(node, format!("constant {}", json::excerpt(input))))?;
                    inputs.push(Input::Constant { limbs: limbs.into(), width });
                }
                "header" => inputs.push(Input::Header(layout.header(json::text(input, "value")?)?)),
                "payload" => with_payload = true,
                other => return Err(unsupported(node, format!("calculation input of type `{other}`"))),
            }
        }
        let sums = algorithm == Algorithm::Checksum16;
        let sum = sums.then(|| Sum::plan(&inputs, with_payload, layout)).flatten();
        let message = Message::plan(&inputs, layout);
        Ok(Self { algorithm, inputs, with_payload, sum, message, number })
    }

    pub(super) fn load_all(root: &Value, layout: &Layout) -> Result<(Vec<Self>, BTreeMap<String, u32>)> {
        let mut calculations = Vec::new();
        let mut names = BTreeMap::new();
        for node in json::list(root, "calculations")? {
            let algorithm = algorithm(node)?;
            names.insert(json::text(node, "name")?.to_owned(), calculations.len() as u32);
            calculations.push(Self::load_inputs(node, algorithm, layout, calculations.len())?);
        }
        Ok((calculations, names))
    }

    /// The algorithm's full output. `scratch` is for the input's bytes.
    pub(super) fn compute(&self, inputs: &Inputs<'_>, scratch: &mut Scratch) -> u64 {
        if self.algorithm == Algorithm::RoundRobin {
            return scratch.turn(self.number);
        }
        if let Some(sum) = self.sum.as_ref().and_then(|sum| sum.compute(inputs, self.with_payload)) {
            return sum;
        }
        let scratch = &mut scratch.bytes;
        scratch.clear();
        if !self.message.as_ref().is_some_and(|message| message.write(inputs.phv, scratch)) {
            self.write(inputs, scratch);
        }
        if self.with_payload {
            scratch.extend_from_slice(inputs.payload);
        }
        self.algorithm.compute(scratch)
    }

    /// The bytes that the output follows from, where they are all, and each of them is known.
    #[cfg(feature = "native")]
    pub(super) fn message(&self) -> Option<&Message> {
        let alone = !self.with_payload && self.sum.is_none() && self.algorithm != Algorithm::RoundRobin;
        self.message.as_ref().filter(|_| alone)
    }

    /// The output over the bytes of a [`message`](Self::message).
    #[cfg(feature = "native")]
    pub(super) fn of_bytes(&self, bytes: &[u8]) -> u64 {
        self.algorithm.compute(bytes)
    }

    /// An Internet checksum that follows from limbs alone.
    #[cfg(feature = "native")]
    pub(super) fn sum_of_limbs(&self) -> Option<&Sum> {
        self.sum.as_ref().filter(|_| !self.with_payload)
    }

    /// The limbs that the output follows from; `None` where it follows from more, the payload or
    /// earlier packets.
    pub(super) fn limbs(&self, layout: &Layout) -> Option<Vec<Range<usize>>> {
        if self.with_payload || self.algorithm == Algorithm::RoundRobin {
            return None;
        }
        let mut limbs = Vec::new();
        for input in &self.inputs {
            match input {
                Input::Field { header, field } => {
                    let header = &layout.headers[*header as usize];
                    limbs.push(header.valid()..header.valid() + 1);
                    limbs.push(header.fields[*field as usize].slot.limbs());
                    limbs.extend(header.length.map(|length| length..length + 1));
                }
                Input::Constant { .. } => {}
                Input::Header(header) => limbs.push(layout.headers[*header as usize].limbs.clone()),
            }
        }
        Some(limbs)
    }

    /// The fields, headers and constants as bytes, whatever is valid.
    fn write(&self, inputs: &Inputs<'_>, bytes: &mut Vec<u8>) {
        let mut writer = BitWriter::new(bytes);
        for input in &self.inputs {
            match input {
                Input::Field { header, field } => {
                    let header = &inputs.layout.headers[*header as usize];
                    if inputs.phv[header.valid()] == 0 && !header.metadata {
                        continue;
                    }
                    let field = &header.fields[*field as usize];
                    let width = match header.length {
                        Some(length) if field.varbit => inputs.phv[length] as u32,
                        _ => field.slot.width,
                    };
                    if width <= 64 {
                        writer.push(inputs.phv[field.slot.at as usize], width);
                    } else {
                        writer.push_limbs(&inputs.phv[field.slot.limbs()], width);
                    }
                }
                Input::Constant { limbs, width } => writer.push_limbs(limbs, *width),
                Input::Header(header) => {
                    let header = &inputs.layout.headers[*header as usize];
                    if inputs.phv[header.valid()] != 0 {
                        write_header(header, inputs.phv, &mut writer);
                    }
                }
            }
        }
        writer.finish();
    }
}

/// The algorithm a calculation or selector names.
pub(super) fn algorithm(node: &Value) -> Result<Algorithm> {
    let name = json::text(node, "algo")?;
    Algorithm::named(name).ok_or_else(|| unsupported(node, format!("hash algorithm `{name}`")))
}

/// A field that a calculation fills, or is compared with.
#[derive(Clone, Debug)]
pub(super) struct Checksum {
    pub(super) header: u32,
    pub(super) target: Slot,
    pub(super) calculation: u32,
    pub(super) condition: Option<Expr>,
    pub(super) verify: bool,
    pub(super) update: bool,
}

impl Checksum {
    pub(super) fn load_all(
        root: &Value,
        scope: &Scope<'_>,
        calculations: &BTreeMap<String, u32>,
    ) -> Result<Vec<Self>> {
        let mut checksums = Vec::new();
        for node in json::list(root, "checksums")? {
            let kind = json::text(node, "type")?;
            if kind != "generic" {
                return Err(unsupported(node, format!("checksum of type `{kind}`")));
            }
            let target = json::member(node, "target")?;
            let name = json::text(node, "calculation")?;
            let missing = || malformed(node, format!("there is no calculation `{name}`"));
            let condition = match node.get("if_cond") {
                None | Some(Value::Null) => None,
                Some(condition) => Some(expression::boolean(condition, scope)?),
            };
            let default_true = |key| node.get(key).and_then(Value::as_bool).unwrap_or(true);
            let slot = scope.layout.field(target)?;
            if slot.width > 64 {
                return Err(unsupported(node, "checksum of more than 64 bits"));
            }
            checksums.push(Self {
                header: scope.layout.header(json::pair(target)?.0)?,
                target: slot,
                calculation: *calculations.get(name).ok_or_else(missing)?,
                condition,
                verify: default_true("verify"),
                update: default_true("update"),
            });
        }
        Ok(checksums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calculation(layout: &Layout, with_payload: bool) -> Calculation {
        let field = |name: &str| serde_json::json!({ "type": "field", "value": ["h", name] });
        let constant = serde_json::json!({ "type": "hexstr", "value": "0x15", "bitwidth": 5 });
        let mut input = vec![field("a"), constant, field("b"), field("c"), field("d")];
        if with_payload {
            input.push(serde_json::json!({ "type": "payload" }));
        }
        let node = serde_json::json!({ "input": input });
        Calculation::load_inputs(&node, Algorithm::Checksum16, layout, 0).unwrap()
    }

    proptest::proptest! {
        /// The same inputs, laid out as bytes.
        #[test]
        fn a_checksum_by_limbs_is_the_checksum_of_the_bytes(
            a in 0u64..8, b in 0u64.., c in proptest::array::uniform2(0u64..), d in 0u64..1 << 24,
            payload in proptest::collection::vec(0u8.., 0..40), valid in proptest::bool::weighted(0.9),
        ) {
            let layout = Layout::load(&serde_json::json!({
                "header_types": [{ "name": "h_t", "id": 0, "fields":
                    [["a", 3, false], ["b", 64, false], ["c", 96, false], ["d", 24, false], ["rest", 5, false]] }],
                "headers": [{ "name": "h", "id": 0, "header_type": "h_t", "metadata": false }],
            }), 1024).unwrap();
            let phv = [u64::from(valid), a, b, c[0], c[1] >> 32, d, 0];
            for with_payload in [false, true] {
                let inputs = Inputs { layout: &layout, phv: &phv, payload: &payload };
                let mut scratch = Scratch::default();
                let by_limbs = calculation(&layout, with_payload);
                proptest::prop_assert!(by_limbs.sum.is_some());
                let by_bytes = Calculation { sum: None, message: None, ..by_limbs.clone() };
                let sums = [&by_limbs, &by_bytes].map(|sum| sum.compute(&inputs, &mut scratch));
                proptest::prop_assert_eq!(sums[0], sums[1]);
            }
        }
    }
}
