//! P4Runtime messages, client and server
#![forbid(unsafe_code)]

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]
mod generated {
    pub mod google {
        pub mod rpc {
            tonic::include_proto!("google.rpc");
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

pub mod client;
pub mod entity;
pub mod p4info;
pub mod server;
pub mod status;

pub use generated::google::rpc;
pub use generated::p4::config::v1 as config;
pub use generated::p4::v1;
