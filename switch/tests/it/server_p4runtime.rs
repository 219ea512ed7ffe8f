// SPDX-License-Identifier: Apache-2.0
//! The P4Runtime server, spoken to by the project's client over loopback, with the committed
//! program.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use trimwire_p4runtime::client::{Arbitration, Client, Role, WriteError};
use trimwire_p4runtime::entity::{
    ActionBuilder, TableEntryBuilder, counter, delete, insert, member, register,
};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{Entity, TableEntry, Update, entity::Entity as Kind, p4_data};
use trimwire_switch::server::{ServerHandle, serve};
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig};

const JSON: &[u8] = include_bytes!("../../../p4/build/bmv2/trimwire.json");
const P4INFO: &str = include_str!("../../../p4/build/bmv2/trimwire.p4info.txtpb");
const DEVICE: u64 = 7;

fn start() -> (SharedSwitch, ServerHandle, String) {
    let config = SwitchConfig { device_id: DEVICE, cpu_port: Some(510), ..SwitchConfig::default() };
    let switch: SharedSwitch = Arc::new(Mutex::new(Switch::new(config)));
    let server = serve(switch.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = server.local_addr().to_string();
    (switch, server, address)
}

fn p4info() -> P4Info {
    P4Info::from_text(P4INFO).unwrap()
}

async fn primary(address: &str) -> Client {
    let mut client = Client::connect(address).await.unwrap();
    let arbitration = client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    assert_eq!(arbitration, Arbitration::Primary { election_id: 1 });
    client
}

async fn ready(address: &str) -> (Client, Index) {
    let client = primary(address).await;
    client.set_pipeline(p4info(), JSON.to_vec(), Some(99), Action::VerifyAndCommit).await.unwrap();
    let index = client.index().unwrap();
    (client, index)
}

fn class(index: &Index, dscp: u8, queue: u8) -> TableEntryBuilder<'_> {
    TableEntryBuilder::new(index, "Ingress.classify")
        .exact("dscp", u128::from(dscp))
        .action("Ingress.set_plain")
        .param("queue", u128::from(queue))
}

async fn entries(client: &Client, index: &Index, table: &str) -> Vec<TableEntry> {
    let filter = TableEntry { table_id: index.table(table).unwrap().id(), ..TableEntry::default() };
    let read = client.read(vec![Entity { entity: Some(Kind::TableEntry(filter)) }]).await.unwrap();
    read.into_iter()
        .map(|entity| match entity.entity {
            Some(Kind::TableEntry(entry)) => entry,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn what_is_written_is_read_back_and_what_is_deleted_is_gone() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    let wanted = class(&index, 39, 7).build().unwrap();
    client.write(vec![insert(wanted.clone())], Atomicity::ContinueOnError).await.unwrap();
    assert_eq!(entries(&client, &index, "Ingress.classify").await, vec![wanted.clone()]);
    let changed = class(&index, 39, 3).build().unwrap();
    client.write(vec![class(&index, 39, 3).modify().unwrap()], Atomicity::ContinueOnError).await.unwrap();
    assert_eq!(entries(&client, &index, "Ingress.classify").await, vec![changed.clone()]);
    client.write(vec![delete(changed)], Atomicity::ContinueOnError).await.unwrap();
    assert!(entries(&client, &index, "Ingress.classify").await.is_empty());
}

#[tokio::test]
async fn of_a_batch_the_good_updates_are_done_and_the_bad_ones_named() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    let good = class(&index, 1, 1).insert().unwrap();
    let twice = class(&index, 1, 2).insert().unwrap();
    let absent = class(&index, 9, 2).delete().unwrap();
    let mut unknown = class(&index, 2, 2).build().unwrap();
    unknown.table_id = 0x02ff_ffff;
    let updates: Vec<Update> = vec![good, twice, absent, insert(unknown)];
    let error = client.write(updates, Atomicity::ContinueOnError).await.unwrap_err();
    let WriteError::Rejected { .. } = &error else { panic!("{error}") };
    let codes: Vec<_> = error.updates().iter().map(|update| update.code).collect();
    assert_eq!(codes.len(), 3, "{error}");
    assert_eq!(format!("{codes:?}"), "[AlreadyExists, NotFound, InvalidArgument]");
    assert_eq!(entries(&client, &index, "Ingress.classify").await.len(), 1);
}

#[tokio::test]
async fn counters_and_registers_are_read_by_cell_and_written() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    let name = index.p4info().registers[0].preamble.as_ref().unwrap().name.clone();
    let Kind::RegisterEntry(mut entry) =
        Entity::from(register(&index, name.as_str(), Some(13)).unwrap()).entity.unwrap()
    else {
        panic!("not a register")
    };
    let filter = Entity { entity: Some(Kind::RegisterEntry(entry.clone())) };
    entry.data = Some(trimwire_p4runtime::v1::P4Data { data: Some(p4_data::Data::Bitstring(vec![1, 2])) });
    let update =
        trimwire_p4runtime::entity::modify(Entity { entity: Some(Kind::RegisterEntry(entry.clone())) });
    client.write(vec![update], Atomicity::ContinueOnError).await.unwrap();
    let read = client.read(vec![filter]).await.unwrap();
    assert_eq!(read, vec![Entity { entity: Some(Kind::RegisterEntry(entry)) }]);

    let all = counter(&index, "Ingress.admitted", None).unwrap();
    assert_eq!(client.read(vec![all.into()]).await.unwrap().len(), 4096);
    let beyond = counter(&index, "Ingress.admitted", Some(4096)).unwrap();
    let error = client.read(vec![beyond.into()]).await.unwrap_err().to_string();
    assert!(error.contains("4096"), "{error}");
}

