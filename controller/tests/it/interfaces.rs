// SPDX-License-Identifier: Apache-2.0
//! Switches that tell of their ports by gNMI: a model that takes what Stratum takes, and answers as
//! it does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use trimwire_controller::run::{Cause, Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt};
use trimwire_p4runtime::gnmi::g_nmi_server::{GNmi, GNmiServer};
use trimwire_p4runtime::gnmi::subscribe_request::Request as Asked;
use trimwire_p4runtime::gnmi::subscribe_response::Response as Told;
use trimwire_p4runtime::gnmi::subscription_list::Mode;
use trimwire_p4runtime::gnmi::typed_value::Value;
use trimwire_p4runtime::gnmi::{
    Error, Notification, Path, SubscribeRequest, SubscribeResponse, SubscriptionMode, TypedValue, Update,
};
use trimwire_p4runtime::server::async_trait;
use trimwire_p4runtime::server::tonic::{self, Request, Response, Status, Streaming};

use crate::model::Model;
use crate::replace::groups;
use crate::run_support::eventually;

type Answer = Result<SubscribeResponse, Status>;

#[derive(Default)]
struct State {
    /// By name: number and `oper-status`.
    interfaces: BTreeMap<String, (u64, String)>,
    listeners: Vec<(String, Path, mpsc::UnboundedSender<Answer>)>,
    calls: usize,
    /// Is answered to every call.
    refuses: Option<Status>,
}

#[derive(Clone)]
struct Interfaces {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl Interfaces {
    /// Ports 1 and 2 of a leaf, up.
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let model = Self { state: Arc::default(), address: listener.local_addr().unwrap() };
        for (name, number) in [("1/1/0", 1), ("2/1/0", 2)] {
            model.state().interfaces.insert(name.to_owned(), (number, "UP".to_owned()));
        }
        let server = tonic::transport::Server::builder().add_service(GNmiServer::new(model.clone()));
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        model
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn set(&self, name: &str, status: &str) {
        let mut state = self.state();
        status.clone_into(&mut state.interfaces.get_mut(name).unwrap().1);
        let value = Value::StringVal(status.to_owned());
        for (_, path, listener) in state.listeners.iter().filter(|(listened, ..)| listened == name) {
            let _ = listener.send(Ok(update(path, value.clone())));
        }
    }
}

fn update(path: &Path, value: Value) -> SubscribeResponse {
    let update = Update { path: Some(path.clone()), val: Some(TypedValue { value: Some(value) }) };
    let notification = Notification { timestamp: 1, update: vec![update], ..Notification::default() };
    SubscribeResponse { response: Some(Told::Update(notification)) }
}

fn named(path: &Path, name: &str) -> Path {
    let mut path = path.clone();
    path.elem[1].key.insert("name".to_owned(), name.to_owned());
    path
}

#[async_trait]
impl GNmi for Interfaces {
    type SubscribeStream = Pin<Box<dyn Stream<Item = Answer> + Send>>;

    async fn subscribe(
        &self,
        request: Request<Streaming<SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        self.state().calls += 1;
        if let Some(status) = self.state().refuses.clone() {
            return Err(status);
        }
        let mut requests = request.into_inner();
        let Some(Ok(SubscribeRequest { request: Some(Asked::Subscribe(list)) })) = requests.next().await
        else {
            return Err(Status::invalid_argument("no subscription"));
        };
        let (answers, receiver) = mpsc::unbounded_channel();
        let sync = || Ok(SubscribeResponse { response: Some(Told::SyncResponse(true)) });
        let mut state = self.state();
        for subscription in &list.subscription {
            let path = subscription.path.clone().unwrap_or_default();
            let words: Vec<&str> = path.elem.iter().map(|element| element.name.as_str()).collect();
            let name =
                path.elem.get(1).and_then(|element| element.key.get("name")).cloned().unwrap_or_default();
            let is_on_change = subscription.mode() == SubscriptionMode::OnChange;
            match (list.mode(), words.as_slice()) {
                (Mode::Once, ["interfaces", "interface", "state", "ifindex"]) if name == "*" => {
                    for (name, (number, _)) in &state.interfaces {
                        let _ = answers.send(Ok(update(&named(&path, name), Value::UintVal(*number))));
                    }
                    let _ = answers.send(sync());
                }
                (Mode::Stream, ["interfaces", "interface", "state", "oper-status"])
                    if is_on_change && state.interfaces.contains_key(&name) =>
                {
                    let status = state.interfaces[&name].1.clone();
                    let _ = answers.send(Ok(update(&path, Value::StringVal(status))));
                    state.listeners.push((name, path, answers.clone()));
                }
                _ => {
                    let error = Error { code: 1, message: format!("The path ({words:?}) is unsupported!") };
                    let _ = answers.send(Ok(SubscribeResponse { response: Some(Told::Error(error)) }));
                }
            }
        }
        let _ = answers.send(sync());
        drop(state);
        tokio::spawn(async move {
            // Until the client has nothing more to ask.
            while let Some(Ok(_)) = requests.next().await {}
            drop(answers);
        });
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(receiver))))
    }
}

