// SPDX-License-Identifier: Apache-2.0
//! The admin service: what P4Runtime leaves to the switch (lines, queues, their counters), over
//! gRPC on the same port. `p4runtime/proto/trimwire/switch/v1/admin.proto` is its documentation.

mod ports;

use crate::engine::DROP_PORT;
use crate::traffic::{self, Alpha, DropCause, QUEUES, Service as Discipline, Share};
use crate::wake::Wake;
use crate::{PortConfig, SharedSwitch, Switch};
use ports::Ports;
use std::collections::BTreeSet;
use std::num::NonZeroU8;
use std::sync::{MutexGuard, PoisonError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http;
use tonic::{Request, Response, Status, async_trait};

/// Messages, client and server.
pub use trimwire_p4runtime::admin as v1;

use v1::admin_server::{Admin, AdminServer};

/// Forgets election ids of controllers that are gone, of one role or of all, and names the roles
/// that have changed.
pub type Reset = Box<dyn Fn(Option<&str>) -> Result<Vec<String>, Status> + Send + Sync>;

/// What a request is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Look.
    Read,
    /// Change something.
    Write,
}

/// Whether whoever sends a request with these extensions may do that.
pub type Allowed = Box<dyn Fn(Act, &http::Extensions) -> Result<(), Status> + Send + Sync>;

/// The service for a shared switch, within a runtime; `waker` is called after every change, `reset`
/// when an operator asks for it.
pub fn service(
    switch: SharedSwitch,
    waker: Option<Wake>,
    allowed: Allowed,
    reset: Reset,
) -> AdminServer<Service> {
    let watched = SharedSwitch::clone(&switch);
    let ports = Ports::new(move || {
        let switch = watched.lock().unwrap_or_else(PoisonError::into_inner);
        switch.ports().map(|port| (port, switch.is_port_usable(port))).collect()
    });
    tokio::spawn(ports.clone().pump());
    AdminServer::new(Service { switch, waker, allowed, reset, ports })
}

/// The admin service of one switch.
pub struct Service {
    switch: SharedSwitch,
    waker: Option<Wake>,
    allowed: Allowed,
    reset: Reset,
    ports: Ports,
}

impl Service {
    // A poisoned lock means that another thread panicked; settings are changed one by one, so the
    // switch is usable.
    fn switch(&self) -> MutexGuard<'_, Switch> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the switch and has the driver look at it.
    fn change<T>(&self, change: impl FnOnce(&mut Switch) -> T) -> T {
        let result = change(&mut self.switch());
        if let Some(waker) = &self.waker {
            waker();
        }
        result
    }
}

#[async_trait]
impl Admin for Service {
    type WatchPortsStream = ReceiverStream<Result<v1::PortStates, Status>>;

    async fn watch_ports(
        &self,
        request: Request<v1::WatchPortsRequest>,
    ) -> Result<Response<Self::WatchPortsStream>, Status> {
        (self.allowed)(Act::Read, request.extensions())?;
        let (told, states) = mpsc::channel(4);
        tokio::spawn(self.ports.clone().watch(told));
        Ok(Response::new(ReceiverStream::new(states)))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        (self.allowed)(Act::Read, request.extensions())?;
        let ports = wanted(&request.get_ref().ports)?;
        let switch = self.switch();
        let all = if ports.is_empty() { switch.ports().collect() } else { ports };
        let config = switch.traffic_config();
        Ok(Response::new(v1::GetResponse {
            ports: all.into_iter().map(|number| port(&switch, number)).collect(),
            buffered_bytes: switch.buffered_bytes(),
            buffer_bytes: config.buffer_bytes,
            priority_queues: config.priority_queues.into(),
            qdepth_unit: config.depth_unit.to_string(),
        }))
    }

    async fn set_port(
        &self,
        request: Request<v1::SetPortRequest>,
    ) -> Result<Response<v1::SetPortResponse>, Status> {
        (self.allowed)(Act::Write, request.extensions())?;
        let v1::SetPortRequest { port: number, up, rate_bps, queue_limit_bytes } = *request.get_ref();
        let number = port_number(number)?;
        if queue_limit_bytes == Some(0) {
            return Err(Status::invalid_argument(
                "queue_limit_bytes is 0: nothing would pass; take the port down instead (up: false)",
            ));
        }
        let port = self.change(|switch| {
            let now = switch.port_config(number);
            let config = PortConfig {
                rate_bps: rate_bps.unwrap_or(now.rate_bps),
                queue_limit_bytes: queue_limit_bytes.unwrap_or(now.queue_limit_bytes),
            };
            switch.configure_port(number, config);
            if let Some(up) = up {
                switch.set_port_up(number, up);
            }
            port(switch, number)
        });
        Ok(Response::new(v1::SetPortResponse { port: Some(port) }))
    }

    async fn set_queue(
        &self,
        request: Request<v1::SetQueueRequest>,
    ) -> Result<Response<v1::SetQueueResponse>, Status> {
        (self.allowed)(Act::Write, request.extensions())?;
        let v1::SetQueueRequest { port, queue, config } = *request.get_ref();
        let port = port.map(port_number).transpose()?;
        let config = queue_config(config.unwrap_or_default())?;
        let queues = self.switch().traffic_config().priority_queues;
        let queue = u8::try_from(queue).ok().filter(|&queue| queue < queues).ok_or_else(|| {
            Status::invalid_argument(format!("queue {queue}: ports have queues 0 to {}", queues - 1))
        })?;
        self.change(|switch| switch.configure_queue(port, queue, config));
        Ok(Response::new(v1::SetQueueResponse {}))
    }

