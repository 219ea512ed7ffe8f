//! The `trimwire` command.
#![allow(dead_code)]
mod training;
fn main() {}
