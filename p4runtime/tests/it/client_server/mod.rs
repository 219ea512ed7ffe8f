// SPDX-License-Identifier: Apache-2.0
//! The client against a server, over loopback TCP.

mod switch;

use std::time::Duration;

use switch::Running;
use tokio::time::timeout;
use tonic::Code;
use trimwire_p4runtime::client::{Arbitration, Client, ClientError, Options, Role, WriteError};
use trimwire_p4runtime::entity::{TableEntryBuilder, packet_metadata};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{Entity, TableEntry, Update};

const PATIENCE: Duration = Duration::from_secs(10);

fn p4info() -> P4Info {
    P4Info::from_text(include_str!("../../../testdata/sample.p4info.txtpb")).unwrap()
}

async fn connected(switch: &Running, election_id: u128) -> (Client, Arbitration) {
    let mut client = Client::connect(&switch.address).await.unwrap();
    let arbitration = client.arbitrate(1, election_id, Role::default()).await.unwrap();
    (client, arbitration)
}

/// A primary client and a switch with the sample pipeline.
async fn ready() -> (Running, Client, Index) {
    let switch = Running::start().await;
    let (client, _) = connected(&switch, 1).await;
    client.set_pipeline(p4info(), b"config".to_vec(), Some(7), Action::VerifyAndCommit).await.unwrap();
    let index = client.index().unwrap();
    (switch, client, index)
}

fn route(index: &Index, host: u8) -> TableEntryBuilder<'_> {
    TableEntryBuilder::new(index, "Ingress.nexthop").lpm("dst_addr", [10, 0, host, 0], 24).group(host.into())
}

