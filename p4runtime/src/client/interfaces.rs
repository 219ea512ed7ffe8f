// SPDX-License-Identifier: Apache-2.0
//! Which ports can be used, by gNMI: OpenConfig's interfaces, as Stratum serves them on P4Runtime's
//! port.
//!
//! An interface has a name; its `state/ifindex` is the port's number in P4Runtime, and its
//! `state/oper-status` says whether it can be used. Stratum takes wildcards for numbers alone, and
//! asked once; `oper-status` is subscribed to by name.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::{Client, ClientError};
use crate::gnmi::g_nmi_client::GNmiClient;
use crate::gnmi::subscribe_request::Request;
use crate::gnmi::subscribe_response::Response;
use crate::gnmi::subscription_list::Mode;
use crate::gnmi::typed_value::Value;
use crate::gnmi::{
    Encoding, Notification, Path, PathElem, SubscribeRequest, SubscribeResponse, Subscription,
    SubscriptionList, SubscriptionMode, TypedValue,
};

/// Longest message that is taken, bytes. An update of one leaf has some hundred.
const LONGEST_MESSAGE: usize = 1 << 20;
/// Most interfaces that are believed: sixteen times the ports of the largest switches.
const MOST_INTERFACES: usize = 8192;
/// Longest name of an interface that is believed, bytes.
const LONGEST_NAME: usize = 256;

const OPERATION: &str = "Subscribe";

/// What a switch tells of its ports. Dropping it ends that.
#[derive(Debug)]
pub struct Interfaces {
    address: String,
    answers: Streaming<SubscribeResponse>,
    ports: BTreeMap<String, u16>,
    /// As told last.
    usable: BTreeMap<u16, bool>,
    /// The call lasts as long as this.
    _requests: mpsc::Sender<SubscribeRequest>,
}

impl Client {
    /// Whether some of the switch's ports can be used, as it changes. Needs no arbitration. A
    /// switch without gNMI answers UNIMPLEMENTED.
    pub async fn watch_interfaces(&self, ports: &BTreeSet<u16>) -> Result<Interfaces, ClientError> {
        let limit = self.options.call_timeout;
        let subscribing = Box::pin(async {
            let ports = self.interface_names(ports).await?;
            if ports.is_empty() {
                return Err(protocol(&self.address, "no interface has the number of such a port".to_owned()));
            }
            let leaves = ports.keys().map(|name| (path(name, "oper-status"), SubscriptionMode::OnChange));
            let (requests, receiver) = mpsc::channel(1);
            // There is room for one.
            let _ = requests.try_send(subscribe(Mode::Stream, leaves));
            let answers = self.subscribe(ReceiverStream::new(receiver)).await?;
            let (address, usable) = (self.address.clone(), BTreeMap::new());
            Ok(Interfaces { address, answers, ports, usable, _requests: requests })
        });
        match tokio::time::timeout(limit, subscribing).await {
            Ok(outcome) => outcome,
            Err(_) => Err(self.timeout(OPERATION, limit)),
        }
    }

    /// Of some ports: the names of their interfaces.
    async fn interface_names(&self, wanted: &BTreeSet<u16>) -> Result<BTreeMap<String, u16>, ClientError> {
        let once = subscribe(Mode::Once, [(path("*", "ifindex"), SubscriptionMode::TargetDefined)]);
        let mut answers = self.subscribe(tokio_stream::once(once)).await?;
        let mut names: BTreeMap<String, u16> = BTreeMap::new();
        let mut told = 0;
        while let Some(response) = next(&self.address, &mut answers).await? {
            let Some(notification) = response else { break };
            told += notification.update.len().max(1);
            if told > MOST_INTERFACES {
                return Err(protocol(
                    &self.address,
                    format!("it tells of more than {MOST_INTERFACES} interfaces"),
                ));
            }
            for (name, value) in leaves(notification, "ifindex") {
                let number = match value {
                    Value::UintVal(number) => u16::try_from(number).ok(),
                    Value::IntVal(number) => u16::try_from(number).ok(),
                    Value::StringVal(_) => None,
                };
                if let Some(port) = number.filter(|port| wanted.contains(port)) {
                    names.insert(name, port);
                }
            }
        }
        // Two chips of a chassis may both have the number; which one is meant, nobody knows.
        let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
        names.values().for_each(|port| *counts.entry(*port).or_default() += 1);
        names.retain(|_, port| counts.get(port) == Some(&1));
        Ok(names)
    }

