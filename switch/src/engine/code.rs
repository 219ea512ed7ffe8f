// SPDX-License-Identifier: Apache-2.0
//! What a program is made of once it is loaded: one flat list of small instructions over the limbs
//! of a frame.
//!
//! ```text
//! frame   │ packet header vector │ action's arguments │ scratch │ constants │
//! code    │ parser ─► verification │ ingress │ egress │ checksums, deparser │ tables' actions │
//! ```
//!
//! An instruction names limbs of the frame: constants lie there, too, so that one form of each
//! operation is enough. Numbers of more than 64 bits are runs of limbs, least significant first,
//! and have instructions of their own. A control's nodes and the bodies of actions that no table
//! calls follow each other as a packet meets them; an action that tables call stands once and ends
//! with [`Insn::Return`].

mod action;
mod effect;
mod emitter;
mod facts;
mod flow;
pub(crate) mod form;
mod header;
mod insn;
mod number;
mod parser;
mod straighten;
mod truth;

pub use action::DROP_PORT;
pub(crate) use effect::Effect;
pub(crate) use flow::{Source, compile};
pub(crate) use form::{CaseValues, Code, Next, SelectSet, VarbitCopy};
pub(crate) use insn::{Insn, NONE, Part, WideOp};
