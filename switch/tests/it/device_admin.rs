// SPDX-License-Identifier: Apache-2.0
//! The admin service and its command: what is set is what is in force and what is shown.

use crate::ladder_support::{PROGRAM, cases, install};
use std::process::Command;
use std::sync::{Arc, Mutex};
use trimwire_switch::admin::v1::admin_client::AdminClient;
use trimwire_switch::admin::v1::{
    GetRequest, QueueConfig, SetBufferRequest, SetPortRequest, SetQueueRequest, StatsRequest,
};
use trimwire_switch::server::{ServerHandle, serve};
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig};

fn served() -> (SharedSwitch, ServerHandle) {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(PROGRAM).unwrap();
    install(switch.pipeline().unwrap().control());
    let switch = Arc::new(Mutex::new(switch));
    let server = serve(Arc::clone(&switch), "127.0.0.1:0".parse().unwrap()).unwrap();
    (switch, server)
}

fn admin(server: &ServerHandle, words: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"))
        .args(["admin", "--server", &server.local_addr().to_string()])
        .args(words.split_whitespace())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Has every known packet pass, 1 ms apart.
fn traffic(switch: &SharedSwitch) {
    let mut switch = switch.lock().unwrap();
    for (i, case) in cases().iter().enumerate() {
        switch.handle_frame(i as u64 * 1_000_000, case.ingress_port, &case.frame);
        while switch.poll_transmit().is_some() {}
    }
}

#[tokio::test]
async fn what_is_set_over_grpc_is_in_force_and_read_back() {
    let (switch, server) = served();
    let mut client = AdminClient::connect(format!("http://{}", server.local_addr())).await.unwrap();
    let request =
        SetPortRequest { port: 1, up: None, rate_bps: Some(40_000_000), queue_limit_bytes: Some(9_000) };
    client.set_port(request).await.unwrap();
    let config = QueueConfig { cap_permille: 500, limit_bytes: Some(777), ..QueueConfig::default() };
    client.set_queue(SetQueueRequest { port: Some(1), queue: 6, config: Some(config) }).await.unwrap();
    client.set_buffer(SetBufferRequest { bytes: Some(123_456) }).await.unwrap();
    {
        let switch = switch.lock().unwrap();
        assert_eq!(switch.port_config(1).rate_bps, 40_000_000);
        assert_eq!(switch.queue_config(1, 6).unwrap().limit_bytes, Some(777));
        assert_eq!(switch.traffic_config().buffer_bytes, Some(123_456));
    }
    let answer = client.get(GetRequest { ports: vec![1] }).await.unwrap().into_inner();
    let [port] = &answer.ports[..] else { panic!("{answer:?}") };
    assert_eq!((port.rate_bps, port.queue_limit_bytes, port.up), (40_000_000, 9_000, true));
    assert_eq!(port.queues[6].config, Some(config));
    assert_eq!((answer.buffer_bytes, answer.priority_queues), (Some(123_456), 8));

    // Down: what comes in is counted and dropped.
    client.set_port(SetPortRequest { port: 0, up: Some(false), ..SetPortRequest::default() }).await.unwrap();
    traffic(&switch);
    let stats = client.stats(StatsRequest::default()).await.unwrap().into_inner();
    assert!(stats.port_down > 0 && stats.port_down + stats.received == cases().len() as u64, "{stats:?}");
}

#[tokio::test]
async fn a_refused_setting_names_the_field_and_changes_nothing() {
    let (switch, server) = served();
    let mut client = AdminClient::connect(format!("http://{}", server.local_addr())).await.unwrap();
    let queue = |config| SetQueueRequest { port: None, queue: 1, config: Some(config) };
    let default = QueueConfig::default();
    for (request, words) in [
        (queue(QueueConfig { cap_permille: 1_000, ..default }), &["cap_permille", "1000", "1 to 999"][..]),
        (queue(QueueConfig { weight: 256, ..default }), &["weight", "256", "1 to 255"]),
        (queue(QueueConfig { alpha_numerator: 1, ..default }), &["alpha_denominator", "above 0"]),
        (queue(QueueConfig { limit_bytes: Some(0), ..default }), &["limit_bytes", "above 0"]),
        (SetQueueRequest { queue: 8, ..queue(default) }, &["queue 8", "0 to 7"]),
        (SetQueueRequest { port: Some(511), ..queue(default) }, &["port 511", "0 to 510"]),
    ] {
        let status = client.set_queue(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert!(words.iter().all(|word| status.message().contains(word)), "{}", status.message());
    }
    let request = SetPortRequest { port: 1, queue_limit_bytes: Some(0), ..SetPortRequest::default() };
    assert_eq!(client.set_port(request).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    assert_eq!(*switch.lock().unwrap().traffic_config(), trimwire_switch::TrafficConfig::default());
}

#[test]
fn the_command_sets_and_shows_as_table_and_json() {
    let (switch, server) = served();
    for words in ["port 3,rate=40Mbps", "queue 6,cap=50%", "queue 3/0,weight=4,alpha=1/8", "buffer 1MiB"] {
        assert_eq!(admin(&server, words), (Some(0), String::new(), String::new()), "{words}");
    }
    let (code, table, _) = admin(&server, "show 3");
    assert_eq!(code, Some(0));
    assert!(table.starts_with("buffer: 0 bytes waiting, 1048576 bytes; qdepth in packets\nPORT"), "{table}");
    assert!(table.contains("3     up     40000000  6      strict    50%  4194304  -"), "{table}");
    assert!(table.contains("weight 4"), "{table}");
    let (_, json, _) = admin(&server, "show --json 3");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["ports"][0]["queues"][0]["alpha"], "1/8");
    assert_eq!(json["ports"][0]["queues"][6]["cap_permille"], 500);

    traffic(&switch);
    let (_, json, _) = admin(&server, "stats --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let switch = switch.lock().unwrap();
    let expected = switch.all_queue_stats();
    let shown = json["queues"].as_array().unwrap();
    assert_eq!(shown.len(), expected.len());
    for (((port, queue), stats), shown) in expected.iter().zip(shown) {
        assert_eq!(
            (shown["port"].as_u64(), shown["queue"].as_u64()),
            (Some((*port).into()), Some((*queue).into()))
        );
        assert_eq!(shown["enqueued"]["bytes"].as_u64(), Some(stats.enqueued_bytes));
    }
}

#[test]
fn the_command_says_what_is_wrong() {
    let (_switch, server) = served();
    let (code, _, error) = admin(&server, "port 600,up");
    assert_eq!((code, error.contains("port 600: ports are 0 to 510")), (Some(1), true), "{error}");
    let (code, _, error) = admin(&server, "queue 6,cpa=1%");
    assert_eq!((code, error.contains("did you mean 'cap'")), (Some(2), true), "{error}");
    for (words, said) in [
        ("port three,up", "'three' is no port number"),
        ("port 3,rate", "'rate' is none of up, down, rate=RATE, limit=BYTES"),
        ("port 3,rate=fast", "fast"),
        ("port 3,up,down", "'down': it is set twice"),
    ] {
        let (code, _, error) = admin(&server, words);
        assert_eq!((code, error.contains(said)), (Some(2), true), "{words}: {error}");
    }
    drop(server);
    let output = Command::new(env!("CARGO_BIN_EXE_trimwire-switch"))
        .args(["admin", "show", "--server", "127.0.0.1:1"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("no switch answers at 127.0.0.1:1"));
}
