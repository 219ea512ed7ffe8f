//! What the demo trains: data and model.
pub mod digits;
pub mod mlp;
