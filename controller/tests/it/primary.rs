// SPDX-License-Identifier: Apache-2.0
//! Two controllers of one fabric, with different files and with the same.

use std::net::SocketAddr;

use crate::run_support::{Embedded, chains, dead_address, eventually};
use trimwire_controller::run::{Controller, Leader, RunOptions, SwitchStatus};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, plan};

const OFTEN: &str = "interval: 200ms, audit: 300ms, timeout: 5s";

fn read(text: &str) -> Fabric {
    Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"))
}

async fn started(fabric: &Fabric, election_id: u128) -> Controller {
    let options = RunOptions { metrics: Some(MetricsAt::Off), election_id: Some(election_id) };
    Controller::start(fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap()
}

fn is_well(status: &SwitchStatus) -> bool {
    status.up && status.primary && status.in_place == Some(true)
}

/// Waits until these switches are as asked, and the fabric has this leader, as this controller sees
/// it.
async fn seen(
    controller: &Controller,
    leader: Leader,
    switches: &[&str],
    is_so: impl Fn(&SwitchStatus) -> bool,
) {
    eventually("the fabric", || {
        let status = controller.status();
        let others: Vec<_> = switches.iter().filter(|name| !is_so(&status.switches[**name])).collect();
        if others.is_empty() && status.leader == leader {
            Ok(())
        } else {
            Err(format!("{:?}, {others:?}: {:#?}", status.leader, status.switches))
        }
    })
    .await;
}

async fn differs(fabric: &Fabric, switch: &str) -> bool {
    let options = Options { only: [switch.to_owned()].into(), ..Options::default() };
    !plan(fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap().is_empty()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_controllers_with_different_files_one_writes_and_the_other_does_not_undo_it() {
    let switches: Vec<Embedded> = (1..=3).map(Embedded::start).collect();
    let addresses: Vec<SocketAddr> = switches.iter().map(|switch| switch.address).collect();
    let other_file = read(&(chains(&addresses, OFTEN) + "policy: { drop_at: 700us }\n"));
    // The leader does not reach s0: nobody else wants to be primary there.
    let mut reached = addresses.clone();
    reached[0] = dead_address();
    let file = read(&chains(&reached, OFTEN));
    let leader = started(&file, 2).await;
    seen(&leader, Leader::This, &["s1", "s2"], is_well).await;

    let follower = started(&other_file, 1).await;
    eventually("the follower knows of the other file", || {
        let found = follower.status().another_file;
        if found == ["s1", "s2"] { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
    leader.stop().await;
    seen(&follower, Leader::Nobody, &["s0", "s1", "s2"], |status| status.up).await;
    assert!(!differs(&file, "s1").await && !differs(&file, "s2").await, "the leader's work was not undone");
    assert_eq!(follower.status().switches["s1"].tally.succeeded, 0, "nothing was written");

    follower.insist();
    seen(&follower, Leader::This, &["s0", "s1", "s2"], is_well).await;
    assert!(!differs(&other_file, "s1").await);
    follower.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_leaves_a_switch_alone_that_takes_it_for_primary_and_takes_over_when_its_leader_is_gone() {
    let switches: Vec<Embedded> = (1..=3).map(Embedded::start).collect();
    let addresses: Vec<SocketAddr> = switches.iter().map(|switch| switch.address).collect();
    let mut reached = addresses.clone();
    reached[0] = dead_address();
    // Neither reaches s0, until who leads is settled: then the follower does.
    let without = read(&chains(&reached, OFTEN));
    let leader = started(&without, 2).await;
    seen(&leader, Leader::This, &["s1", "s2"], is_well).await;
    let mut follower = started(&without, 1).await;
    seen(&follower, Leader::Another, &["s1", "s2"], |status| status.up && !status.primary).await;
    follower.reload(&read(&chains(&addresses, OFTEN)), &Artifacts::embedded().unwrap()).unwrap();
    seen(&follower, Leader::Another, &["s0"], |status| status.primary && status.in_place == Some(false))
        .await;
    assert_eq!(follower.status().switches["s0"].tally.succeeded, 0, "it looked, and wrote nothing");

    // Of the same file: it takes over.
    seen(&follower, Leader::Another, &["s1", "s2"], |status| status.in_place == Some(true)).await;
    leader.stop().await;
    seen(&follower, Leader::This, &["s0", "s1", "s2"], is_well).await;
    follower.stop().await;
}
