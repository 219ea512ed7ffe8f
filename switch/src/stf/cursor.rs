// SPDX-License-Identifier: Apache-2.0
//! Reads a statement character by character.

/// A place in a statement.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

type Result<T> = std::result::Result<T, String>;

fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_' || c == '$'
}

fn in_name(c: char) -> bool {
    starts_name(c) || c.is_ascii_digit()
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut cursor = Self { rest: text };
        cursor.skip_space();
        cursor
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !keep(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// What stands here, for messages.
    fn here(&self) -> String {
        match self.rest.split_whitespace().next() {
            None => "the end of the statement".to_owned(),
            Some(word) => format!("'{}'", word.chars().take(40).collect::<String>()),
        }
    }

    pub(super) fn expected(&self, what: &str) -> String {
        format!("expected {what}, found {}", self.here())
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.is_at_end() { Ok(()) } else { Err(self.expected("the end of the line")) }
    }

    pub(super) fn eat(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest;
        self.skip_space();
        true
    }

    pub(super) fn need(&mut self, token: &str) -> Result<()> {
        if self.eat(token) { Ok(()) } else { Err(self.expected(&format!("'{token}'"))) }
    }

    /// One name without dots.
    pub(super) fn identifier(&mut self) -> Result<&'a str> {
        let name = match self.peek() {
            Some('"') => {
                let end = self.rest.get(1..).and_then(|rest| rest.find('"'));
                let end = end.ok_or_else(|| "a quoted name without its closing '\"'".to_owned())?;
                let quoted = self.take(end + 2);
                quoted.trim_matches('"')
            }
            Some(c) if starts_name(c) => self.take_while(in_name),
            _ => return Err(self.expected("a name")),
        };
        self.skip_space();
        Ok(name)
    }

    /// A name with dots and indices, such as `hdr.stack[1].f`.
    pub(super) fn qualified(&mut self) -> Result<String> {
        let mut name = self.identifier()?.to_owned();
        loop {
            if self.eat(".") {
                name.push('.');
                name.push_str(self.identifier()?);
            } else if self.eat("[") {
                let index = self.take_while(|c| c.is_ascii_digit());
                if index.is_empty() {
                    return Err(self.expected("an index"));
                }
                self.skip_space();
                self.need("]")?;
                name.extend(["[", index, "]"]);
            } else {
                return Ok(name);
            }
        }
    }

    /// The text of a number, digits and wildcards unchecked.
    pub(super) fn number(&mut self) -> Result<&'a str> {
        if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
            return Err(self.expected("a number"));
        }
        let number = self.take_while(|c| c.is_ascii_alphanumeric() || c == '*');
        self.skip_space();
        Ok(number)
    }

    /// A number with a fraction.
    pub(super) fn decimal(&mut self) -> Result<f64> {
        let text = self.take_while(|c| c.is_ascii_digit() || c == '.');
        let number = text.parse().map_err(|_| self.expected("a number"))?;
        self.skip_space();
        Ok(number)
    }

    /// A number that fits `T`.
    pub(super) fn integer<T: TryFrom<u64>>(&mut self, what: &str) -> Result<T> {
        let text = self.number()?;
        let digits = |prefix: &str| text.to_ascii_lowercase().strip_prefix(prefix).map(str::to_owned);
        let number = match (digits("0x"), digits("0b")) {
            (Some(hex), _) => u64::from_str_radix(&hex, 16),
            (_, Some(binary)) => u64::from_str_radix(&binary, 2),
            _ => text.parse(),
        };
        let number = number.map_err(|_| format!("'{text}' is no {what}"))?;
        T::try_from(number).map_err(|_| format!("{number} is too large for a {what}"))
    }
}
