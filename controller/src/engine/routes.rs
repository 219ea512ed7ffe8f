// SPDX-License-Identifier: Apache-2.0
//! Routes around switches while their programs are replaced. All other switches hold them, each in
//! the terms of the program that it runs: in the middle of a roll-out some run the old one.

use std::time::Duration;

use tokio::time::Instant;
use trimwire_p4runtime::client::Client;

use super::converge;
use crate::counters::{Counter, read_counters};
use crate::device::{self, DeviceError};
use crate::fleet::Shared;
use crate::program::names;
use crate::reconcile;
use crate::report::SwitchReport;
use crate::topology::SwitchRoutes;

/// How long packets may still leave a switch that nobody sends any.
const PATIENCE: Duration = Duration::from_secs(2);
/// Nothing may leave it for so long.
const QUIET: Duration = Duration::from_millis(100);

/// Waits until nothing leaves a switch; says so where something does.
pub(crate) async fn quiet(client: &Client) -> Option<String> {
    let began = Instant::now();
    let mut last = sent(client).await;
    loop {
        tokio::time::sleep(QUIET).await;
        let sent = sent(client).await;
        match (&last, &sent) {
            (Ok(last), Ok(sent)) if last == sent => return None,
            (_, Err(error)) => return Some(not_known(error)),
            _ if began.elapsed() >= PATIENCE => {
                return Some("packets left it to the last, though no route leads over it".to_owned());
            }
            _ => last = sent,
        }
    }
}

fn not_known(error: &DeviceError) -> String {
    format!("whether packets leave it is not known: {error}")
}

/// Packets that it has sent, as far as its program counts them.
async fn sent(client: &Client) -> Result<i64, DeviceError> {
    let Some(index) = device::running(client).await? else { return Ok(0) };
    let counters = read_counters(client, &index).await?;
    let sent = counters.queues.values().filter_map(|queue| queue.counts.get(Counter::Transmitted));
    Ok(sent.map(|count| count.packets).sum())
}

/// Brings a switch's routes to these; to nothing else of it. With `held` only where it holds those.
/// The outer error is the call's, the inner one the switch's.
pub(crate) async fn write(
    client: &Client,
    name: &str,
    routes: &SwitchRoutes,
    held: Option<&SwitchRoutes>,
    shared: &Shared,
) -> Result<Result<Option<String>, String>, DeviceError> {
    // What runs no program sends nothing over anybody.
    let Some(index) = device::running(client).await? else { return Ok(Ok(None)) };
    if index.table(names::IPV4_ROUTE).is_err() || index.action_profile(names::ECMP).is_err() {
        return Ok(Ok(Some("runs another maker's program, whose routes stay".to_owned())));
    }
    let entities = |routes: &SwitchRoutes| shared.compiler.entities_in(name, routes, &index);
    client.use_index(index.clone());
    let actual = reconcile::routes(device::actual(client, &index).await?, &index);
    if let Some(held) = held
        && !reconcile::difference(&entities(held)?, &actual, &index).is_empty()
    {
        return Ok(Err(
            "it is not among the switches that are meant, and its routes are not this file's".to_owned()
        ));
    }
    let changes = reconcile::difference(&entities(routes)?, &actual, &index);
    let mut report = SwitchReport::new(name, client.address());
    converge::write(client, &changes, shared, &mut report).await?;
    Ok(match report.refused.first() {
        None => Ok(None),
        Some(refusal) => Err(format!("it refused {}: {}", refusal.change, refusal.error)),
    })
}
