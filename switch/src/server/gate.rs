// SPDX-License-Identifier: Apache-2.0
//! The gate in front of the services: what a request may cost before anybody has decoded it.
//!
//! ```text
//!  HTTP/2 ──► length of the message ──► room for it ──► its bytes, in time ──► memory once decoded
//!             too long: refused         or waits        or refused            too much: refused
//! ```
//!
//! Room is taken as bytes arrive, whatever a client announces, and given back when the call has
//! been answered, or on a stream when its next message begins. Primaries and named controllers have
//! room, places for Reads and places for calls that nobody else can take; what others have is
//! bounded for each connection, and for all of them together.

use super::limits::{Limits, REQUEST_BYTES};
use super::peer::{CALLS, Peer};
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
use tonic::codegen::http::{self, Extensions};
use tonic::codegen::{Body as HttpBody, Bytes, Service};
use tonic::server::NamedService;
use tonic::{Code, Status};
use trimwire_p4runtime::decoded::{self, DecodedError};

/// A message's flag and length (gRPC over HTTP/2, "Length-Prefixed-Message").
const PREFIX: usize = 5;
/// Bytes of a unit of the budgets.
const UNIT: usize = 1 << 10;
/// Bytes that a slow client may take a second for.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// Bytes of a message, and of what it becomes when it is decoded, that need no room: so a bid and a
/// small request are heard whatever others send.
const FREE: usize = 4 << 10;
/// Bytes for which room is taken at a time.
const STEP: usize = 64 << 10;
/// Reads, and other requests with long answers, that are answered at a time; and one connection's.
const READS: usize = 16;
pub(super) const READS_OF_ONE: u32 = 4;
/// Bytes that a call takes beside its messages: headers, settings, acknowledgements.
const CALL_BYTES: usize = 256;
/// Calls that a connection without a lane may have open.
const CALLS_OF_OTHERS: usize = 16;

/// What all connections share.
#[derive(Debug, Clone)]
pub(super) struct Budget {
    limits: Arc<Limits>,
    lane: Pool,
    others: Pool,
}

/// What is shared by those with a lane, or by those without.
#[derive(Debug, Clone)]
struct Pool {
    memory: Arc<Semaphore>,
    reads: Arc<Semaphore>,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(bytes.div_ceil(UNIT))),
            reads: Arc::new(Semaphore::new(READS)),
        }
    }
}

