// SPDX-License-Identifier: Apache-2.0
//! Where and how ranks meet.
#![forbid(unsafe_code)]

use super::master::Master;
use super::tls::Security;
use std::time::Duration;

/// Where and how ranks meet.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where rank 0 listens.
    pub master: Master,
    /// What ranks know each other by; the same on all.
    pub security: Security,
    /// How long ranks wait for each other.
    pub timeout: Duration,
}
