// SPDX-License-Identifier: Apache-2.0
//! Our client against another implementation's server: BMv2's `simple_switch_grpc`, with the
//! committed program.
//!
//! Skipped, with a line on stderr, where `simple_switch_grpc` is not on PATH. Needs no root: the
//! switch has no interfaces.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tonic::Code;
use trimwire_p4runtime::client::{Arbitration, Client, Role};
use trimwire_p4runtime::entity::{
    self, ActionBuilder, EntityKey, Purpose, TableEntryBuilder, counter, insert, member, member_group, modify,
};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity};

/// A running `simple_switch_grpc`, ended with the test.
struct Bmv2 {
    child: Child,
    address: String,
}

impl Drop for Bmv2 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bmv2 {
    /// `None`, said aloud, if it is not installed.
    fn start() -> Option<Self> {
        let free_port = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free_port().to_string();
        let thrift_port = free_port().port();
        let child = Command::new("simple_switch_grpc")
            .args(["--no-p4", "--device-id", "1", "--thrift-port", &thrift_port.to_string()])
            .args(["--notifications-addr", &format!("ipc:///tmp/trimwire-bmv2-{thrift_port}.ipc")])
            .args(["--", "--grpc-server-addr", &address])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self { child, address }),
            Err(error) => {
                eprintln!(
                    "SKIPPED: simple_switch_grpc does not start ({error}); BMv2 interoperation is not tested"
                );
                None
            }
        }
    }

    async fn connect(&self) -> Client {
        for _ in 0..100 {
            if let Ok(client) = Client::connect(&self.address).await {
                return client;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("simple_switch_grpc does not listen on {} after 10 s", self.address);
    }
}

fn program() -> (P4Info, Vec<u8>) {
    let build = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/");
    let p4info = std::fs::read_to_string(format!("{build}trimwire.p4info.txtpb")).unwrap();
    let json = std::fs::read(format!("{build}trimwire.json")).unwrap();
    (P4Info::from_text(&p4info).unwrap(), json)
}

/// One of each entity that the program's controller writes, in an order that works.
fn wanted(index: &Index) -> Vec<Entity> {
    let forward = |port: u16| {
        ActionBuilder::new(index, "Ingress.forward").param("port", port).param("dst_mac", [2, 0, 0, 0, 0, 1])
    };
    let policy = TableEntryBuilder::new(index, "Ingress.queue_policy.policy")
        .exact("egress_port", 3_u16)
        .exact("queue", 5_u8)
        .exact("importance", true)
        .action("Ingress.queue_policy.set_thresholds")
        .param("mark_at", 10_000_u32)
        .param("shallow_at", 20_000_u32)
        .param("deep_at", 30_000_u32)
        .param("drop_at", 400_000_u32)
        .param("shallow_size", 412_u16)
        .param("deep_size", 104_u16)
        .param("trimmed_dscp", 35_u8)
        .param("trim_queue", 6_u8)
        .param("trim_drop_at", 65_536_u32);
    vec![
        member(index, "Ingress.ecmp", 1, forward(3)).unwrap().into(),
        member(index, "Ingress.ecmp", 2, forward(256)).unwrap().into(),
        member_group(index, "Ingress.ecmp", 1, [(1, 1), (2, 1)], 2).unwrap().into(),
        TableEntryBuilder::new(index, "Ingress.ipv4_route")
            .lpm("dst_addr", Ipv4Addr::new(10, 0, 1, 0), 24)
            .group(1)
            .build()
            .unwrap()
            .into(),
        TableEntryBuilder::new(index, "Ingress.ipv6_route")
            .lpm("dst_addr", Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0), 64)
            .member(1)
            .build()
            .unwrap()
            .into(),
        TableEntryBuilder::new(index, "Ingress.classify")
            .exact("dscp", 3_u8)
            .action("Ingress.set_trimmable")
            .param("queue", 5_u8)
            .build()
            .unwrap()
            .into(),
        policy.build().unwrap().into(),
    ]
}

