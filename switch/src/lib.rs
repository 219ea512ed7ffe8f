//! Embedded software switch: BMv2-JSON engine, traffic manager, P4Runtime server

pub mod engine;
