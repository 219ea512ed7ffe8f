// SPDX-License-Identifier: Apache-2.0
//! Finds what an STF file means by a name: BMv2's full name, or the end of one.

use super::error::hint;
use crate::engine::entity::KeyInfo;

type Result<T> = std::result::Result<T, String>;

/// The place of the name that is `asked`, or else of the only one that ends in it.
pub(super) fn find(kind: &str, asked: &str, names: &[String]) -> Result<usize> {
    if let Some(at) = names.iter().position(|name| name == asked) {
        return Ok(at);
    }
    let dotted = |name: &&String| name.strip_suffix(asked).is_some_and(|rest| rest.ends_with('.'));
    let ending = |name: &&String| name.ends_with(asked);
    // A whole component is meant rather than the end of a word.
    let mut found: Vec<&String> = names.iter().filter(dotted).collect();
    if found.is_empty() {
        found = names.iter().filter(ending).collect();
    }
    found.dedup();
    match found[..] {
        [] => Err(format!("there is no {kind} '{asked}'{}", hint(asked, names))),
        [one] => Ok(names.iter().position(|name| name == one).unwrap_or_default()),
        _ => {
            let found: Vec<&str> = found.iter().map(|name| name.as_str()).collect();
            Err(format!("{kind} '{asked}' is ambiguous: it could be {}", found.join(" or ")))
        }
    }
}

/// The place of the key that a file means by `asked`: p4c's runner lets validity be called `valid`
/// and a stack's element `stack$0`.
pub(super) fn find_key(table: &str, asked: &str, keys: &[KeyInfo]) -> Result<usize> {
    let asked = unescaped(asked);
    let at = |name: &str| keys.iter().position(|key| key.name == name);
    if let Some(found) =
        at(&asked).or_else(|| at(&format!("{asked}$"))).or_else(|| at(&format!("{asked}.$valid$")))
    {
        return Ok(found);
    }
    if let Some(found) = asked.strip_suffix("valid").and_then(|head| at(&format!("{head}$valid$"))) {
        return Ok(found);
    }
    let ending = |key: &KeyInfo| {
        key.name.ends_with(&format!(".{asked}"))
            || key.name.ends_with(&format!(".{asked}$"))
            || (asked == "valid" && key.name.ends_with("$valid$"))
    };
    // p4c's runner takes the last one.
    keys.iter().rposition(ending).ok_or_else(|| {
        let names: Vec<String> = keys.iter().map(|key| key.name.clone()).collect();
        format!("table {table} has no key '{asked}'{}", hint(&asked, &names))
    })
}

/// `stack$0.field` as `stack[0].field`.
fn unescaped(name: &str) -> String {
    let Some((head, tail)) = name.split_once('$') else { return name.to_owned() };
    let digits = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    match tail.split_at(digits) {
        ("", _) => name.to_owned(),
        (index, rest) => format!("{head}[{index}]{rest}"),
    }
}
