// SPDX-License-Identifier: Apache-2.0
//! What outlives a packet, and what a packet asks of the switch.

use super::super::code::{Insn, NONE};
use super::super::packet::Packet;
use super::super::trace::DropReason;
use super::super::wide::Wide;
use super::Machine;

impl Machine<'_> {
    /// Carries out an instruction on state or requests.
    pub(super) fn external(&mut self, insn: Insn, phv: &mut [u64], packet: &mut Packet) {
        let value = |at: u32| phv[at as usize];
        // As BMv2 converts to an index: the low 32 bits.
        let index = |at: u32| phv[at as usize] as u32;
        match insn {
            Insn::HasCell { to, register, index: at } => {
                let there = self.control.arrays.register(register as usize, index(at)).is_some();
                phv[to as usize] = u64::from(there);
            }
            Insn::ReadCell { words, to, register, index: at } => {
                let cell = usize::try_from(value(at)).ok().and_then(|index| u32::try_from(index).ok());
                let cell = cell.and_then(|index| self.control.arrays.register(register as usize, index));
                let target = &mut phv[to as usize..to as usize + usize::from(words)];
                for (place, limb) in target.iter_mut().enumerate() {
                    *limb = cell.and_then(|cell| cell.get(place)).copied().unwrap_or(0);
                }
            }
            Insn::WriteCell { words, register, index: at, value } => {
                let from = value as usize;
                let index = index(at);
                let value = &phv[from..from + usize::from(words)];
                self.control.arrays.set_register(register as usize, index, value);
            }
            Insn::Meter { to, meter, index: at } => {
                let array = &mut self.control.meters[meter as usize];
                let (unit, now_ns, length) = (array.unit, self.now_ns, packet.ingress_length);
                let cell = array.cells.get_mut(index(at) as usize);
                phv[to as usize] = cell.map_or(NONE, |cell| u64::from(cell.color(now_ns, unit, length)));
            }
            Insn::Random { to, low, high } => {
                phv[to as usize] = self.work.random.between(value(low), value(high));
            }
            Insn::Clone { session, list } => {
                packet.requests.clone = Some((value(session) as u16 & 0x7fff, value(list) as u16));
            }
            Insn::Resubmit { list } => packet.requests.resubmit = value(list) as u16,
            Insn::Recirculate { list } => packet.requests.recirculate = value(list) as u16,
            Insn::Digest { list } => packet.requests.digest = value(list) as u16,
            Insn::Truncate { length } => {
                let length = usize::try_from(value(length)).unwrap_or(usize::MAX);
                packet.truncate = packet.truncate.min(length);
            }
            Insn::Exit => packet.exit = true,
            Insn::Fail { place } => {
                let place = self.code.places.get(place as usize).map_or("", AsRef::as_ref);
                tracing::error!("assertion failed, packet dropped{place}");
                packet.failed = Some(DropReason::Assertion);
                packet.exit = true;
            }
            Insn::Log { message } => {
                let message = &self.code.messages[message as usize];
                let text = |(at, words, signed): &(u32, u16, bool)| {
                    let (at, words) = (*at as usize, usize::from(*words));
                    Wide::from_limbs(&phv[at..at + words], words).decimal(*signed)
                };
                let values: Vec<String> = message.values.iter().map(text).collect();
                tracing::info!(target: "p4", "{}", render(&message.format, &values));
            }
            other => debug_assert!(false, "{other:?} is of another part"),
        }
    }
}

/// `log_msg`: each pair of braces, whatever is between them, is replaced by the next value; `\{`
/// and `\}` are braces.
fn render(format: &str, values: &[String]) -> String {
    let mut text = String::with_capacity(format.len());
    let mut values = values.iter();
    let mut rest = format;
    while let Some(at) = rest.find(['{', '\\']) {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let escaped = from.strip_prefix('\\').and_then(|brace| brace.strip_prefix(['{', '}']));
        let closing = from.starts_with('{').then(|| from.find('}')).flatten();
        rest = match (escaped, closing) {
            (Some(rest), _) => {
                text.push_str(&from[1..2]);
                rest
            }
            (None, Some(closing)) => {
                let (placeholder, rest) = from.split_at(closing + 1);
                text.push_str(values.next().map_or(placeholder, String::as_str));
                rest
            }
            (None, None) => {
                text.push_str(&from[..1]);
                &from[1..]
            }
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn a_message_has_a_value_for_each_pair_of_braces_that_is_not_escaped() {
        let render = |format| render(format, &["1".into(), "22".into()]);
        assert_eq!(render("{} and {}"), "1 and 22");
        assert_eq!(render("a {x} {:#} {}"), "a 1 22 {}");
        assert_eq!(render(r"\{a\} \n {} ü{"), r"{a} \n 1 ü{");
        assert_eq!(render("none"), "none");
    }
}