/// Leaves and spines; leaf2 tells of its ports.
async fn fabric(gnmi: &Interfaces, hold_down: &str) -> (Vec<Model>, String) {
    let mut models = Vec::new();
    for _ in 0..4 {
        models.push(Model::start().await);
    }
    let addresses = [0, 1, 2, 3].map(|at: usize| models[at].address);
    let text = crate::failure::leaf_spine_text(addresses, &format!("interval: 60s, hold_down: {hold_down}"));
    let text = text.replace("device_id: 2 }", &format!("device_id: 2, gnmi: \"{}\" }}", gnmi.address));
    assert!(text.contains("gnmi"), "{text}");
    (models, text)
}

async fn running(text: &str) -> Controller {
    let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    let options = RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() };
    Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap()
}

/// How many of the leaves have both spines as ways.
async fn until(models: &[Model], expected: usize) {
    eventually("routes", || {
        let found = (groups(&models[0]), groups(&models[1]));
        if found == (expected, expected) { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_which_gnmi_says_that_it_is_down_is_out_of_routes_and_comes_back_after_its_hold_down() {
    let gnmi = Interfaces::start().await;
    // A port that is linked to nothing, and one of another chip.
    gnmi.state().interfaces.insert("3/1/0".to_owned(), (77, "DOWN".to_owned()));
    gnmi.state().interfaces.insert("9/1/0".to_owned(), (1 << 40, "DOWN".to_owned()));
    let (models, text) = fabric(&gnmi, "300ms").await;
    let controller = running(&text).await;
    until(&models, 1).await;
    eventually("it listens", || {
        let count = gnmi.state().listeners.len();
        if count == 2 { Ok(()) } else { Err(format!("{count} of 2 ports")) }
    })
    .await;
    gnmi.set("1/1/0", "DOWN");
    until(&models, 0).await;
    let faults = controller.status().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!((faults[0].switch.as_str(), faults[0].port, faults[0].cause), ("leaf2", Some(1), Cause::Link));
    assert!(faults[0].reason.contains("gNMI"), "{faults:?}");
    gnmi.set("1/1/0", "UP");
    until(&models, 1).await;

    // Its process ends and comes back; meanwhile something has failed.
    gnmi.state().interfaces.get_mut("2/1/0").unwrap().1 = "LOWER_LAYER_DOWN".to_owned();
    let ended = Err(Status::unavailable("it restarts"));
    for (_, _, listener) in std::mem::take(&mut gnmi.state().listeners) {
        let _ = listener.send(ended.clone());
    }
    until(&models, 0).await;
    assert_eq!(controller.status().faults[0].port, Some(2));
    controller.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_flaps_by_gnmi_is_held_down_longer_each_time() {
    let gnmi = Interfaces::start().await;
    let (models, text) = fabric(&gnmi, "600s").await;
    let controller = running(&text).await;
    until(&models, 1).await;
    eventually("it listens", || if gnmi.state().listeners.len() == 2 { Ok(()) } else { Err(String::new()) })
        .await;
    for _ in 0..4 {
        gnmi.set("1/1/0", "DOWN");
        gnmi.set("1/1/0", "UP");
    }
    eventually("all were counted", || {
        let faults = controller.status().faults;
        let fault = faults.first().ok_or("none")?;
        if (fault.failures, fault.held) == (4, true) { Ok(()) } else { Err(format!("{fault}")) }
    })
    .await;
    until(&models, 0).await;
    controller.stop().await;
}

/// Killed when the test ends, however it ends.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a `run` says of a switch that tells nothing, once it was asked a few times.
async fn said(gnmi: &Interfaces) -> (Vec<Model>, String) {
    let (models, text) = fabric(gnmi, "300ms").await;
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("fabric.yaml"), folder.path().join("log"));
    std::fs::write(&file, text).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_trimwire-controller"));
    command.args(["run", "--metrics", "off"]).arg(&file).stdout(std::process::Stdio::null());
    let run = Child(command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap());
    eventually("it was asked", || {
        let calls = gnmi.state().calls;
        if calls >= 4 { Ok(()) } else { Err(format!("{calls} times")) }
    })
    .await;
    until(&models, 1).await;
    drop(run);
    (models, std::fs::read_to_string(log).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_without_gnmi_is_told_of_once_and_goes_on_as_without() {
    let gnmi = Interfaces::start().await;
    gnmi.state().refuses = Some(Status::unimplemented("no such service"));
    let (_, log) = said(&gnmi).await;
    assert_eq!(log.matches("tells nothing of its ports by gNMI").count(), 1, "{log}");
    assert!(log.contains("leaf2") && log.contains("UNIMPLEMENTED") && log.contains("gnmi: off"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_tells_of_too_many_interfaces_is_not_believed() {
    let gnmi = Interfaces::start().await;
    for number in 0..10_000 {
        gnmi.state().interfaces.insert(format!("x{number}"), (number % 60_000, "DOWN".to_owned()));
    }
    let (_, log) = said(&gnmi).await;
    assert!(log.contains("tells of more than 8192 interfaces"), "{log}");
}
