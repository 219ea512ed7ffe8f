// SPDX-License-Identifier: Apache-2.0
//! P4Runtime over TLS and mutual TLS: who gets in, and who does not.

use crate::tls_support::{Authority, Pem};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use trimwire_p4runtime::client::{self, Arbitration, Client, Role};
use trimwire_p4runtime::server::tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use trimwire_p4runtime::v1::CapabilitiesRequest;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::p4_runtime_client::P4RuntimeClient;
use trimwire_switch::server::{ServeError, ServerHandle, ServerOptions, Tls, serve_with};
use trimwire_switch::{Switch, SwitchConfig};

fn serve(server: &Pem, client_ca: Option<&Authority>) -> Result<ServerHandle, ServeError> {
    let tls = Tls {
        certificate: server.certificate.clone().into_bytes(),
        key: server.key.clone().into_bytes(),
        client_ca: client_ca.map(|ca| ca.certificate.clone().into_bytes()),
    };
    let options = ServerOptions { tls: Some(tls), ..ServerOptions::default() };
    let switch = Arc::new(Mutex::new(Switch::new(SwitchConfig::default())));
    serve_with(switch, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), options)
}

/// Whether a client that trusts `ca` and shows `identity` is answered.
async fn answered(server: &ServerHandle, ca: &Authority, identity: Option<&Pem>) -> bool {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&ca.certificate));
    if let Some(Pem { certificate, key }) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let address = format!("https://localhost:{}", server.local_addr().port());
    let endpoint = Endpoint::from_shared(address).unwrap().tls_config(tls).unwrap();
    let Ok(channel) = endpoint.connect().await else { return false };
    P4RuntimeClient::new(channel).capabilities(CapabilitiesRequest::default()).await.is_ok()
}

#[tokio::test]
async fn a_server_with_a_certificate_speaks_tls_and_nothing_else() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let server = serve(&ca.server(), None).unwrap();
    assert!(answered(&server, &ca, None).await);
    assert!(!answered(&server, &other, None).await, "its certificate is not what this client trusts");
    let plain = Endpoint::from_shared(format!("http://{}", server.local_addr())).unwrap();
    let clear = match plain.connect().await {
        Ok(channel) => {
            P4RuntimeClient::new(channel).capabilities(CapabilitiesRequest::default()).await.is_ok()
        }
        Err(_) => false,
    };
    assert!(!clear, "not in the clear");
}

#[tokio::test]
async fn with_client_authentication_only_certificates_of_its_authority_get_in() {
    let (ca, other) = (Authority::new("ca"), Authority::new("other"));
    let server = serve(&ca.server(), Some(&ca)).unwrap();
    assert!(answered(&server, &ca, Some(&ca.client())).await);
    assert!(!answered(&server, &ca, None).await, "no certificate");
    assert!(!answered(&server, &ca, Some(&other.client())).await, "another authority's");
    assert!(!answered(&server, &ca, Some(&ca.server())).await, "a server's is no client's");
}

#[test]
fn certificates_that_cannot_be_used_are_said_before_serving() {
    let ca = Authority::new("ca");
    let good = ca.server();
    let bad = [
        Pem { certificate: String::new(), key: good.key.clone() },
        Pem { certificate: good.certificate.clone(), key: "no key".to_owned() },
        Pem { certificate: good.certificate, key: ca.server().key },
    ];
    for pem in bad {
        let error = serve(&pem, None).unwrap_err().to_string();
        assert!(error.starts_with("TLS: "), "{error}");
    }
}

/// A connection with this certificate.
async fn connected(server: &ServerHandle, ca: &Authority, identity: &Pem) -> Client {
    let tls = client::Tls {
        ca: ca.certificate.clone().into_bytes(),
        identity: Some((identity.certificate.clone().into_bytes(), identity.key.clone().into_bytes())),
        server_name: Some("localhost".to_owned()),
    };
    let options = client::Options { tls: Some(tls), ..client::Options::default() };
    Client::connect_with(&server.local_addr().to_string(), options).await.unwrap()
}

