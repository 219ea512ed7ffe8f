// SPDX-License-Identifier: Apache-2.0
//! TLS and mutual TLS of the server.

use tonic::transport::{Certificate, Identity, ServerTlsConfig};

/// PEM-encoded certificates and key.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate, with its chain.
    pub certificate: Vec<u8>,
    /// The certificate's private key.
    pub key: Vec<u8>,
    /// Clients have to show a certificate that one of these has signed; without them they show
    /// none.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the key.
        f.debug_struct("Tls").field("client_ca", &self.client_ca.is_some()).finish_non_exhaustive()
    }
}

impl Tls {
    pub(super) fn config(&self) -> ServerTlsConfig {
        let identity = Identity::from_pem(&self.certificate, &self.key);
        let config = ServerTlsConfig::new().identity(identity);
        match &self.client_ca {
            Some(ca) => config.client_ca_root(Certificate::from_pem(ca)),
            None => config,
        }
    }
}
