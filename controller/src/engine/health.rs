// SPDX-License-Identifier: Apache-2.0
//! Whether a switch does its work after it was changed, by its own counters: what it sends it has
//! taken, and where packets come some go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::p4info::Index;

use crate::counters::{self, Counter, Counters, Look, QueueCounters};
use crate::model::PortPolicy;

/// Readings.
const READINGS: u32 = 4;
/// Packets without a route that say nothing: neighbours look for each other wherever an interface
/// comes up.
const NOISE: i64 = 100;

/// Reads a switch's counters for so long; says in words what is wrong with it. One that nobody
/// sends anything is healthy.
pub(crate) async fn check(
    client: &Client,
    index: &Index,
    ports: &BTreeMap<u16, Arc<PortPolicy>>,
    settle: Duration,
) -> Result<(), String> {
    let mut readings = vec![read(client, index, ports).await?];
    for _ in 1..READINGS {
        tokio::time::sleep(settle / (READINGS - 1)).await;
        readings.push(read(client, index, ports).await?);
    }
    judge(&readings)
}

async fn read(
    client: &Client,
    index: &Index,
    ports: &BTreeMap<u16, Arc<PortPolicy>>,
) -> Result<Counters, String> {
    counters::read(client, index, Some(ports), &Look::default())
        .await
        .map_err(|error| format!("no counters: {error}"))
}

fn judge(readings: &[Counters]) -> Result<(), String> {
    let (Some(first), Some(last)) = (readings.first(), readings.last()) else { return Ok(()) };
    // What was in the queues when a program was pushed leaves without having been counted: a
    // deficit that stays is none.
    let deficits: Vec<_> = readings.iter().zip(readings.iter().skip(1)).map(|(a, b)| deficit(a, b)).collect();
    if let [.., (_, before), (port, after)] = deficits.as_slice()
        && after > before
        && let Some(port) = port
    {
        return Err(format!(
            "port {port} has sent {after} packets more than it has taken, and {before} a moment before"
        ));
    }
    let total = |reading: &Counters, counters: &[Counter]| -> i64 {
        let count = |queue: &QueueCounters| -> i64 {
            counters.iter().filter_map(|counter| queue.counts.get(*counter)).map(|count| count.packets).sum()
        };
        reading.queues.values().map(count).sum()
    };
    let grown = |counters: &[Counter]| total(last, counters) - total(first, counters);
    let taken = grown(&[Counter::Admitted, Counter::Trimmed]);
    let dropped = grown(&[Counter::TrimDropped, Counter::SelectiveDropped, Counter::TailDropped]);
    let unroutable = last.unroutable - first.unroutable;
    let sent = grown(&[Counter::Transmitted, Counter::TrimTransmitted]);
    if sent <= 0 && (taken + dropped > 0 || unroutable >= NOISE) {
        return Err(format!(
            "packets come and none leaves: {taken} taken, {dropped} dropped, {unroutable} without a route"
        ));
    }
    Ok(())
}

