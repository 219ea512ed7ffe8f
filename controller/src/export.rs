//! Configurations for switches that trim without a program of ours.

pub mod sonic;
