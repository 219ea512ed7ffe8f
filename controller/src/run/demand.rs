//! Whether anybody wants to know what switches count: a sample asks for thousands of cells.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Who has asked comes again within that time.
const PATIENCE: Duration = Duration::from_secs(300);

/// When metrics were last asked for; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Demand(Arc<Mutex<Option<Instant>>>);

impl Demand {
    /// Somebody asks.
    pub(super) fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn is_there(&self) -> bool {
        self.is_there_at(Instant::now())
    }

    fn is_there_at(&self, now: Instant) -> bool {
        let asked = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        asked.is_some_and(|asked| now.saturating_duration_since(asked) < PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_stopped_asking_is_forgotten() {
        let demand = Demand::default();
        assert!(!demand.is_there());
        demand.note();
        assert!(demand.is_there());
        assert!(!demand.is_there_at(Instant::now() + PATIENCE));
    }
}
