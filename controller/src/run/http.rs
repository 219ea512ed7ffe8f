// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics`, `/faults` and `/programs`, for Prometheus, curl and `watch`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::metrics::metrics_text;
use crate::engine::board::Board;

/// Longest request head that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// Connections at a time; more are closed at once. One that says nothing costs a few kilobytes, and
/// nobody waits for it.
const MOST_CLIENTS: usize = 256;
/// A client that takes longer to ask, or to read its answer, is left.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves until the task is aborted; gives the address, with port 0 the one it got.
pub(super) async fn serve(address: SocketAddr, board: Board) -> io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        let places = Arc::new(Semaphore::new(MOST_CLIENTS));
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of descriptors: later there are some again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
            let board = board.clone();
            let service = service_fn(move |request| {
                let response = answer(&request, &board);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .title_case_headers(true)
                .max_buf_size(LONGEST_REQUEST)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                let _ = tokio::time::timeout(2 * PATIENCE, connection).await;
                drop(place);
            });
        }
    });
    Ok((address, serving))
}

fn answer<B>(request: &Request<B>, board: &Board) -> Response<Full<Bytes>> {
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let (status, kind, body) = match (is_read, request.uri().path()) {
        (true, "/metrics") => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            (StatusCode::OK, kind, metrics_text(&board.status()))
        }
        (true, "/faults") => {
            let faults = serde_json::to_string(&board.status().faults).unwrap_or_default();
            (StatusCode::OK, "application/json", faults + "\n")
        }
        (true, "/programs") => {
            let replacing = serde_json::to_string(&board.status().replacing).unwrap_or_default();
            (StatusCode::OK, "application/json", replacing + "\n")
        }
        (true, _) => {
            let text = "Metrics are at /metrics, what routes leave out is at /faults, which switches wait for a new program at /programs\n";
            (StatusCode::NOT_FOUND, "text/plain", text.to_owned())
        }
        (false, _) => {
            let text = "GET /metrics, /faults or /programs\n";
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", text.to_owned())
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}
