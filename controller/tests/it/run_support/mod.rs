// SPDX-License-Identifier: Apache-2.0
//! Embedded switches and what happens to them: restarts, delays, packets.
#![allow(dead_code, reason = "every test binary uses its own part")]

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use trimwire_switch::server::{ServerHandle, ServerOptions, Tls, serve_with};
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig};

/// A switch and its P4Runtime server.
pub(crate) struct Embedded {
    pub(crate) switch: SharedSwitch,
    pub(crate) address: SocketAddr,
    device_id: u64,
    tls: Option<Tls>,
    server: Option<ServerHandle>,
}

impl Embedded {
    pub(crate) fn start(device_id: u64) -> Self {
        Self::start_with(device_id, None)
    }

    pub(crate) fn start_with(device_id: u64, tls: Option<Tls>) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut embedded = Self { switch: fresh(device_id), address, device_id, tls, server: None };
        embedded.serve();
        embedded
    }

    pub(crate) fn start_at(address: SocketAddr, device_id: u64) -> Self {
        let mut embedded = Self { switch: fresh(device_id), address, device_id, tls: None, server: None };
        embedded.serve();
        embedded
    }

    fn serve(&mut self) {
        let options = ServerOptions { tls: self.tls.clone(), ..ServerOptions::default() };
        let server = serve_with(Arc::clone(&self.switch), self.address, options).unwrap();
        self.address = server.local_addr();
        self.server = Some(server);
    }

    /// Ends, and comes back at the same address without program and entries.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.come_back();
    }

    /// Ends.
    pub(crate) fn stop(&mut self) {
        self.server.take().unwrap().shutdown();
    }

    /// Is there again after it has ended, without program and entries.
    pub(crate) fn come_back(&mut self) {
        self.switch = fresh(self.device_id);
        self.serve();
    }

    /// Takes frames in at `now` on port 1, sends everything that is queued, and gives when that
    /// was.
    pub(crate) fn forward(&self, now: u64, frames: &[Vec<u8>]) -> u64 {
        let mut switch = self.switch.lock().unwrap();
        for frame in frames {
            switch.handle_frame(now, 1, frame);
        }
        let mut now = now;
        loop {
            while switch.poll_transmit().is_some() {}
            match switch.poll_timeout() {
                Some(at) if at < now + 1_000_000_000 => now = at.max(now),
                _ => return now,
            }
            switch.handle_timeout(now);
        }
    }

    /// Tells the switch what time it is.
    pub(crate) fn pass_time(&self, now: u64) {
        self.switch.lock().unwrap().handle_timeout(now);
    }
}

fn fresh(device_id: u64) -> SharedSwitch {
    let default_port = PortConfig { rate_bps: 10_000_000_000, ..PortConfig::default() };
    let config = SwitchConfig { device_id, default_port, cpu_port: Some(510), ..SwitchConfig::default() };
    Arc::new(Mutex::new(Switch::new(config)))
}

/// A port that nobody listens on.
pub(crate) fn dead_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Forwards to `target`, both ways each piece of data so much later.
pub(crate) async fn delaying_proxy(target: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(target).await else { return };
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                tokio::join!(
                    late(&mut from_client, &mut to_server, delay),
                    late(&mut from_server, &mut to_client, delay),
                );
            });
        }
    });
    address
}

async fn late(
    from: &mut tokio::net::tcp::OwnedReadHalf,
    to: &mut tokio::net::tcp::OwnedWriteHalf,
    delay: Duration,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(delay).await;
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// What is answered to `GET`, head and all.
pub(crate) async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Polls until `is_so`; after a while says what is not so.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> Result<(), String>) {
    let mut last = String::new();
    let polling = async {
        while let Err(why) = is_so() {
            last = why;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(40), polling).await.is_ok();
    assert!(in_time, "{what}: {last}");
}

/// Chains of eight switches, each with one host.
pub(crate) fn chains(addresses: &[SocketAddr], controller: &str) -> String {
    let mut text = format!("version: 1\ncontroller: {{ {controller} }}\nswitches:\n");
    for (number, address) in addresses.iter().enumerate() {
        let _ = writeln!(text, "  s{number}: {{ address: {address}, device_id: {} }}", number + 1);
    }
    text.push_str("hosts:\n");
    for number in 0..addresses.len() {
        let _ = writeln!(
            text,
            "  h{number}: {{ ip: 10.0.1.{}, mac: \"02:00:00:00:01:{number:02x}\" }}",
            number + 1
        );
    }
    text.push_str("links:\n");
    for number in 0..addresses.len() {
        let _ = writeln!(text, "  - {{ a: h{number}, b: \"s{number}:1\", speed: 10Gbps }}");
        if number % 8 > 0 {
            let _ = writeln!(text, "  - {{ a: \"s{}:2\", b: \"s{number}:3\", speed: 10Gbps }}", number - 1);
        }
    }
    text
}

/// `examples/fabrics/single-switch.yaml` for a switch at this address, with this line in
/// `controller`.
pub(crate) fn single(address: SocketAddr, controller: &str) -> String {
    let text = include_str!("../../../../examples/fabrics/single-switch.yaml");
    assert!(!text.contains("\ncontroller:"), "the example says nothing of the controller");
    text.replace("127.0.0.1:9559", &address.to_string()).replacen(
        "\nversion: 1\n",
        &format!("\nversion: 1\ncontroller: {{ {controller} }}\n"),
        1,
    )
}

/// An Ethernet, IPv4 and UDP frame from h1 to h2 of the example, important and of class 0, 1406
/// bytes in all.
pub(crate) fn frame() -> Vec<u8> {
    frame_with(3)
}

/// The same with another code point.
pub(crate) fn frame_with(dscp: u8) -> Vec<u8> {
    let length = 1406_u16;
    let mut frame = vec![0; usize::from(length)];
    frame[0..12].copy_from_slice(&[6, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, (dscp << 2) | 2]);
    frame[16..18].copy_from_slice(&(length - 14).to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 =
        frame[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame[34..38].copy_from_slice(&[0x30, 0x39, 0x24, 0x01]);
    frame[38..40].copy_from_slice(&(length - 34).to_be_bytes());
    frame
}
