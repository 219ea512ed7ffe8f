//! The `trimwire` command.
fn main() {}
