// SPDX-License-Identifier: Apache-2.0
//! Sockets, which listen before their group begins.

use super::locks::lock;
use crate::TransportError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, Mutex};
use trimwire_agent::cores::{Cores, CoresError, channels_of};
use trimwire_agent::driver::channels::CHANNELS_MOST;
use trimwire_agent::driver::interfaces::{describe, interfaces, select};
use trimwire_agent::driver::{Checksums, Link as _, Receive, Shared, UdpConfig, UdpLink};

/// What the groups of this process have together.
static SHARED: LazyLock<Shared> = LazyLock::new(Shared::default);

pub(super) fn failed(error: impl std::fmt::Display) -> PyErr {
    TransportError::new_err(error.to_string())
}

/// The addresses of the interfaces that match `pattern` (as NCCL_SOCKET_IFNAME's), with commas
/// between, or else the one that the system would reach `towards` from.
#[pyfunction]
pub(crate) fn own_address(pattern: Option<String>, towards: Option<String>) -> PyResult<String> {
    if let Some(pattern) = pattern {
        let all = interfaces().map_err(failed)?;
        let found = select(&all, &pattern);
        if found.is_empty() {
            let all = describe(&all);
            return Err(PyValueError::new_err(format!(
                "TRIMWIRE_SOCKET_IFNAME '{pattern}' selects none of the interfaces; there are: {all}"
            )));
        }
        return Ok(found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(","));
    }
    let towards = towards.unwrap_or_else(|| "127.0.0.1".to_owned());
    // No datagram is sent: the system only says which way it would go.
    let route = || -> std::io::Result<IpAddr> {
        use std::net::ToSocketAddrs;
        let to = (towards.as_str(), 9).to_socket_addrs()?.next();
        let to = to.ok_or_else(|| std::io::Error::other("no address"))?;
        let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let socket = std::net::UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    let address = route().map_err(|error| failed(format!("no way to '{towards}': {error}")))?;
    Ok(address.to_string())
}

/// The processors of this process, as [`default_channels`] takes them.
#[pyfunction]
pub(crate) fn own_cores() -> String {
    Cores::own().to_string()
}

/// Channels of each rank where nobody has said how many: of all ranks, by where they listen
/// (`IP:PORT`) and their processors.
#[pyfunction]
pub(crate) fn default_channels(ranks: Vec<(String, String)>) -> PyResult<u16> {
    let parse = |(address, cores): (String, String)| {
        let address: SocketAddr =
            address.parse().map_err(|_| PyValueError::new_err(format!("'{address}' is no address")))?;
        let cores = cores.parse().map_err(|error: CoresError| PyValueError::new_err(error.to_string()))?;
        Ok((address.ip(), cores))
    };
    let ranks = ranks.into_iter().map(parse).collect::<PyResult<Vec<(IpAddr, Cores)>>>()?;
    Ok(channels_of(ranks.iter().map(|(address, cores)| (*address, cores))))
}

/// What an argument's word stands for.
fn one_of<T: Copy>(argument: &str, given: &str, valid: [(&str, T); 2]) -> PyResult<T> {
    let found = valid.iter().find(|(word, _)| *word == given);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let words = valid.map(|(word, _)| format!("'{word}'")).join(", ");
        PyValueError::new_err(format!("{argument}: '{given}'; valid are {words}"))
    })
}

/// Sockets that wait for a group to begin.
#[pyclass(frozen, module = "trimwire._native")]
pub(crate) struct Socket {
    /// One a channel.
    pub(super) links: Mutex<Option<Vec<UdpLink>>>,
    channels: AtomicU16,
    pub(super) address: SocketAddr,
    pub(super) addresses: Vec<IpAddr>,
    /// Bytes of the longest IP packet that its interfaces carry, at most 9,216.
    pub(super) mtu: Option<u16>,
}

#[pymethods]
impl Socket {
    /// Listens on an address, or on several of one family with commas between; port 0 is a free
    /// one.
    ///
    /// `receive` is 'socket' or 'raw', which takes packets that are shorter than their headers say;
    /// `checksums`, of DATA, is 'filled' or 'zero'.
    #[new]
    fn new(ip: &str, port: u16, paths: u16, receive: &str, checksums: &str, channels: u16) -> PyResult<Self> {
        if !(1..=CHANNELS_MOST).contains(&channels) {
            let text = format!("channels: {channels}; valid are 1 to {CHANNELS_MOST}");
            return Err(PyValueError::new_err(text));
        }
        let receive = one_of("receive", receive, [("socket", Receive::Socket), ("raw", Receive::Raw)])?;
        let checksums =
            one_of("checksums", checksums, [("filled", Checksums::Filled), ("zero", Checksums::Zero)])?;
        let parse = |ip: &str| {
            ip.trim().parse().map_err(|_| PyValueError::new_err(format!("address: '{ip}' is no IP address")))
        };
        let addresses: Vec<IpAddr> = ip.split(',').map(parse).collect::<PyResult<_>>()?;
        let config = UdpConfig::on(&addresses, port)
            .map_err(|error| PyValueError::new_err(format!("address: {error}")))?;
        let config = UdpConfig { data_sockets: paths, receive, checksums, ..config };
        let links = UdpLink::open_channels(&config, channels, &SHARED).map_err(failed)?;
        let link = links.first().ok_or_else(|| failed("no link"))?;
        let (address, mtu) = (link.local_address(), link.mtu());
        Ok(Self { links: Mutex::new(Some(links)), channels: channels.into(), address, addresses, mtu })
    }

    /// Bytes of the longest IP packet that its interfaces carry; `None` where the system does not
    /// tell.
    #[getter]
    fn mtu(&self) -> Option<u16> {
        self.mtu
    }

    /// So many channels listen, on the port of `address` and those behind it.
    #[getter]
    pub(super) fn channels(&self) -> u16 {
        self.channels.load(Ordering::Relaxed)
    }

    /// Closes those channels that are not among the first `channels`, before a group begins.
    fn keep(&self, channels: u16) {
        if let Some(links) = lock(&self.links).as_mut() {
            links.truncate(channels.max(1).into());
            self.channels.store(links.len() as u16, Ordering::Relaxed);
        }
    }

    /// Where it listens: `IP:PORT`.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }
}
