// SPDX-License-Identifier: Apache-2.0
//! A controller's stream (P4Runtime, "P4Runtime Stream Messages").

use super::limits::PACKET_OUT_BYTES;
use super::outgoing::Outgoing;
use super::packet_io;
use super::refusal::Refusal;
use super::state::Service;
use std::sync::Arc;
use tokio_stream::StreamExt as _;
use tonic::{Code, Streaming};
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::stream_error::Details;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;

impl Service {
    /// Serves a stream until it ends, or until a bid is refused, which ends it with the bid's
    /// error.
    pub(super) async fn serve_stream(
        self,
        mut requests: Streaming<v1::StreamMessageRequest>,
        outgoing: Outgoing,
        highest: u128,
    ) {
        let refused = {
            let stream = OpenStream::new(&self);
            loop {
                let request = match requests.next().await {
                    Some(Ok(request)) => request,
                    // Too long, too slow, or gone.
                    Some(Err(status)) => break Some(status),
                    None => break None,
                };
                if let Err(status) = self.serve_message(stream.number, request, &outgoing, highest) {
                    break Some(status);
                }
            }
        };
        if let Some(status) = refused {
            // The stream has no part in arbitration any more, however long its client takes to read
            // this.
            outgoing.refuse(status).await;
        }
    }

    fn serve_message(
        &self,
        stream: u64,
        request: v1::StreamMessageRequest,
        outgoing: &Outgoing,
        highest: u128,
    ) -> Result<(), tonic::Status> {
        // "Stream Error Reporting": all but a bid is answered on the stream, if it is answered at
        // all.
        let (refusal, details) = match request.update {
            Some(Sent::Arbitration(update)) => {
                let bid = update.election_id.map_or(0, u128::from);
                let most = self.limits().election_id;
                if bid > most {
                    return Err(tonic::Status::permission_denied(format!(
                        "election id {bid} is above {most}, the highest that anybody may bid here (--limit election-id)"
                    )));
                }
                if bid > highest {
                    return Err(tonic::Status::permission_denied(format!(
                        "election id {bid} is above {highest}, the highest that this certificate's name may bid (--limit controllers)"
                    )));
                }
                let mut state = self.state();
                let was_primary = state.arbitration.is_primary(stream);
                state.arbitration.bid(stream, update, outgoing)?;
                if !was_primary && state.arbitration.is_primary(stream) {
                    // What another primary has not acknowledged is news to this one.
                    state.digests.clear();
                    // And what it has saved and not committed is not this one's to go on with:
                    // reads and writes are about what runs.
                    if state.saved.take().is_some() {
                        state.generation += 1;
                    }
                }
                return Ok(());
            }
            Some(Sent::Packet(packet)) => match self.packet_out(stream, &packet) {
                Ok(()) => return Ok(()),
                Err(refusal) => {
                    (refusal, Some(Details::PacketOut(v1::PacketOutError { packet_out: Some(packet) })))
                }
            },
            Some(Sent::DigestAck(ack)) => match self.digest_ack(stream, ack) {
                Ok(()) => return Ok(()),
                Err(refusal) => {
                    let error = v1::DigestListAckError { digest_list_ack: Some(ack) };
                    (refusal, Some(Details::DigestListAck(error)))
                }
            },
            Some(Sent::Other(other)) => {
                let refusal = Refusal::unsupported(&format!("stream messages of type '{}'", other.type_url));
                (refusal, Some(Details::Other(v1::StreamOtherError { other: Some(other) })))
            }
            None => (Refusal::invalid("a stream message that is empty, or of an unknown kind"), None),
        };
        let error = v1::StreamError {
            canonical_code: refusal.code as i32,
            message: refusal.message,
            details,
            ..v1::StreamError::default()
        };
        outgoing.tell(Told::Error(error));
        Ok(())
    }

    fn packet_out(&self, stream: u64, packet: &v1::PacketOut) -> Result<(), Refusal> {
        let index = {
            let state = self.state();
            if !state.arbitration.is_primary(stream) {
                return Err(Refusal::new(Code::PermissionDenied, "only a primary may send packets"));
            }
            Arc::clone(&state.running.as_ref().ok_or_else(Refusal::no_pipeline)?.index)
        };
        let frame = packet_io::packet_out(&index, packet)?;
        let most = PACKET_OUT_BYTES;
        if frame.len() > most {
            let length = frame.len();
            return Err(Refusal::invalid(format!(
                "a packet-out of {length} bytes; at most {most} are taken"
            )));
        }
        let mut switch = self.switch();
        if switch.cpu_port().is_none() {
            return Err(Refusal::new(
                Code::FailedPrecondition,
                "the switch was started without a CPU port (--cpu-port)",
            ));
        }
        switch.packet_out(frame);
        drop(switch);
        self.wake();
        Ok(())
    }

    fn digest_ack(&self, stream: u64, ack: v1::DigestListAck) -> Result<(), Refusal> {
        let mut state = self.state();
        if !state.arbitration.is_primary(stream) {
            return Err(Refusal::new(Code::PermissionDenied, "only a primary may acknowledge digests"));
        }
        let realm = state.running.as_ref().ok_or_else(Refusal::no_pipeline)?;
        let name =
            realm.index.digest(ack.digest_id).map_err(|error| Refusal::invalid(error.to_string()))?.name();
        if !state.digests.is_on(ack.digest_id) {
            return Err(Refusal::invalid(format!("digest {name} is not on; insert a DigestEntry first")));
        }
        // A list that has timed out, or was never sent, is no error: acknowledgements may be late.
        state.digests.handle_ack(ack.digest_id, ack.list_id);
        Ok(())
    }
}

/// A stream's part in arbitration, given up however the stream ends.
struct OpenStream<'a> {
    service: &'a Service,
    number: u64,
}

impl<'a> OpenStream<'a> {
    fn new(service: &'a Service) -> Self {
        Self { service, number: service.state().arbitration.open() }
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.service.state().arbitration.close(self.number);
    }
}
