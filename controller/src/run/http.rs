//! `GET /metrics` and `GET /cuts` over HTTP/1.1: as much of it as Prometheus, curl and `watch` need.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::board::Board;
use super::cuts::Cuts;
use super::demand::Demand;
use super::metrics::metrics_text;

/// Longest request that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// Clients that are answered at a time; others wait to be accepted.
const MOST_CLIENTS: usize = 16;
/// A client that is slower is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// What there is to tell.
#[derive(Clone)]
pub(super) struct Pages {
    pub board: Board,
    pub cuts: Cuts,
    pub demand: Demand,
}

/// Serves until the task is aborted; gives the address, with port 0 the one it got.
pub(super) async fn serve(address: SocketAddr, pages: Pages) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        let clients = Arc::new(Semaphore::new(MOST_CLIENTS));
        loop {
            // Never closed, so there is always a permit to be had, within the slowest client's patience.
            let Ok(permit) = Arc::clone(&clients).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let pages = pages.clone();
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(PATIENCE, answer(stream, &pages)).await;
                        drop(permit);
                    });
                }
                // Out of descriptors: later there are some again.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    });
    Ok((address, serving))
}

async fn answer(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() > LONGEST_REQUEST || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            pages.demand.note();
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, metrics_text(&pages.board.status()))
        }
        (b"GET" | b"HEAD", b"/cuts") => ("200 OK", "application/json", pages.cuts.json()),
        (b"GET" | b"HEAD", _) => {
            let text = "Metrics are at /metrics, whose packets are cut is at /cuts\n";
            ("404 Not Found", "text/plain", text.to_owned())
        }
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics or /cuts\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    if method != b"HEAD" {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}
