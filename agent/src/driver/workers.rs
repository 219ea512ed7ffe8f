// SPDX-License-Identifier: Apache-2.0
//! Codec threads: they and the network's thread meet in two queues, one for tasks, of bounded
//! length, one for what is done.

use super::wake::Wake;
use crate::collective::{Done, Task};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Tasks a thread that are out at once: the one that it works on, and the one that it takes next.
const AHEAD: usize = 2;

/// Threads that run tasks.
#[derive(Debug)]
pub(super) struct Workers {
    /// `None` when they are to end.
    tasks: Option<SyncSender<Task>>,
    done: Receiver<Done>,
    wake: Arc<Wake>,
    threads: Vec<JoinHandle<()>>,
    out: usize,
}

impl Workers {
    /// Starts that many; `wake` ends the wait of the network's thread.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(super) fn start(count: usize, wake: Arc<Wake>) -> std::io::Result<Self> {
        let (tasks, queue) = sync_channel::<Task>(count * AHEAD);
        let (finished, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut this = Self { tasks: Some(tasks), done, wake, threads: Vec::new(), out: 0 };
        for nth in 0..count {
            let (queue, finished, wake) = (Arc::clone(&queue), finished.clone(), Arc::clone(&this.wake));
            let thread = std::thread::Builder::new().name(format!("trimwire-codec-{nth}"));
            this.threads.push(thread.spawn(move || work(&queue, &finished, &wake))?);
        }
        Ok(this)
    }

    /// Whether one more task would be taken.
    pub(super) fn has_room(&self) -> bool {
        self.out < self.threads.len() * AHEAD
    }

    /// Whether tasks are out.
    pub(super) fn is_busy(&self) -> bool {
        self.out > 0
    }

    /// Hands a task to a thread. Where none would take it, it is done here.
    pub(super) fn submit(&mut self, task: Task) -> Option<Done> {
        let Some(tasks) = &self.tasks else { return Some(task.run()) };
        match tasks.try_send(task) {
            Ok(()) => {
                self.out += 1;
                None
            }
            Err(TrySendError::Full(task) | TrySendError::Disconnected(task)) => Some(task.run()),
        }
    }

    /// A task that is done.
    pub(super) fn poll_done(&mut self) -> Option<Done> {
        match self.done.try_recv() {
            Ok(done) => {
                self.out -= 1;
                Some(done)
            }
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.tasks = None;
        for thread in self.threads.drain(..) {
            // It catches what tasks do.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<Task>>, finished: &Sender<Done>, wake: &Wake) {
    loop {
        let task = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(task) = task else { return };
        let lost = task.lost();
        let done = catch_unwind(AssertUnwindSafe(|| task.run())).unwrap_or(lost);
        if finished.send(done).is_err() {
            return;
        }
        wake.wake();
    }
}