#[tokio::test]
async fn bmv2_takes_what_we_write_and_gives_it_back_unchanged() {
    let Some(bmv2) = Bmv2::start() else { return };
    let mut client = bmv2.connect().await;
    let election_id = (1_u128 << 64) | 7;
    let arbitration = client.arbitrate(1, election_id, Role::default()).await.unwrap();
    assert_eq!(arbitration, Arbitration::Primary { election_id });
    assert_eq!(client.pipeline(ResponseType::All).await.unwrap(), None);

    let (p4info, json) = program();
    client.set_pipeline(p4info.clone(), json.clone(), Some(42), Action::VerifyAndCommit).await.unwrap();
    let config = client.pipeline(ResponseType::All).await.unwrap().unwrap();
    assert_eq!(config.p4info.as_ref(), Some(&p4info));
    assert_eq!(config.p4_device_config, json);
    assert_eq!(config.cookie.unwrap().cookie, 42);

    let index = client.index().unwrap();
    let wanted = wanted(&index);
    client.write(wanted.iter().cloned().map(insert).collect(), Atomicity::ContinueOnError).await.unwrap();
    let everything = vec![
        v1::ActionProfileMember::default().into(),
        v1::ActionProfileGroup::default().into(),
        v1::TableEntry::default().into(),
    ];
    let mut read: Vec<_> = client
        .read(everything)
        .await
        .unwrap()
        .into_iter()
        .map(|entity| entity::check(&entity, &index, Purpose::Modify).unwrap())
        .collect();
    read.sort_by_key(EntityKey::of);
    let mut sorted = wanted;
    sorted.sort_by_key(EntityKey::of);
    assert_eq!(read, sorted);

    // An indirect counter's element, still zero.
    let element = counter(&index, "Ingress.trimmed", Some(29)).unwrap();
    let read = client.read(vec![element.into()]).await.unwrap();
    let zero = v1::CounterEntry { data: Some(v1::CounterData::default()), ..element };
    assert_eq!(read, [zero.into()]);
}

#[tokio::test]
async fn bmv2_reports_each_update_that_it_rejects() {
    let Some(bmv2) = Bmv2::start() else { return };
    let mut client = bmv2.connect().await;
    client.arbitrate(1, 1, Role::default()).await.unwrap();
    let (p4info, json) = program();
    client.set_pipeline(p4info, json, None, Action::VerifyAndCommit).await.unwrap();
    let index = client.index().unwrap();
    let class = |dscp: u8| {
        TableEntryBuilder::new(&index, "classify")
            .exact("dscp", dscp)
            .action("set_trimmed")
            .param("queue", 6_u8)
    };
    let updates = vec![
        class(35).insert().unwrap(),
        class(35).insert().unwrap(),
        class(3).delete().unwrap(),
        modify(class(35).build().unwrap()),
    ];
    let error = client.write(updates, Atomicity::ContinueOnError).await.unwrap_err();
    let rejected: Vec<_> = error.updates().iter().map(|update| (update.index, update.code)).collect();
    assert_eq!(rejected, [(1, Code::AlreadyExists), (2, Code::NotFound)], "{error}");
    let text = error.to_string();
    assert!(text.contains("#1 INSERT Ingress.classify{dscp=35} -> Ingress.set_trimmed(queue=6): "), "{text}");

    // A second controller with a lower id is a backup, and is refused.
    let mut backup = bmv2.connect().await;
    let arbitration = backup.arbitrate(1, 0, Role::default()).await.unwrap();
    assert_eq!(arbitration, Arbitration::Backup { highest_election_id: Some(1), primary_exists: true });
    let error = backup.write(vec![class(3).insert().unwrap()], Atomicity::ContinueOnError).await.unwrap_err();
    assert!(error.to_string().contains("PERMISSION_DENIED"), "{error}");
}
