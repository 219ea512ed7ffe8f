// SPDX-License-Identifier: Apache-2.0
//! TLS and mutual TLS between controller and switches, from the fabric file's keys on.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::run_support::{Embedded, chains, eventually};
use crate::tls_support::{Authority, Pem};
use trimwire_controller::run::{Controller, RunOptions};
use trimwire_controller::{Artifacts, Fabric, MetricsAt, Options, Report, apply};
use trimwire_switch::server::Tls;

fn server(ca: &Authority, with_clients_of: Option<&Authority>) -> Tls {
    let Pem { certificate, key } = ca.server();
    let client_ca = with_clients_of.map(|ca| ca.certificate.clone().into_bytes());
    Tls { certificate: certificate.into_bytes(), key: key.into_bytes(), client_ca }
}

/// A folder with `ca.pem`, `controller.pem` and `controller.key`, and the path of a fabric file
/// that would stand in it.
fn folder(ca: &Authority) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let Pem { certificate, key } = ca.client();
    for (name, text) in
        [("ca.pem", ca.certificate.as_str()), ("controller.pem", &certificate), ("controller.key", &key)]
    {
        std::fs::write(folder.path().join(name), text).unwrap();
        std::fs::set_permissions(folder.path().join(name), Permissions::from_mode(0o600)).unwrap();
    }
    let file = folder.path().join("fabric.yaml").display().to_string();
    (folder, file)
}

async fn applied(fabric: &Fabric) -> Report {
    apply(fabric, &Artifacts::embedded().unwrap(), &Options::default()).await.unwrap()
}

const MUTUAL: &str = "interval: 100ms, tls: { ca: ca.pem, cert: controller.pem, key: controller.key }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_that_ask_for_a_certificate_are_shown_one_and_those_in_the_clear_are_not() {
    let ca = Authority::new("fabric");
    let mutual = Embedded::start_with(1, Some(server(&ca, Some(&ca))));
    let clear = Embedded::start(2);
    let (_folder, file) = folder(&ca);
    let text = chains(&[mutual.address, clear.address], MUTUAL)
        .replace("device_id: 2 }", "device_id: 2, tls: off }");
    let fabric = Fabric::from_yaml(&text, &file).unwrap();
    let report = applied(&fabric).await;
    assert!(report.is_ok(), "{report}");

    let options = RunOptions { metrics: Some(MetricsAt::Off), ..RunOptions::default() };
    let controller = Controller::start(&fabric, &Artifacts::embedded().unwrap(), &options).await.unwrap();
    eventually("in place over TLS", || {
        let status = controller.status();
        let well = status.switches.values().filter(|status| status.in_place == Some(true)).count();
        if well == 2 { Ok(()) } else { Err(format!("{:?}", status.switches)) }
    })
    .await;
    controller.stop().await;
}

#[tokio::test]
async fn whoever_is_not_believed_is_not_talked_to() {
    let (ca, other) = (Authority::new("fabric"), Authority::new("somebody else"));
    let (_folder, file) = folder(&ca);
    // Its certificate is another authority's.
    let stranger = Embedded::start_with(1, Some(server(&other, None)));
    // It does not believe us.
    let strict = Embedded::start_with(2, Some(server(&ca, Some(&other))));
    // It speaks in the clear.
    let clear = Embedded::start(3);
    // It asks for a certificate, and we have none for it.
    let asks = Embedded::start_with(4, Some(server(&ca, Some(&ca))));
    let text = chains(&[stranger.address, strict.address, clear.address], MUTUAL);
    let report = applied(&Fabric::from_yaml(&text, &file).unwrap()).await;
    assert!(
        report.switches.iter().all(|switch| switch.error.is_some() && switch.written.total() == 0),
        "{report}"
    );
    let error = report.switches[0].error.clone().unwrap();
    assert!(error.contains(&stranger.address.to_string()), "{error}");
    assert!(error.contains("none of the authorities in our tls.ca has signed its certificate"), "{error}");
    let error = report.switches[1].error.clone().unwrap();
    assert!(error.contains("it may not take our tls.cert"), "{error}");
    let error = report.switches[2].error.clone().unwrap();
    assert!(error.contains("does not speak TLS") && error.contains("tls: off"), "{error}");
    let text = chains(&[asks.address], "tls: { ca: ca.pem }");
    let report = applied(&Fabric::from_yaml(&text, &file).unwrap()).await;
    let error = report.switches[0].error.clone().unwrap();
    assert!(error.contains("it may ask for a client's certificate, and we have none"), "{error}");
}