#[tokio::test]
async fn a_backup_may_read_but_not_write_and_takes_over_with_a_higher_id() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    let mut second = Client::connect(&address).await.unwrap();
    let backup = second.arbitrate(DEVICE, 0x8000_0000_0000_0000_0000, Role::default()).await.unwrap();
    assert_eq!(backup, Arbitration::Primary { election_id: 0x8000_0000_0000_0000_0000 }, "it outbids");
    let error = client
        .write(vec![class(&index, 1, 1).insert().unwrap()], Atomicity::ContinueOnError)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("PERMISSION_DENIED"), "{error}");
    assert!(
        client
            .pipeline(ResponseType::CookieOnly)
            .await
            .unwrap()
            .is_some_and(|config| config.cookie.is_some())
    );
}

#[tokio::test]
async fn a_wrong_device_a_taken_election_id_and_a_missing_pipeline_are_named() {
    let (_switch, _server, address) = start();
    let mut stranger = Client::connect(&address).await.unwrap();
    let error = stranger.arbitrate(8, 1, Role::default()).await.unwrap_err().to_string();
    assert!(error.contains("device id 8") && error.contains("device 7"), "{error}");
    let client = primary(&address).await;
    let mut twin = Client::connect(&address).await.unwrap();
    let error = twin.arbitrate(DEVICE, 1, Role::default()).await.unwrap_err().to_string();
    assert!(error.contains("already used by another stream"), "{error}");
    let error = client
        .read(vec![Entity { entity: Some(Kind::TableEntry(TableEntry::default())) }])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no forwarding pipeline config"), "{error}");
}

#[tokio::test]
async fn a_pipeline_that_does_not_fit_its_p4info_is_refused_and_the_old_one_stays() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    client.write(vec![class(&index, 1, 1).insert().unwrap()], Atomicity::ContinueOnError).await.unwrap();
    let mut other = p4info();
    other.tables[0].preamble.as_mut().unwrap().name = "Ingress.nowhere".to_owned();
    let error = client
        .set_pipeline(other, JSON.to_vec(), None, Action::VerifyAndCommit)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("Ingress.nowhere"), "{error}");
    for garbage in [b"{".to_vec(), b"{}".to_vec(), Vec::new(), vec![0xff; 100]] {
        let error = client.set_pipeline(p4info(), garbage, None, Action::VerifyAndCommit).await.unwrap_err();
        assert!(error.to_string().contains("device config"), "{error}");
    }
    assert_eq!(entries(&client, &index, "Ingress.classify").await.len(), 1, "nothing was touched");
    client.set_pipeline(p4info(), JSON.to_vec(), None, Action::VerifyAndCommit).await.unwrap();
    assert!(entries(&client, &index, "Ingress.classify").await.is_empty(), "a commit empties the tables");
}

#[tokio::test]
async fn a_member_in_use_is_not_deleted_and_a_group_needs_its_members() {
    let (_switch, _server, address) = start();
    let (client, index) = ready(&address).await;
    let forward = ActionBuilder::new(&index, "Ingress.forward")
        .param("port", 3u128)
        .param("dst_mac", 0x0200_0000_0001u128);
    let first = member(&index, "Ingress.ecmp", 1, forward).unwrap();
    let route = TableEntryBuilder::new(&index, "Ingress.ipv4_route")
        .lpm("dst_addr", [10, 0, 0, 1], 32)
        .member(1)
        .insert()
        .unwrap();
    client.write(vec![insert(first.clone()), route], Atomicity::ContinueOnError).await.unwrap();
    let error = client.write(vec![delete(first)], Atomicity::ContinueOnError).await.unwrap_err();
    assert_eq!(error.updates().len(), 1, "{error}");
    assert_eq!(entries(&client, &index, "Ingress.ipv4_route").await.len(), 1);
}
