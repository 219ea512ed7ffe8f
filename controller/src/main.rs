//! The command `trimwire-controller`.
fn main() {}