#[test]
fn a_certificate_that_ends_is_told_before_and_refused_after_and_one_without_a_name_is_told() {
    let ca = Authority::new("fabric");
    let (folder, file) = folder(&ca);
    let text = chains(&["127.0.0.1:1".parse().unwrap()], MUTUAL);
    let day = time::Duration::DAY;
    let now = time::OffsetDateTime::now_utc();
    for (name, from, until, expected) in [
        ("controller", now - day, now + day * 365, Ok(vec![])),
        ("controller", now - day * 9, now - day * 3 - day / 2, Err("expired 3 days ago")),
        ("controller", now + day, now + day * 365, Err("is not valid yet")),
        ("controller", now - day, now + day * 3 + day / 2, Ok(vec!["expires in 3 days"])),
        ("10.0.0.1", now - day, now + day * 365, Ok(vec!["has no DNS name (subjectAltName)"])),
    ] {
        let Pem { certificate, key } = ca.client_between(name, from, until);
        std::fs::write(folder.path().join("controller.pem"), certificate).unwrap();
        std::fs::write(folder.path().join("controller.key"), key).unwrap();
        match (Fabric::from_yaml(&text, &file), expected) {
            (Ok(fabric), Ok(words)) => {
                let found = fabric.warnings.iter().filter(|warning| warning.contains("controller.tls: "));
                let found: Vec<&String> = found.collect();
                assert_eq!(found.len(), words.len(), "{found:?}");
                assert!(found.iter().zip(words).all(|(found, word)| found.contains(word)), "{found:?}");
            }
            (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
            (found, expected) => panic!("{found:?}, not {expected:?}"),
        }
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_taken_only_under_that_name() {
    let ca = Authority::new("fabric");
    let (_folder, file) = folder(&ca);
    let switch = Embedded::start_with(1, Some(server(&ca, None)));
    for (name, taken) in [("localhost", true), ("leaf1.example", false)] {
        let text = chains(&[switch.address], &format!("tls: {{ ca: ca.pem, server_name: {name} }}"));
        let report = applied(&Fabric::from_yaml(&text, &file).unwrap()).await;
        assert_eq!(report.is_ok(), taken, "{name}: {report}");
    }
}

#[test]
fn files_that_are_not_there_or_not_what_they_should_be_are_named_with_their_line() {
    let ca = Authority::new("fabric");
    let (folder, file) = folder(&ca);
    std::fs::write(folder.path().join("other.key"), ca.server().key).unwrap();
    std::fs::set_permissions(folder.path().join("other.key"), Permissions::from_mode(0o600)).unwrap();
    let address = "127.0.0.1:1".parse().unwrap();
    let problems = |tls: &str| {
        let text = chains(&[address], &format!("tls: {{ {tls} }}"));
        Fabric::from_yaml(&text, &file).expect_err(tls).to_string()
    };
    let path = |name: &str| Path::new(&file).with_file_name(name).display().to_string();
    for (tls, expected) in [
        ("ca: cä.pem", format!("{file}:2: controller.tls.ca: cannot read {}: No such file", path("cä.pem"))),
        (
            "ca: controller.key",
            format!(
                "{file}:2: controller.tls.ca: {} holds no certificate in PEM form",
                path("controller.key")
            ),
        ),
        (
            "ca: ca.pem, cert: controller.pem, key: ca.pem",
            format!("{file}:2: controller.tls.key: {} holds no private key in PEM form", path("ca.pem")),
        ),
        // Without a bound this one ends with the machine's memory.
        (
            "ca: /dev/zero",
            format!("{file}:2: controller.tls.ca: cannot read /dev/zero: it is longer than 16 MiB"),
        ),
        ("ca: ca.pem, cert: controller.pem", format!("{file}:2: controller.tls: 'cert' needs its 'key'")),
        ("server_name: x", format!("{file}:2: controller.tls: 'ca' is missing; write ca: ca.pem")),
        (
            "ca: ca.pem, sever_name: x",
            format!("{file}:2: controller.tls.sever_name: unknown key; did you mean 'server_name'?"),
        ),
        (
            "ca: ca.pem, cert: controller.pem, key: other.key",
            format!("{file}:2: controller.tls: these files cannot be used together: "),
        ),
    ] {
        let found = problems(tls);
        assert!(found.starts_with(&expected) && found.lines().count() == 1, "{tls}: {found}");
    }
}

#[tokio::test]
async fn a_switch_that_wants_tls_and_is_talked_to_in_the_clear_says_what_to_write() {
    let ca = Authority::new("fabric");
    let switch = Embedded::start_with(1, Some(server(&ca, None)));
    let report =
        applied(&Fabric::from_yaml(&chains(&[switch.address], "timeout: 2s"), "f.yaml").unwrap()).await;
    let error = report.switches[0].error.clone().unwrap();
    assert!(error.contains("if it wants TLS, write tls: { ca: ca.pem }"), "{error}");
}

#[test]
fn a_key_that_others_can_read_is_refused_with_its_mode_and_what_to_do() {
    let ca = Authority::new("fabric");
    let (folder, file) = folder(&ca);
    let key = folder.path().join("controller.key");
    let text = chains(&["127.0.0.1:1".parse().unwrap()], MUTUAL);
    for (mode, refused) in [(0o600, false), (0o400, false), (0o640, true), (0o604, true), (0o666, true)] {
        std::fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let found = Fabric::from_yaml(&text, &file);
        assert_eq!(found.is_err(), refused, "{mode:o}");
        if let Err(error) = found {
            let key = key.display();
            let expected = format!(
                "{file}:2: controller.tls.key: {key} has mode {mode:04o}: others than its owner can get at the key; chmod 600 {key}"
            );
            assert_eq!(error.to_string(), expected);
        }
    }
}

#[test]
fn switches_beyond_this_machine_are_not_controlled_in_the_clear_unless_the_file_says_so() {
    let far = "10.1.2.3:9559".parse().unwrap();
    let near = ["127.0.0.1:9559".parse().unwrap(), "[::1]:9559".parse().unwrap()];
    let read = |addresses: &[std::net::SocketAddr], controller: &str| {
        let text = chains(addresses, controller).replace("[::1]:9559", "\"[::1]:9559\"");
        Fabric::from_yaml(&text, "f.yaml").map_err(|error| error.to_string())
    };
    assert!(read(&near, "timeout: 2s").is_ok());
    assert!(read(&[far], "insecure: true").is_ok());
    // What is wrong with its files is all that is wrong.
    let error = read(&[far], "tls: { ca: /dev/null }").unwrap_err();
    assert!(error.contains("holds no certificate") && !error.contains("in the clear"), "{error}");
    let error = read(&[near[0], far], "timeout: 2s").unwrap_err();
    assert_eq!(
        error,
        "f.yaml:5: switches.s1: would be controlled in the clear at 10.1.2.3:9559, where others may listen and write; give it \
         tls: { ca: ca.pem }, or write insecure: true in controller"
    );
}
