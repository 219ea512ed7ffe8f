// SPDX-License-Identifier: Apache-2.0
//! Reads, piece by piece: between two pieces packets and other clients have their turn, and no more
//! is made than the client takes.

use super::entities::Piece;
use super::gate::Held;
use super::limits::READ_FILTERS;
use super::outcome;
use super::pace::{self, Pace};
use super::peer::Peer;
use super::refusal::Refusal;
use super::role::Access;
use super::state::Service;
use prost::Message as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tonic::Status;
use trimwire_p4runtime::entity::{Purpose, check};
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::{status, v1};

/// Bytes of memory of entities in one ReadResponse. What a client has not taken is a few times
/// that.
const READ_BYTES: usize = 128 << 10;

type Answer = Result<v1::ReadResponse, Status>;
type Answers = mpsc::Sender<Answer>;

/// Answers to a Read that wait for a client that does not read.
const READ_DEPTH: usize = 1;

/// The client's end of a Read. The task that makes the answers ends with it: calls that are given
/// up cost nothing from then on.
pub(super) struct Read {
    answers: mpsc::Receiver<Answer>,
    task: AbortHandle,
}

impl Drop for Read {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl tokio_stream::Stream for Read {
    type Item = Answer;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Answer>> {
        self.answers.poll_recv(cx)
    }
}

/// A Read that has been let in.
pub(super) struct Reading {
    access: Access,
    generation: u64,
    /// That are read at a time.
    cells: u64,
    batch: Vec<v1::Entity>,
    bytes: usize,
    pace: Pace,
    peer: Arc<Peer>,
    patience: Duration,
}

/// What a part of a piece holds, or why it cannot be read. `None`: there are no more parts.
type Portion = Result<Option<Vec<Kind>>, Refusal>;

/// Why a Read ends early.
enum End {
    /// The client has gone.
    Gone,
    /// All of it is refused.
    Refused(Status),
}

impl Service {
    /// Whether a Read may begin.
    pub(super) fn begin_read(&self, request: &v1::ReadRequest, peer: Arc<Peer>) -> Result<Reading, Status> {
        let (filters, most) = (request.entities.len(), READ_FILTERS);
        if filters > most {
            return Err(Status::resource_exhausted(format!(
                "a Read of {filters} filters; at most {most} are taken"
            )));
        }
        let mut state = self.state();
        let access = state.arbitration.access(&request.role)?;
        let mut switch = self.switch();
        let now_ns = self.now_ns(&switch);
        state.target(&mut switch, now_ns)?;
        let (generation, patience) = (state.generation, self.limits().reader());
        let cells = state.costs().map_or(1, |costs| costs.cells(self.limits().read_cells));
        let (batch, pace) = (Vec::new(), Pace::default());
        Ok(Reading { access, generation, cells, batch, bytes: 0, pace, peer, patience })
    }
}

impl Reading {
    /// Begins to answer. What the call has, `held`, is kept for as long as there is a request.
    pub(super) fn start(self, service: Service, request: v1::ReadRequest, held: Held) -> Read {
        let (outgoing, answers) = mpsc::channel(READ_DEPTH);
        let answering = tokio::spawn(async move {
            self.answer(service, request, outgoing).await;
            drop(held);
        });
        Read { answers, task: answering.abort_handle() }
    }

    /// "Batch Processing": what was read comes first, then what was not.
    async fn answer(mut self, service: Service, request: v1::ReadRequest, answers: Answers) {
        let mut outcomes = Vec::new();
        for filter in &request.entities {
            match self.read(&service, filter, &answers).await {
                Ok(Ok(())) => outcomes.push(status::ok()),
                Ok(Err(refusal)) => outcomes.push(status::error(refusal.code, refusal.message)),
                Err(End::Gone) => return,
                Err(End::Refused(status)) => {
                    let _ = answers.send(Err(status)).await;
                    return;
                }
            }
        }
        if self.flush(&answers).await.is_err() {
            return;
        }
        if let Err(status) = outcome::answer(outcomes) {
            let _ = answers.send(Err(status)).await;
        }
    }

    /// What one filter asks for.
    async fn read(
        &mut self,
        service: &Service,
        filter: &v1::Entity,
        answers: &Answers,
    ) -> Result<Result<(), Refusal>, End> {
        let pieces = match self.pieces(service, filter)? {
            Ok(pieces) => pieces,
            Err(refusal) => return Ok(Err(refusal)),
        };
        for mut piece in pieces {
            loop {
                let (found, pause) = self.portion(service, &mut piece)?;
                let found = match found {
                    Ok(Some(found)) => found,
                    Ok(None) => break,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                for entity in found {
                    let entity = v1::Entity { entity: Some(entity) };
                    // Small pieces of memory take more than what is in them.
                    self.bytes += size_of::<v1::Entity>() + 4 * entity.encoded_len();
                    self.batch.push(entity);
                    if self.bytes >= READ_BYTES {
                        self.flush(answers).await?;
                    }
                }
                pace::rest(pause).await;
            }
        }
        Ok(Ok(()))
    }

    fn pieces(&self, service: &Service, filter: &v1::Entity) -> Result<Result<Vec<Piece>, Refusal>, End> {
        let mut state = service.state();
        let mut switch = service.switch();
        let now_ns = service.now_ns(&switch);
        self.check_generation(state.generation)?;
        let target = state.target(&mut switch, now_ns).map_err(|refusal| End::Refused(refusal.into()))?;
        let pieces = check(filter, target.index, Purpose::Read).map_err(Refusal::from).and_then(|filter| {
            let filter = filter.entity.ok_or_else(|| Refusal::invalid("a filter without an entity"))?;
            target.pieces(filter)
        });
        Ok(pieces)
    }

    /// What the next part of a piece holds and the role may see, and how long to leave the lock to
    /// others then. `None`: all of the piece has been read.
    fn portion(&mut self, service: &Service, piece: &mut Piece) -> Result<(Portion, Duration), End> {
        let mut state = service.state();
        let mut switch = service.switch();
        let now_ns = service.now_ns(&switch);
        self.check_generation(state.generation)?;
        let slice = self.pace.begin(&switch);
        let target = state.target(&mut switch, now_ns).map_err(|refusal| End::Refused(refusal.into()))?;
        let index = target.index;
        let part = target.portion(piece, self.cells);
        let found = part.and_then(|part| part.map(|part| target.read(&part)).transpose());
        let found = found.map(|mut found| {
            if let Some(found) = found.as_mut().filter(|_| !self.access.is_full()) {
                found.retain(|entity| self.access.allows(index, entity));
            }
            found
        });
        Ok((found, self.pace.end(&slice, &switch)))
    }

    fn check_generation(&self, now: u64) -> Result<(), End> {
        if now == self.generation {
            return Ok(());
        }
        Err(End::Refused(Status::aborted("the pipeline was changed while it was read; read again")))
    }

    async fn flush(&mut self, answers: &Answers) -> Result<(), End> {
        self.bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        let entities = std::mem::take(&mut self.batch);
        let sending = answers.send(Ok(v1::ReadResponse { entities }));
        if let Ok(sent) = tokio::time::timeout(self.patience, sending).await {
            return sent.map_err(|_| End::Gone);
        }
        // Whatever it has not taken stays in HTTP/2's buffers for as long as the connection lives.
        tracing::warn!("a client of a Read took nothing for {:?}: its connection is closed", self.patience);
        self.peer.close();
        Err(End::Gone)
    }
}
