// SPDX-License-Identifier: Apache-2.0
//! Pages over HTTP/1.1, both ends: as much as Prometheus, curl and the programs' own viewers need.
//!
//! A thread accepts, and each connection has one of its own for one request, within limits of time
//! and number. It needs no runtime. It deliberately knows no TLS, no bodies and no kept
//! connections.
#![forbid(unsafe_code)]

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest request that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// Longest answer that is read.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Connections at a time; more are closed at once.
const MOST_CLIENTS: usize = 256;
/// A client that takes longer to ask, or to read a part of its answer, is left.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Stack of a connection's thread, bytes.
const STACK: usize = 512 << 10;

/// What a path leads to.
#[derive(Debug)]
pub struct Page {
    /// `Content-Type`.
    pub kind: &'static str,
    /// The body.
    pub text: String,
}

impl Page {
    /// OpenMetrics text.
    pub fn metrics(text: String) -> Self {
        Self { kind: "application/openmetrics-text; version=1.0.0; charset=utf-8", text }
    }

    /// JSON.
    pub fn json(text: String) -> Self {
        Self { kind: "application/json", text }
    }
}

/// A server, which ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl Server {
    /// Where it listens: with port 0 asked for, the one it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // The thread that accepts looks then.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { [0, 0, 0, 0, 0, 0, 0, 1].into() });
        }
        let _ = TcpStream::connect_timeout(&own, TIMEOUT);
    }
}

/// Serves what `page` gives for a path. Of other paths, and of what is no GET, `hint` tells the
/// paths.
///
/// # Errors
/// Those of listening and of starting a thread.
pub fn serve(
    address: SocketAddr,
    hint: &'static str,
    page: impl Fn(&str) -> Option<Page> + Send + Sync + 'static,
) -> io::Result<Server> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let ends = Arc::new(AtomicBool::new(false));
    let (page, ended) = (Arc::new(page), Arc::clone(&ends));
    let clients = Arc::new(());
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        while !ended.load(Ordering::SeqCst) {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors: later there are some again.
                std::thread::sleep(Duration::from_millis(100));
                continue;
            };
            if Arc::strong_count(&clients) > MOST_CLIENTS {
                continue;
            }
            let (page, client) = (Arc::clone(&page), Arc::clone(&clients));
            let thread = std::thread::Builder::new().name("metrics".to_owned()).stack_size(STACK);
            // Where there is no thread for it, the connection is closed.
            let _ = thread.spawn(move || {
                let _ = answer(stream, hint, &*page);
                drop(client);
            });
        }
    })?;
    Ok(Server { address, ends })
}

#[expect(clippy::disallowed_methods, reason = "a client's deadline")]
fn request(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let end = Instant::now() + TIMEOUT;
    let (mut request, mut part) = (Vec::new(), [0; 1_024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > LONGEST_REQUEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    Ok(request)
}

fn answer(mut stream: TcpStream, hint: &str, page: &impl Fn(&str) -> Option<Page>) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = request(&mut stream)?;
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    let plain = || Page { kind: "text/plain", text: format!("{hint}\n") };
    let (status, Page { kind, text }) = if !matches!(method, b"GET" | b"HEAD") {
        ("405 Method Not Allowed", plain())
    } else if let Some(page) = page(&String::from_utf8_lossy(path)) {
        ("200 OK", page)
    } else {
        ("404 Not Found", plain())
    };
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        stream.write_all(text.as_bytes())?;
    }
    stream.shutdown(Shutdown::Write)
}

/// What a server says at a path.
///
/// # Errors
/// When it cannot be reached, or says something else than 200 and a text.
pub fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut bytes)?;
    let answer = String::from_utf8(bytes).map_err(|_| io::Error::other("the answer is no text"))?;
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or_else(|| io::Error::other("the answer is not HTTP"))?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) == Some("200") { Ok(body.to_owned()) } else { Err(io::Error::other(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Server {
        let page = |path: &str| (path == "/metrics").then(|| Page::metrics("a 1\n# EOF\n".to_owned()));
        serve(([127, 0, 0, 1], 0).into(), "Metrics are at /metrics", page).expect("listens")
    }

    #[test]
    fn pages_are_served_and_nothing_else() {
        let server = started();
        assert_eq!(get(server.address(), "/metrics?x=1").expect("answers"), "a 1\n# EOF\n");
        assert!(get(server.address(), "/").is_err_and(|error| error.to_string().contains("404")));
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(server.address()).expect("connects");
            stream.write_all(request.as_bytes()).expect("says");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("hears");
            answer
        };
        assert!(ask("GET / HTTP/1.1\r\n\r\n").ends_with("\r\n\r\nMetrics are at /metrics\n"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        let head = ask("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 10") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn clients_that_say_nothing_keep_nobody_waiting_and_a_dropped_server_answers_no_more() {
        let server = started();
        let silent: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(server.address()).expect("connects")).collect();
        assert!(get(server.address(), "/metrics").is_ok());
        let address = server.address();
        drop((server, silent));
        // The one that was accepted last may still be answered.
        assert!((0..100).any(|_| get(address, "/metrics").is_err()));
    }
}