#[tokio::test]
async fn the_highest_election_id_is_primary_and_the_others_learn_of_it() {
    let switch = Running::start().await;
    let (first, arbitration) = connected(&switch, 5).await;
    assert_eq!(arbitration, Arbitration::Primary { election_id: 5 });

    let (mut lower, arbitration) = connected(&switch, 4).await;
    let backup = |highest| Arbitration::Backup { highest_election_id: Some(highest), primary_exists: true };
    assert_eq!(arbitration, backup(5));

    // More than 64 bits count.
    let high = 1_u128 << 100;
    let mut told = first.arbitration().unwrap();
    let arbitration = lower.arbitrate(1, high, Role::default()).await.unwrap();
    assert_eq!(arbitration, Arbitration::Primary { election_id: high });
    while told != backup(high) {
        told = timeout(PATIENCE, first.arbitration_change(&told)).await.unwrap().unwrap();
    }
    assert_eq!(first.arbitration().unwrap(), backup(high));

    let error = first.write(Vec::new(), Atomicity::ContinueOnError).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("switch {} refused Write: PERMISSION_DENIED: not primary", switch.address)
    );

    drop(lower);
    while told != (Arbitration::Backup { highest_election_id: Some(high), primary_exists: false }) {
        told = timeout(PATIENCE, first.arbitration_change(&told)).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_refused_bid_says_why() {
    let switch = Running::start().await;
    let (_first, _) = connected(&switch, 5).await;
    let mut client = Client::connect(&switch.address).await.unwrap();
    let error = client.arbitrate(1, 5, Role::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert!(error.to_string().contains("election id 5 is taken"), "{error}");
    let error = client.arbitrate(2, 6, Role::default()).await.unwrap_err();
    assert!(error.to_string().ends_with("NOT_FOUND: this is device 1"), "{error}");
    // The client is none the worse for it.
    client.arbitrate(1, 6, Role::default()).await.unwrap();
}

#[tokio::test]
async fn a_pipeline_comes_back_as_it_was_set() {
    let switch = Running::start().await;
    let (client, _) = connected(&switch, 1).await;
    assert_eq!(client.pipeline(ResponseType::All).await.unwrap(), None);
    // Larger than gRPC's default limit of 4 MiB.
    let device_config = vec![0xa5; 6 << 20];
    client.set_pipeline(p4info(), device_config.clone(), Some(7), Action::VerifyAndCommit).await.unwrap();
    let config = client.pipeline(ResponseType::All).await.unwrap().unwrap();
    assert_eq!(config.p4info, Some(p4info()));
    assert_eq!(config.p4_device_config, device_config);
    let config = client.pipeline(ResponseType::CookieOnly).await.unwrap().unwrap();
    assert_eq!(config.cookie.unwrap().cookie, 7);
    assert_eq!(client.capabilities().await.unwrap(), "1.5.0");

    // Another controller learns the program's names by reading the pipeline.
    let (other, _) = connected(&switch, 0).await;
    assert!(other.index().is_none());
    other.pipeline(ResponseType::P4infoAndCookie).await.unwrap();
    assert!(other.index().unwrap().table("Ingress.acl").is_ok());
}

#[tokio::test]
async fn an_observer_reads_without_taking_part_in_arbitration() {
    let (switch, client, index) = ready().await;
    client.write(vec![route(&index, 1).insert().unwrap()], Atomicity::ContinueOnError).await.unwrap();
    let mut observer = Client::connect(&switch.address).await.unwrap();
    observer.observe(1);
    assert_eq!(observer.pipeline(ResponseType::CookieOnly).await.unwrap().unwrap().cookie.unwrap().cookie, 7);
    assert_eq!(observer.read(vec![TableEntry::default().into()]).await.unwrap().len(), 1);
    assert_eq!(client.arbitration().unwrap(), Arbitration::Primary { election_id: 1 });
    let error = observer.write(Vec::new(), Atomicity::ContinueOnError).await.unwrap_err();
    assert!(matches!(error, WriteError::Client(ClientError::NotArbitrated { .. })));
}

#[tokio::test]
async fn each_rejected_update_comes_back_with_index_code_and_names() {
    let (switch, client, index) = ready().await;
    let mut stray = route(&index, 3).insert().unwrap();
    let Some(Entity { entity: Some(trimwire_p4runtime::v1::entity::Entity::TableEntry(entry)) }) =
        &mut stray.entity
    else {
        panic!("not a table entry")
    };
    entry.table_id = 0x0200_00ff;
    let updates = vec![
        route(&index, 1).insert().unwrap(),
        route(&index, 1).insert().unwrap(),
        route(&index, 2).delete().unwrap(),
        stray,
        route(&index, 4).insert().unwrap(),
        Update::default(),
    ];
    let error = client.write(updates, Atomicity::ContinueOnError).await.unwrap_err();
    let codes: Vec<_> = error.updates().iter().map(|update| (update.index, update.code)).collect();
    assert_eq!(
        codes,
        [
            (1, Code::AlreadyExists),
            (2, Code::NotFound),
            (3, Code::InvalidArgument),
            (5, Code::InvalidArgument)
        ]
    );
    assert_eq!(
        error.to_string(),
        [
            format!("switch {} refused 4 of 6 updates", switch.address).as_str(),
            "#1 INSERT Ingress.nexthop{dst_addr=10.0.1.0/24} -> group 1: ALREADY_EXISTS: the entry exists",
            "#2 DELETE Ingress.nexthop{dst_addr=10.0.2.0/24}: NOT_FOUND: no such entry",
            "#3 INSERT table 0x020000ff{#1=0x0a000300/24} -> group 3: INVALID_ARGUMENT: the P4Info has no table with id \
             0x020000ff; valid: Ingress.acl, Ingress.nexthop, Ingress.ethertypes, Ingress.interface, Egress.keyless",
            "#5 UNSPECIFIED of nothing: INVALID_ARGUMENT: update: type 0 is none of INSERT (1), MODIFY (2), DELETE (3)",
        ]
        .join("\n  ")
    );
    assert!(matches!(error, WriteError::Rejected(_)));
    // The others were applied, and are read back over as many messages as there are entries.
    let read = client.read(vec![TableEntry::default().into()]).await.unwrap();
    let wanted: Vec<Entity> = [1, 4].map(|host| route(&index, host).build().unwrap().into()).into();
    assert_eq!(read, wanted);
}

#[tokio::test]
async fn a_write_in_which_all_succeeds_is_ok() {
    let (_switch, client, index) = ready().await;
    client.write(Vec::new(), Atomicity::ContinueOnError).await.unwrap();
    client.write(vec![route(&index, 1).insert().unwrap()], Atomicity::ContinueOnError).await.unwrap();
    client.write(vec![route(&index, 1).delete().unwrap()], Atomicity::ContinueOnError).await.unwrap();
    assert_eq!(client.read(Vec::new()).await.unwrap(), []);
}

#[tokio::test]
async fn packets_digests_and_stream_errors_reach_their_receivers() {
    let (switch, client, index) = ready().await;
    let mut streams = client.take_streams().unwrap();
    assert!(client.take_streams().is_none());

    let metadata =
        packet_metadata(&index, "packet_out", [("egress_port", 3_u8.into()), ("_pad", 0_u8.into())]);
    client.packet_out(b"frame".to_vec(), metadata.unwrap()).await.unwrap();
    let packet = timeout(PATIENCE, streams.packets.recv()).await.unwrap().unwrap();
    assert_eq!((packet.payload.as_slice(), packet.metadata.len()), (b"frame".as_slice(), 2));

    let digest = timeout(PATIENCE, streams.digests.recv()).await.unwrap().unwrap();
    client.acknowledge_digest(digest.digest_id, digest.list_id).await.unwrap();

    client.packet_out(b"bad".to_vec(), Vec::new()).await.unwrap();
    let error = timeout(PATIENCE, streams.errors.recv()).await.unwrap().unwrap();
    assert_eq!(error.message, "no metadata");
    // The error came behind the acknowledgement on the same stream.
    assert_eq!(switch.switch.state.lock().unwrap().acknowledged, [(9, 4)]);
    assert_eq!(client.missed_messages(), 0);
}

#[tokio::test]
async fn a_receiver_that_is_gone_loses_messages_but_not_the_session() {
    let (_switch, client, _) = ready().await;
    drop(client.take_streams());
    let metadata = vec![trimwire_p4runtime::v1::PacketMetadata { metadata_id: 1, value: vec![1] }];
    client.packet_out(Vec::new(), metadata).await.unwrap();
    timeout(PATIENCE, async {
        while client.missed_messages() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    client.arbitration().unwrap();
}

#[tokio::test]
async fn a_switch_that_goes_away_is_named() {
    let (mut switch, client, index) = ready().await;
    switch.stop();
    // The session's end is noticed without a call.
    let primary = Arbitration::Primary { election_id: 1 };
    let error = timeout(PATIENCE, client.arbitration_change(&primary)).await.unwrap().unwrap_err();
    assert!(error.is_connection_loss(), "{error:?}");
    assert!(error.to_string().starts_with(&format!("lost switch {}", switch.address)), "{error}");
    client.arbitration().unwrap_err();

    let write = client.write(vec![route(&index, 1).insert().unwrap()], Atomicity::ContinueOnError);
    let WriteError::Client(error) = timeout(PATIENCE, write).await.unwrap().unwrap_err() else {
        panic!("not a client error")
    };
    assert!(error.is_connection_loss(), "{error:?}");
    assert!(error.to_string().contains(&switch.address), "{error}");

    let error = timeout(PATIENCE, Client::connect(&switch.address)).await.unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }));
    assert!(
        error.to_string().starts_with(&format!("cannot connect to switch {}: ", switch.address)),
        "{error}"
    );
}

#[tokio::test]
async fn a_switch_that_keeps_silent_times_out() {
    // Takes connections, by the kernel's backlog, and never reads.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let options = Options { connect_timeout: Duration::from_millis(200), ..Options::default() };
    let error = match Client::connect_with(&address, options).await {
        Ok(mut client) => {
            timeout(PATIENCE, client.arbitrate(1, 1, Role::default())).await.unwrap().unwrap_err()
        }
        Err(error) => error,
    };
    assert!(error.is_connection_loss(), "{error:?}");
    assert!(error.to_string().contains(&address) && error.to_string().contains("200ms"), "{error}");
}

#[tokio::test]
async fn addresses_and_order_of_calls_are_checked() {
    for (address, reason) in [
        ("switch1", "no port"),
        ("switch1:x", "not a port number"),
        ("switch1:70000", "not a port number"),
        (":9559", "no host"),
        ("a b:1", ""),
    ] {
        let error = Client::connect(address).await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("{address:?}: {reason}")) && error.contains("127.0.0.1:9559"),
            "{error}"
        );
    }
    let switch = Running::start().await;
    let client = Client::connect(&format!("http://{}", switch.address)).await.unwrap();
    assert!(matches!(
        client.read(Vec::new()).await,
        Err(ClientError::NotArbitrated { operation: "Read", .. })
    ));
    assert_eq!(client.capabilities().await.unwrap(), "1.5.0");
}
