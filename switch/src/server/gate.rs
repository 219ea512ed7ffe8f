// SPDX-License-Identifier: Apache-2.0
//! The gate in front of the services: what a request may cost before anybody has decoded it.
//!
//! ```text
//!  HTTP/2 ──► length of the message ──► room for it ──► its bytes, in time ──► memory once decoded
//!             too long: refused         or waits        or refused            too much: refused
//! ```
//!
//! Room is taken from a connection's budget first and from the server's then, and given back when
//! the call has been answered, or on a stream when its next message begins.

use super::limits::Limits;
use super::peer::Peer;
use http_body::Frame;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep};
use tonic::body::Body;
use tonic::codegen::{Body as HttpBody, Bytes, Service, http};
use tonic::server::NamedService;
use tonic::transport::server::TlsConnectInfo;
use tonic::{Code, Status};
use trimwire_p4runtime::decoded::{self, DecodedError};

/// A message's flag and length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;
/// Bytes of a unit of the budgets.
const UNIT: usize = 1 << 10;
/// Bytes that a slow client may take a second for.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// What all connections share.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    limits: Arc<Limits>,
    memory: Arc<Semaphore>,
    calls: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        let memory = Arc::new(Semaphore::new(limits.memory_bytes.div_ceil(UNIT)));
        let calls = Arc::new(Semaphore::new(limits.calls));
        let reads = Arc::new(Semaphore::new(limits.reads));
        Self { limits, memory, calls, reads }
    }
}

/// A service behind the gate.
#[derive(Debug, Clone)]
pub(super) struct Gate<S> {
    inner: S,
    budget: Budget,
}

impl<S> Gate<S> {
    pub(super) fn new(inner: S, budget: Budget) -> Self {
        Self { inner, budget }
    }
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

/// What is asked of the messages of an RPC.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// As clients and `--limit` know it.
    name: &'static str,
    limit: &'static str,
    bytes: usize,
    /// The message's type; none where its numbers are all that it holds.
    message: Option<&'static str>,
    stream: bool,
    /// Places that a call waits for among those that are answered at a time, and has until its
    /// answer has been taken in.
    places: u32,
    /// Whether the answer comes as one message that may be long, which nobody else sees taken in.
    whole: bool,
}

fn rule(path: &str, limits: &Limits) -> Rule {
    let rule = Rule {
        name: "the request",
        limit: "request",
        bytes: limits.request_bytes,
        message: None,
        stream: false,
        places: 0,
        whole: false,
    };
    match path {
        "/p4.v1.P4Runtime/SetForwardingPipelineConfig" => Rule {
            name: "SetForwardingPipelineConfig",
            limit: "pipeline",
            bytes: limits.pipeline_bytes,
            message: Some("p4.v1.SetForwardingPipelineConfigRequest"),
            ..rule
        },
        // Its answer is a copy of all that was pushed: one at a time for each connection.
        "/p4.v1.P4Runtime/GetForwardingPipelineConfig" => Rule {
            name: "GetForwardingPipelineConfig",
            places: limits.reads_of_one() as u32,
            whole: true,
            ..rule
        },
        "/p4.v1.P4Runtime/Write" => Rule {
            name: "Write",
            limit: "write",
            bytes: limits.write_bytes,
            message: Some("p4.v1.WriteRequest"),
            ..rule
        },
        "/p4.v1.P4Runtime/Read" => {
            Rule { name: "Read", message: Some("p4.v1.ReadRequest"), places: 1, ..rule }
        }
        "/p4.v1.P4Runtime/StreamChannel" => {
            Rule { name: "StreamChannel", message: Some("p4.v1.StreamMessageRequest"), stream: true, ..rule }
        }
        // All queues of all ports.
        "/trimwire.switch.v1.Admin/Get" | "/trimwire.switch.v1.Admin/Stats" => {
            Rule { places: 1, whole: true, ..rule }
        }
        _ => rule,
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

impl<S> Service<http::Request<Body>> for Gate<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answering;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let budget = self.budget.clone();
        let Ok(place) = Arc::clone(&budget.calls).try_acquire_owned() else {
            let most = budget.limits.calls;
            let words = format!("{most} calls are open, and no more are taken (--limit calls-of-all)");
            return Box::pin(std::future::ready(Ok(Status::resource_exhausted(words).into_http())));
        };
        let rule = rule(request.uri().path(), &budget.limits);
        let patience = budget.limits.reader;
        // What the call has until it is carried out, and until its answer has been taken in.
        let (held, kept) = (Held::default(), Held::default());
        kept.add([place]);
        let peer = Peer::of(request.extensions());
        let request = request.map(|body| {
            Body::new(Admitted::new(body, rule, budget, peer.clone(), held.clone(), kept.clone()))
        });
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await;
            // A unary call has been carried out; a stream's body has its own share.
            held.clear();
            let untaken = peer.filter(|_| rule.whole).map(|peer| untaken(peer, rule, patience));
            answer.map(|response| {
                response.map(|body| Body::new(Counted { body, _kept: kept, _untaken: untaken }))
            })
        })
    }
}

