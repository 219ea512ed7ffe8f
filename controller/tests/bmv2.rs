//! The whole controller against another implementation's switch: BMv2's `simple_switch_grpc`.
//!
//! Skipped, with a line on stderr, where it is not on PATH. Needs no root: the switch has no interfaces.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use trimwire_controller::show::{Rows, What, show_blocking};
use trimwire_controller::{Artifacts, Fabric, Options, apply_blocking, plan_blocking};

struct Bmv2(Child);

impl Drop for Bmv2 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(address: &str) -> Option<Bmv2> {
    let thrift = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("simple_switch_grpc")
        .args(["--no-p4", "--device-id", "1", "--thrift-port", &thrift.to_string()])
        .args(["--notifications-addr", &format!("ipc:///tmp/trimwire-controller-bmv2-{thrift}.ipc")])
        .args(["--", "--grpc-server-addr", address])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match child {
        Ok(child) => Some(Bmv2(child)),
        Err(error) => {
            eprintln!(
                "SKIPPED: simple_switch_grpc does not start ({error}); the controller is not tested on BMv2"
            );
            None
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "waits for a real process, with a deadline")]
fn bmv2_is_brought_up_and_a_second_apply_writes_nothing() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let Some(_bmv2) = start(&address) else { return };
    let text = include_str!("../../examples/fabrics/single-switch.yaml")
        .replace("127.0.0.1:9559", &address)
        .replace("target: trimwire", "target: bmv2");
    // Two parallel links to a second switch, which is not there, make a group.
    let text = text.replace("hosts:\n", "  s2: { address: 127.0.0.1:1, device_id: 2 }\n\nhosts:\n").replace(
        "links:\n",
        "links:\n  - { a: \"s1:8\", b: \"s2:8\", speed: 10Gbps }\n  - { a: \"s1:9\", b: \"s2:9\", speed: 10Gbps }\n",
    );
    let text = text.replace("b: \"s1:4\"", "b: \"s2:4\"");
    let mut fabric = Fabric::from_yaml(&text, "fabric.yaml").unwrap_or_else(|error| panic!("{error}"));
    fabric.switches.remove("s2");
    let (artifacts, options) = (Artifacts::embedded().unwrap(), Options::default());
    let deadline = Instant::now() + Duration::from_secs(20);
    let first = loop {
        let report = apply_blocking(&fabric, &artifacts, &options).unwrap();
        if report.is_ok() || report.switches[0].pipeline_pushed || Instant::now() > deadline {
            break report;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(first.is_ok(), "{first}");

    let plan = plan_blocking(&fabric, &artifacts, &options).unwrap();
    assert!(plan.is_empty(), "{plan}");
    let second = apply_blocking(&fabric, &artifacts, &options).unwrap();
    assert!(second.is_ok() && second.written() == 0 && !second.switches[0].pipeline_pushed, "{second}");

    // Other thresholds and one link less: entries are modified, routes turn away from the group, it is deleted.
    let text = text
        .replace("drop_at: 120us", "drop_at: 200us")
        .replace("b: \"s2:9\", speed: 10Gbps", "b: \"s2:9\", speed: 10Gbps, state: down");
    let mut changed = Fabric::from_yaml(&text, "fabric.yaml").unwrap();
    changed.switches.remove("s2");
    let third = apply_blocking(&changed, &artifacts, &options).unwrap();
    assert!(third.is_ok(), "{third}");
    let written = third.switches[0].written;
    assert!(written.modified > 2 && written.deleted == 2 && written.inserted == 0, "{third}");

    let show = |what| show_blocking(&changed, &artifacts, &options, what).unwrap();
    let Rows::Routes(routes) = show(What::Routes).rows else { panic!() };
    let h4 = routes.iter().find(|row| row.prefix == "10.0.0.4/32").unwrap();
    assert_eq!((h4.host.as_str(), h4.next_hops.len(), h4.next_hops[0].to.as_str()), ("h4", 1, "s2:8"));
    let Rows::Policy(policy) = show(What::Policy).rows else { panic!() };
    assert_eq!(
        policy,
        trimwire_controller::show::planned(&changed)
            .into_iter()
            .filter(|row| row.switch == "s1")
            .collect::<Vec<_>>()
    );
    let counters = show(What::Counters);
    assert!(counters.errors.is_empty(), "{counters}");
    // BMv2 does not serve registers over P4Runtime; that is said, not hidden.
    let queues = show(What::Queues);
    assert!(queues.errors["s1"].contains("Read"), "{queues}");
}
