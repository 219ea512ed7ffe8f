// SPDX-License-Identifier: Apache-2.0
//! Many switches at a time, but not all.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

/// Work that takes longer than this is waiting for a switch rather than for this machine, and gives
/// its place to others.
const PATIENCE: Duration = Duration::from_millis(500);

/// A bounded number of places; clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Semaphore>);

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.max(1))))
    }

    /// Waits for a place and works. However many switches are slow or dead, the places come free
    /// for the others.
    pub(crate) async fn work<T>(&self, work: impl Future<Output = T>) -> T {
        // Never closed, so there is always a permit to be had.
        let place = self.0.acquire().await;
        let mut work = std::pin::pin!(work);
        if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
            return done;
        }
        drop(place);
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_that_never_ends_holds_up_nobody() {
        let places = Places::new(2);
        for _ in 0..8 {
            let places = places.clone();
            tokio::spawn(async move { places.work(std::future::pending::<()>()).await });
        }
        tokio::task::yield_now().await;
        let worked = tokio::time::timeout(Duration::from_secs(20), places.work(async { 7 })).await;
        assert_eq!(worked, Ok(7));
    }
}
