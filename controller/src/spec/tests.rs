// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::model::*;

const GOOD: &str = "\
version: 1
switches:
  s1: { address: 127.0.0.1:9559, device_id: 1 }
  s2: { address: 127.0.0.1:9560, device_id: 2, target: bmv2 }
hosts:
  h1: { ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }
  h2: { ip: 10.0.0.2, ip6: \"fd00::2\", mac: \"02:00:00:00:00:02\" }
links:
  - { a: h1, b: \"s1:1\", speed: 10Gbps, delay: 1us }
  - { a: \"s2:1\", b: h2, speed: 10Gbps }
  - { a: \"s1:2\", b: \"s2:2\", speed: 2.5Gbps }
";

fn errors(text: &str) -> String {
    Fabric::from_yaml(text, "fabric.yaml").expect_err("has mistakes").to_string()
}

/// `GOOD` with `from` replaced, which must be there.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

#[test]
fn a_good_file_reads_as_it_is_written() {
    let fabric = Fabric::from_yaml(GOOD, "fabric.yaml").unwrap();
    assert_eq!(fabric.switches["s2"].target, Target::Bmv2);
    assert_eq!(fabric.hosts["h2"].mac, Mac([2, 0, 0, 0, 0, 2]));
    assert_eq!(fabric.links[0].delay_ns, 1_000);
    assert_eq!(fabric.links[2].rate_bps, 2_500_000_000);
    assert_eq!(fabric.links[1].a, End::Port("s2".into(), 1));
    assert_eq!((fabric.mtu, fabric.overload), (1500, Overload::Trim));
    let warnings = fabric.warnings.join("\n");
    assert!(
        warnings.starts_with(
            "fabric.yaml:4: switches.s2: drop_at is up to 500000 bytes, but BMv2's queues hold 64 packets"
        ),
        "{warnings}"
    );
    assert_eq!(fabric.warnings.len(), 1, "{warnings}");
}

#[test]
fn every_mistake_is_reported_at_once_in_the_order_of_lines() {
    let text = "\
version: 2
switchs: {}
switches:
  s1: { adress: 127.0.0.1:9559, device_id: 1, target: tofino9 }
  s2: { address: localhost, device_id: 1 }
hosts:
  h1: { ip: 10.0.0.300, mac: \"02:00:00:00:00:01\" }
  h2: { ip: 10.0.0.2, mac: \"02:00:00:00:00:01\" }
  h3: { ip: 10.0.0.2, mac: \"03:00:00:00:00:03\" }
links:
  - { a: h1, b: s1, speed: 10Gb }
  - { a: h9, b: \"s1:1\", speed: 10Gbps }
  - { a: h2, b: \"s1:1\", speed: 10Gbps, state: dwon }
  - { a: h2, b: \"s2:600\", delay: 1us }
policy:
  shallow_at: 15parsec
  queues: { class9: {} }
  ports: { \"s1:7\": {} }
";
    assert_eq!(
        errors(text),
        "\
fabric.yaml:1: version: '2' is not a version that this controller reads; valid: 1
fabric.yaml:2: switchs: unknown key; did you mean 'switches'? (valid: version, controller, mtu, rtt, topology, switches, hosts, links, dscp, queues, policy, load_balance, disable_trim)
fabric.yaml:4: switches.s1: 'address' is missing; write address: 127.0.0.1:9559
fabric.yaml:4: switches.s1.adress: unknown key; did you mean 'address'? (valid: address, device_id, target, pipeline, gnmi, tls)
fabric.yaml:4: switches.s1.target: 'tofino9' is not valid here; valid: trimwire, bmv2, stratum-tofino, stratum-tofino2
fabric.yaml:5: switches.s2.address: 'localhost' has no port; expected HOST:PORT, as in 127.0.0.1:9559 or [::1]:9559
fabric.yaml:5: switches.s2.device_id: device id 1 is already s1's, in line 4
fabric.yaml:7: hosts.h1.ip: '10.0.0.300' is no IPv4 address, as in 10.0.0.1
fabric.yaml:8: hosts.h2.mac: MAC 02:00:00:00:00:01 is already h1's, in line 7
fabric.yaml:9: hosts.h3.ip: address 10.0.0.2 is already h2's, in line 8
fabric.yaml:9: hosts.h3.mac: '03:00:00:00:00:03' is no address of one interface (group addresses have an odd first byte)
fabric.yaml:11: links: host h3 has no link
fabric.yaml:11: links[0].b: 's1' is a switch; its port is missing, write \"s1:1\"
fabric.yaml:11: links[0].speed: '10Gb': unknown unit 'Gb' for a speed (units: bps, kbps, Mbps, Gbps, Tbps)
fabric.yaml:12: links[1].a: unknown host or switch 'h9'; did you mean 'h1'? (valid: h1, h2, h3, s1, s2)
fabric.yaml:13: links[2].b: port s1:1 is already linked in line 12
fabric.yaml:13: links[2].state: 'dwon' is not valid here; did you mean 'down'? (valid: up, down)
fabric.yaml:14: links[3]: 'speed' is missing; write speed: 10Gbps
fabric.yaml:14: links[3].a: a host has one link, and h2 is already linked in line 13
fabric.yaml:14: links[3].b: 's2:600': port '600' is not a whole number from 0 to 509
fabric.yaml:16: policy.shallow_at: '15parsec': unknown unit 'parsec'; write bytes (512KiB), a time at line rate (15us), a bandwidth-delay product (1bdp), or never (units: B, KB, KiB, MB, MiB, GB, GiB, ns, us, ms, s, bdp)
fabric.yaml:17: policy.queues.class9: unknown queue; did you mean 'class0'? (valid: control, class0, class1, class2, class3, best_effort)
fabric.yaml:18: policy.ports.s1:7: no link ends at port 's1:7'; did you mean 's1:1'? (valid: s1:1)"
    );
}

#[test]
fn each_mistake_is_named_with_its_line() {
    for (text, expected) in [
        (
            changed("device_id: 2", "device_id: 1"),
            "fabric.yaml:4: switches.s2.device_id: device id 1 is already s1's, in line 3",
        ),
        (
            changed("device_id: 2", "device_id: minus"),
            "fabric.yaml:4: switches.s2.device_id: 'minus' is not a whole number from 0 to 18446744073709551615",
        ),
        (changed("  h1:", "  s1:"), "fabric.yaml:6: hosts.s1: the name is already a switch's, in line 3"),
        (changed("  s2:", "  s1:"), "fabric.yaml:4: switches.s1: is already given in line 3"),
        (
            changed("\"s1:2\"", "\"s1:1\""),
            "fabric.yaml:11: links[2].a: port s1:1 is already linked in line 9",
        ),
        (
            changed("a: \"s1:2\"", "a: \"h1:2\""),
            "fabric.yaml:11: links[2].a: 'h1:2': h1 is a host, which has one interface; write h1",
        ),
        (
            changed("b: \"s2:2\"", "b: \"s1:3\""),
            "fabric.yaml:11: links[2]: both ends, s1:2 and s1:3, are on switch s1",
        ),
        (changed("version: 1\n", ""), "'version' is missing; write version: 1"),
        (
            GOOD.to_owned() + "dscp: { trimmed: 3 }\n",
            "fabric.yaml:12: dscp.trimmed: code point 3 is also dscp.trimmable[0]'s; each use needs its own",
        ),
        (
            GOOD.to_owned() + "queues: { control: 6 }\n",
            "fabric.yaml:12: queues.control: queue 6 is also queues.trimmed's; each use needs its own",
        ),
        (
            GOOD.to_owned() + "queues: { classes: [5, 4] }\n",
            "fabric.yaml:12: queues.classes: 2 classes of queues, but dscp.trimmable has 4 code points; one each",
        ),
        (
            GOOD.to_owned() + "load_balance: { trimable: packet, default: hash }\n",
            "fabric.yaml:12: load_balance.default: 'hash' is not valid here; valid: five_tuple, flow, packet\n\
             fabric.yaml:12: load_balance.trimable: unknown key; did you mean 'trimmable'?",
        ),
        (
            GOOD.to_owned()
                + "disable_trim:\n  - { src: h3, dst_port: 70000 }\n  - { switches: [s1] }\n  - { src: 10.0.0.1/24 }\n",
            "fabric.yaml:13: disable_trim[0].dst_port: '70000' is not a whole number from 0 to 65535\n\
             fabric.yaml:13: disable_trim[0].src: unknown host 'h3'; did you mean 'h1'? (valid: h1, h2)\n\
             fabric.yaml:14: disable_trim[1]: matches every packet; name a part of them, or write trim: off in policy\n\
             fabric.yaml:15: disable_trim[2].src: '10.0.0.1/24' has bits behind its prefix; did you mean '10.0.0.0/24'?",
        ),
        (
            GOOD.to_owned()
                + "disable_trim:\n  - { src: h1, protocol: upd }\n  - { src: h1, dst: \"fd00::/64\" }\n  - { dst: h2, switches: [s3] }\n",
            "fabric.yaml:13: disable_trim[0].protocol: 'upd' is not a whole number from 0 to 255, nor a known name; did you \
             mean 'udp'? (valid: udp, tcp, icmp, sctp)\n\
             fabric.yaml:14: disable_trim[1].dst: 'h1' and 'fd00::/64' are of two IP versions\n\
             fabric.yaml:15: disable_trim[2].switches[0]: unknown switch 's3'; did you mean 's1'? (valid: s1, s2)",
        ),
        (
            GOOD.to_owned() + "disable_trim:\n  - { dst: 10.0.0.2 }\n  - { dst: 10.0.0.2/32 }\n",
            "fabric.yaml:14: disable_trim[1]: says what line 13 says already",
        ),
        (
            changed("device_id: 1 }", "device_id: 1, pipeline: { p4info: a, json: b, binary: c } }"),
            "fabric.yaml:3: switches.s1.pipeline.binary: trimwire has no use for this; its files: p4info, json",
        ),
        (
            changed("target: bmv2", "target: stratum-tofino, pipeline: { p4info: a, bfrt: b, contxt: c }"),
            "fabric.yaml:4: switches.s2.pipeline: 'binary' is missing; write binary: FILE\n\
             fabric.yaml:4: switches.s2.pipeline: 'context' is missing; write context: FILE\n\
             fabric.yaml:4: switches.s2.pipeline.contxt: unknown key; did you mean 'context'?",
        ),
        (
            changed("target: bmv2", "target: stratum-tofino2").replace("\"s2:2\"", "\"s2:448\""),
            "fabric.yaml:11: links[2]: s2:448 is no port of a stratum-tofino2: they are 1 to 447",
        ),
        (GOOD.to_owned() + "policy: [1]\n", "fabric.yaml:12: policy: is a list; a mapping is wanted"),
        (
            GOOD.to_owned() + "policy: { trim: maybe }\n",
            "fabric.yaml:12: policy.trim: 'maybe' is not valid here; valid: on, off, true, false",
        ),
        (GOOD.to_owned() + "mtu: 20\n", "fabric.yaml:12: mtu: '20' is not a whole number from 128 to 65535"),
        ("a: [".to_owned(), ": not YAML: "),
        (String::new(), "fabric.yaml:1: 'version' is missing"),
    ] {
        let found = errors(&text);
        assert!(found.contains(expected), "\nwanted {expected}\nfound  {found}");
    }
}

#[test]
fn a_key_without_value_is_as_if_it_were_not_there() {
    assert!(Fabric::from_yaml(&(GOOD.to_owned() + "policy:\ndscp:\nrtt: ~\n"), "f").is_ok());
}

#[test]
fn a_host_that_only_down_links_lead_to_is_a_warning() {
    let text = changed("speed: 2.5Gbps", "speed: 2.5Gbps, state: down");
    let fabric = Fabric::from_yaml(&text.replace(", target: bmv2", ""), "fabric.yaml").unwrap();
    assert_eq!(
        fabric.warnings,
        [
            "host h1 cannot be reached from s2: no path of links that are up",
            "host h2 cannot be reached from s1: no path of links that are up",
        ]
    );
}

#[test]
fn what_run_needs_stands_under_controller() {
    let with =
        |controller: &str| changed("version: 1\n", &format!("version: 1\ncontroller: {{ {controller} }}\n"));
    let read = |controller: &str| Fabric::from_yaml(&with(controller), "fabric.yaml").unwrap().controller;
    let defaults = read("batch: 100");
    assert_eq!((defaults.interval_ns, defaults.metrics), (5_000_000_000, MetricsAt::Default));
    let given = read("interval: 250ms, metrics: \"127.0.0.1:9999\"");
    assert_eq!(given.interval_ns, 250_000_000);
    assert_eq!(given.metrics, MetricsAt::Address("127.0.0.1:9999".parse().unwrap()));
    assert_eq!(read("metrics: off").metrics, MetricsAt::Off);
    for (controller, expected) in [
        ("interval: 0", "controller.interval: switches are not looked at all the time; write interval: 5s"),
        (
            "metrics: on",
            "controller.metrics: 'on' is no address for metrics; write ADDRESS:PORT, as in 127.0.0.1:9550, or off",
        ),
        ("metric: off", "controller.metric: unknown key; did you mean 'metrics'? (valid: election_id, "),
    ] {
        let found = errors(&with(controller));
        assert!(found.starts_with(&format!("fabric.yaml:2: {expected}")), "{found}");
    }
}

/// The schema is what editors complete from: it may not know other keys than the reader.
#[test]
fn the_json_schema_and_the_documentation_know_the_same_keys_as_the_reader() {
    let schema: serde_json::Value = serde_json::from_str(crate::SCHEMA).unwrap();
    let documentation = include_str!("../../../docs/reference/fabric-file.md");
    let definitions = &schema["$defs"];
    for (at, keys) in [
        (&schema, keys::TOP),
        (&definitions["controller"], keys::CONTROLLER),
        (&definitions["tls"], keys::TLS),
        (&definitions["topology"], keys::TOPOLOGY),
        (&definitions["dumbbell"], keys::DUMBBELL),
        (&definitions["leaf_spine"], keys::LEAF_SPINE),
        (&definitions["fat_tree"], keys::FAT_TREE),
        (&definitions["addresses"], keys::ADDRESSES),
        (&definitions["pipeline"], keys::PIPELINE),
        (&definitions["load_balance"], keys::LOAD_BALANCE),
        (&definitions["disable_trim"], keys::DISABLE_TRIM),
        (&definitions["switch"], keys::SWITCH),
        (&definitions["host"], keys::HOST),
        (&definitions["link"], keys::LINK),
        (&definitions["dscp"], keys::DSCP),
        (&definitions["queues"], keys::QUEUES),
        (&definitions["policy"], keys::POLICY),
        (&definitions["port_policy"], keys::PORT_POLICY),
        (&definitions["queue_policy"], keys::QUEUE_POLICY),
        (&definitions["thresholds"], keys::THRESHOLDS),
    ] {
        let properties = at["properties"].as_object().expect("an object with properties");
        let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
        let mut valid = keys.to_vec();
        known.sort_unstable();
        valid.sort_unstable();
        assert_eq!(known, valid);
        assert_eq!(at["additionalProperties"], false);
        for key in keys {
            assert!(
                documentation.contains(&format!("`{key}`")),
                "docs/reference/fabric-file.md does not mention {key}"
            );
        }
    }
}

#[test]
fn the_examples_are_good() {
    for (name, text) in [
        ("single-switch", include_str!("../../../examples/fabrics/single-switch.yaml")),
        ("leaf-spine", include_str!("../../../examples/fabrics/leaf-spine.yaml")),
        ("leaf-spine-generated", include_str!("../../../examples/fabrics/leaf-spine-generated.yaml")),
        ("fat-tree", include_str!("../../../examples/fabrics/fat-tree.yaml")),
        ("sonic", include_str!("../../../examples/fabrics/sonic.yaml")),
    ] {
        let fabric = Fabric::from_yaml(text, name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(fabric.warnings, Vec::<String>::new(), "{name}");
    }
}

proptest! {
    /// Cutting, doubling and garbling lines: hostile files, near enough to good ones to get far.
    #[test]
    fn any_file_gives_a_fabric_or_lines_that_exist(
        edits in proptest::collection::vec((0_usize..14, 0_usize..4, "[ -~]{0,12}"), 0..5),
    ) {
        let mut lines: Vec<String> = (GOOD.to_owned() + "policy:\n  shallow_at: 15us\n").lines().map(str::to_owned).collect();
        for (line, edit, garbage) in edits {
            let at = line.min(lines.len() - 1);
            match edit {
                0 => { lines.remove(at); lines.push(String::new()); }
                1 => { let copy = lines[at].clone(); lines.insert(at, copy); }
                2 => lines[at].push_str(&garbage),
                _ => lines[at] = garbage,
            }
        }
        let count = lines.len();
        if let Err(error) = Fabric::from_yaml(&lines.join("\n"), "fabric.yaml") {
            prop_assert!(!error.problems().is_empty());
            for problem in error.problems() {
                prop_assert!((1..=count + 1).contains(&problem.line), "{problem:?}");
            }
        }
    }
}
