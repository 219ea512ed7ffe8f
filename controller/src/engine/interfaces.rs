// SPDX-License-Identifier: Apache-2.0
//! Links that fail, as switches tell: by our own service over the driver's connection, or by gNMI
//! over a connection beside it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use trimwire_p4runtime::admin::PortStates;
use trimwire_p4runtime::client::Client;
use trimwire_p4runtime::server::tonic::Streaming;

use super::backoff::Backoff;
use super::faults::{Detector, Element};
use super::status::Cause;
use super::wanted::Wanted;
use crate::device::{DeviceError, Reach};
use crate::model::End;

/// A switch may tell of changes so often; more wait in its connection.
const PACE: Duration = Duration::from_millis(1);

/// Ends with its owner.
pub(crate) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    pub(crate) fn start(reach: Reach, wanted: watch::Receiver<Arc<Wanted>>, detector: Detector) -> Self {
        Self(tokio::spawn(listen(reach, wanted, detector)))
    }
}

async fn listen(reach: Reach, mut wanted: watch::Receiver<Arc<Wanted>>, detector: Detector) {
    let name = wanted.borrow().name.clone();
    let mut backoff = Backoff::new(&name);
    // Whether it was said that nothing is told.
    let mut is_said = false;
    loop {
        let current = Arc::clone(&wanted.borrow_and_update());
        let fabric = current.shared.compiler.fabric();
        let address = fabric.switches.get(&name).and_then(|switch| switch.gnmi_address()).map(str::to_owned);
        let Some(address) = address else {
            believe(&detector, &current);
            if wanted.changed().await.is_err() {
                return;
            }
            continue;
        };
        let reach = Reach { address, ..reach.clone() };
        let ended = async {
            let error = pass_on(&reach, &current, &detector, (&mut backoff, &mut is_said)).await;
            if error.is_unimplemented() {
                believe(&detector, &current);
            }
            if !std::mem::replace(&mut is_said, true) {
                tracing::warn!(
                    switch = %name,
                    "tells nothing of its ports by gNMI: {error}; it goes on without, and is asked again; gnmi: off in the fabric file \
                     asks no more"
                );
            }
            tokio::time::sleep(Duration::from_nanos(backoff.failed())).await;
        };
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = ended => {}
        }
    }
}

/// Passes on what a switch tells, until it does not any more; why.
async fn pass_on(
    reach: &Reach,
    wanted: &Wanted,
    detector: &Detector,
    (backoff, is_said): (&mut Backoff, &mut bool),
) -> DeviceError {
    let trunks = trunks(wanted);
    let mut interfaces = match reach.interfaces(&trunks).await {
        Ok(interfaces) => interfaces,
        Err(error) => return error,
    };
    let silent: Vec<String> = trunks.difference(&interfaces.ports()).map(u16::to_string).collect();
    if !silent.is_empty() && !*is_said {
        tracing::warn!(switch = %wanted.name, "no interface by gNMI is port {}", silent.join(", "));
    }
    loop {
        let changed = match interfaces.changed().await {
            Ok(changed) => changed,
            Err(error) => return error.into(),
        };
        backoff.succeeded();
        if std::mem::take(is_said) {
            tracing::info!(switch = %wanted.name, "tells of its ports by gNMI again");
        }
        tell_ports(detector, wanted, changed, "the switch says by gNMI that the port is down");
        tokio::time::sleep(PACE).await;
    }
}

/// Who does not tell is believed to have all its links.
fn believe(detector: &Detector, wanted: &Wanted) {
    let all = trunks(wanted).into_iter().map(|port| (port, true));
    tell_ports(detector, wanted, all, "");
}

fn trunks(wanted: &Wanted) -> BTreeSet<u16> {
    wanted.ports.keys().copied().filter(|port| is_trunk(wanted, *port)).collect()
}

/// What a switch tells of its ports over its driver's connection, if it does.
pub(crate) enum PortStream {
    Unasked,
    Silent,
    Open { states: Box<Streaming<PortStates>>, heard: Instant },
}

/// A switch that tells of its ports does so every second, and is dead when it does not.
const SILENCE: Duration = Duration::from_secs(3);

/// What a switch tells next of its ports. An error is the connection's end.
pub(crate) async fn port_states(
    ports: Option<(&Arc<Client>, &mut PortStream)>,
) -> Result<PortStates, String> {
    let Some((client, ports)) = ports else { return std::future::pending().await };
    if let PortStream::Unasked = ports {
        *ports = match client.watch_ports().await {
            Ok(Some(states)) => PortStream::Open { states: Box::new(states), heard: Instant::now() },
            // Whoever does not tell is believed to have all its links.
            Ok(None) | Err(_) => PortStream::Silent,
        };
    }
    let PortStream::Open { states, heard } = ports else { return std::future::pending().await };
    match tokio::time::timeout_at(*heard + SILENCE, states.message()).await {
        Ok(Ok(Some(told))) => {
            *heard = Instant::now();
            Ok(told)
        }
        Ok(Ok(None)) => Err("it ended telling of its ports".to_owned()),
        Ok(Err(status)) => Err(format!("it ended telling of its ports: {}", status.message())),
        Err(_) => Err(format!("it has said nothing for {SILENCE:?}")),
    }
}

/// Whether a port leads to another switch: such links have a way round; hosts' have none.
fn is_trunk(wanted: &Wanted, port: u16) -> bool {
    let neighbours = wanted.shared.compiler.topology().neighbours(&wanted.name);
    let neighbour = neighbours.and_then(|neighbours| neighbours.get(&port));
    matches!(neighbour.map(|neighbour| &neighbour.end), Some(End::Port(..)))
}

/// What a switch says of its ports, each with whether it can be used.
pub(crate) fn tell_ports(
    detector: &Detector,
    wanted: &Wanted,
    ports: impl IntoIterator<Item = (u16, bool)>,
    reason: &str,
) {
    let ports: Vec<(u16, bool)> = ports.into_iter().filter(|(port, _)| is_trunk(wanted, *port)).collect();
    detector.wires(|wires| {
        ports.iter().for_each(|(port, is_usable)| wires.link(&wanted.name, *port, *is_usable));
    });
    detector.change(|faults, now| {
        for (port, is_usable) in ports {
            let element = Element::Port(wanted.name.clone(), port, Cause::Link);
            if is_usable {
                faults.well(now, &element);
            } else {
                faults.failed(now, element, reason.to_owned());
            }
        }
    });
}
