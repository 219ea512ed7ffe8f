// SPDX-License-Identifier: Apache-2.0
//! Threads that tell Python what is over.

use super::locks::lock;
use super::work::State;
use pyo3::prelude::*;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use trimwire_agent::collective::Memory;

/// Threads that wait for the next operation's end at most: one that has just called back, and the
/// one that stood in for it.
const SPARE: usize = 2;

/// What an operation leaves to threads that may wait for the interpreter.
pub(super) struct Leftover {
    pub(super) state: Arc<State>,
    pub(super) _memory: (Option<Memory>, Option<Memory>),
}

/// Threads that free tensors and call back.
///
/// A callback may wait for another operation, whose callback then needs a thread, too. So a thread
/// that is about to call back makes sure that another one waits for the next operation's end.
pub(super) struct Notifiers {
    leftovers: Mutex<Receiver<Leftover>>,
    crew: Mutex<Crew>,
    left: Condvar,
}

#[derive(Default)]
struct Crew {
    threads: Vec<ThreadId>,
    /// How many of them wait.
    waiting: usize,
}

impl Notifiers {
    /// The first thread.
    pub(super) fn start(leftovers: Receiver<Leftover>) -> std::io::Result<Arc<Self>> {
        let notifiers =
            Self { leftovers: Mutex::new(leftovers), crew: Mutex::default(), left: Condvar::new() };
        let notifiers = Arc::new(notifiers);
        notifiers.add()?;
        Ok(notifiers)
    }

    fn add(self: &Arc<Self>) -> std::io::Result<()> {
        let own = Arc::clone(self);
        let mut crew = lock(&self.crew);
        let thread = std::thread::Builder::new().name("trimwire-notify".into()).spawn(move || own.run())?;
        crew.threads.push(thread.thread().id());
        crew.waiting += 1;
        Ok(())
    }

    fn run(self: &Arc<Self>) {
        loop {
            let next = lock(&self.leftovers).recv();
            let others = {
                let mut crew = lock(&self.crew);
                crew.waiting -= 1;
                crew.waiting
            };
            let Ok(Leftover { state, _memory: memory }) = next else { break };
            drop(memory);
            let callbacks = std::mem::take(&mut *lock(&state.callbacks));
            if others == 0
                && !callbacks.is_empty()
                && let Err(error) = self.add()
            {
                tracing::warn!(
                    "callbacks that wait for other operations may wait for ever: no thread: {error}"
                );
            }
            for callback in callbacks {
                Python::attach(|py| {
                    if let Err(error) = callback.call0(py) {
                        error.write_unraisable(py, None);
                    }
                });
            }
            let mut crew = lock(&self.crew);
            if crew.waiting >= SPARE {
                break;
            }
            crew.waiting += 1;
        }
        let own = std::thread::current().id();
        lock(&self.crew).threads.retain(|&thread| thread != own);
        self.left.notify_all();
    }

    /// Waits for all threads but the caller's, once no more operations can end.
    pub(super) fn join(&self) {
        let own = std::thread::current().id();
        let others = |crew: &mut Crew| crew.threads.iter().any(|&thread| thread != own);
        drop(self.left.wait_while(lock(&self.crew), others).unwrap_or_else(PoisonError::into_inner));
    }
}
