// SPDX-License-Identifier: Apache-2.0
//! Bytes worked out by hand from the specification's field numbers and protobuf's encoding rules,
//! so that a wrong number in our `.proto` files cannot agree with itself. A tag byte is field
//! number · 8 + wire type (0 varint, 2 length).

use prost::Message;
use trimwire_p4runtime::{config, rpc, v1};

/// Encodes to `bytes`, and decodes from them.
fn golden<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, bytes: &[u8]) {
    assert_eq!(message.encode_to_vec(), bytes, "{message:?}");
    assert_eq!(&M::decode(bytes).unwrap(), message);
}

#[test]
fn a_write_of_an_lpm_entry_has_the_specifications_bytes() {
    use v1::field_match::{FieldMatchType, Lpm};
    let entry = v1::TableEntry {
        table_id: 0x0200_0001,
        r#match: vec![v1::FieldMatch {
            field_id: 1,
            field_match_type: Some(FieldMatchType::Lpm(Lpm { value: vec![10, 0, 1, 0], prefix_len: 24 })),
        }],
        action: Some(v1::TableAction { r#type: Some(v1::table_action::Type::ActionProfileGroupId(1)) }),
        ..v1::TableEntry::default()
    };
    let write = v1::WriteRequest {
        device_id: 1,
        election_id: Some(v1::Uint128 { high: 0, low: 5 }),
        updates: vec![v1::Update {
            r#type: v1::update::Type::Insert.into(),
            entity: Some(v1::Entity { entity: Some(v1::entity::Entity::TableEntry(entry)) }),
        }],
        atomicity: v1::write_request::Atomicity::RollbackOnError.into(),
        role: "r".to_owned(),
        ..v1::WriteRequest::default()
    };
    #[rustfmt::skip]
    golden(&write, &[
        0x08, 1,                                          // device_id = 1
        0x1a, 2, 0x10, 5,                                 // election_id = 3 { low = 2 }
        0x22, 29,                                         // updates = 4
          0x08, 1,                                        //   type = 1: INSERT
          0x12, 25,                                       //   entity = 2
            0x12, 23,                                     //     table_entry = 2
              0x08, 0x81, 0x80, 0x80, 0x10,               //       table_id = 1: 0x02000001
              0x12, 12,                                   //       match = 2
                0x08, 1,                                  //         field_id = 1
                0x22, 8, 0x0a, 4, 10, 0, 1, 0, 0x10, 24,  //         lpm = 4 { value = 1, prefix_len = 2 }
              0x1a, 2, 0x18, 1,                           //       action = 3 { action_profile_group_id = 3 }
        0x28, 1,                                          // atomicity = 5: ROLLBACK_ON_ERROR
        0x32, 1, b'r',                                    // role = 6
    ]);
}

#[test]
fn a_default_entry_with_everything_has_the_specifications_bytes() {
    let entry = v1::TableEntry {
        table_id: 1,
        action: Some(v1::TableAction {
            r#type: Some(v1::table_action::Type::Action(v1::Action {
                action_id: 2,
                params: vec![v1::action::Param { param_id: 3, value: vec![7] }],
            })),
        }),
        priority: 9,
        meter_config: Some(v1::MeterConfig { cir: 1, cburst: 2, pir: 3, pburst: 4, eburst: 5 }),
        counter_data: Some(v1::CounterData { byte_count: 1, packet_count: 2 }),
        is_default_action: true,
        idle_timeout_ns: 4,
        time_since_last_hit: Some(v1::table_entry::IdleTimeout { elapsed_ns: 5 }),
        metadata: vec![6],
        meter_counter_data: Some(v1::MeterCounterData {
            red: Some(v1::CounterData::default()),
            ..Default::default()
        }),
        is_const: true,
        ..v1::TableEntry::default()
    };
    #[rustfmt::skip]
    golden(&entry, &[
        0x08, 1,
        0x1a, 11, 0x0a, 9, 0x08, 2, 0x22, 5, 0x10, 3, 0x1a, 1, 7,  // action = 3 { action = 1 { 1, params = 4 { 2, 3 } } }
        0x20, 9,                                                   // priority = 4
        0x32, 10, 0x08, 1, 0x10, 2, 0x18, 3, 0x20, 4, 0x28, 5,     // meter_config = 6
        0x3a, 4, 0x08, 1, 0x10, 2,                                 // counter_data = 7
        0x40, 1,                                                   // is_default_action = 8
        0x48, 4,                                                   // idle_timeout_ns = 9
        0x52, 2, 0x08, 5,                                          // time_since_last_hit = 10
        0x5a, 1, 6,                                                // metadata = 11
        0x62, 2, 0x1a, 0,                                          // meter_counter_data = 12 { red = 3 }
        0x68, 1,                                                   // is_const = 13
    ]);
}