/// The port that has sent most beyond what it has taken, and by how much. The earlier reading tells
/// what was sent, the later one what was taken: counters are not read all at one moment.
///
/// Of a port and not of a queue: what is trimmed is taken at one queue and leaves from another.
fn deficit(earlier: &Counters, later: &Counters) -> (Option<u16>, i64) {
    let by_port = |reading: &Counters, counters: &[Counter]| {
        let mut ports: BTreeMap<u16, i64> = BTreeMap::new();
        for ((port, _), queue) in &reading.queues {
            let counts = counters.iter().filter_map(|counter| queue.counts.get(*counter));
            *ports.entry(*port).or_default() += counts.map(|count| count.packets).sum::<i64>();
        }
        ports
    };
    // Trimmed packets are among what leaves from the trim queue.
    let sent = by_port(earlier, &[Counter::Transmitted]);
    let taken = by_port(later, &[Counter::Admitted, Counter::Trimmed]);
    let deficits = sent.into_iter().filter_map(|(port, sent)| {
        let missing = sent - taken.get(&port)?;
        (missing > 0).then_some((Some(port), missing))
    });
    deficits.max_by_key(|(_, missing)| *missing).unwrap_or((None, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Count;

    /// Packets of queue 5 of port 1.
    fn seen(counters: &[(Counter, i64)], unroutable: i64) -> Counters {
        let count = |(counter, packets): &(Counter, i64)| (*counter, Count { packets: *packets, bytes: 0 });
        let queue = QueueCounters { counts: counters.iter().map(count).collect(), waiting: None };
        Counters { queues: BTreeMap::from([((1, 5), queue)]), unroutable, ..Counters::default() }
    }

    #[test]
    fn an_idle_switch_and_one_that_sends_what_it_takes_are_healthy() {
        let idle = seen(&[(Counter::Admitted, 7), (Counter::Transmitted, 7)], 0);
        assert_eq!(judge(&[idle.clone(), idle.clone(), idle]), Ok(()));
        let readings: Vec<Counters> = (1..=3)
            .map(|n| {
                seen(
                    &[
                        (Counter::Admitted, 10 * n),
                        (Counter::Transmitted, 10 * n - 3),
                        (Counter::TailDropped, n),
                    ],
                    0,
                )
            })
            .collect();
        assert_eq!(judge(&readings), Ok(()));
    }

    #[test]
    fn a_switch_that_takes_packets_and_sends_none_is_not_healthy() {
        let dropping: Vec<Counters> =
            (1..=3).map(|n| seen(&[(Counter::TailDropped, n), (Counter::Transmitted, 5)], 0)).collect();
        assert_eq!(
            judge(&dropping),
            Err("packets come and none leaves: 0 taken, 2 dropped, 0 without a route".to_owned())
        );
        let lost: Vec<Counters> = (1..=3).map(|n| seen(&[], 100 * n)).collect();
        assert_eq!(
            judge(&lost),
            Err("packets come and none leaves: 0 taken, 0 dropped, 200 without a route".to_owned())
        );
    }

    #[test]
    fn more_sent_than_taken_is_a_failure_when_it_grows_and_a_leftover_when_it_stays() {
        let with = |deficit: [i64; 4]| -> Vec<Counters> {
            let one = |(n, deficit): (i64, i64)| {
                seen(
                    &[(Counter::Admitted, 10), (Counter::Transmitted, 10 + deficit), (Counter::Marked, n)],
                    0,
                )
            };
            (0..).zip(deficit).map(one).collect()
        };
        assert_eq!(judge(&with([4, 4, 4, 4])), Ok(()));
        let error = judge(&with([0, 1, 5, 9])).unwrap_err();
        assert_eq!(error, "port 1 has sent 5 packets more than it has taken, and 1 a moment before");
    }

    /// Trimmed packets are taken at their class' queue and sent from the trim queue, which was
    /// taken for a switch that makes packets up.
    #[test]
    fn a_switch_that_trims_is_healthy() {
        let readings: Vec<Counters> = (1..=4)
            .map(|n| {
                let count = |packets| Count { packets, bytes: 0 };
                let class0 =
                    [(Counter::Admitted, 10 * n), (Counter::Transmitted, 10 * n), (Counter::Trimmed, 30 * n)];
                let queue = |counters: &[(Counter, i64)]| QueueCounters {
                    counts: counters.iter().map(|(counter, packets)| (*counter, count(*packets))).collect(),
                    waiting: None,
                };
                let trimmed = queue(&[(Counter::Transmitted, 30 * n)]);
                Counters {
                    queues: BTreeMap::from([((1, 5), queue(&class0)), ((1, 6), trimmed)]),
                    ..Counters::default()
                }
            })
            .collect();
        assert_eq!(judge(&readings), Ok(()));
    }
}