/// Closes a connection if its client takes too long over an answer: until what this gives is
/// dropped. HTTP/2 does not ask for the end of a body before its client has room for it.
fn untaken(peer: Arc<Peer>, rule: Rule, patience: Duration) -> oneshot::Sender<()> {
    let (untaken, taken) = oneshot::channel();
    tokio::spawn(async move {
        if tokio::time::timeout(patience, taken).await.is_err() {
            let name = rule.name;
            tracing::warn!(
                "a client did not take in the answer to {name} within {patience:?}: its connection is closed"
            );
            peer.close();
        }
    });
    untaken
}

/// An answer that counts as a call until its end.
struct Counted {
    body: Body,
    _kept: Held,
    _untaken: Option<oneshot::Sender<()>>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Room of both budgets that a call has.
#[derive(Debug, Clone, Default)]
struct Held(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl Held {
    fn add(&self, permits: impl IntoIterator<Item = OwnedSemaphorePermit>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(permits);
    }

    fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// Room, and a place where calls wait for one.
type Room = Pin<Box<dyn Future<Output = (Vec<OwnedSemaphorePermit>, Vec<OwnedSemaphorePermit>)> + Send>>;

/// A request's body, message by message.
struct Admitted {
    body: Body,
    rule: Rule,
    budget: Budget,
    peer: Option<Arc<Peer>>,
    held: Held,
    kept: Held,
    /// What came and has not been passed on: a message's prefix and part of it.
    came: Vec<u8>,
    /// Bytes that the body has given and do not belong to the message that is being received.
    next: Bytes,
    /// The message's bytes with its prefix, where the prefix has come.
    wanted: Option<usize>,
    /// Room that is waited for.
    room: Option<Room>,
    /// Until when the message has to be there.
    due: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl Admitted {
    fn new(body: Body, rule: Rule, budget: Budget, peer: Option<Arc<Peer>>, held: Held, kept: Held) -> Self {
        let mut admitted = Self {
            body,
            rule,
            budget,
            peer,
            held,
            kept,
            came: Vec::new(),
            next: Bytes::new(),
            wanted: None,
            room: None,
            due: None,
            ended: false,
        };
        // A unary call's message is expected at once; a stream may be silent between two.
        if !rule.stream {
            admitted.begin(0);
        }
        admitted
    }

    /// A message of so many bytes has to come from here on.
    fn begin(&mut self, bytes: usize) {
        let time = self.budget.limits.body + Duration::from_secs(bytes as u64 / BYTES_PER_SECOND);
        let due = Instant::now() + time;
        match &mut self.due {
            Some(timer) => timer.as_mut().reset(due),
            None => self.due = Some(Box::pin(tokio::time::sleep_until(due))),
        }
    }

    fn too_long(&self, length: usize) -> Status {
        let Rule { name, limit, bytes, .. } = self.rule;
        Status::resource_exhausted(format!(
            "{name} of {length} bytes; at most {bytes} are taken (--limit {limit})"
        ))
    }

    /// Asks for a place, and both budgets for room.
    fn ask(&self, bytes: usize) -> Room {
        let limits = &self.budget.limits;
        let most = limits.memory_bytes.min(limits.connection_bytes).div_ceil(UNIT);
        let units = bytes.div_ceil(UNIT).min(most) as u32;
        let (server, queue) = (Arc::clone(&self.budget.memory), Arc::clone(&self.budget.reads));
        let (peer, places) = (self.peer.clone(), self.rule.places);
        // No semaphore is ever closed.
        Box::pin(async move {
            let (mut room, mut place) = (Vec::new(), Vec::new());
            if let Some(peer) = &peer {
                if places > 0 {
                    place.extend(Arc::clone(&peer.reads).acquire_many_owned(places).await);
                }
                room.extend(Arc::clone(&peer.memory).acquire_many_owned(units).await);
            }
            if places > 0 {
                place.extend(queue.acquire_many_owned(places).await);
            }
            room.extend(server.acquire_many_owned(units).await);
            (room, place)
        })
    }

    /// The whole message is here: whether it may be decoded.
    fn check(&mut self) -> Result<(), Status> {
        let Some(message) = self.rule.message else { return Ok(()) };
        let Rule { name, .. } = self.rule;
        if self.came.first() != Some(&0) {
            return Err(Status::unimplemented("compressed messages"));
        }
        let most = self.budget.limits.decoded_bytes;
        let encoded = self.came.get(PREFIX..).unwrap_or_default();
        let bytes = decoded::bytes(message, encoded, most).map_err(|error| match error {
            DecodedError::Beyond { most } => Status::resource_exhausted(format!(
                "{name}: decoded, it would take more than {most} bytes of memory (--limit decoded); send it in parts"
            )),
            error => Status::new(Code::InvalidArgument, format!("{name}: {error}")),
        })?;
        let units = (bytes as usize).div_ceil(UNIT) as u32;
        let room = Arc::clone(&self.budget.memory).try_acquire_many_owned(units).map_err(|_| {
            Status::resource_exhausted(format!(
                "{name}: {bytes} bytes of memory are more than other requests leave (--limit memory); try again"
            ))
        })?;
        self.held.add([room]);
        Ok(())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rule.stream && self.wanted.is_none() && self.came.is_empty() {
            // The message before this one has been dealt with.
            self.held.clear();
        }
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(room) = &mut self.room {
                match room.as_mut().poll(cx) {
                    Poll::Ready((room, place)) => {
                        self.held.add(room);
                        self.kept.add(place);
                        self.room = None;
                        // Who waited for its turn has all its time.
                        let wanted = self.wanted.unwrap_or_default();
                        self.begin(wanted);
                        self.came.reserve_exact(wanted.saturating_sub(self.came.len()));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.wanted == Some(self.came.len()) {
                self.check()?;
                self.wanted = None;
                if self.rule.stream {
                    self.due = None;
                } else {
                    // A client that has no more to say has to say that, too.
                    self.begin(0);
                }
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.came).into()))));
            }
            if self.next.is_empty() {
                match Pin::new(&mut self.body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        Ok(data) => self.next = data,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    },
                    Poll::Ready(other) => return Poll::Ready(other),
                    Poll::Pending => {
                        if let Some(due) = &mut self.due {
                            ready!(due.as_mut().poll(cx));
                            let (name, came) = (self.rule.name, self.came.len());
                            return Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
                                "{name}: {came} bytes came, and the rest did not in time (--limit body)"
                            )))));
                        }
                        return Poll::Pending;
                    }
                }
            }
            self.take()?;
        }
    }

    /// Takes what belongs to the message from what has come.
    fn take(&mut self) -> Result<(), Status> {
        if self.came.is_empty() && !self.next.is_empty() {
            self.begin(0);
        }
        let missing = self.wanted.unwrap_or(PREFIX) - self.came.len();
        let part = self.next.split_to(missing.min(self.next.len()));
        self.came.extend_from_slice(&part);
        if let (None, [_, length @ ..]) = (self.wanted, &self.came[..])
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            let length = u32::from_be_bytes(length) as usize;
            if length > self.rule.bytes {
                return Err(self.too_long(length));
            }
            self.wanted = Some(PREFIX + length);
            // Here, and once more where the service puts it together.
            self.room = Some(self.ask(2 * length));
        }
        Ok(())
    }
}

impl HttpBody for Admitted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = self.poll(cx);
        if matches!(polled, Poll::Ready(Some(Err(_)))) {
            // Nothing of what came is of use.
            self.ended = true;
            (self.came, self.next) = (Vec::new(), Bytes::new());
            self.held.clear();
            self.room = None;
        }
        polled
    }
}

impl Peer {
    /// Whose request it is, where its connection was accepted here.
    pub(super) fn of(extensions: &http::Extensions) -> Option<Arc<Self>> {
        let plain = extensions.get::<Arc<Self>>();
        let inside = || extensions.get::<TlsConnectInfo<Arc<Self>>>().map(TlsConnectInfo::get_ref);
        plain.or_else(inside).cloned()
    }
}