/// Whoever has a certificate of the authority is let in: another switch, and whoever may only look.
/// What they may do, their names say.
#[tokio::test]
async fn who_may_write_and_read_and_how_high_it_bids_is_its_certificate_s_name() {
    let ca = Authority::new("ca");
    let pem = ca.server();
    let tls = Tls {
        certificate: pem.certificate.into_bytes(),
        key: pem.key.into_bytes(),
        client_ca: Some(ca.certificate.clone().into_bytes()),
    };
    let mut options = ServerOptions { tls: Some(tls), ..ServerOptions::default() };
    options.limits.set("controllers=run.example/ops.example:1000").unwrap();
    options.limits.set("viewers=grafana.example").unwrap();
    let switch =
        || Arc::new(Mutex::new(Switch::new(SwitchConfig { device_id: 1, ..SwitchConfig::default() })));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = serve_with(switch(), address, options.clone()).unwrap();
    let bid = async |name: &str, id: u128| {
        let mut client = connected(&server, &ca, &ca.both(name)).await;
        let told = client.arbitrate(1, id, Role::default()).await;
        (client, told.map_err(|error| error.to_string()))
    };
    let read = async |name: &str| {
        let mut client = connected(&server, &ca, &ca.both(name)).await;
        client.observe(1);
        client.pipeline(ResponseType::CookieOnly).await.map_err(|error| error.to_string())
    };
    let (_other, told) = bid("leaf7.example", 5).await;
    assert!(told.unwrap_err().contains("no controller"), "another switch's certificate");
    assert!(read("leaf7.example").await.unwrap_err().contains("neither a controller nor a viewer"));
    let (_viewer, told) = bid("grafana.example", 5).await;
    assert!(told.unwrap_err().contains("no controller"));
    assert_eq!(read("grafana.example").await, Ok(None), "it may look: there is no pipeline");
    // One bid of 2^128 - 1 would lock everybody out for as long as the switch runs.
    let (_greedy, told) = bid("ops.example", u128::MAX).await;
    assert!(told.unwrap_err().contains("above 1000"));
    let (_ops, told) = bid("ops.example", 1000).await;
    assert_eq!(told, Ok(Arbitration::Primary { election_id: 1000 }));
    let (_run, told) = bid("run.example", 1001).await;
    assert_eq!(told, Ok(Arbitration::Primary { election_id: 1001 }));
    assert_eq!(read("run.example").await, Ok(None));

    if let Some(tls) = &mut options.tls {
        tls.client_ca = None;
    }
    let error = serve_with(switch(), address, options).unwrap_err().to_string();
    assert!(error.contains("known by their certificates"), "{error}");
}

#[test]
fn the_admin_command_reaches_a_switch_that_speaks_tls() {
    let ca = Authority::new("ca");
    let server = serve(&ca.server(), Some(&ca)).unwrap();
    let folder = std::env::temp_dir().join(format!("trimwire-admin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let client = ca.client();
    for (name, text) in [("ca", &ca.certificate), ("cert", &client.certificate), ("key", &client.key)] {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let admin = |words: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_trimwire-switch"))
            .args(["admin", "show", "--server", &format!("localhost:{}", server.local_addr().port())])
            .args(words)
            .current_dir(&folder)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(
        admin(&["--tls-ca", "ca", "--tls-cert", "cert", "--tls-key", "key"]),
        (Some(0), String::new())
    );
    let (code, error) = admin(&[]);
    assert!(code == Some(1) && error.contains("if it speaks TLS: --tls-ca FILE"), "{error}");
    let (code, error) = admin(&["--tls-ca", "none"]);
    assert!(code == Some(1) && error.contains("cannot read none"), "{error}");
    let (code, error) = admin(&["--tls-ca", "ca"]);
    assert!(code == Some(1) && error.contains("localhost"), "no certificate of its own: {error}");
    std::fs::remove_dir_all(&folder).unwrap();
}
