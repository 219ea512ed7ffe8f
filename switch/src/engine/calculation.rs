//! Named calculations: fields, constants, headers and payload laid out as bits, then hashed. And the checksums
//! that the parser verifies and the deparser updates with them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::bits::{BitWriter, limbs_from_bytes, parse_hex};
use super::expression::{self, Env, Expr, Scope, load, store};
use super::hash::Algorithm;
use super::json::{self, Result, malformed, unsupported};
use super::layout::{Header, Layout, Slot};
use super::packet::Packet;
use super::stateful::Register;

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
    pub(super) fn load_inputs(node: &Value, algorithm: Algorithm, layout: &Layout) -> Result<Self> {
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
        Ok(Self { algorithm, inputs, with_payload })
    }

    pub(super) fn load_all(root: &Value, layout: &Layout) -> Result<(Vec<Self>, BTreeMap<String, u32>)> {
        let mut calculations = Vec::new();
        let mut names = BTreeMap::new();
        for node in json::list(root, "calculations")? {
            let algorithm = algorithm(node)?;
            names.insert(json::text(node, "name")?.to_owned(), calculations.len() as u32);
            calculations.push(Self::load_inputs(node, algorithm, layout)?);
        }
        Ok((calculations, names))
    }

    /// The algorithm's full output. `scratch` holds the input bytes afterwards.
    pub(super) fn compute(&self, inputs: &Inputs<'_>, scratch: &mut Vec<u8>) -> u64 {
        scratch.clear();
        let mut writer = BitWriter::new(scratch);
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
        if self.with_payload {
            scratch.extend_from_slice(inputs.payload);
        }
        self.algorithm.compute(scratch)
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
    header: u32,
    target: Slot,
    calculation: u32,
    condition: Option<Expr>,
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

    fn applies(&self, packet: &Packet, layout: &Layout, registers: &[Register]) -> bool {
        let env = Env { layout, phv: &packet.phv, params: &[], registers };
        self.condition.as_ref().is_none_or(|condition| condition.truth(&env))
    }

    /// The field holds the right value, or there is nothing to check.
    pub(super) fn holds(
        &self,
        packet: &Packet,
        layout: &Layout,
        registers: &[Register],
        calculations: &[Calculation],
        scratch: &mut Vec<u8>,
    ) -> bool {
        let header = &layout.headers[self.header as usize];
        if packet.phv[header.valid()] == 0 && !header.metadata || !self.applies(packet, layout, registers) {
            return true;
        }
        let computed = calculations[self.calculation as usize].compute(&packet.inputs(layout), scratch);
        load(&packet.phv, self.target) == u128::from(computed)
    }

    pub(super) fn fill(
        &self,
        packet: &mut Packet,
        layout: &Layout,
        registers: &[Register],
        calculations: &[Calculation],
        scratch: &mut Vec<u8>,
    ) {
        if self.applies(packet, layout, registers) {
            let computed = calculations[self.calculation as usize].compute(&packet.inputs(layout), scratch);
            store(&mut packet.phv, self.target, u128::from(computed));
        }
    }
}
