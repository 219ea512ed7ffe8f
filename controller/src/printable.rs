// SPDX-License-Identifier: Apache-2.0
//! Words of files and switches, as they may be shown to people: what a terminal would obey is
//! spelled out.

use std::borrow::Cow;

/// Control characters but ends of lines and tabs, as Rust spells them (`\u{1b}`).
pub fn printable(text: &str) -> Cow<'_, str> {
    spelled(text, |c| c.is_control() && c != '\n' && c != '\t')
}

/// The same of all control characters: what is shown is one line.
pub(crate) fn in_one_line(text: &str) -> Cow<'_, str> {
    spelled(text, char::is_control)
}

fn spelled(text: &str, is_spelled: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_spelled) {
        return Cow::Borrowed(text);
    }
    let spell = |c: char| if is_spelled(c) { c.escape_debug().collect() } else { String::from(c) };
    Cow::Owned(text.chars().map(spell).collect())
}
