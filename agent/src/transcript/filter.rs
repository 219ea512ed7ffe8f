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

/// What looks at the events of an endpoint: a transcript that is written, one that is replayed, both or neither. A replay that is recorded gives the transcript again.
#[derive(Debug, Default)]
pub struct Filter {
    recorder: Recorder,
    writer: Option<Writer>,
    replay: Option<Replay<BufReader<File>>>,
}

impl Filter {
    /// Records with `writer`, replays `replay`.
    pub fn new(writer: Option<Writer>, replay: Option<Replay<BufReader<File>>>) -> Self {
        Self { recorder: Recorder::default(), writer, replay }
    }

    /// Whether anything is recorded or replayed.
    pub fn is_used(&self) -> bool {
        self.writer.is_some() || self.replay.is_some()
    }

    /// What is replayed.
    pub fn replay(&mut self) -> Option<&mut Replay<BufReader<File>>> {
        self.replay.as_mut()
    }

    /// Shows it an event, before whoever takes it.
    ///
    /// # Errors
    /// As [`Replay::on_event`].
    pub fn on_event(&mut self, now_ns: u64, event: &mut Event) -> Result<(), ReplayError> {
        if let Some(replay) = &mut self.replay {
            replay.on_event(event)?;
        }
        if let Some(writer) = &mut self.writer {
            self.recorder.on_event(now_ns, event);
            drain(&mut self.recorder, writer);
        }
        Ok(())
    }

    /// Tells it of an operation that is over.
    ///
    /// # Errors
    /// As [`Replay::check_result`], where the operation ended well.
    pub fn on_operation(&mut self, now_ns: u64, operation: OperationRecord) -> Result<(), ReplayError> {
        let checked = match &mut self.replay {
            Some(replay) if operation.failure.is_none() => replay.check_result(&operation),
            _ => Ok(()),
        };
        if let Some(writer) = &mut self.writer {
            self.recorder.on_operation(now_ns, operation);
            drain(&mut self.recorder, writer);
        }
        checked
    }

    /// Ends the transcript that is written, if one is.
    pub fn finish(self) -> Option<Written> {
        self.writer.map(Writer::finish)
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
