// SPDX-License-Identifier: Apache-2.0
//! Asks a `run` for what it tells over HTTP.

use std::net::SocketAddr;

use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest answer that is read; talkers of 64 queues of 256 switches have less than half of it.
const LONGEST: u64 = 128 << 20;

/// What a page tells.
pub(crate) async fn page<T: DeserializeOwned>(at: SocketAddr, path: &str) -> Result<T, String> {
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
