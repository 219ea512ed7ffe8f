//! `GET /metrics` over HTTP/1.1: as much of it as Prometheus and curl need.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::board::Board;
use super::demand::Demand;
use super::metrics::metrics_text;

/// Longest request that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// Clients that are answered at a time; others wait to be accepted.
const MOST_CLIENTS: usize = 16;
/// A client that is slower is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the task is aborted; gives the address, with port 0 the one it got.
pub(super) async fn serve(
    address: SocketAddr,
    board: Board,
    demand: Demand,
) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        let clients = Arc::new(Semaphore::new(MOST_CLIENTS));
        loop {
            // Never closed, so there is always a permit to be had, within the slowest client's patience.
            let Ok(permit) = Arc::clone(&clients).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let (board, demand) = (board.clone(), demand.clone());
                    tokio::spawn(async move {
                        let _ = tokio::time::timeout(PATIENCE, answer(stream, &board, &demand)).await;
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

async fn answer(mut stream: TcpStream, board: &Board, demand: &Demand) -> io::Result<()> {
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
            demand.note();
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, metrics_text(&board.status()))
        }
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "Metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
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
