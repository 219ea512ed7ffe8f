// SPDX-License-Identifier: Apache-2.0
//! Why a driver does not start.

use std::io;

/// Why a driver does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// An interface cannot be opened.
    #[error("port {port}: cannot open interface '{interface}'{}", hint(.source))]
    Open {
        /// Port number.
        port: u16,
        /// Interface name.
        interface: String,
        /// The system's reason.
        source: io::Error,
    },
    /// Waiting for frames failed.
    #[error("cannot wait for frames")]
    Wait(#[from] io::Error),
    /// A thread for ports was not made.
    #[error("cannot start a thread for ports; --threads asks for fewer")]
    Thread(#[source] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => " (packet sockets need CAP_NET_RAW: run as root)",
        _ if error.raw_os_error() == Some(libc::ENODEV) => " (no such interface; `ip link` lists them)",
        _ => "",
    }
}
