// SPDX-License-Identifier: Apache-2.0
//! What a `run` of the fabric tells over HTTP: what routes leave out, and how far programs are
//! replaced.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::run::{Fault, Replacing};

/// The longest answer that is read.
const LONGEST: u64 = 16 << 20;

/// What a `run` tells.
#[derive(Default)]
pub(super) struct RunState {
    pub faults: Vec<Fault>,
    pub replacing: Replacing,
}

/// Asks; an error says whom and why not. An address that is everybody's is asked on this machine.
pub(super) async fn ask(at: SocketAddr, patience: Duration) -> Result<RunState, String> {
    let ip = match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let at = SocketAddr::new(ip, at.port());
    let asked = tokio::time::timeout(patience, async {
        Ok(RunState { faults: page(at, "/faults").await?, replacing: page(at, "/programs").await? })
    });
    let answer = asked.await.unwrap_or_else(|_| Err(format!("no answer within {patience:?}")));
    answer.map_err(|error: String| format!("no `run` of this fabric at {at} ({error})"))
}

async fn page<T: DeserializeOwned>(at: SocketAddr, path: &str) -> Result<T, String> {
    let text = get(at, path).await.map_err(|error| error.to_string())?;
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
    serde_json::from_str(body).map_err(|_| format!("that is no {path} of a `run`"))
}

async fn get(at: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await?;
    let mut text = String::new();
    stream.take(LONGEST).read_to_string(&mut text).await?;
    Ok(text)
}
