// SPDX-License-Identifier: Apache-2.0
//! The command as a process whose memory is looked at, and what strangers send it.

use crate::server_support::{DEVICE, program};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{TableEntryBuilder, insert};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::server::tonic::body::Body;
use trimwire_p4runtime::server::tonic::codegen::{Body as HttpBody, Bytes, Service as _, http};
use trimwire_p4runtime::server::tonic::transport::{Channel, Endpoint};
use trimwire_p4runtime::server::tonic::{Code, Status};
use trimwire_p4runtime::v1::p4_runtime_client::P4RuntimeClient;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

/// A switch that strangers reach.
pub(crate) struct Victim {
    process: Child,
    pub(crate) address: String,
    idle_kib: u64,
    /// Whoever pushed the program, so that its stream stays open.
    primary: std::sync::Mutex<Option<Client>>,
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Victim {
    /// Starts it with these options besides.
    pub(crate) async fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"));
        command.args(["--no-p4", "--device-id", &DEVICE.to_string()]).args(options);
        command.args(["--", "--grpc-server-addr", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("listening for P4Runtime on ") {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended without listening");
        }
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let mut victim = Self { process, address, idle_kib: 0, primary: std::sync::Mutex::default() };
        // Whatever the first client makes it set up is not a stranger's doing.
        Client::connect(&victim.address).await.unwrap().capabilities().await.unwrap();
        victim.idle_kib = victim.kib("VmRSS");
        victim
    }

    /// KiB of its memory, by the name that the system gives them.
    fn kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("it has died: {status}"))
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// The most memory that it has ever taken, in KiB above what it takes when idle.
    pub(crate) fn over_idle(&self) -> u64 {
        self.kib("VmHWM").saturating_sub(self.idle_kib)
    }

    /// Time that it has had of all cores.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // Behind the name, which may hold anything: user's and system's time are 12th and 13th, in
        // hundredths of a second.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
        Duration::from_millis(10 * fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>())
    }

    /// The most that it has ever taken is at most so many KiB above what it takes when idle.
    pub(crate) fn assert_over_idle(&self, what: &str, most_kib: u64) {
        let over = self.over_idle();
        println!("{what}: {over} KiB over idle ({} KiB)", self.idle_kib);
        assert!(over <= most_kib, "{what}: {over} KiB over idle, of at most {most_kib}");
    }

    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn stub(&self) -> P4RuntimeClient<Channel> {
        P4RuntimeClient::new(self.channel().await)
    }

    /// Sends these bytes as a unary call's body, and gives what the switch says.
    pub(crate) async fn call(&self, path: &str, body: Bytes) -> Result<(), Status> {
        answer(self.channel().await, path, Upload { left: body, ends: true }).await
    }

    /// Makes a program the switch's; its primary stays.
    pub(crate) async fn push(&self, program: (P4Info, Vec<u8>)) {
        self.try_push(program).await.unwrap();
    }

    pub(crate) async fn try_push(&self, (p4info, json): (P4Info, Vec<u8>)) -> Result<(), String> {
        let taken = self.primary.lock().unwrap().take();
        let client = if let Some(client) = taken {
            client
        } else {
            let mut client = Client::connect(&self.address).await.unwrap();
            client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
            client
        };
        let pushed = client.set_pipeline(p4info, json, None, Action::VerifyAndCommit).await;
        *self.primary.lock().unwrap() = Some(client);
        pushed.map_err(|error| error.to_string())
    }

    /// Has frames that begin with a zero leave by port 1.
    pub(crate) async fn forward(&self) {
        let index = Index::new(&program("server").0).unwrap();
        let entry = TableEntryBuilder::new(&index, "I.aging").exact("key", 0_u128);
        let entry = entry.action("I.forward").param("port", 1_u16).build().unwrap();
        let client = self.primary.lock().unwrap().take().unwrap();
        client.write(vec![insert(entry)], Atomicity::ContinueOnError).await.unwrap();
        *self.primary.lock().unwrap() = Some(client);
    }

    /// Runs the admin command on it.
    pub(crate) fn admin(&self, words: &str) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"));
        command.args(["admin", "--server", &self.address]).args(words.split_whitespace());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A message as gRPC frames it.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = (message.len() as u32).to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

/// A call whose message is said to be of `length` bytes, of which `sent` come and then nothing, and
/// the connection stays open.
pub(crate) fn unfinished(
    channel: Channel,
    path: &'static str,
    length: u32,
    sent: usize,
) -> JoinHandle<Result<(), Status>> {
    // One field of bytes that nobody knows.
    let mut message = vec![0x7a];
    let mut left = length;
    while left >= 0x80 {
        message.push(left as u8 | 0x80);
        left >>= 7;
    }
    message.push(left as u8);
    message.resize(sent, 7);
    let body = [&[0][..], &length.to_be_bytes(), &message].concat();
    tokio::spawn(async move { answer(channel, path, Upload { left: body.into(), ends: false }).await })
}

/// A call of which no more is read than the answer's head.
pub(crate) fn untaken(mut channel: Channel, path: &'static str, body: Bytes) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Ok(_answer) = send(&mut channel, path, Upload { left: body, ends: true }).await else { return };
        std::future::pending::<()>().await;
    })
}

