//! The codecs that rht is compared with, in plain code: the HotNets'24 paper's (rht-paper, sign-magnitude, sq, sd) and the f32s as they are (raw).
//! docs/reference/wire-format.md §4 and §8 have their code words and what they decode to.

mod decode;
mod dither;
mod encode;
mod raw;

pub(crate) use decode::decode_row;
pub(crate) use encode::write_row;
