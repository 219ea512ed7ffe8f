// SPDX-License-Identifier: Apache-2.0
//! TLS and mutual TLS of the client.

use std::fmt;
use std::time::Duration;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use webpki::{EndEntityCert, Error, KeyUsage};

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
    /// Whether certificates and key can be used now, with the reason if not; else what may become
    /// wrong with the client's certificate. Talks to nobody.
    pub fn check(&self) -> Result<Vec<String>, String> {
        const SOON: Duration = Duration::from_secs(14 * 86_400);
        let endpoint = Endpoint::from_static("https://localhost");
        endpoint.tls_config(self.config()).map_err(|error| reason(&error))?;
        let Some((certificate, _)) = &self.identity else { return Ok(Vec::new()) };
        let unread = |error: &dyn fmt::Display| format!("the client's certificate cannot be read: {error}");
        let der = CertificateDer::from_pem_slice(certificate).map_err(|error| unread(&error))?;
        let certificate = EndEntityCert::try_from(&der).map_err(|error| unread(&error))?;
        // Validity comes before the search for an authority, which is the switch's business.
        let at = |time| {
            let usage = KeyUsage::client_auth();
            certificate.verify_for_usage(&[], &[], &[], time, usage, None, None).map(drop)
        };
        let now = UnixTime::now();
        match at(now) {
            Err(Error::CertExpired { not_after, .. }) => {
                let days = (now.as_secs() - not_after.as_secs()) / 86_400;
                return Err(format!("the client's certificate expired {days} days ago"));
            }
            Err(Error::CertNotValidYet { .. }) => {
                return Err("the client's certificate is not valid yet".to_owned());
            }
            _ => {}
        }
        let mut doubts = Vec::new();
        let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + SOON);
        if let Err(Error::CertExpired { not_after, .. }) = at(soon) {
            let days = (not_after.as_secs().saturating_sub(now.as_secs())) / 86_400;
            doubts.push(format!("the client's certificate expires in {days} days"));
        }
        if certificate.valid_dns_names().next().is_none() {
            doubts.push(
                "the client's certificate has no DNS name (subjectAltName): switches that take named controllers only refuse it"
                    .to_owned(),
            );
        }
        Ok(doubts)
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
