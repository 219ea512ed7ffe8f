// SPDX-License-Identifier: Apache-2.0
//! P4Runtime v1 for controllers and switches: messages, client, server stubs, P4Info look-up,
//! canonical byte strings and per-update errors.
//!
//! ```text
//!  controller                                                                  switch
//!
//!  names, numbers                                                        tables, counters, …
//!       │ entity::TableEntryBuilder …                                            ▲
//!       ▼                                                                        │ entity::check
//!  v1::Update ──► client::Client::write ══ gRPC: Write ══► server::P4Runtime ──► v1::Update
//!       ▲                │                                       │
//!       │                │ client::WriteError                    │ one v1::Error per update
//!       │                ▼                                       ▼
//!       │         #7 INSERT t{dst=10.0.1.0/24} ◄══ status::to_updates ◄══ status::from_updates
//!       │            -> f(port=3): ALREADY_EXISTS        (grpc-status-details-bin)
//!       │
//!  p4info::Index ◄── P4Info::from_text(p4c's .p4info.txtpb) ── the same index on both sides
//! ```
//!
//! - [`v1`], [`config`], [`rpc`]: the messages, generated at build time from this crate's own
//!   `.proto` files. Field numbers, packages and names are the specification's, so any other
//!   implementation understands them.
//! - [`admin`]: what P4Runtime leaves to `trimwire-switch`, served on the same port.
//! - [`gnmi`]: as much of gNMI as tells which ports can be used, of switches that have no such
//!   service.
//! - [`stratum`]: Stratum's scheme for what a role may do, as `Role.config`.
//! - [`p4info`]: P4Info as text and binary, and look-up by name, alias or id.
//! - [`bytes`]: integers of any width as canonical byte strings.
//! - [`entity`]: entities from names, checked against the program, compared by key, and in words.
//! - [`decoded`]: what a message takes in memory, before it is decoded.
//! - [`client`]: a controller's connection to one switch.
//! - [`server`], [`status`]: what a switch needs to serve P4Runtime.
//!
//! What this crate does not do: it keeps no tables (that is the switch's), computes no routes and
//! no differences (the controller's), and decides no arbitration.
#![forbid(unsafe_code)]

pub mod bytes;
pub mod client;
pub mod decoded;
pub mod entity;
pub mod p4info;
pub mod server;
pub mod status;

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated code")]
mod generated {
    pub mod gnmi {
        tonic::include_proto!("gnmi");
    }
    pub mod google {
        pub mod rpc {
            tonic::include_proto!("google.rpc");
        }
    }
    pub mod stratum {
        tonic::include_proto!("stratum");
    }
    pub mod trimwire {
        pub mod switch {
            pub mod v1 {
                tonic::include_proto!("trimwire.switch.v1");
            }
        }
    }
    pub mod p4 {
        pub mod v1 {
            tonic::include_proto!("p4.v1");
        }
        pub mod config {
            pub mod v1 {
                tonic::include_proto!("p4.config.v1");
            }
        }
    }
}

pub use generated::gnmi;
pub use generated::google::rpc;
pub use generated::p4::config::v1 as config;
pub use generated::p4::v1;
pub use generated::stratum;
pub use generated::trimwire::switch::v1 as admin;
