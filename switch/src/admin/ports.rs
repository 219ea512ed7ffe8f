// SPDX-License-Identifier: Apache-2.0
//! Which ports can be used, for those that watch: one task looks at the switch, however many there
//! are.
//!
//! A look takes the lock that the driver forwards under, so that a thousand watchers that look for
//! themselves would hold frames up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tonic::Status;
use trimwire_p4runtime::admin as v1;

/// How often ports are looked at while somebody watches them.
const LOOK: Duration = Duration::from_millis(10);
/// After which a watcher is told something, be it nothing new.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Ports, and whether each can be used.
pub(super) type Usable = BTreeMap<u16, bool>;

/// What all watchers share.
#[derive(Clone)]
pub(super) struct Ports {
    look: Arc<dyn Fn() -> Usable + Send + Sync>,
    usable: Arc<watch::Sender<Usable>>,
    begun: Arc<Notify>,
}

impl Ports {
    pub(super) fn new(look: impl Fn() -> Usable + Send + Sync + 'static) -> Self {
        Self { look: Arc::new(look), usable: Arc::default(), begun: Arc::default() }
    }

    fn look(&self) {
        let found = (self.look)();
        self.usable.send_if_modified(|known| {
            let changed = *known != found;
            *known = found;
            changed
        });
    }

    /// Looks for as long as somebody watches, and waits for the next one then; it never ends.
    pub(super) async fn pump(self) {
        loop {
            self.begun.notified().await;
            while self.usable.receiver_count() > 0 {
                tokio::time::sleep(LOOK).await;
                self.look();
            }
        }
    }

    /// Tells of all ports, and of those that change then, until nobody listens.
    pub(super) async fn watch(self, told: mpsc::Sender<Result<v1::PortStates, Status>>) {
        let mut watched = self.usable.subscribe();
        // The pump may have slept until here.
        self.look();
        self.begun.notify_one();
        let mut known = Usable::new();
        loop {
            let usable = watched.borrow_and_update().clone();
            let changed = usable.iter().filter(|(port, usable)| known.get(*port) != Some(*usable));
            let ports = changed.map(|(&port, &usable)| v1::PortState { port: port.into(), usable }).collect();
            if told.send(Ok(v1::PortStates { ports })).await.is_err() {
                return;
            }
            known = usable;
            tokio::select! {
                () = told.closed() => return,
                _ = watched.changed() => {}
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    use tokio::time::Instant;

    const WATCHERS: u32 = 500;

    #[tokio::test]
    async fn a_port_that_goes_down_is_told_to_all_watchers_by_one_that_looks() {
        let (up, looks) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
        let ports = Ports::new({
            let (up, looks) = (Arc::clone(&up), Arc::clone(&looks));
            move || {
                looks.fetch_add(1, Relaxed);
                Usable::from([(1, true), (2, up.load(Relaxed))])
            }
        });
        let pump = tokio::spawn(ports.clone().pump());
        let begun = Instant::now();
        let mut watchers = Vec::new();
        for _ in 0..WATCHERS {
            let (told, states) = mpsc::channel(4);
            tokio::spawn(ports.clone().watch(told));
            watchers.push(states);
        }
        let state = |port, usable| v1::PortState { port, usable };
        for states in &mut watchers {
            assert_eq!(states.recv().await.unwrap().unwrap().ports, [state(1, true), state(2, true)]);
        }
        // Time for those that look by themselves to show.
        tokio::time::sleep(30 * LOOK).await;
        up.store(false, Relaxed);
        for states in &mut watchers {
            let mut news = states.recv().await.unwrap().unwrap().ports;
            while news.is_empty() {
                news = states.recv().await.unwrap().unwrap().ports;
            }
            assert_eq!(news, [state(2, false)]);
        }
        // A sleep is never shorter than it is asked for.
        let most = WATCHERS + 1 + (begun.elapsed().as_nanos() / LOOK.as_nanos()) as u32;
        assert!(looks.load(Relaxed) <= most, "{} looks, of at most {most}", looks.load(Relaxed));
        drop(watchers);
        pump.abort();
    }
}
