//! stub
use crate::failure::Outcome;
/// stub
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {}
pub(super) fn run(_: &Options) -> Outcome {
    Ok(())
}
