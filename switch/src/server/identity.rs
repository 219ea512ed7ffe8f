// SPDX-License-Identifier: Apache-2.0
//! Who a client is, by the names in its certificate (RFC 6125's DNS names), and what that lets it
//! do.
//!
//! Without names every client that is let in may do everything: a server's certificate of the same
//! authority, too.

use std::collections::{BTreeMap, BTreeSet};

use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use std::sync::Arc;
use tonic::Status;
use tonic::transport::server::TlsConnectInfo;

use super::peer::Peer;
use tonic::codegen::http::Extensions;

/// Names and what they may do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identities {
    /// May write, and bid with election ids up to this one.
    pub controllers: BTreeMap<String, u128>,
    /// May read.
    pub viewers: BTreeSet<String>,
}

impl Identities {
    /// Whether anybody is named. If nobody is, nobody is asked.
    pub fn is_empty(&self) -> bool {
        self.controllers.is_empty() && self.viewers.is_empty()
    }

    /// Adds controllers, `NAME` or `NAME:HIGHEST_ELECTION_ID` with `/` between.
    pub(super) fn set_controllers(&mut self, text: &str) -> Result<(), String> {
        for word in text.split('/') {
            let (name, highest) = match word.split_once(':') {
                None => (word, u128::MAX),
                Some((name, id)) => {
                    let id = id.parse().map_err(|_| format!("'{id}' behind '{name}:' is no election id"))?;
                    (name, id)
                }
            };
            self.controllers.insert(checked(name)?, highest);
        }
        Ok(())
    }

    /// Adds viewers, names with `/` between.
    pub(super) fn set_viewers(&mut self, text: &str) -> Result<(), String> {
        text.split('/').try_for_each(|name| {
            self.viewers.insert(checked(name)?);
            Ok(())
        })
    }

    /// Whether a request may read.
    pub(super) fn reads(&self, extensions: &Extensions) -> Result<(), Status> {
        if self.is_empty() || self.highest(extensions).is_some() {
            return Ok(());
        }
        let names = self.viewers.iter().map(String::as_str);
        if has_name(extensions, names).is_some() {
            Ok(())
        } else {
            Err(refused("neither a controller nor a viewer"))
        }
    }

    /// Whether a request may write; the highest election id that it may bid.
    pub(super) fn writes(&self, extensions: &Extensions) -> Result<u128, Status> {
        if self.is_empty() {
            return Ok(u128::MAX);
        }
        self.highest(extensions).ok_or_else(|| refused("no controller: it may not write or bid"))
    }

    /// Whether a request comes from a controller that is named.
    pub(super) fn is_controller(&self, extensions: &Extensions) -> bool {
        !self.controllers.is_empty() && self.highest(extensions).is_some()
    }

    fn highest(&self, extensions: &Extensions) -> Option<u128> {
        let name = has_name(extensions, self.controllers.keys().map(String::as_str))?;
        self.controllers.get(name).copied()
    }
}

fn refused(what: &str) -> Status {
    Status::permission_denied(format!("the certificate is of {what} (--limit controllers, viewers)"))
}

fn checked(name: &str) -> Result<String, String> {
    match ServerName::try_from(name) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Err(format!("'{name}' is no DNS name, as certificates have it")),
    }
}

/// The first of these names that the client's certificate is for.
fn has_name<'n>(extensions: &Extensions, mut names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let connection = extensions.get::<TlsConnectInfo<Arc<Peer>>>()?;
    let certificates = connection.peer_certs()?;
    let certificate: &CertificateDer<'_> = certificates.first()?;
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    names
        .find(|name| ServerName::try_from(*name).is_ok_and(|name| verify_server_name(&parsed, &name).is_ok()))
}