    async fn subscribe(
        &self,
        requests: impl tonic::IntoStreamingRequest<Message = SubscribeRequest>,
    ) -> Result<Streaming<SubscribeResponse>, ClientError> {
        let mut client = GNmiClient::new(self.channel.clone()).max_decoding_message_size(LONGEST_MESSAGE);
        let answers = client.subscribe(requests).await;
        answers.map(tonic::Response::into_inner).map_err(|status| self.status(status))
    }

    fn status(&self, status: tonic::Status) -> ClientError {
        ClientError::from_status(&self.address, OPERATION, status)
    }
}

impl Interfaces {
    /// The ports that are told of; others have no interface of their own, as far as the switch
    /// says.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.ports.values().copied().collect()
    }

    /// Waits for ports that can be used, or cannot, unlike before. An error is the end.
    pub async fn changed(&mut self) -> Result<BTreeMap<u16, bool>, ClientError> {
        loop {
            let ended = || protocol(&self.address, "it ended telling of its ports".to_owned());
            let Some(notification) = next(&self.address, &mut self.answers).await?.ok_or_else(ended)? else {
                continue;
            };
            let mut changed = BTreeMap::new();
            for (name, value) in leaves(notification, "oper-status") {
                let (Some(port), Value::StringVal(state)) = (self.ports.get(&name), value) else { continue };
                // Who does not know is believed to have its links.
                let is_usable = matches!(state.as_str(), "UP" | "UNKNOWN");
                if self.usable.insert(*port, is_usable) != Some(is_usable) {
                    changed.insert(*port, is_usable);
                }
            }
            if !changed.is_empty() {
                return Ok(changed);
            }
        }
    }
}

fn protocol(address: &str, reason: String) -> ClientError {
    ClientError::Protocol { address: address.to_owned(), operation: OPERATION, reason }
}

/// The next message: `None` at the end, `Some(None)` once everything was told.
async fn next(
    address: &str,
    answers: &mut Streaming<SubscribeResponse>,
) -> Result<Option<Option<Notification>>, ClientError> {
    let message = answers.message().await;
    let message = message.map_err(|status| ClientError::from_status(address, OPERATION, status))?;
    match message.map(|message| message.response) {
        None => Ok(None),
        Some(Some(Response::Update(notification))) => Ok(Some(Some(notification))),
        Some(Some(Response::SyncResponse(_))) => Ok(Some(None)),
        Some(Some(Response::Error(error))) => Err(protocol(address, error.message)),
        // What it may be, a later version knows.
        Some(None) => Ok(Some(Some(Notification::default()))),
    }
}

/// The values of this leaf of interfaces, by their names.
fn leaves(notification: Notification, leaf: &str) -> impl Iterator<Item = (String, Value)> {
    let prefix = notification.prefix.unwrap_or_default().elem;
    notification.update.into_iter().filter_map(move |update| {
        let value = update.val.and_then(|TypedValue { value }| value)?;
        let own = update.path.unwrap_or_default().elem;
        let elements: Vec<&PathElem> = prefix.iter().chain(&own).collect();
        let names: Vec<&str> = elements.iter().map(|element| element.name.as_str()).collect();
        let name = elements.get(1)?.key.get("name").filter(|name| name.len() <= LONGEST_NAME)?;
        (names == ["interfaces", "interface", "state", leaf]).then(|| (name.clone(), value))
    })
}

/// `/interfaces/interface[name=…]/state/…`.
fn path(name: &str, leaf: &str) -> Path {
    let element = |name: &str| PathElem { name: name.to_owned(), ..PathElem::default() };
    let key = BTreeMap::from([("name".to_owned(), name.to_owned())]);
    let interface = PathElem { name: "interface".to_owned(), key };
    Path { elem: vec![element("interfaces"), interface, element("state"), element(leaf)] }
}

fn subscribe(mode: Mode, leaves: impl IntoIterator<Item = (Path, SubscriptionMode)>) -> SubscribeRequest {
    let one = |(path, mode): (Path, SubscriptionMode)| Subscription { path: Some(path), mode: mode.into() };
    let subscription = leaves.into_iter().map(one).collect();
    let list = SubscriptionList { subscription, mode: mode.into(), encoding: Encoding::Proto.into() };
    SubscribeRequest { request: Some(Request::Subscribe(list)) }
}
