// SPDX-License-Identifier: Apache-2.0
//! P4Info: reading and writing it, and looking things up in it.
//!
//! ```
//! use trimwire_p4runtime::p4info::{Index, P4Info};
//!
//! let p4info = P4Info::from_text(
//!     r#"tables { preamble { id: 33554433 name: "Ingress.route" alias: "route" } size: 64 }"#,
//! )?;
//! let index = Index::new(&p4info)?;
//! assert_eq!(index.table("Ingress.route")?.id(), 0x0200_0001);
//! assert_eq!(
//!     index.table("Ingress.rout").unwrap_err().to_string(),
//!     r#"the P4Info has no table "Ingress.rout"; did you mean Ingress.route?"#
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod consistency;
mod index;
mod lookup;
mod named;
mod refs;
mod text;

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};

pub use self::index::Index;
pub(crate) use self::index::find_element;
pub use self::lookup::{Key, LookupError, nearest};
pub use self::named::{IndexError, Named};
pub use self::refs::{ActionRef, TableRef};
pub use crate::config::P4Info;

/// The `.proto` files of this crate and what they import, as an encoded `FileDescriptorSet` (for
/// gRPC reflection too).
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// Deepest nesting of messages that is read. Prost's limit for the binary form; the text form is
/// held to it as well, so that hostile text cannot exhaust the stack.
const DEEPEST: usize = 100;

/// Why bytes are not a P4Info.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum P4InfoError {
    /// Not protobuf text format, or a field that P4Info does not have.
    #[error("P4Info text, line {line}, column {column}: {reason}")]
    Text {
        /// From 1; the last line when the text ends too early.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong there.
        reason: String,
    },
    /// Not a P4Info message in protobuf's binary form.
    #[error("binary P4Info of {length} bytes: {reason}")]
    Binary {
        /// Bytes given.
        length: usize,
        /// What the decoder says.
        reason: String,
    },
}

impl P4Info {
    /// Reads the text form that `p4c --p4runtime-files x.txtpb` writes.
    pub fn from_text(text: &str) -> Result<Self, P4InfoError> {
        limit_depth(text)?;
        let message = DynamicMessage::parse_text_format(descriptor().clone(), text).map_err(|error| {
            let offset = miette_offset(&error).unwrap_or(text.len());
            text_error(text, offset, error.to_string())
        })?;
        message
            .transcode_to()
            .map_err(|error| P4InfoError::Binary { length: text.len(), reason: error.to_string() })
    }

    /// Reads the binary form.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, P4InfoError> {
        Self::decode(bytes)
            .map_err(|error| P4InfoError::Binary { length: bytes.len(), reason: error.to_string() })
    }

    /// Reads either form, for files given by a user: text if it parses as text, else binary. When
    /// neither parses, the error is the text's for UTF-8 and the binary's otherwise.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, P4InfoError> {
        let Ok(text) = std::str::from_utf8(bytes) else { return Self::from_binary(bytes) };
        Self::from_text(text).or_else(|error| {
            // Short garbage may pass as a binary message of unknown fields only.
            Self::from_binary(bytes).ok().filter(|p4info| *p4info != Self::default()).ok_or(error)
        })
    }

    /// The text form, byte for byte as p4c writes it (but for p4c's comment lines at the top). The
    /// same P4Info always gives the same text.
    pub fn to_text(&self) -> String {
        let mut message = DynamicMessage::new(descriptor().clone());
        let mut text = String::new();
        // Encoding what this crate's own types hold always decodes with this crate's own
        // descriptors.
        if message.transcode_from(self).is_ok() {
            text::write_message(&message, 0, &mut text);
        }
        text
    }
}

fn descriptor() -> &'static MessageDescriptor {
    static DESCRIPTOR: LazyLock<MessageDescriptor> = LazyLock::new(|| {
        DescriptorPool::decode(FILE_DESCRIPTOR_SET)
            .expect("built by build.rs")
            .get_message_by_name("p4.config.v1.P4Info")
            .expect("defined in p4info.proto")
    });
    &DESCRIPTOR
}

/// Byte offset that a parse error points to; none when it is the end of the text.
fn miette_offset(error: &prost_reflect::text_format::ParseError) -> Option<usize> {
    use miette::Diagnostic;
    error.labels()?.next().map(|label| label.offset())
}

fn text_error(text: &str, offset: usize, reason: String) -> P4InfoError {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    P4InfoError::Text {
        line: before.matches('\n').count() + 1,
        column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
        reason,
    }
}

/// Refuses text nested deeper than [`DEEPEST`], which the recursive parser would follow down the
/// stack.
///
/// Strings and comments are skipped by the text format's own rules. Where those are broken (a
/// string that ends with its line) the parser stops at that place, so nothing behind it matters.
fn limit_depth(text: &str) -> Result<(), P4InfoError> {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_usize, 0_usize);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'{' | b'<' | b'[' => depth += 1,
            b'}' | b'>' | b']' => depth = depth.saturating_sub(1),
            b'#' => {
                at += bytes.get(at..).unwrap_or_default().iter().take_while(|b| **b != b'\n').count();
            }
            quote @ (b'"' | b'\'') => {
                at += 1;
                loop {
                    match bytes.get(at) {
                        None | Some(b'\n') => return Ok(()),
                        Some(b'\\') => at += 1,
                        Some(b) if *b == quote => break,
                        Some(_) => {}
                    }
                    at += 1;
                }
            }
            _ => {}
        }
        if depth > DEEPEST {
            return Err(text_error(text, at, format!("nested deeper than {DEEPEST} messages")));
        }
        at += 1;
    }
    Ok(())
}
