//! What a receiver of all of a row's packets holds, kept while they are written.

use crate::decode::words::RowWords;
use crate::quantise::statistics::Statistics;

/// A row's code words and its packets' statistics.
#[derive(Debug, Default)]
pub(crate) struct Own {
    pub(crate) words: RowWords,
    pub(crate) statistics: Vec<Statistics>,
}