impl Budget {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        let (lane, others) = (
            Pool::new(limits.memory_bytes.max(limits.memory_of_others())),
            Pool::new(limits.memory_of_others()),
        );
        Self { limits, lane, others }
    }

    fn pool(&self, peer: &Peer) -> &Pool {
        if peer.has_lane() { &self.lane } else { &self.others }
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
    /// As clients know it.
    name: &'static str,
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

impl Rule {
    /// Whether the request is of use until its answer has ended.
    fn goes_on(&self) -> bool {
        self.places > 0 && !self.whole
    }
}

fn rule(path: &str, limits: &Limits) -> Rule {
    let rule = Rule {
        name: "the request",
        bytes: REQUEST_BYTES,
        message: None,
        stream: false,
        places: 0,
        whole: false,
    };
    match path {
        "/p4.v1.P4Runtime/SetForwardingPipelineConfig" => Rule {
            name: "SetForwardingPipelineConfig",
            bytes: limits.pipeline_bytes(),
            message: Some("p4.v1.SetForwardingPipelineConfigRequest"),
            ..rule
        },
        // Its answer is a copy of all that was pushed: one at a time for each connection.
        "/p4.v1.P4Runtime/GetForwardingPipelineConfig" => {
            Rule { name: "GetForwardingPipelineConfig", places: READS_OF_ONE, whole: true, ..rule }
        }
        "/p4.v1.P4Runtime/Write" => {
            Rule { name: "Write", bytes: limits.write_bytes(), message: Some("p4.v1.WriteRequest"), ..rule }
        }
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
        let limits = &budget.limits;
        let peer = Peer::of(request.extensions()).unwrap_or_else(|| Peer::new(limits));
        if !peer.has_lane() && limits.identities.is_controller(request.extensions()) {
            peer.name();
        }
        peer.touch();
        let open = CALLS - peer.calls.available_permits();
        let place = Arc::clone(&peer.calls).try_acquire_owned().ok();
        let Some(place) = place.filter(|_| peer.has_lane() || open < CALLS_OF_OTHERS) else {
            let words = format!(
                "{open} calls of this connection are open, and only a primary or a named controller may have more than \
                 {CALLS_OF_OTHERS}"
            );
            return Box::pin(std::future::ready(Ok(Status::resource_exhausted(words).into_http())));
        };
        let rule = rule(request.uri().path(), limits);
        let patience = limits.reader();
        // What the call has until it is carried out, and until its answer has been taken in.
        let (held, kept) = (Held::default(), Held::default());
        kept.add([place]);
        let mut request = request.map(|body| {
            Body::new(Admitted::new(body, rule, budget, Arc::clone(&peer), held.clone(), kept.clone()))
        });
        // Whoever makes an answer beside the call has what the call has.
        request.extensions_mut().insert(kept.clone());
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await;
            // A unary call has been carried out; a stream's body has its own share.
            let room = held.take();
            if rule.goes_on() {
                kept.add(room);
            }
            let untaken = rule.whole.then(|| untaken(Arc::clone(&peer), rule, patience));
            answer.map(|response| {
                response.map(|body| Body::new(Counted { body, peer, _kept: kept, _untaken: untaken }))
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

/// An answer that counts as a call until its end. It goes on when its connection's client has taken
/// in most of what is before it: HTTP/2 would keep hundreds of KiB for each call.
struct Counted {
    body: Body,
    peer: Arc<Peer>,
    _kept: Held,
    _untaken: Option<oneshot::Sender<()>>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        // Of an answer that was reset nothing more is sent.
        self.peer.sent();
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        ready!(self.peer.poll_unsent(cx));
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            self.peer.send(frame.data_ref().map_or(0, Bytes::len));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

/// Room and places of both budgets that a call has, until nobody has them any more.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<Mutex<Vec<OwnedSemaphorePermit>>>);

impl Held {
    /// Those of a request's call.
    pub(super) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }

    fn add(&self, permits: impl IntoIterator<Item = OwnedSemaphorePermit>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(permits);
    }

    fn take(&self) -> Vec<OwnedSemaphorePermit> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

type Places = Pin<Box<dyn Future<Output = Vec<OwnedSemaphorePermit>> + Send>>;

/// A request's body, message by message.
struct Admitted {
    body: Body,
    rule: Rule,
    budget: Budget,
    peer: Arc<Peer>,
    held: Held,
    kept: Held,
    /// What came and has not been passed on: a message's prefix and part of it.
    came: Vec<u8>,
    /// Bytes that the body has given and do not belong to the message that is being received.
    next: Bytes,
    /// The message's bytes with its prefix, where the prefix has come.
    wanted: Option<usize>,
    /// Bytes that there is room for.
    roomy: usize,
    /// Places that are waited for.
    places: Option<Places>,
    /// Until when the message has to be there.
    due: Option<Pin<Box<Sleep>>>,
    ended: bool,
}

impl Admitted {
    fn new(body: Body, rule: Rule, budget: Budget, peer: Arc<Peer>, held: Held, kept: Held) -> Self {
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
            roomy: FREE,
            places: None,
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
        let time = self.budget.limits.patience + Duration::from_secs(bytes as u64 / BYTES_PER_SECOND);
        let due = Instant::now() + time;
        match &mut self.due {
            Some(timer) => timer.as_mut().reset(due),
            None => self.due = Some(Box::pin(tokio::time::sleep_until(due))),
        }
    }

    fn too_long(&self, length: usize) -> Status {
        let Rule { name, bytes, .. } = self.rule;
        Status::resource_exhausted(format!(
            "{name} of {length} bytes; at most {bytes} are taken (--limit memory)"
        ))
    }

    /// Takes room for so many bytes of memory. Nobody waits for it: what HTTP/2 holds meanwhile
    /// would keep the connection's other calls from going on.
    fn take_room(&self, bytes: usize) -> Result<(), Status> {
        let units = bytes.div_ceil(UNIT) as u32;
        let own = (!self.peer.has_lane()).then_some(&self.peer.memory);
        for memory in own.into_iter().chain([&self.budget.pool(&self.peer).memory]) {
            let room = Arc::clone(memory).try_acquire_many_owned(units).map_err(|_| {
                let name = self.rule.name;
                Status::resource_exhausted(format!(
                    "{name}: {bytes} bytes of memory are more than other requests leave (--limit memory); try again"
                ))
            })?;
            self.held.add([room]);
        }
        Ok(())
    }

    /// Waits for places among the requests that are answered at a time.
    fn ask_for_places(&self) -> Places {
        let (places, own) = (self.rule.places, Arc::clone(&self.peer.reads));
        let all = Arc::clone(&self.budget.pool(&self.peer).reads);
        // No semaphore is ever closed.
        Box::pin(async move {
            let own = own.acquire_many_owned(places).await;
            own.into_iter().chain(all.acquire_many_owned(places).await).collect()
        })
    }

    /// The whole message is here: whether it may be decoded.
    fn check(&mut self) -> Result<(), Status> {
        let Some(message) = self.rule.message else { return Ok(()) };
        let Rule { name, .. } = self.rule;
        if self.came.first() != Some(&0) {
            return Err(Status::unimplemented("compressed messages"));
        }
        let most = self.budget.limits.decoded_bytes() as u64;
        let encoded = self.came.get(PREFIX..).unwrap_or_default();
        let bytes = decoded::bytes(message, encoded, most).map_err(|error| match error {
            DecodedError::Beyond { most } => Status::resource_exhausted(format!(
                "{name}: decoded, it would take more than {most} bytes of memory (--limit memory); send it in parts"
            )),
            error => Status::new(Code::InvalidArgument, format!("{name}: {error}")),
        })?;
        self.take_room((bytes as usize).saturating_sub(FREE))
    }

    /// Nothing can be done before more comes: until the message's time is up.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(due) = &mut self.due else { return Poll::Pending };
        ready!(due.as_mut().poll(cx));
        let (name, came) = (self.rule.name, self.came.len());
        Poll::Ready(Some(Err(Status::deadline_exceeded(format!(
            "{name}: {came} bytes came, and the rest did not in time (--limit patience)"
        )))))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.rule.stream && self.wanted.is_none() && self.came.is_empty() {
            // The message before this one has been dealt with.
            self.held.take();
        }
        loop {
            if self.ended {
                return Poll::Ready(None);
            }
            if let Some(places) = &mut self.places {
                let places = ready!(places.as_mut().poll(cx));
                self.kept.add(places);
                (self.places, self.rule.places) = (None, 0);
            }
            if self.wanted == Some(self.came.len()) {
                if self.rule.places > 0 {
                    self.places = Some(self.ask_for_places());
                    continue;
                }
                self.check()?;
                self.peer.earn(CALL_BYTES);
                self.wanted = None;
                self.roomy = FREE;
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
                    Poll::Pending => return self.wait(cx),
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
        let wanted = self.wanted.unwrap_or(PREFIX);
        let missing = wanted - self.came.len();
        let room = self.roomy - self.came.len();
        if room == 0 {
            // Here, and once more where the service puts the message together.
            let step = missing.min(STEP);
            self.take_room(2 * step)?;
            self.roomy += step;
            return Ok(());
        }
        let part = self.next.split_to(missing.min(room).min(self.next.len()));
        self.peer.earn(part.len());
        if 4 * self.came.len() >= wanted {
            // A quarter of it is there: the rest may be believed in.
            self.came.reserve_exact(missing);
        }
        self.came.extend_from_slice(&part);
        if let (None, [_, length @ ..]) = (self.wanted, &self.came[..])
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            let length = u32::from_be_bytes(length) as usize;
            if length > self.rule.bytes {
                return Err(self.too_long(length));
            }
            self.wanted = Some(PREFIX + length);
            self.begin(length);
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
            self.held.take();
            self.places = None;
        }
        polled
    }
}
