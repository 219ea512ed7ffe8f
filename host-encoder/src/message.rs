// SPDX-License-Identifier: Apache-2.0
//! What users hold: encoders and receivers of rows, and messages, which are loops over rows.

mod choice;
mod decoder;
mod encoder;
mod figures;
mod kept_row;
#[expect(clippy::module_inception, reason = "an encoded message is one of the things that users hold")]
mod message;
mod receiver;
mod relay;
mod sealing;

pub use choice::{EncodedRow, RowChoice, RowJob};
pub use decoder::{Decoder, Stats};
pub use encoder::{EncodeError, Encoder};
pub use figures::{RowFigures, layer_class};
pub use message::Message;
pub use receiver::{OutputError, Receipt, RowReceiver};
