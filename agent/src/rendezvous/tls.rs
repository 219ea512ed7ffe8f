// SPDX-License-Identifier: Apache-2.0
//! TLS 1.3 of the rendezvous: with certificates on both sides, or, where there is only a job key, with a certificate that rank 0 makes for the occasion. Nobody
//! vouches for that one; the proofs of [`super::proof`] do, which are bound to the connection.
#![forbid(unsafe_code)]

use super::error::RendezvousError;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use std::fmt;
use std::sync::Arc;
use trimwire_encoder::SealKey;

/// What keeps other protocols' connections apart from these (RFC 7301).
const PROTOCOL: &[u8] = b"trimwire-rendezvous/1";
/// Of the certificate for the occasion, which nobody checks.
const OCCASION: &str = "rendezvous.invalid";

/// Files' contents, PEM.
#[derive(Clone)]
pub struct Certificates {
    /// Who has signed the certificates of all ranks.
    pub ca: Vec<u8>,
    /// This rank's certificate, with its chain.
    pub certificate: Vec<u8>,
    /// The certificate's private key.
    pub key: Vec<u8>,
    /// The name in rank 0's certificate; its address as given by default.
    pub server_name: Option<String>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_struct("Certificates").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// What ranks know each other by. Without either everyone is believed.
#[derive(Debug, Clone, Default)]
pub struct Security {
    /// The job's key. Its packets are sealed under keys derived from it.
    pub key: Option<SealKey>,
    /// Certificates of this rank.
    pub certificates: Option<Certificates>,
}

impl Security {
    /// Whether strangers are kept out.
    pub fn is_some(&self) -> bool {
        self.key.is_some() || self.certificates.is_some()
    }

    pub(super) fn server(&self) -> Result<Option<Arc<ServerConfig>>, RendezvousError> {
        if !self.is_some() {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(failed("TLS 1.3"))?;
        let (builder, chain, key) = if let Some(files) = &self.certificates {
            let roots = Arc::new(files.roots()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(failed("certificates of the CA"))?;
            (builder.with_client_cert_verifier(verifier), files.chain()?, files.private_key()?)
        } else {
            let made = rcgen::generate_simple_self_signed([OCCASION.to_owned()]);
            let made = made.map_err(failed("a certificate for the occasion"))?;
            let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
            (builder.with_no_client_auth(), vec![made.cert.der().clone()], PrivateKeyDer::from(key))
        };
        let mut config = builder.with_single_cert(chain, key).map_err(failed("certificate"))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Nobody comes back, and who waits for an answer finds nothing else to read.
        config.send_tls13_tickets = 0;
        Ok(Some(Arc::new(config)))
    }

    pub(super) fn client(
        &self,
        host: &str,
    ) -> Result<Option<(Arc<ClientConfig>, ServerName<'static>)>, RendezvousError> {
        if !self.is_some() {
            return Ok(None);
        }
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(&[&TLS13]).map_err(failed("TLS 1.3"))?;
        let (mut config, name) = if let Some(files) = &self.certificates {
            let builder = builder.with_root_certificates(files.roots()?);
            let config = builder.with_client_auth_cert(files.chain()?, files.private_key()?);
            let name = files.server_name.as_deref().unwrap_or(host);
            (config.map_err(failed("certificate"))?, name)
        } else {
            let any = Arc::new(AnyCertificate(provider));
            let builder = builder.dangerous().with_custom_certificate_verifier(any);
            (builder.with_no_client_auth(), OCCASION)
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(name.to_owned()).map_err(failed("name of rank 0 for TLS"))?;
        Ok(Some((Arc::new(config), name)))
    }
}

fn failed<E: fmt::Display>(what: &'static str) -> impl FnOnce(E) -> RendezvousError {
    move |error| RendezvousError::Credentials { what, reason: error.to_string() }
}

impl Certificates {
    fn roots(&self) -> Result<RootCertStore, RendezvousError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca, "certificates of the CA")? {
            roots.add(certificate).map_err(failed("certificates of the CA"))?;
        }
        Ok(roots)
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, RendezvousError> {
        certificates(&self.certificate, "certificate")
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, RendezvousError> {
        PrivateKeyDer::from_pem_slice(&self.key).map_err(failed("private key"))
    }
}

fn certificates(pem: &[u8], what: &'static str) -> Result<Vec<CertificateDer<'static>>, RendezvousError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found.map_err(failed(what))? {
        none if none.is_empty() => Err(failed(what)("there is none in PEM")),
        found => Ok(found),
    }
}

/// Takes whatever certificate comes, and holds its owner to it: what makes them trusted is their proof, made over this very connection.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