    async fn set_buffer(
        &self,
        request: Request<v1::SetBufferRequest>,
    ) -> Result<Response<v1::SetBufferResponse>, Status> {
        (self.allowed)(Act::Write, request.extensions())?;
        let bytes = request.get_ref().bytes;
        if bytes == Some(0) {
            return Err(Status::invalid_argument(
                "bytes is 0: nothing would pass; leave it out for a buffer without bound",
            ));
        }
        self.change(|switch| switch.configure_buffer(bytes));
        Ok(Response::new(v1::SetBufferResponse {}))
    }

    async fn reset_arbitration(
        &self,
        request: Request<v1::ResetArbitrationRequest>,
    ) -> Result<Response<v1::ResetArbitrationResponse>, Status> {
        (self.allowed)(Act::Write, request.extensions())?;
        let roles = (self.reset)(request.get_ref().role.as_deref())?;
        Ok(Response::new(v1::ResetArbitrationResponse { roles }))
    }

    async fn stats(&self, request: Request<v1::StatsRequest>) -> Result<Response<v1::StatsResponse>, Status> {
        (self.allowed)(Act::Read, request.extensions())?;
        let ports = wanted(&request.get_ref().ports)?;
        let switch = self.switch();
        let queues = switch
            .all_queue_stats()
            .into_iter()
            .filter(|((port, _), _)| ports.is_empty() || ports.contains(port))
            .map(|((port, queue), stats)| queue_stats(port, queue, &stats))
            .collect();
        let all = switch.stats();
        Ok(Response::new(v1::StatsResponse {
            queues,
            received: all.received,
            transmitted: all.transmitted,
            without_pipeline: all.without_pipeline,
            port_down: all.port_down,
            queue_dropped: all.queue_dropped,
            egress_dropped: all.egress_dropped,
        }))
    }
}

fn port_number(number: u32) -> Result<u16, Status> {
    u16::try_from(number)
        .ok()
        .filter(|&port| port < DROP_PORT)
        .ok_or_else(|| Status::invalid_argument(format!("port {number}: ports are 0 to {}", DROP_PORT - 1)))
}

fn wanted(ports: &[u32]) -> Result<BTreeSet<u16>, Status> {
    ports.iter().map(|&port| port_number(port)).collect()
}

fn port(switch: &Switch, number: u16) -> v1::Port {
    let PortConfig { rate_bps, queue_limit_bytes } = switch.port_config(number);
    let queues = (0..QUEUES as u8)
        .filter_map(|queue| Some((queue, switch.queue_config(number, queue)?)))
        .map(|(queue, config)| {
            let (alpha_numerator, alpha_denominator) = config.alpha.map_or((0, 0), Alpha::ratio);
            let weight = match config.service {
                Discipline::Strict => 0,
                Discipline::Weighted(weight) => weight.get().into(),
            };
            let config = v1::QueueConfig {
                limit_bytes: config.limit_bytes,
                weight,
                cap_permille: config.cap.map_or(0, |cap| cap.permille().into()),
                alpha_numerator,
                alpha_denominator,
            };
            v1::Queue { queue: queue.into(), config: Some(config) }
        })
        .collect();
    v1::Port { port: number.into(), up: switch.is_port_up(number), rate_bps, queue_limit_bytes, queues }
}

fn queue_config(config: v1::QueueConfig) -> Result<traffic::QueueConfig, Status> {
    let wrong = |field, value: u32, valid| {
        Err(Status::invalid_argument(format!("config.{field} is {value}: valid is {valid}")))
    };
    let service = match (config.weight, u8::try_from(config.weight).ok().and_then(NonZeroU8::new)) {
        (0, _) => Discipline::Strict,
        (_, Some(weight)) => Discipline::Weighted(weight),
        (weight, None) => return wrong("weight", weight, "0 (strict) or 1 to 255"),
    };
    let cap = match (config.cap_permille, Share::from_permille(config.cap_permille)) {
        (0, _) => None,
        (_, Some(cap)) => Some(cap),
        (permille, None) => return wrong("cap_permille", permille, "0 (none) or 1 to 999"),
    };
    let alpha = match (config.alpha_numerator, config.alpha_denominator) {
        (0, 0) => None,
        (above, below) => match Alpha::new(above, below) {
            Some(alpha) => Some(alpha),
            None if above == 0 => return wrong("alpha_numerator", 0, "above 0 when alpha_denominator is"),
            None => return wrong("alpha_denominator", 0, "above 0 when alpha_numerator is"),
        },
    };
    if config.limit_bytes == Some(0) {
        return wrong("limit_bytes", 0, "above 0, or absent for the port's");
    }
    Ok(traffic::QueueConfig { limit_bytes: config.limit_bytes, service, cap, alpha })
}

fn queue_stats(port: u16, queue: u8, stats: &traffic::QueueStats) -> v1::QueueStats {
    let count = |packets, bytes| Some(v1::Count { packets, bytes });
    v1::QueueStats {
        port: port.into(),
        queue: queue.into(),
        enqueued: count(stats.enqueued_packets, stats.enqueued_bytes),
        dequeued: count(stats.dequeued_packets, stats.dequeued_bytes),
        dropped: count(stats.dropped_packets, stats.dropped_bytes),
        drops: DropCause::ALL
            .into_iter()
            .map(|cause| (cause, stats.dropped(cause)))
            .filter(|(_, dropped)| dropped.packets > 0)
            .map(|(cause, dropped)| v1::Drop {
                cause: cause.name().to_owned(),
                count: count(dropped.packets, dropped.bytes),
            })
            .collect(),
        waiting: count(stats.depth_packets(), stats.depth_bytes()),
        peak: count(stats.watermark_packets, stats.watermark_bytes),
    }
}
