// SPDX-License-Identifier: Apache-2.0
//! `GET /metrics` over HTTP/1.1, both ends of it: as much as Prometheus, curl and `top` need.

use anyhow::{Context as _, bail};
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Longest request that is read.
const LONGEST_REQUEST: usize = 8 << 10;
/// Longest answer that is read.
const LONGEST_ANSWER: u64 = 16 << 20;
/// Who is slower is left: others wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves on a thread of its own for as long as the process lives; gives the address, with port 0 the one it got.
pub(crate) fn serve(
    address: SocketAddr,
    text: impl Fn() -> String + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => drop(answer(stream, &text)),
                // Out of descriptors: later there are some again.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(address)
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (mut request, mut part) = (Vec::new(), [0; 1_024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut part)?;
        if count == 0 || request.len() > LONGEST_REQUEST {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
    }
    let line = request.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
    let (status, kind, body) = match (method, path) {
        (b"GET" | b"HEAD", b"/metrics") => {
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text())
        }
        (b"GET" | b"HEAD", _) => ("404 Not Found", "text/plain", "Metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "GET /metrics\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if method != b"HEAD" {
        stream.write_all(body.as_bytes())?;
    }
    stream.shutdown(std::net::Shutdown::Write)
}

/// What an endpoint of ours says at `/metrics`.
pub(crate) fn get(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut bytes)?;
    let answer = String::from_utf8(bytes).context("the answer is no text")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        bail!("{status}");
    }
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_served_and_nothing_else() {
        let address = serve(([127, 0, 0, 1], 0).into(), || "a 1\n# EOF\n".to_owned()).expect("listens");
        assert_eq!(get(address).expect("answers"), "a 1\n# EOF\n");
        let ask = |request: &str| {
            let mut stream = TcpStream::connect(address).expect("connects");
            stream.write_all(request.as_bytes()).expect("says");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("hears");
            answer
        };
        assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        let head = ask("HEAD /metrics HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 10") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
