// SPDX-License-Identifier: Apache-2.0
//! Lets others look at a rank while it runs: a copy of what its endpoint tells, made once a second
//! by the thread that drives it.

use crate::metrics::{self, Operations};
use crate::{Failure, failed};
use anyhow::anyhow;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use trimwire_agent::driver::channels::Counts;
use trimwire_agent::driver::{Application, Driver, Link, LinkStats};
use trimwire_agent::snapshot::Snapshot;
use trimwire_metrics_http::{Page, Server};

const EVERY_NS: u64 = 1_000_000_000;

type Shared = Arc<Mutex<Option<(Snapshot, LinkStats)>>>;

/// Publishes an endpoint, if anybody wants that.
pub(crate) struct Publisher {
    /// `None`: nobody does.
    shared: Option<(Shared, Server)>,
    operations: Operations,
    /// Of channels that another thread drives.
    others: Counts,
    due_ns: u64,
}

impl Publisher {
    /// Serves metrics at an address from now on.
    pub(crate) fn start(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let (operations, shared) = (Operations::default(), Shared::default());
        let Some(address) = address else {
            return Ok(Self { shared: None, operations, others: Counts::default(), due_ns: u64::MAX });
        };
        let (seen, counted) = (Arc::clone(&shared), operations.clone());
        let page = move |path: &str| {
            if path != "/metrics" {
                return None;
            }
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
            Some(Page::metrics(seen.map_or_else(
                || "# EOF\n".to_owned(),
                |(snapshot, link)| metrics::text(&snapshot, link, &counted),
            )))
        };
        let server = trimwire_metrics_http::serve(address, "Metrics are at /metrics", page)
            .map_err(|error| failed(anyhow!("cannot serve metrics on TCP {address}: {error}")))?;
        tracing::info!("metrics at http://{}/metrics", server.address());
        Ok(Self { shared: Some((shared, server)), operations, others: Counts::default(), due_ns: 0 })
    }

    /// What operations are counted in.
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    /// Publishes what other channels count, too.
    pub(crate) fn add(&mut self, others: &Counts) {
        self.others = others.clone();
    }

    /// Copies what the endpoint tells.
    pub(crate) fn publish<L: Link>(&mut self, driver: &mut Driver<L>) {
        let Some((shared, _)) = &self.shared else { return };
        let mut told = (driver.endpoint().snapshot(), driver.link_stats());
        self.others.add(&mut told.0, &mut told.1);
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        self.due_ns = driver.now_ns().saturating_add(EVERY_NS);
    }

    /// [`Driver::run`], publishing meanwhile.
    pub(crate) fn run<L: Link, T>(
        &mut self,
        driver: &mut Driver<L>,
        until_ns: u64,
        application: &mut impl Application<T>,
    ) -> Result<Option<T>, Failure> {
        loop {
            let ended = driver.run(until_ns.min(self.due_ns), application).map_err(failed)?;
            if ended.is_some() || self.due_ns >= until_ns {
                return Ok(ended);
            }
            self.publish(driver);
        }
    }
}
