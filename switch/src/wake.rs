// SPDX-License-Identifier: Apache-2.0
//! How a driver hears of changes.

use std::sync::Arc;

/// Called when a driver should look at the switch soon.
pub type Wake = Arc<dyn Fn() + Send + Sync>;