async fn send(channel: &mut Channel, path: &str, body: Upload) -> Result<http::Response<Body>, Status> {
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .unwrap();
    std::future::poll_fn(|cx| channel.poll_ready(cx))
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    channel.call(request).await.map_err(|error| Status::new(Code::Unavailable, format!("{error:?}")))
}

async fn answer(mut channel: Channel, path: &str, body: Upload) -> Result<(), Status> {
    let response = send(&mut channel, path, body).await?;
    if let Some(status) = Status::from_header_map(response.headers()) {
        return if status.code() == Code::Ok { Ok(()) } else { Err(status) };
    }
    let mut body = response.into_body();
    let mut ended = Ok(());
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame?;
        if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map)
            && status.code() != Code::Ok
        {
            ended = Err(status);
        }
    }
    ended
}

/// A body in pieces of 16 KiB.
struct Upload {
    left: Bytes,
    ends: bool,
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let piece = self.left.len().min(16 << 10);
        match (piece, self.ends) {
            (0, true) => Poll::Ready(None),
            (0, false) => Poll::Pending,
            (piece, _) => Poll::Ready(Some(Ok(http_body::Frame::data(self.left.split_to(piece))))),
        }
    }
}

/// The server's program with other JSON.
pub(crate) fn edited(edit: impl FnOnce(&mut Value)) -> (P4Info, Vec<u8>) {
    let (p4info, json) = program("server");
    let mut root: Value = serde_json::from_slice(&json).unwrap();
    edit(&mut root);
    (p4info, serde_json::to_vec(&root).unwrap())
}

/// A program of so many metadata headers of so many fields of 16,384 bits.
pub(crate) fn wide(headers: usize, fields: usize) -> (P4Info, Vec<u8>) {
    edited(|root| {
        let fields: Vec<Value> =
            (0..fields).map(|number| json!([format!("f{number}"), 16384, false])).collect();
        let types = root["header_types"].as_array_mut().unwrap();
        types.push(json!({ "name": "wide", "id": 99, "fields": fields }));
        let list = root["headers"].as_array_mut().unwrap();
        for number in 0..headers {
            let (name, id) = (format!("w{number}"), 1_000 + number);
            list.push(json!({ "name": name, "id": id, "header_type": "wide", "metadata": true }));
        }
    })
}

/// A program with so many values that are of no use to anybody.
pub(crate) fn nested(values: usize) -> (P4Info, Vec<u8>) {
    edited(|root| root["enums"] = vec![json!({}); values].into())
}

/// A program with a register of so many cells of 2,048 bits.
pub(crate) fn stateful(cells: usize) -> (P4Info, Vec<u8>) {
    edited(|root| {
        let register = &mut root["register_arrays"][0];
        (register["size"], register["bitwidth"]) = (cells.into(), 2048.into());
    })
}

/// A program whose ingress begins with so many conditions on fields of their own.
pub(crate) fn conditions(count: usize) -> (P4Info, Vec<u8>) {
    edited(|root| {
        let fields: Vec<Value> = (0..8_000).map(|number| json!([format!("f{number}"), 8, false])).collect();
        let types = root["header_types"].as_array_mut().unwrap();
        types.push(json!({ "name": "many", "id": 99, "fields": fields }));
        let headers = root["headers"].as_array_mut().unwrap();
        headers.push(json!({ "name": "many", "id": 999, "header_type": "many", "metadata": true }));
        let ingress = &mut root["pipelines"][0];
        let mut next = ingress["init_table"].take();
        let conditions = ingress["conditionals"].as_array_mut().unwrap();
        for number in 0..count {
            let (name, id) = (format!("c{number}"), 10_000 + number);
            let left = json!({ "type": "field", "value": ["many", format!("f{}", number % 8_000)] });
            let right = json!({ "type": "hexstr", "value": "0x01" });
            let value = json!({ "op": "==", "left": left, "right": right });
            conditions.push(json!({
                "name": name, "id": id, "true_next": next, "false_next": next,
                "expression": { "type": "expression", "value": value },
            }));
            next = name.into();
        }
        ingress["init_table"] = next;
    })
}
