// SPDX-License-Identifier: Apache-2.0
//! Names that come from files, and go to terminals.

/// Characters of a name at most, and those of it that a message repeats.
const LONGEST: usize = 1000;
pub(super) const SHOWN: usize = 200;

/// Whether a name can stand in a table: none is empty, or does something to a terminal.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= LONGEST && !name.chars().any(is_unseen)
}

/// A name from somewhere, as a message may repeat it.
pub(super) fn printable(name: &str) -> String {
    let escape = |c: char| if is_unseen(c) { c.escape_unicode().to_string() } else { c.to_string() };
    let shown: String = name.chars().take(SHOWN).map(escape).collect();
    if name.chars().count() > SHOWN { shown + "…" } else { shown }
}

/// Control characters, and those that turn the direction of what follows or end a line.
pub(super) fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
