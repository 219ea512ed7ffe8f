// SPDX-License-Identifier: Apache-2.0
//! A channel other than the first, on its thread.

use super::Counts;
use crate::collective::{
    ChannelEnd, Collective, Communicator, Done, OperationError, Options, Outcome, StartError, Task,
};
use crate::driver::delegate::Delegate;
use crate::driver::{Application, Driver, Link, LinkError, Wake};
use crate::endpoint::{Endpoint, Event};
use crate::epoch::Epoch;
use crate::transcript::Filter;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

/// A channel tells what it counts so often.
const TELL_NS: u64 = 200_000_000;
/// Whose STOP was lost has asked again within this time.
const QUIET_NS: u64 = 300_000_000;
const LINGER_NS: u64 = 10_000_000_000;

/// What a channel is asked for.
#[derive(Debug)]
pub(super) enum Command {
    Start {
        number: u32,
        collective: Box<Collective>,
        options: Options,
    },
    Fail {
        number: u32,
        error: OperationError,
    },
    Adopt {
        epoch: Epoch,
        arrivals: Vec<(u16, u32)>,
    },
    Admit {
        rank: u16,
        address: SocketAddr,
    },
    Patience(u64),
    /// The first channel has met a rank, which listens on all of its channels then.
    Met {
        rank: u16,
    },
    Stop,
    Panic,
}

/// What it says.
#[derive(Debug)]
pub(super) enum News {
    Ended(Box<Outcome>),
    Refused { number: u32, reason: StartError },
    Died { why: ChannelEnd },
}

/// The application of its thread.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) channel: u16,
    pub(super) communicator: Communicator,
    /// Where rows are coded elsewhere.
    pub(super) delegate: Option<Delegate>,
    pub(super) commands: Receiver<Command>,
    pub(super) news: Sender<(u16, News)>,
    /// Of the first channel's driver.
    pub(super) first: Arc<Wake>,
    pub(super) filter: Filter,
    pub(super) stopping: bool,
}

impl Member {
    fn say(&self, news: News) {
        // Who does not listen any more need not hear.
        let _ = self.news.send((self.channel, news));
        self.first.wake();
    }

    fn take(&mut self, now_ns: u64, command: Command, endpoint: &mut Endpoint) {
        let communicator = &mut self.communicator;
        match command {
            Command::Start { number, collective, options } => {
                let begun = communicator.start(now_ns, number, *collective, options, endpoint);
                if let Err(reason) = begun {
                    self.say(News::Refused { number, reason });
                }
            }
            Command::Fail { number, error } => communicator.fail(now_ns, number, error, endpoint),
            Command::Adopt { epoch, arrivals } => communicator.adopt(now_ns, &epoch, &arrivals, endpoint),
            Command::Admit { rank, address } => endpoint.admit(now_ns, rank, address, None),
            Command::Met { rank } => endpoint.expect_answer(now_ns, rank),
            Command::Patience(patience_ns) => endpoint.set_patience(patience_ns),
            Command::Stop => {
                self.stopping = true;
                let numbers: Vec<u32> = communicator.active().collect();
                for number in numbers {
                    communicator.cancel(now_ns, number, endpoint);
                }
            }
            #[expect(clippy::panic, reason = "tests ask for it")]
            Command::Panic => panic!("a test asked for it"),
        }
    }
}

impl Application<()> for Member {
    fn on_event(&mut self, now_ns: u64, mut event: Event, endpoint: &mut Endpoint) -> ControlFlow<()> {
        self.filter.on_event_of_channel(now_ns, &mut event);
        self.communicator.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        let communicator = &mut self.communicator;
        match &mut self.delegate {
            None => communicator.poll_task(endpoint),
            Some(delegate) => delegate.poll_task(|| communicator.poll_task(endpoint)),
        }
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.communicator.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<()> {
        while let Some(done) = self.delegate.as_mut().and_then(Delegate::poll_done) {
            self.communicator.complete(now_ns, done, endpoint);
        }
        while let Ok(command) = self.commands.try_recv() {
            self.take(now_ns, command, endpoint);
        }
        // Epochs are the first channel's business.
        while self.communicator.poll_epoch().is_some() {}
        while let Some(mut outcome) = self.communicator.poll_outcome(now_ns, endpoint) {
            // The first channel has the same memory, and gives it back once nobody else has it: so
            // this one lets go before it says anything.
            (outcome.input, outcome.output) = (None, None);
            self.say(News::Ended(Box::new(outcome)));
        }
        if self.stopping && self.communicator.active().next().is_none() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// What its thread does until it is stopped.
pub(super) fn run<L: Link>(mut driver: Driver<L>, mut member: Member, counts: &Counts) {
    let channel = member.channel;
    let (news, first) = (member.news.clone(), Arc::clone(&member.first));
    let tell = |driver: &mut Driver<L>| {
        counts.tell(channel, (driver.endpoint().snapshot(), driver.link_stats()));
    };
    let ended = catch_unwind(AssertUnwindSafe(|| -> Result<(), LinkError> {
        tell(&mut driver);
        loop {
            let until_ns = driver.now_ns().saturating_add(TELL_NS);
            let stopped = driver.run(until_ns, &mut member)?.is_some();
            tell(&mut driver);
            if stopped {
                driver.linger(QUIET_NS, LINGER_NS)?;
                tell(&mut driver);
                return Ok(());
            }
        }
    }));
    let why = match ended {
        Ok(Ok(())) => return,
        Ok(Err(error)) => {
            tracing::error!("channel {channel} has ended: {error}");
            let kind = std::error::Error::source(&error).and_then(<dyn std::error::Error>::downcast_ref);
            ChannelEnd::Sockets(kind.map_or(ErrorKind::Other, std::io::Error::kind))
        }
        Err(_) => ChannelEnd::Panic,
    };
    // Whoever is told takes memory back that this one has.
    drop(driver);
    drop(member);
    let _ = news.send((channel, News::Died { why }));
    first.wake();
}
