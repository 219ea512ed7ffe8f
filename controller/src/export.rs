// SPDX-License-Identifier: Apache-2.0
//! Configurations for switches that trim without a program of ours.

pub mod sonic;
