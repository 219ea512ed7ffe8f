// SPDX-License-Identifier: Apache-2.0
//! Rows that are coded elsewhere, of all channels of a rank: one queue of them, and for each the
//! way back to its channel.
#![forbid(unsafe_code)]

use super::Wake;
use crate::collective::{Done, Offloaded, Task};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Where what is done of a channel's rows is brought.
#[derive(Debug, Clone)]
pub struct Return {
    done: Sender<Done>,
    wake: Arc<Wake>,
}

impl Return {
    /// Gives a row back to its channel, if that goes on.
    pub fn bring(&self, done: Done) {
        let _ = self.done.send(done);
        self.wake.wake();
    }
}

/// A channel's end: takes its rows out of its tasks, and what is done of them in.
#[derive(Debug)]
pub struct Delegate {
    rows: Sender<(Offloaded, Return)>,
    back: Return,
    returned: Receiver<Done>,
    /// Those that nobody takes any more.
    refused: Vec<Done>,
}

impl Delegate {
    /// Of the channel whose driver `wake` wakes; rows go into the queue.
    pub fn new(rows: &Sender<(Offloaded, Return)>, wake: Arc<Wake>) -> Self {
        let (done, returned) = channel();
        Self { rows: rows.clone(), back: Return { done, wake }, returned, refused: Vec::new() }
    }

    /// The next task that is done here; those before it are handed out.
    pub fn poll_task(&mut self, mut next: impl FnMut() -> Option<Task>) -> Option<Task> {
        loop {
            match next()?.offload() {
                Err(task) => return Some(task),
                Ok(offloaded) => {
                    if let Err(refused) = self.rows.send((offloaded, self.back.clone())) {
                        self.refused.push(refused.0.0.fail());
                    }
                }
            }
        }
    }

    /// What is done meanwhile.
    pub fn poll_done(&mut self) -> Option<Done> {
        self.refused.pop().or_else(|| self.returned.try_recv().ok())
    }
}
