// SPDX-License-Identifier: Apache-2.0
//! Probes of one switch's links on the real clock, over the connection that its driver has.
//!
//! A task of its own: what hundreds of probes a second bring is nothing that a driver decides by.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use trimwire_p4runtime::client::{Client, ClientError};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::PacketIn;

use super::faults::Detector;
use super::wires;
use crate::fleet::Shared;

/// Ends with its owner.
pub(crate) struct Prober(JoinHandle<()>);

impl Drop for Prober {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Prober {
    /// Of a switch whose program `shared` tells; packets come from it as long as it lives. Whether it
    /// takes probes at the moment, the detector's wires know.
    pub(crate) fn start(
        name: String,
        client: Arc<Client>,
        packets: mpsc::Receiver<PacketIn>,
        shared: impl Fn() -> Arc<Shared> + Send + 'static,
        detector: Detector,
    ) -> Self {
        Self(tokio::spawn(probe(name, client, packets, shared, detector)))
    }
}

async fn probe(
    name: String,
    client: Arc<Client>,
    mut packets: mpsc::Receiver<PacketIn>,
    shared: impl Fn() -> Arc<Shared>,
    detector: Detector,
) {
    let (mut periods, mut at) = (1, Instant::now());
    let mut came = Vec::new();
    loop {
        tokio::select! {
            // No more of them come once the session is over, which ends this task.
            1.. = packets.recv_many(&mut came, usize::MAX) => {
                let shared = shared();
                let index = shared.index(&name);
                detector.wires(|wires| {
                    for packet in came.drain(..) {
                        if let Some(port) = wires::ingress_port(index, &packet) {
                            wires.arrived(&(name.clone(), port), &packet.payload);
                        }
                    }
                });
            }
            () = tokio::time::sleep_until(at) => {
                let (frames, next) = detector.wires(|wires| wires.probes(&name, periods));
                (periods, at) = (next, Instant::now() + wires::PERIOD * next);
                send(&name, &client, shared().index(&name), frames, &detector).await;
            }
        }
    }
}

async fn send(name: &str, client: &Client, index: &Index, frames: Vec<(u16, Vec<u8>)>, detector: &Detector) {
    for (port, frame) in frames {
        let is_sent = match wires::egress_port(index, port) {
            Some(metadata) => unawaited(client.packet_out(frame, metadata)).await,
            None => false,
        };
        if !is_sent {
            detector.wires(|wires| wires.unsent(&(name.to_owned(), port)));
        }
    }
}

/// Who does not read what is sent is not waited for. Whether it was sent.
pub(super) async fn unawaited(sending: impl Future<Output = Result<(), ClientError>>) -> bool {
    tokio::select! {
        biased;
        sent = sending => sent.is_ok(),
        () = std::future::ready(()) => false,
    }
}
