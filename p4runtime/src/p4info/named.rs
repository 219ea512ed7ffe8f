// SPDX-License-Identifier: Apache-2.0
//! Objects of a program, and what a P4Info may be wrong about.

use crate::config::{self, Preamble};

/// An object of a P4 program that has an id and a fully qualified name.
pub trait Named {
    /// What the object is, in words: "table", "counter", …
    const KIND: &'static str;

    /// Where id, name and alias stand; `None` in a malformed P4Info only, which
    /// [`Index::new`](super::Index::new) refuses.
    fn preamble(&self) -> Option<&Preamble>;

    /// Id on the wire.
    fn id(&self) -> u32 {
        self.preamble().map_or(0, |preamble| preamble.id)
    }

    /// Fully qualified name.
    fn name(&self) -> &str {
        self.preamble().map_or("", |preamble| &preamble.name)
    }

    /// Short name; may be empty.
    fn alias(&self) -> &str {
        self.preamble().map_or("", |preamble| &preamble.alias)
    }
}

macro_rules! named {
    ($($type:ident: $kind:literal),* $(,)?) => {$(
        impl Named for config::$type {
            const KIND: &'static str = $kind;
            fn preamble(&self) -> Option<&Preamble> {
                self.preamble.as_ref()
            }
        }
    )*};
}

named! {
    Table: "table",
    Action: "action",
    ActionProfile: "action profile",
    Counter: "counter",
    DirectCounter: "direct counter",
    Meter: "meter",
    DirectMeter: "direct meter",
    ControllerPacketMetadata: "controller header",
    ValueSet: "value set",
    Register: "register",
    Digest: "digest",
    ExternInstance: "extern instance",
}

/// Why a P4Info cannot be indexed: it contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// An object without preamble, or with id 0 or an empty name.
    #[error("P4Info: {kind} number {position} has no id or no name")]
    Nameless {
        /// "table", …
        kind: &'static str,
        /// From 0, in P4Info's order.
        position: usize,
    },
    /// Two objects have one id.
    #[error("P4Info: {kind} {name:?} and {other:?} share the id {id:#010x}")]
    DuplicateId {
        /// Kind of the second one.
        kind: &'static str,
        /// The second one.
        name: String,
        /// The first one.
        other: String,
        /// Their id.
        id: u32,
    },
    /// Two objects of one kind have one name.
    #[error("P4Info: two objects of kind {kind} are named {name:?}")]
    DuplicateName {
        /// Their kind.
        kind: &'static str,
        /// Their name.
        name: String,
    },
    /// An object refers to something that is not there.
    #[error("P4Info: {kind} {name:?} refers to {target} with id {id:#010x}, which does not exist")]
    Dangling {
        /// Kind of the object that refers.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What it refers to.
        target: &'static str,
        /// The id without an object.
        id: u32,
    },
    /// A match field or parameter with id 0, a doubled id or name, or a negative width.
    #[error("P4Info: {kind} {name:?}: {reason}")]
    Element {
        /// Kind of the object that has the element.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, naming the element.
        reason: String,
    },
}