#[test]
fn an_arbitration_update_has_the_specifications_bytes() {
    let update = v1::StreamMessageResponse {
        update: Some(v1::stream_message_response::Update::Arbitration(v1::MasterArbitrationUpdate {
            device_id: 3,
            role: Some(v1::Role { name: "a".to_owned(), ..v1::Role::default() }),
            election_id: Some(((1_u128 << 64) | 2).into()),
            status: Some(rpc::Status { code: 6, message: "m".to_owned(), details: Vec::new() }),
        })),
    };
    #[rustfmt::skip]
    golden(&update, &[
        0x0a, 20,                                // arbitration = 1
          0x08, 3,                               //   device_id = 1
          0x12, 3, 0x1a, 1, b'a',                //   role = 2 { name = 3 }
          0x1a, 4, 0x08, 1, 0x10, 2,             //   election_id = 3 { high = 1, low = 2 }
          0x22, 5, 0x08, 6, 0x12, 1, b'm',       //   status = 4 { code = 1, message = 2 }
    ]);
}

#[test]
fn replication_entries_have_the_specifications_bytes() {
    use v1::packet_replication_engine_entry::Type;
    let replica = v1::Replica {
        port_kind: Some(v1::replica::PortKind::Port(vec![5])),
        instance: 1,
        backup_replicas: vec![v1::BackupReplica { port: vec![6], instance: 2 }],
    };
    let group = v1::PacketReplicationEngineEntry {
        r#type: Some(Type::MulticastGroupEntry(v1::MulticastGroupEntry {
            multicast_group_id: 1,
            replicas: vec![replica],
            metadata: vec![9],
        })),
    };
    #[rustfmt::skip]
    golden(&v1::Entity { entity: Some(v1::entity::Entity::PacketReplicationEngineEntry(group)) }, &[
        0x4a, 21,                                // packet_replication_engine_entry = 9
          0x0a, 19,                              //   multicast_group_entry = 1
            0x08, 1,                             //     multicast_group_id = 1
            0x12, 12,                            //     replicas = 2
              0x1a, 1, 5,                        //       port = 3; prost puts a oneof at its lowest number, 1
              0x10, 1,                           //       instance = 2
              0x22, 5, 0x0a, 1, 6, 0x10, 2,      //       backup_replicas = 4 { port = 1, instance = 2 }
            0x1a, 1, 9,                          //     metadata = 3
    ]);
    let session = v1::CloneSessionEntry {
        session_id: 100,
        class_of_service: 2,
        packet_length_bytes: 128,
        ..v1::CloneSessionEntry::default()
    };
    golden(&session, &[0x08, 100, 0x18, 2, 0x20, 0x80, 0x01]);
}

#[test]
fn high_field_numbers_take_two_byte_tags() {
    // type_info = 200: 200 · 8 + 2 = 1602 = 0xc2 0x0c; externs = 100: 802 = 0xa2 0x06.
    let p4info = config::P4Info {
        externs: vec![config::Extern { extern_type_id: 0x81, ..config::Extern::default() }],
        type_info: Some(config::P4TypeInfo::default()),
        ..config::P4Info::default()
    };
    golden(&p4info, &[0xa2, 0x06, 3, 0x08, 0x81, 0x01, 0xc2, 0x0c, 0]);
    // experimental = 999: 7994 = 0xba 0x3e.
    let capabilities = v1::CapabilitiesResponse {
        p4runtime_api_version: "1".to_owned(),
        experimental: Some(prost_types::Any::default()),
    };
    golden(&capabilities, &[0x0a, 1, b'1', 0xba, 0x3e, 0]);
}

#[test]
fn a_per_update_error_and_a_stream_error_have_the_specifications_bytes() {
    let error = v1::Error {
        canonical_code: 5,
        message: "m".to_owned(),
        space: "s".to_owned(),
        code: 7,
        details: Some(prost_types::Any::default()),
    };
    golden(&error, &[0x08, 5, 0x12, 1, b'm', 0x1a, 1, b's', 0x20, 7, 0x2a, 0]);
    let error = v1::StreamError {
        canonical_code: 3,
        details: Some(v1::stream_error::Details::PacketOut(v1::PacketOutError {
            packet_out: Some(v1::PacketOut {
                payload: vec![1],
                metadata: vec![v1::PacketMetadata { metadata_id: 1, value: vec![2] }],
            }),
        })),
        ..v1::StreamError::default()
    };
    golden(&error, &[0x08, 3, 0x2a, 12, 0x0a, 10, 0x0a, 1, 1, 0x12, 5, 0x08, 1, 0x12, 1, 2]);
}

#[test]
fn a_pipeline_has_the_specifications_bytes() {
    let request = v1::SetForwardingPipelineConfigRequest {
        device_id: 1,
        role: "r".to_owned(),
        action: v1::set_forwarding_pipeline_config_request::Action::ReconcileAndCommit.into(),
        config: Some(v1::ForwardingPipelineConfig {
            p4info: Some(config::P4Info::default()),
            p4_device_config: vec![0xff],
            cookie: Some(v1::forwarding_pipeline_config::Cookie { cookie: 7 }),
        }),
        ..v1::SetForwardingPipelineConfigRequest::default()
    };
    #[rustfmt::skip]
    golden(&request, &[
        0x08, 1,
        0x20, 5,                                             // action = 4: RECONCILE_AND_COMMIT
        0x2a, 9, 0x0a, 0, 0x12, 1, 0xff, 0x1a, 2, 0x08, 7,   // config = 5 { p4info, p4_device_config, cookie }
        0x32, 1, b'r',                                       // role = 6
    ]);
}
