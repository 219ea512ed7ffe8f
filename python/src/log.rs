// SPDX-License-Identifier: Apache-2.0
//! What the native module says of its work, on stderr, as the programs do.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "TRIMWIRE_DEBUG";
const DEFAULT: &str = "warn";

/// Lets messages out that `TRIMWIRE_DEBUG` asks for; warnings without it. A second time nothing
/// happens.
pub(crate) fn begin() {
    let said = std::env::var("TRIMWIRE_DEBUG").ok().filter(|said| !said.is_empty());
    let filter = said.as_deref().unwrap_or(DEFAULT).parse::<EnvFilter>();
    let (filter, error) = match filter {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter);
    if subscriber.try_init().is_ok()
        && let Some(error) = error
    {
        let said = said.unwrap_or_default();
        tracing::warn!(
            "{VARIABLE}={said}: {error}; a module may stand before it, as in trimwire_agent=debug. Warnings alone are shown"
        );
    }
}
