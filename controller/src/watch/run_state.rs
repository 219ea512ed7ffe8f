// SPDX-License-Identifier: Apache-2.0
//! What a `run` of the fabric tells over HTTP: what routes leave out, how far programs are
//! replaced, and which links were tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::run::{Fault, Links, Replacing};

/// What a `run` tells.
#[derive(Default)]
pub(super) struct RunState {
    pub faults: Vec<Fault>,
    pub replacing: Replacing,
    pub links: Links,
}

/// Asks; an error says whom and why not. An address that is everybody's is asked on this machine.
pub(super) async fn ask(at: SocketAddr, patience: Duration) -> Result<RunState, String> {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let at = SocketAddr::new(ip, at.port());
    let (tell, told) = oneshot::channel();
    // A runtime would wait for its own threads.
    std::thread::spawn(move || {
        let _ = tell.send(pages(at));
    });
    let answer = match tokio::time::timeout(patience, told).await {
        Ok(answer) => answer.unwrap_or_else(|error| Err(error.to_string())),
        Err(_) => Err(format!("no answer within {patience:?}")),
    };
    answer.map_err(|error| format!("no `run` of this fabric at {at} ({error})"))
}

fn pages(at: SocketAddr) -> Result<RunState, String> {
    Ok(RunState {
        faults: page(at, "/faults")?,
        replacing: page(at, "/programs")?,
        links: page(at, "/links")?,
    })
}

fn page<T: DeserializeOwned>(at: SocketAddr, path: &str) -> Result<T, String> {
    let body = trimwire_metrics_http::get(at, path).map_err(|error| error.to_string())?;
    serde_json::from_str(&body).map_err(|_| format!("that is no {path} of a `run`"))
}
