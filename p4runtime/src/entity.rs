//! Entities.
use crate::p4info::Index;
use crate::v1;

/// An update in words.
pub fn describe_update(update: &v1::Update, _index: Option<&Index>) -> String {
    format!("{update:?}")
}
