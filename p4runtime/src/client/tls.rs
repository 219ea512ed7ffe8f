// SPDX-License-Identifier: Apache-2.0
//! TLS and mutual TLS of the client.

use std::fmt;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::error::reason;

/// Whom to believe, and who to be; PEM-encoded.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// Authorities, one of which has to have signed the switch's certificate. The system's are not
    /// consulted: a fabric has its own.
    pub ca: Vec<u8>,
    /// The client's certificate with its chain, and its key, for switches that ask for them.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the switch's certificate has to have, if not the host's in its address.
    pub server_name: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_struct("Tls")
            .field("identity", &self.identity.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

impl Tls {
    /// Whether certificates and key can be used at all, with the reason if not. Talks to nobody.
    pub fn check(&self) -> Result<(), String> {
        let endpoint = Endpoint::from_static("https://localhost");
        endpoint.tls_config(self.config()).map(drop).map_err(|error| reason(&error))
    }

    pub(super) fn config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&self.ca));
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        config
    }
}
