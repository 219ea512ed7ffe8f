// SPDX-License-Identifier: Apache-2.0
//! Links that fail, as switches tell by gNMI: a connection of its own for each switch that has it, beside that of its driver.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::backoff::Backoff;
use super::driver::{is_trunk, tell_ports};
use super::faults::Detector;
use super::wanted::Wanted;
use crate::rollout::device::{DeviceError, Reach};

/// A switch may tell of changes so often; more wait in its connection.
const PACE: Duration = Duration::from_millis(1);

/// Ends with its owner.
pub(super) struct Listener(JoinHandle<()>);

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Listener {
    pub(super) fn start(reach: Reach, wanted: watch::Receiver<Arc<Wanted>>, detector: Detector) -> Self {
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
            let error = follow(&reach, &current, &detector, (&mut backoff, &mut is_said)).await;
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
async fn follow(
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
