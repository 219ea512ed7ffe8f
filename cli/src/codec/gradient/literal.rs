// SPDX-License-Identifier: Apache-2.0
//! The part of Python's literals that headers of .npy files are written in.

use anyhow::{Context as _, Result, bail, ensure};
use std::iter::Peekable;
use std::str::Chars;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    /// A string.
    Text(String),
    /// `True` or `False`.
    Flag(bool),
    /// A natural number.
    Number(u64),
    /// A tuple or a list.
    Sequence(Vec<Self>),
    /// A dictionary with strings for keys.
    Dictionary(Vec<(String, Self)>),
}

/// Brackets inside brackets; structured types of structured types have a few.
const DEEPEST: usize = 16;

/// Reads one literal, and nothing behind it but blanks.
pub(super) fn parse(text: &str) -> Result<Literal> {
    let mut reader = Reader { rest: text.chars().peekable() };
    let literal = reader.literal(0)?;
    let behind = reader.next();
    ensure!(behind.is_none(), "{:?} behind its end", behind.unwrap_or_default());
    Ok(literal)
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
}

impl Reader<'_> {
    fn literal(&mut self, depth: usize) -> Result<Literal> {
        ensure!(depth < DEEPEST, "more than {DEEPEST} brackets inside each other");
        match self.next().context("it ends too early")? {
            quote @ ('\'' | '"') => Ok(Literal::Text(self.text(quote)?)),
            '(' => self.sequence(')', depth),
            '[' => self.sequence(']', depth),
            '{' => self.dictionary(depth),
            first if first.is_ascii_digit() => self.number(first),
            first if first.is_ascii_alphabetic() => self.word(first),
            other => bail!("{other:?} begins no value"),
        }
    }

    /// The next character that is not blank.
    fn next(&mut self) -> Option<char> {
        self.rest.find(|c| !c.is_whitespace())
    }

    /// Whether `wanted` comes next; it is taken if so.
    fn take(&mut self, wanted: char) -> bool {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.next_if_eq(&wanted).is_some()
    }

    fn text(&mut self, quote: char) -> Result<String> {
        let mut text = String::new();
        loop {
            match self.rest.next().context("a string does not end")? {
                c if c == quote => return Ok(text),
                '\\' => text.extend(self.rest.next()),
                c => text.push(c),
            }
        }
    }

    fn number(&mut self, first: char) -> Result<Literal> {
        let mut digits = String::from(first);
        digits.extend(std::iter::from_fn(|| self.rest.next_if(char::is_ascii_digit)));
        // Python 2 wrote long integers so.
        self.rest.next_if_eq(&'L');
        Ok(Literal::Number(digits.parse().with_context(|| format!("{digits} is too large"))?))
    }

    fn word(&mut self, first: char) -> Result<Literal> {
        let mut word = String::from(first);
        word.extend(std::iter::from_fn(|| self.rest.next_if(char::is_ascii_alphabetic)));
        match word.as_str() {
            "True" => Ok(Literal::Flag(true)),
            "False" => Ok(Literal::Flag(false)),
            _ => bail!("{word:?} is no value"),
        }
    }

    fn sequence(&mut self, end: char, depth: usize) -> Result<Literal> {
        let mut items = Vec::new();
        while !self.take(end) {
            items.push(self.literal(depth + 1)?);
            if !self.take(',') {
                ensure!(self.take(end), "no {end:?} where a sequence should end");
                break;
            }
        }
        Ok(Literal::Sequence(items))
    }

    fn dictionary(&mut self, depth: usize) -> Result<Literal> {
        let mut entries = Vec::new();
        while !self.take('}') {
            let Literal::Text(key) = self.literal(depth + 1)? else { bail!("a key is no string") };
            ensure!(self.take(':'), "no ':' behind {key:?}");
            entries.push((key, self.literal(depth + 1)?));
            if !self.take(',') {
                ensure!(self.take('}'), "no '}}' where the dictionary should end");
                break;
            }
        }
        Ok(Literal::Dictionary(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_of_every_age_are_read() {
        let shape =
            |lengths: &[u64]| Literal::Sequence(lengths.iter().map(|n| Literal::Number(*n)).collect());
        for (text, lengths) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }    \n", &[3, 4][..]),
            ("{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(12,)}", &[12]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L)}\n", &[3, 4]),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", &[]),
        ] {
            let Literal::Dictionary(entries) = parse(text).unwrap() else { panic!("{text}") };
            assert_eq!(entries[0], ("descr".to_owned(), Literal::Text("<f4".to_owned())));
            assert_eq!(entries[1].1, Literal::Flag(false));
            assert_eq!(entries[2].1, shape(lengths), "{text}");
        }
    }

    #[test]
    fn what_python_would_not_read_is_refused() {
        for text in
            ["", "{", "{'a' 1}", "{'a': 1", "(1 2)", "'abc", "99999999999999999999", "1 1", "nil", "{1: 2}"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"(".repeat(100_000)).unwrap_err().to_string().contains("brackets inside"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[{}()\\[\\]'\",: a-z0-9\\\\TF]*") {
            let _ = parse(&text);
        }
    }
}
