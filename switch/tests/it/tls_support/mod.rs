// SPDX-License-Identifier: Apache-2.0
//! Certificates that live as long as a test: an authority, a server on loopback, a client.
#![allow(dead_code, reason = "every test binary uses its own part")]

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use time::OffsetDateTime;

/// A certificate and its key, PEM.
pub(crate) struct Pem {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    /// For a server on loopback.
    pub(crate) fn server(&self) -> Pem {
        self.sign(&["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub(crate) fn client(&self) -> Pem {
        self.sign(&["controller"], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A client with this name in its certificate.
    pub(crate) fn client_named(&self, name: &str) -> Pem {
        self.sign(&[name], ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// As many make them: for servers and clients.
    pub(crate) fn both(&self, name: &str) -> Pem {
        self.sign_for(&[name], vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth])
    }

    fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose) -> Pem {
        self.sign_for(names, vec![usage])
    }

    fn sign_for(&self, names: &[&str], usages: Vec<ExtendedKeyUsagePurpose>) -> Pem {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = usages;
        self.sign_params(&params)
    }

    /// A client whose certificate is valid from then until then.
    pub(crate) fn client_between(&self, name: &str, from: OffsetDateTime, until: OffsetDateTime) -> Pem {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (from, until);
        self.sign_params(&params)
    }

    fn sign_params(&self, params: &CertificateParams) -> Pem {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pem { certificate, key: key.serialize_pem() }
    }
}
