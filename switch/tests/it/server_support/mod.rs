// SPDX-License-Identifier: Apache-2.0
//! A switch and its server on loopback with `testdata/server/server.p4`, the project's client, and
//! bare gRPC stubs for what a well-behaved client does not do.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::TableEntryBuilder;
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::server::tonic::transport::{Channel, Endpoint};
use trimwire_p4runtime::v1::p4_runtime_client::P4RuntimeClient;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update, entity::Entity as Kind};
use trimwire_switch::server::{Limits, ServerHandle, ServerOptions, serve_with};
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig, Transmit};

pub(crate) const DEVICE: u64 = 1;
pub(crate) const CPU_PORT: u16 = 510;

/// P4Info and device config of a program in `testdata/server`.
pub(crate) fn program(name: &str) -> (P4Info, Vec<u8>) {
    let read = |suffix: &str| {
        let path = format!("{}/testdata/server/{name}.{suffix}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    (P4Info::from_bytes(&read("p4info.txtpb")).unwrap(), read("json"))
}

/// A switch, its server, and its primary, with a pipeline.
pub(crate) struct Bench {
    pub(crate) switch: SharedSwitch,
    pub(crate) server: ServerHandle,
    pub(crate) client: Client,
    pub(crate) index: Index,
}

/// A switch without pipeline, and its server.
pub(crate) fn start() -> (SharedSwitch, ServerHandle) {
    start_with(Limits::default())
}

/// Likewise, with other limits.
pub(crate) fn start_with(limits: Limits) -> (SharedSwitch, ServerHandle) {
    let config = SwitchConfig { device_id: DEVICE, cpu_port: Some(CPU_PORT), ..SwitchConfig::default() };
    let switch: SharedSwitch = Arc::new(Mutex::new(Switch::new(config)));
    let options = ServerOptions { limits, ..ServerOptions::default() };
    let server = serve_with(switch.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options).unwrap();
    (switch, server)
}

pub(crate) async fn connect(server: &ServerHandle) -> Client {
    Client::connect(&server.local_addr().to_string()).await.unwrap()
}

/// Stubs without a client's manners.
pub(crate) async fn stub(server: &ServerHandle) -> P4RuntimeClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.local_addr())).unwrap();
    P4RuntimeClient::new(endpoint.connect().await.unwrap()).max_decoding_message_size(64 << 20)
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(Limits::default()).await
    }

    pub(crate) async fn with(limits: Limits) -> Self {
        let (switch, server) = start_with(limits);
        let mut client = connect(&server).await;
        client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
        let bench = Self { index: Index::new(&program("server").0).unwrap(), switch, server, client };
        bench.push("server", Action::VerifyAndCommit).await.unwrap();
        bench
    }

    pub(crate) async fn push(&self, name: &str, action: Action) -> Result<(), String> {
        let (p4info, json) = program(name);
        self.client.set_pipeline(p4info, json, Some(7), action).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn write(&self, update: Update) -> Result<(), String> {
        self.batch(vec![update], Atomicity::ContinueOnError).await
    }

    pub(crate) async fn batch(&self, updates: Vec<Update>, atomicity: Atomicity) -> Result<(), String> {
        self.client.write(updates, atomicity).await.map_err(|error| error.to_string())
    }

    pub(crate) async fn read(&self, filter: impl Into<Entity>) -> Vec<Entity> {
        self.client.read(vec![filter.into()]).await.unwrap()
    }

    /// Entries of a table.
    pub(crate) async fn entries(&self, table: &str) -> Vec<TableEntry> {
        let table_id = self.index.table(table).unwrap().id();
        self.rows(TableEntry { table_id, ..TableEntry::default() }).await
    }

    pub(crate) async fn rows(&self, filter: TableEntry) -> Vec<TableEntry> {
        self.read(filter).await.into_iter().map(table_entry).collect()
    }

    /// An exact entry for a key that forwards to a port.
    pub(crate) fn forward(&self, table: &str, key: u8, port: u16) -> TableEntry {
        let builder = TableEntryBuilder::new(&self.index, table).exact("key", u128::from(key));
        builder.action("I.forward").param("port", port).build().unwrap()
    }

    /// An entry of the ternary table, with a counter and a meter.
    pub(crate) fn acl(&self, key: u8, priority: i32, port: u16) -> TableEntry {
        let builder = TableEntryBuilder::new(&self.index, "I.acl").ternary("key", u128::from(key), 0xff_u128);
        builder.priority(priority).action("I.hit").param("port", port).build().unwrap()
    }

    /// What leaves when a packet comes in.
    pub(crate) fn send(&self, now_ns: u64, frame: &[u8]) -> Vec<Transmit> {
        let mut switch = self.switch.lock().unwrap();
        switch.handle_frame(now_ns, 1, frame);
        switch.handle_timeout(now_ns);
        std::iter::from_fn(|| switch.poll_transmit()).collect()
    }

    /// The port that a packet leaves by.
    pub(crate) fn port_of(&self, now_ns: u64, frame: &[u8]) -> Option<u16> {
        self.send(now_ns, frame).first().map(|sent| sent.port)
    }
}

pub(crate) fn table_entry(entity: Entity) -> TableEntry {
    match entity.entity {
        Some(Kind::TableEntry(entry)) => entry,
        other => panic!("not a table entry: {other:?}"),
    }
}

/// A packet of the program's.
pub(crate) fn probe(key: u8, what: u8, kind: u16, value: u32) -> Vec<u8> {
    [&[key, what][..], &kind.to_be_bytes(), &value.to_be_bytes(), &[0; 8]].concat()
}

/// Waits until `done`, for at most ten seconds.
pub(crate) async fn eventually<T>(mut done: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = done().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("within ten seconds")
}

/// Waits for a message, for at most ten seconds.
pub(crate) async fn soon<T>(message: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), message).await.expect("within ten seconds")
}

/// A stream that is held by hand.
pub(crate) struct RawStream {
    pub(crate) requests: tokio::sync::mpsc::Sender<v1::StreamMessageRequest>,
    pub(crate) responses: trimwire_p4runtime::server::tonic::Streaming<v1::StreamMessageResponse>,
}

impl RawStream {
    pub(crate) async fn open(stub: &mut P4RuntimeClient<Channel>) -> Self {
        let (requests, sent) = tokio::sync::mpsc::channel(8);
        let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
        let responses = stub.stream_channel(sent).await.unwrap().into_inner();
        Self { requests, responses }
    }

    pub(crate) async fn send(&self, update: v1::stream_message_request::Update) {
        self.requests.send(v1::StreamMessageRequest { update: Some(update) }).await.unwrap();
    }

    pub(crate) async fn next(
        &mut self,
    ) -> Result<v1::stream_message_response::Update, trimwire_p4runtime::server::tonic::Status> {
        Ok(soon(self.responses.message()).await?.expect("the stream is open").update.expect("a message"))
    }
}
