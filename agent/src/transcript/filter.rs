// SPDX-License-Identifier: Apache-2.0
//! Recording and replaying between an endpoint and whoever runs on it.

use super::record::OperationRecord;
use super::recorder::Recorder;
use super::replay::{Replay, ReplayError};
use super::writer::{Writer, Written};
use crate::collective::{Done, Task};
use crate::driver::Application;
use crate::endpoint::{Endpoint, Event};
use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What looks at the events of an endpoint: a transcript that is written, one that is replayed,
/// both or neither. A replay that is recorded gives the transcript again.
///
/// Clones are the same: channels of one rank show it their events, and it tells their messages
/// apart by their ids.
#[derive(Debug, Default, Clone)]
pub struct Filter {
    /// `None`: nothing is looked at.
    shared: Option<Arc<Mutex<Looking>>>,
}

#[derive(Debug)]
struct Looking {
    recorder: Recorder,
    writer: Option<Writer>,
    replay: Option<Replay<BufReader<File>>>,
    /// What a channel met, for whoever can end the run.
    failed: Option<ReplayError>,
}

impl Filter {
    /// Records with `writer`, replays `replay`.
    pub fn new(writer: Option<Writer>, replay: Option<Replay<BufReader<File>>>) -> Self {
        if writer.is_none() && replay.is_none() {
            return Self::default();
        }
        let looking = Looking { recorder: Recorder::default(), writer, replay, failed: None };
        Self { shared: Some(Arc::new(Mutex::new(looking))) }
    }

    fn lock(&self) -> Option<MutexGuard<'_, Looking>> {
        Some(self.shared.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether anything is recorded or replayed.
    pub fn is_used(&self) -> bool {
        self.shared.is_some()
    }

    /// Asks what is replayed; `None` where nothing is.
    pub fn with_replay<T>(&self, ask: impl FnOnce(&mut Replay<BufReader<File>>) -> T) -> Option<T> {
        self.lock()?.replay.as_mut().map(ask)
    }

    /// Shows it an event, before whoever takes it.
    ///
    /// # Errors
    /// As [`Replay::on_event`], of this event or of one that another channel has shown it.
    pub fn on_event(&self, now_ns: u64, event: &mut Event) -> Result<(), ReplayError> {
        let Some(mut looking) = self.lock() else { return Ok(()) };
        let Looking { recorder, writer, replay, failed } = &mut *looking;
        if let Some(error) = failed.take() {
            return Err(error);
        }
        if let Some(replay) = replay {
            replay.on_event(event)?;
        }
        if let Some(writer) = writer {
            recorder.on_event(now_ns, event);
            drain(recorder, writer);
        }
        Ok(())
    }

    /// Likewise, for a channel that cannot end the run: an error is whoever's comes next.
    pub fn on_event_of_channel(&self, now_ns: u64, event: &mut Event) {
        if let Err(error) = self.on_event(now_ns, event)
            && let Some(mut looking) = self.lock()
        {
            looking.failed.get_or_insert(error);
        }
    }

    /// Tells it of an operation that is over.
    ///
    /// # Errors
    /// As [`Replay::check_result`], where the operation ended well, or what a channel met.
    pub fn on_operation(&self, now_ns: u64, operation: OperationRecord) -> Result<(), ReplayError> {
        let Some(mut looking) = self.lock() else { return Ok(()) };
        let Looking { recorder, writer, replay, failed } = &mut *looking;
        let checked = match replay {
            Some(replay) if operation.failure.is_none() => replay.check_result(&operation),
            _ => Ok(()),
        };
        if let Some(writer) = writer {
            recorder.on_operation(now_ns, operation);
            drain(recorder, writer);
        }
        failed.take().map_or(checked, Err)
    }

    /// Ends the transcript that is written, if one is. What other channels see afterwards is in
    /// none.
    pub fn finish(self) -> Option<Written> {
        let writer = self.lock()?.writer.take();
        writer.map(Writer::finish)
    }
}

fn drain(recorder: &mut Recorder, writer: &mut Writer) {
    while let Some(record) = recorder.poll_record() {
        writer.push(record);
    }
}

/// An application whose events go through a filter. It ends early when a replay cannot go on.
#[derive(Debug)]
pub struct Filtered<'a, A> {
    /// Who takes the events.
    pub application: &'a mut A,
    /// Who sees them first.
    pub filter: &'a mut Filter,
}

type Outcome<T> = Result<T, ReplayError>;

impl<T, A: Application<T>> Application<Outcome<T>> for Filtered<'_, A> {
    fn on_event(
        &mut self,
        now_ns: u64,
        mut event: Event,
        endpoint: &mut Endpoint,
    ) -> ControlFlow<Outcome<T>> {
        if let Err(error) = self.filter.on_event(now_ns, &mut event) {
            return ControlFlow::Break(Err(error));
        }
        self.application.on_event(now_ns, event, endpoint).map_break(Ok)
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        self.application.poll_task(endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.application.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<Outcome<T>> {
        self.application.poll(now_ns, endpoint).map_break(Ok)
    }
}
