// SPDX-License-Identifier: Apache-2.0
//! Runs `simple_switch_grpc` on a case: writes over P4Runtime, then frames from pipes that stand
//! for capture files, then whatever it takes until none of its threads has anything to do. Nothing
//! depends on how fast the machine is.

use std::fs::File;
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tokio::time::timeout;
use trimwire_bmv2_tests::process::Running;
use trimwire_bmv2_tests::thrift::Thrift;
use trimwire_p4runtime::client::{Client, Role, Streams};
use trimwire_p4runtime::config::counter_spec::Unit;
use trimwire_p4runtime::entity::{
    ActionBuilder, TableEntryBuilder, counter, insert, member, member_group, meter, modify,
};
use trimwire_p4runtime::p4info::{Index, Named, P4Info};
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity, Update};
use trimwire_switch::engine::entity::{
    ActionCall, ActionSpec, CounterValue, MatchValue, MeterConfig, Replica, TableEntry, value,
};

use super::observed::{counter_line, digest_line, direct_unit, frame_line, hex};
use super::pipes::{Pipe, capture, captured};
use super::random::Bits;
use super::{CPU_PORT, Case, PacketOut, Write};

/// Ports with capture files.
const PORTS: u16 = 4;

/// How often BMv2's threads are looked at while nothing comes from it, and how often they have to
/// be found asleep before it counts as done.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: u32 = 20;
/// Until then it has to be done.
const PATIENCE: Duration = Duration::from_secs(120);

/// A folder that goes with the value.
struct Folder(String);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Whether all threads of a process sleep: one that waits for a processor on a busy machine does
/// not.
fn is_idle(process: &Running) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("BMv2 runs");
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // Behind the name, which is in parentheses and may hold anything.
        stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('S'))
    })
}

/// What can be seen of the case on BMv2, as sorted lines.
pub(crate) fn bmv2(case: &Case) -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("trimwire-bmv2-{}-{}", std::process::id(), case.name));
    let folder = folder.to_str().unwrap().to_owned();
    std::fs::create_dir_all(&folder).unwrap();
    let _folder = Folder(folder.clone());
    let of_port = |port| -> Vec<(usize, &[u8])> {
        let numbered = case.frames.iter().enumerate().filter(|(_, (from, _))| *from == port);
        numbered.map(|(number, (_, frame))| (number, &frame[..])).collect()
    };
    let pipes = (0..PORTS)
        .map(|port| Pipe::new(&format!("{folder}/p{port}_in.pcap"), capture(&of_port(port))))
        .collect();
    let (grpc, thrift) = (free_port(), free_port());
    let (address, thrift) = (format!("127.0.0.1:{}", grpc.number), thrift.number);
    // A shell's background jobs ignore SIGINT, and so would BMv2 as their child: it could not be
    // ended.
    let mut command = Command::new("env");
    command.args([
        "--default-signal=INT",
        "simple_switch_grpc",
        "--no-p4",
        "--device-id",
        "1",
        "--thrift-port",
        &thrift.to_string(),
    ]);
    // Its first frame is there when the pipes give it.
    command.args(["--use-files", "0"]);
    for port in 0..PORTS {
        command.args(["-i", &format!("{port}@{folder}/p{port}")]);
    }
    command.args(["--notifications-addr", &format!("ipc://{folder}/notifications.ipc")]);
    command.args(["--", "--grpc-server-addr", &address, "--priority-queues", "8"]);
    command.args(["--cpu-port", &CPU_PORT.to_string()]);
    let running = Running::start(&mut command).expect("simple_switch_grpc");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut lines = runtime.block_on(drive(&address, thrift, case, pipes, &running));
    Command::new("kill").args(["-INT", &running.id().to_string()]).status().unwrap();
    running.finish(Duration::from_secs(30)).expect("BMv2 ends at SIGINT");
    for port in 0..PORTS {
        let sent = captured(&std::fs::read(format!("{folder}/p{port}_out.pcap")).unwrap_or_default());
        lines.extend(sent.iter().map(|frame| frame_line(port, frame)));
    }
    lines.sort();
    lines
}

