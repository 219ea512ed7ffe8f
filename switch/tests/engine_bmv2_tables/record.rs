//! Runs `simple_switch_grpc` on a case and writes down what it sends.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, insert, member, member_group};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity};
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry};

use super::super::Write;

const PORTS: u16 = 4;

/// Seconds BMv2 waits before it reads its capture files: time to write the entries.
const WAIT_SECONDS: u64 = 6;

pub(crate) fn record(json: &Path, p4info: &Path, writes: &[Write], frames: &[Vec<u8>], recording: &str) {
    let folder = tempfile();
    for port in 0..PORTS {
        let frames = if port == 0 { frames } else { &[] };
        std::fs::write(format!("{folder}/p{port}_in.pcap"), capture(frames)).unwrap();
    }
    let free_port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (address, thrift) = (free_port().to_string(), free_port().port().to_string());
    let mut command = Command::new("simple_switch_grpc");
    command.args(["--no-p4", "--device-id", "1", "--thrift-port", &thrift]);
    command.args(["--use-files", &WAIT_SECONDS.to_string()]);
    for port in 0..PORTS {
        command.args(["-i", &format!("{port}@{folder}/p{port}")]);
    }
    command.args(["--notifications-addr", &format!("ipc://{folder}/notifications.ipc")]);
    command.args(["--", "--grpc-server-addr", &address, "--priority-queues", "8"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("simple_switch_grpc");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(configure(&address, json, p4info, writes));
    // File mode offers nothing to wait for, and writes its output when it ends.
    std::thread::sleep(Duration::from_secs(WAIT_SECONDS + 3));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap();
    let mut text = format!(
        "# Recorded from BMv2's simple_switch_grpc --use-files by engine_bmv2_tables.rs: port, frame; {} entries.\n",
        writes.len()
    );
    for port in 0..PORTS {
        let mut sent = captured(&std::fs::read(format!("{folder}/p{port}_out.pcap")).unwrap_or_default());
        sent.sort();
        for frame in sent {
            let _ = write!(text, "{port} ");
            frame.iter().for_each(|byte| write!(text, "{byte:02x}").unwrap());
            text.push('\n');
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(recording, text).unwrap();
}

fn tempfile() -> String {
    let folder = std::env::temp_dir().join(format!("trimwire-bmv2-{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.to_str().unwrap().to_owned()
}

/// A libpcap capture file, one frame a millisecond.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    let words =
        |file: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|word| file.extend(word.to_le_bytes()));
    words(&mut file, &[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 65_535, 1]);
    for (number, frame) in frames.iter().enumerate() {
        let (number, length) = (number as u32, frame.len() as u32);
        words(&mut file, &[number / 1000, number % 1000 * 1000, length, length]);
        file.extend(frame);
    }
    file
}

fn captured(file: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = file.get(24..).unwrap_or(&[]);
    while let Some((header, after)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some((frame, after)) = after.split_at_checked(length) else { break };
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

async fn configure(address: &str, json: &Path, p4info: &Path, writes: &[Write]) {
    let mut tries = 0;
    let mut client = loop {
        match Client::connect(address).await {
            Ok(client) => break client,
            Err(error) if tries > 50 => panic!("{error}"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    client.arbitrate(1, 1, Role::default()).await.unwrap();
    let p4info = P4Info::from_text(&std::fs::read_to_string(p4info).unwrap()).unwrap();
    let config = std::fs::read(json).unwrap();
    client.set_pipeline(p4info, config, None, Action::VerifyAndCommit).await.unwrap();
    let index = client.index().unwrap();
    for write in writes {
        let updates = vec![insert(translate(&index, write))];
        if let Err(error) = client.write(updates, Atomicity::ContinueOnError).await {
            panic!("BMv2 refuses {write:?}: {error}");
        }
    }
}

fn translate(index: &Index, write: &Write) -> Entity {
    match write {
        Write::Member(profile, id, call) => member(index, *profile, *id, action(index, call)).unwrap().into(),
        Write::Group(profile, group) => {
            let members: Vec<(u32, i32)> =
                group.members.iter().map(|member| (member.id, member.weight as i32)).collect();
            let size = members.iter().map(|(_, weight)| weight).sum();
            member_group(index, *profile, group.id, members, size).unwrap().into()
        }
        Write::Entry(table, entry) => table_entry(index, table, entry),
    }
}

fn action<'i>(index: &'i Index, call: &ActionCall) -> ActionBuilder<'i> {
    let params = call.params.iter().zip(1u32..);
    params.fold(ActionBuilder::new(index, call.action.as_str()), |action, (value, id)| {
        action.param(id, value.clone())
    })
}

fn table_entry(index: &Index, table: &str, entry: &TableEntry) -> Entity {
    let mut builder = TableEntryBuilder::new(index, table);
    for (value, id) in entry.matches.iter().zip(1u32..) {
        let all_zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        builder = match value.clone() {
            MatchValue::Exact(value) => builder.exact(id, value),
            MatchValue::Lpm { prefix_len: 0, .. } | MatchValue::Optional(None) => builder,
            MatchValue::Lpm { value, prefix_len } => builder.lpm(id, value, prefix_len.into()),
            MatchValue::Ternary { mask, .. } if all_zero(&mask) => builder,
            MatchValue::Ternary { value, mask } => builder.ternary(id, value, mask),
            MatchValue::Range { low, high } => builder.range(id, low, high),
            MatchValue::Optional(Some(value)) => builder.optional(id, value),
        };
    }
    if entry.priority > 0 {
        builder = builder.priority(entry.priority);
    }
    builder = match &entry.action {
        ActionSpec::Member(id) => builder.member(*id),
        ActionSpec::Group(id) => builder.group(*id),
        ActionSpec::Direct(call) => {
            let params = call.params.iter().zip(1u32..);
            params.fold(builder.action(call.action.as_str()), |builder, (value, id)| {
                builder.param(id, value.clone())
            })
        }
    };
    let entry: v1::TableEntry = builder.build().unwrap();
    entry.into()
}
