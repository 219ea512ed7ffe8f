// SPDX-License-Identifier: Apache-2.0
//! What waits for a stream's client: so many messages and so many bytes, and what has no room is
//! dropped.

use super::peer::Peer;
use prost::Message as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Status;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;

/// Messages and bytes that all else leaves to arbitration: a flood of packets must not crowd out
/// who is primary.
pub(super) const RESERVED: usize = 16;
const RESERVED_BYTES: usize = 32 << 10;
/// What a message takes beside its encoded bytes.
const OVERHEAD: usize = size_of::<v1::StreamMessageResponse>();

/// A message and its room in the queue.
type Queued = (Result<v1::StreamMessageResponse, Status>, Option<OwnedSemaphorePermit>);

/// The end at which messages go in.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    /// Whose stream it is.
    pub(super) peer: Arc<Peer>,
    queue: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// The client's end.
#[derive(Debug)]
pub(super) struct Heard(mpsc::Receiver<Queued>);

/// A queue of so many messages and bytes.
pub(super) fn channel(peer: Arc<Peer>, messages: usize, bytes: usize) -> (Outgoing, Heard) {
    let (queue, heard) = mpsc::channel(messages);
    let room = Arc::new(Semaphore::new(bytes + RESERVED_BYTES));
    (Outgoing { peer, queue, room }, Heard(heard))
}

impl Outgoing {
    /// Whether there was room for it, beside what is left to arbitration.
    pub(super) fn tell(&self, message: Told) -> bool {
        self.queue.capacity() > RESERVED && self.put(message, RESERVED_BYTES)
    }

    /// Whether there was any room for it.
    pub(super) fn tell_of_arbitration(&self, update: v1::MasterArbitrationUpdate) -> bool {
        self.put(Told::Arbitration(update), 0)
    }

    /// Ends the stream with an error, as soon as its client has taken what is before it.
    pub(super) async fn refuse(&self, status: Status) {
        let _ = self.queue.send((Err(status), None)).await;
    }

    fn put(&self, message: Told, leave: usize) -> bool {
        let message = v1::StreamMessageResponse { update: Some(message) };
        let bytes = message.encoded_len() + OVERHEAD;
        if self.room.available_permits() < bytes + leave {
            return false;
        }
        let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes as u32) else { return false };
        self.queue.try_send((Ok(message), Some(room))).is_ok()
    }
}

impl Heard {
    /// What is there already.
    #[cfg(test)]
    pub(super) fn try_recv(&mut self) -> Option<Result<v1::StreamMessageResponse, Status>> {
        self.0.try_recv().ok().map(|(message, _)| message)
    }
}

impl tokio_stream::Stream for Heard {
    type Item = Result<v1::StreamMessageResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx).map(|queued| queued.map(|(message, _)| message))
    }
}