/// A port of localhost that nobody else who runs these tests takes, as long as this lives.
struct Port {
    number: u16,
    _lock: File,
}

/// A port for BMv2 to listen at, some time from now: it opens them late, and shares that of
/// P4Runtime with whoever has it already (SO_REUSEPORT), so that two switches would get each
/// other's clients. Hence the locks, which all processes see. Ports are below those that the system
/// gives to clients (from 32,768 on Linux), which come and go here by the dozen.
fn free_port() -> Port {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    let folder = std::env::temp_dir().join("trimwire-bmv2-ports");
    std::fs::create_dir_all(&folder).unwrap();
    loop {
        let nth = TRIED.fetch_add(1, Ordering::Relaxed);
        let number = 20_000 + (std::process::id() as u16 % 6_000).wrapping_add(nth) % 12_000;
        let Ok(lock) = File::create(folder.join(number.to_string())) else { continue };
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
            return Port { number, _lock: lock };
        }
    }
}

/// Writes, frames, and what P4Runtime tells afterwards.
async fn drive(address: &str, thrift: u16, case: &Case, pipes: Vec<Pipe>, running: &Running) -> Vec<String> {
    let mut tries = 0;
    let mut client = loop {
        match Client::connect(address).await {
            Ok(client) => break client,
            Err(error) if tries > 100 => panic!("{error}"),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    client.arbitrate(1, 1, Role::default()).await.unwrap();
    let mut streams = client.take_streams().unwrap();
    let p4info = P4Info::from_text(&std::fs::read_to_string(&case.p4info).unwrap()).unwrap();
    let config = std::fs::read(&case.json).unwrap();
    client.set_pipeline(p4info, config, None, Action::VerifyAndCommit).await.unwrap();
    let mut thrift = Thrift::connect(thrift).unwrap();
    thrift.set_queue_depths(1 << 16).unwrap();
    let index = client.index().unwrap();
    for write in &case.writes {
        if let Write::ValueSet(set, member) = write {
            let set_info =
                index.p4info().value_sets.iter().find(|other| other.preamble.as_ref().unwrap().name == *set);
            let bits: i32 = set_info.unwrap().r#match.iter().map(|field| field.bitwidth).sum();
            let mut padded = vec![0; (bits as usize).div_ceil(8) - member.len()];
            padded.extend(member);
            thrift.add_value_set_member(set, &padded).unwrap();
            continue;
        }
        if let Err(error) = client.write(vec![translate(&index, write)], Atomicity::ContinueOnError).await {
            panic!("{}: BMv2 refuses {write:?}: {error}", case.name);
        }
    }
    for out in &case.packet_outs {
        client.packet_out(out.payload.clone(), packet_metadata(out)).await.unwrap();
    }
    pipes.into_iter().for_each(Pipe::open);
    // It sleeps between two of them, too.
    let frames = Duration::from_millis(case.frames.len() as u64);
    let mut lines = listen(&client, &index, &mut streams, frames, running).await;
    lines.extend(counters(&client, &index, case).await);
    lines
}

fn packet_metadata(out: &PacketOut) -> Vec<v1::PacketMetadata> {
    (1..)
        .zip(&out.metadata)
        .map(|(metadata_id, &(_, value))| v1::PacketMetadata {
            metadata_id,
            value: trimwire_switch::engine::entity::value(value.into()),
        })
        .collect()
}

/// Packet-ins and digests for that long, and until BMv2 has nothing more to do.
#[expect(clippy::disallowed_methods, reason = "another process is waited for")]
async fn listen(
    client: &Client,
    index: &Index,
    streams: &mut Streams,
    for_long: Duration,
    running: &Running,
) -> Vec<String> {
    let mut lines = Vec::new();
    let (start, mut asleep) = (Instant::now(), 0);
    while asleep < LOOKS {
        assert!(start.elapsed() < PATIENCE, "BMv2 is still busy after {PATIENCE:?}");
        let heard = timeout(LOOK, async {
            tokio::select! {
                packet = streams.packets.recv() => vec![packet_in_line(index, &packet.expect("the stream"))],
                list = streams.digests.recv() => {
                    let list = list.expect("the stream");
                    client.acknowledge_digest(list.digest_id, list.list_id).await.unwrap();
                    digest_lines(index, &list)
                }
            }
        });
        match heard.await {
            Ok(heard) => {
                lines.extend(heard);
                asleep = 0;
            }
            Err(_) if start.elapsed() > for_long && is_idle(running) => asleep += 1,
            Err(_) => asleep = 0,
        }
    }
    lines
}

/// The frame as it left the CPU port: the `packet_in` header's fields, then the payload.
fn packet_in_line(index: &Index, packet: &v1::PacketIn) -> String {
    let header = index.controller_header("packet_in").unwrap();
    let value = |bytes: &[u8]| bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    let bits = header.metadata.iter().fold(Bits::default(), |bits, field| {
        let given = packet.metadata.iter().find(|given| given.metadata_id == field.id);
        bits.push(field.bitwidth as u32, given.map_or(0, |given| value(&given.value)))
    });
    format!("packet-in {}{}", hex(&bits.bytes()), hex(&packet.payload))
}

fn digest_lines(index: &Index, list: &v1::DigestList) -> Vec<String> {
    let name = &index.digest(list.digest_id).unwrap().preamble.as_ref().unwrap().name;
    let field = |data: &v1::P4Data| match &data.data {
        Some(v1::p4_data::Data::Bitstring(bytes)) => bytes.clone(),
        other => panic!("digest {name} holds {other:?}"),
    };
    let line = |data: &v1::P4Data| match &data.data {
        Some(v1::p4_data::Data::Struct(members)) => {
            digest_line(name, &members.members.iter().map(field).collect::<Vec<_>>())
        }
        _ => digest_line(name, &[field(data)]),
    };
    list.data.iter().map(line).collect()
}

fn counted(data: Option<&v1::CounterData>) -> CounterValue {
    let data = data.copied().unwrap_or_default();
    CounterValue { packets: data.packet_count as u64, bytes: data.byte_count as u64 }
}

async fn counters(client: &Client, index: &Index, case: &Case) -> Vec<String> {
    let mut lines = Vec::new();
    for info in &index.p4info().counters {
        let name = &info.preamble.as_ref().unwrap().name;
        let unit =
            info.spec.as_ref().map_or(Unit::Unspecified, trimwire_p4runtime::config::CounterSpec::unit);
        for entity in client.read(vec![counter(index, name.as_str(), None).unwrap().into()]).await.unwrap() {
            let Some(v1::entity::Entity::CounterEntry(entry)) = entity.entity else { continue };
            let what = format!("counter {name} {}", entry.index.unwrap_or_default().index);
            lines.extend(counter_line(&what, unit, counted(entry.data.as_ref())));
        }
    }
    for (number, write) in case.writes.iter().enumerate() {
        let Write::Entry(table, entry) = write else { continue };
        let Some(unit) = direct_unit(index, index.table(table.as_str()).unwrap().id()) else { continue };
        let wanted = table_entry(index, table, entry);
        let key = v1::DirectCounterEntry { table_entry: Some(wanted.clone()), data: None };
        for entity in client.read(vec![key.into()]).await.unwrap() {
            let Some(v1::entity::Entity::DirectCounterEntry(entry)) = entity.entity else { continue };
            // An entry without match fields asks for every entry of the table.
            let found = entry.table_entry.clone().unwrap_or_default();
            if (&found.r#match, found.priority) != (&wanted.r#match, wanted.priority) {
                continue;
            }
            lines.extend(counter_line(&format!("hits {table} {number}"), unit, counted(entry.data.as_ref())));
        }
    }
    lines
}

fn meter_config(config: &MeterConfig) -> v1::MeterConfig {
    v1::MeterConfig {
        cir: config.cir as i64,
        cburst: config.cburst as i64,
        pir: config.pir as i64,
        pburst: config.pburst as i64,
        ..v1::MeterConfig::default()
    }
}

fn replicas(replicas: &[Replica]) -> Vec<v1::Replica> {
    let replica = |replica: &Replica| v1::Replica {
        instance: replica.instance.into(),
        port_kind: Some(v1::replica::PortKind::Port(value(replica.port.into()))),
        ..v1::Replica::default()
    };
    replicas.iter().map(replica).collect()
}

fn translate(index: &Index, write: &Write) -> Update {
    let entity: Entity = match write {
        Write::Member(profile, id, call) => member(index, *profile, *id, action(index, call)).unwrap().into(),
        Write::Group(profile, group) => {
            let members: Vec<(u32, i32)> =
                group.members.iter().map(|member| (member.id, member.weight as i32)).collect();
            let size = members.iter().map(|(_, weight)| weight).sum();
            member_group(index, *profile, group.id, members, size).unwrap().into()
        }
        Write::Entry(table, entry) => table_entry(index, table, entry).into(),
        Write::Default(table, spec) => {
            let ActionSpec::Direct(call) = spec else { panic!("a default action is a call") };
            let builder =
                TableEntryBuilder::default_entry(index, table.as_str()).action(call.action.as_str());
            let params = call.params.iter().zip(1u32..);
            let builder = params.fold(builder, |builder, (value, id)| builder.param(id, value.clone()));
            return modify(builder.build().unwrap());
        }
        Write::Multicast(id, copies) => replication(
            v1::packet_replication_engine_entry::Type::MulticastGroupEntry(v1::MulticastGroupEntry {
                multicast_group_id: u32::from(*id),
                replicas: replicas(copies),
                ..v1::MulticastGroupEntry::default()
            }),
        ),
        Write::Clone(id, copies) => {
            replication(v1::packet_replication_engine_entry::Type::CloneSessionEntry(v1::CloneSessionEntry {
                session_id: u32::from(*id),
                replicas: replicas(copies),
                ..v1::CloneSessionEntry::default()
            }))
        }
        Write::Meter(name, cell, config) => {
            let mut entry = meter(index, *name, Some(*cell as i64)).unwrap();
            entry.config = Some(meter_config(config));
            return modify(entry);
        }
        Write::DirectMeter(table, matches, priority, config) => {
            let table_entry = Some(keyed(index, table, matches, *priority).build().unwrap());
            return modify(v1::DirectMeterEntry {
                table_entry,
                config: Some(meter_config(config)),
                ..v1::DirectMeterEntry::default()
            });
        }
        Write::Digest(name) => {
            let config = v1::digest_entry::Config { max_list_size: 1, ..v1::digest_entry::Config::default() };
            v1::DigestEntry { digest_id: index.digest(*name).unwrap().id(), config: Some(config) }.into()
        }
        Write::ValueSet(..) => unreachable!("written over Thrift"),
    };
    insert(entity)
}

fn replication(entry: v1::packet_replication_engine_entry::Type) -> Entity {
    v1::PacketReplicationEngineEntry { r#type: Some(entry) }.into()
}

fn action<'i>(index: &'i Index, call: &ActionCall) -> ActionBuilder<'i> {
    let params = call.params.iter().zip(1u32..);
    params.fold(ActionBuilder::new(index, call.action.as_str()), |action, (value, id)| {
        action.param(id, value.clone())
    })
}

fn keyed<'i>(index: &'i Index, table: &str, matches: &[MatchValue], priority: i32) -> TableEntryBuilder<'i> {
    let mut builder = TableEntryBuilder::new(index, table);
    for (value, id) in matches.iter().zip(1u32..) {
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
    if priority > 0 { builder.priority(priority) } else { builder }
}

fn table_entry(index: &Index, table: &str, entry: &TableEntry) -> v1::TableEntry {
    let builder = keyed(index, table, &entry.matches, entry.priority);
    let builder = match &entry.action {
        ActionSpec::Member(id) => builder.member(*id),
        ActionSpec::Group(id) => builder.group(*id),
        ActionSpec::Direct(call) => {
            let params = call.params.iter().zip(1u32..);
            params.fold(builder.action(call.action.as_str()), |builder, (value, id)| {
                builder.param(id, value.clone())
            })
        }
    };
    builder.build().unwrap()
}
