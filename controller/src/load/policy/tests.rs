// SPDX-License-Identifier: Apache-2.0
use proptest::prelude::*;

use super::*;

fn text(policy: &str) -> String {
    format!(
        "version: 1
rtt: 8us
switches: {{ s1: {{ address: 127.0.0.1:1, device_id: 1 }} }}
hosts:
  h1: {{ ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }}
  h2: {{ ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }}
links:
  - {{ a: h1, b: \"s1:1\", speed: 10Gbps }}
  - {{ a: h2, b: \"s1:2\", speed: 1Gbps }}
{policy}"
    )
}

fn fabric(policy: &str) -> Fabric {
    Fabric::from_yaml(&text(policy), "f.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn errors(policy: &str) -> String {
    Fabric::from_yaml(&text(policy), "f.yaml").unwrap_err().to_string()
}

/// `[less important, important]` of class 0.
fn class0(fabric: &Fabric, port: u16) -> [QueuePolicy; 2] {
    fabric.policies["s1"][&port].queues[&5]
}

#[test]
fn times_and_bdp_are_converted_at_the_ports_own_speed() {
    let fabric = fabric("policy: { mark_at: 8us, shallow_at: 1bdp, deep_at: 20KiB, drop_at: 1ms }");
    let [fast, slow] = [1, 2].map(|port| class0(&fabric, port)[1]);
    assert_eq!(
        (fast.mark_at, fast.shallow_at, fast.deep_at, fast.drop_at),
        (10_000, 10_000, 20_480, 1_250_000)
    );
    assert_eq!((slow.mark_at, slow.shallow_at, slow.deep_at, slow.drop_at), (1_000, 1_000, 20_480, 125_000));
}

#[test]
fn thresholds_out_of_order_are_an_error_with_both_lines_and_the_bytes() {
    assert_eq!(
        errors("policy:\n  shallow_at: 30us\n  deep_at: 20KB\n"),
        "f.yaml:12: policy.deep_at: thresholds out of order: shallow_at 30us (37500 bytes, line 11) > deep_at 20KB (20000 \
         bytes, line 12) at s1:1 (10Gbps), class0; needed: mark_at ≤ shallow_at ≤ deep_at ≤ drop_at (and in 7 more places)"
    );
    // Only at the slow port are 20 KB more than 100 µs.
    let message = errors("policy: { shallow_at: 20KB, deep_at: 100us }");
    assert!(message.contains("at s1:2 (1Gbps)"), "{message}");
    let message = errors(
        "policy:\n  important: { mark_at: 50us }\n  less_important: { deep_at: 60us }\n  shallow_at: 40us\n",
    );
    assert!(
        message.starts_with("f.yaml:13: policy.shallow_at: thresholds out of order: mark_at 50us"),
        "{message}"
    );
}

#[test]
fn the_particular_wins_over_the_general() {
    let fabric = fabric(
        "policy:
  shallow_at: 40us
  important: { shallow_at: 50us }
  queues: { class0: { shallow_at: 30us, less_important: { shallow_at: 25us } } }
  ports: { \"s1:2\": { shallow_at: 20us, queues: { class0: { important: { shallow_at: 10us } } } } }
",
    );
    let shallow =
        |port: u16, queue: u8| fabric.policies["s1"][&port].queues[&queue].map(|policy| policy.shallow_at);
    assert_eq!(shallow(1, 5), [31_250, 37_500]); // 25 µs, 30 µs at 10 Gbps
    assert_eq!(shallow(1, 4), [50_000, 62_500]); // 40 µs, 50 µs
    assert_eq!(shallow(2, 5), [2_500, 1_250]); // 20 µs, 10 µs at 1 Gbps
    assert_eq!(shallow(2, 4), [2_500, 2_500]);
}

#[test]
fn defaults_make_room_for_what_is_given() {
    let late = class0(&fabric("policy: { shallow_at: 500us }"), 1)[1];
    assert_eq!(
        (late.mark_at, late.shallow_at, late.deep_at, late.drop_at),
        (25_000, 625_000, 625_000, 625_000)
    );
    let early = class0(&fabric("policy: { drop_at: 15us }"), 1)[1];
    assert_eq!(
        (early.mark_at, early.shallow_at, early.deep_at, early.drop_at),
        (18_750, 18_750, 18_750, 18_750)
    );
}

#[test]
fn front_layers_are_trimmed_before_back_layers() {
    let thresholds = |fabric: &Fabric, important: usize| -> Vec<[u32; 4]> {
        let of = |queue| {
            let policy: QueuePolicy = fabric.policies["s1"][&1].queues[queue][important];
            [policy.mark_at, policy.shallow_at, policy.deep_at, policy.drop_at]
        };
        fabric.queues.classes.iter().map(of).collect()
    };
    // 10 Gbit/s: 1,250 bytes a microsecond.
    let us = |all: [[u32; 4]; 4]| all.map(|row| row.map(|us| us * 1_250)).to_vec();
    assert_eq!(
        thresholds(&fabric(""), 1),
        us([[20, 40, 80, 400], [30, 60, 120, 400], [40, 80, 160, 400], [50, 100, 200, 400]])
    );
    assert_eq!(
        thresholds(&fabric(""), 0),
        us([[10, 20, 40, 400], [15, 30, 60, 400], [20, 40, 80, 400], [25, 50, 100, 400]])
    );
    let plan = |classes: &str| {
        fabric(&format!(
            "dscp: {{ trimmable: [{}], droppable: [{}] }}\nqueues: {{ classes: [{}] }}\n",
            ["3", "7"][..classes.split(',').count()].join(", "),
            ["19", "23"][..classes.split(',').count()].join(", "),
            classes
        ))
    };
    let shallow = |fabric: &Fabric| thresholds(fabric, 1).iter().map(|row| row[1]).collect::<Vec<_>>();
    assert_eq!(shallow(&plan("5, 4")), [50_000, 125_000], "the last class is the back layers', however many");
    assert_eq!(shallow(&plan("5")), [50_000]);
    assert_eq!(
        shallow(&fabric("policy: { shallow_at: 30us }")),
        [37_500; 4],
        "what is given is all classes'"
    );
}

#[test]
fn without_trimming_only_the_limit_counts() {
    let fabric = fabric("policy: { trim: off, drop_at: 120us }");
    assert_eq!(fabric.overload, Overload::DropTail);
    for policy in class0(&fabric, 1) {
        assert_eq!([policy.shallow_at, policy.deep_at, policy.drop_at], [150_000; 3]);
    }
    let selective = super::tests::fabric("policy: { trim: off, selective_drop: on, shallow_at: 10us }");
    assert_eq!((selective.overload, class0(&selective, 1)[0].shallow_at), (Overload::SelectiveDrop, 12_500));
}

#[test]
fn best_effort_is_not_dropped_selectively_and_control_has_its_own_limits() {
    let fabric = fabric("policy: { mark_at: 1us, shallow_at: 2us, deep_at: 3us, drop_at: 40us }");
    let queues = &fabric.policies["s1"][&1].queues;
    for policy in queues[&0] {
        assert_eq!((policy.mark_at, policy.shallow_at, policy.drop_at), (1_250, 50_000, 50_000));
    }
    for policy in queues[&7] {
        assert_eq!((policy.mark_at, policy.shallow_at, policy.drop_at), (1_250_000, 1_250_000, 1_250_000));
    }
}

#[test]
fn heads_that_can_fill_a_port_are_warned_of() {
    // 10 Gbit/s can come for the 1 Gbit/s port; from 1444 to 584 bytes is 2.5:1.
    let fabric = fabric("policy:\n  deep_size: 3 planes\n");
    assert_eq!(
        fabric.warnings,
        [
            "f.yaml:11: policy.deep_size: trimmed packets alone can fill s1:2: if all other ports of s1 send to it, the overload is \
             10.0:1, and frames trimmed from 1444 to 584 bytes fill the 50% of the link that trim_cap leaves them from 1.2:1 on; \
             trimmed packets beyond are dropped"
        ]
    );
    let warnings = |policy: &str| super::tests::fabric(policy).warnings;
    let [capped] = warnings("policy:\n  trim_cap: 40%\n").try_into().unwrap();
    assert!(
        capped.starts_with("f.yaml:11: policy.trim_cap: trimmed packets alone can fill s1:2")
            && capped.contains(
                "from 1444 to 240 bytes fill the 40% of the link that trim_cap leaves them from 2.4:1 on"
            ),
        "{capped}"
    );
    // The defaults have their limit, too, and so have settings with which heads fit as well.
    for policy in ["", "policy: { deep_size: 2 planes, trim_cap: 100% }"] {
        assert_eq!(warnings(policy), [""; 0], "{policy}");
    }
}

#[test]
fn impossible_sizes_and_limits_are_errors() {
    for (policy, expected) in [
        ("policy: { deep_size: 8 planes, shallow_size: 1 plane }", "deep trims leave less"),
        ("policy: { deep_size: 61B }", "'61B' is less than the 62 bytes in front of a packet's planes"),
        ("policy: { shallow_size: 70000B }", "more than 65535 bytes"),
        ("policy: { drop_at: 10GB }", "'10GB' is more than the switch counts (4294967295 bytes) at s1:1"),
        ("policy: { trim: on, selective_drop: off }", "cannot be off while trim is on"),
    ] {
        let found = errors(policy);
        assert!(found.contains(expected), "{found}");
    }
    let no_rtt = text("policy: { mark_at: 1bdp }").replace("rtt: 8us\n", "");
    let found = Fabric::from_yaml(&no_rtt, "f").unwrap_err().to_string();
    assert!(found.contains("needs the fabric's round-trip time; write rtt: 20us at the top"), "{found}");
}

/// A switch may trim to what it is told: heads have to stay whole for the longest header of the
/// fabric's packets.
#[test]
fn no_size_trims_into_the_heads_of_the_fabric_s_packets() {
    let file = |size: &str| text(&format!("policy: {{ deep_size: {size} }}"));
    assert!(Fabric::from_yaml(&file("62B"), "f").is_ok());
    let with_ip6 = |size: &str| file(size).replacen("ip: 10.0.0.1,", "ip: 10.0.0.1, ip6: \"fd00::1\",", 1);
    assert_ne!(with_ip6("62B"), file("62B"));
    let found = Fabric::from_yaml(&with_ip6("81B"), "f").unwrap_err().to_string();
    assert!(found.contains("'81B' is less than the 82 bytes"), "{found}");
    assert!(Fabric::from_yaml(&with_ip6("82B"), "f").is_ok());
}

#[test]
fn sizes_in_planes_keep_the_tags_of_sealed_packets() {
    let sizes = |policy: &str| {
        let fabric = fabric(policy);
        let [_, important] = fabric.policies["s1"][&1].queues[&5];
        (important.shallow_size, important.deep_size)
    };
    assert_eq!(sizes("policy: { sealed: off }"), (584, 240));
    assert_eq!(sizes("policy: { sealed: on }"), (248, 248));
    assert_eq!(sizes("policy: { sealed: on, shallow_size: 3 planes }"), (592, 248));
    assert_eq!(sizes("policy: { sealed: true, shallow_size: 8 planes, deep_size: 118B }"), (1460, 118));
}

#[test]
fn trimmed_packets_get_half_the_line_unless_the_file_says_otherwise() {
    let cap = |policy: &str, port: u16| fabric(policy).policies["s1"][&port].trim_cap;
    // 50 % of 10 Gbit/s; 100 µs of line rate at once; 5e9 / 8 × 1.024 ms = 640,000 bytes.
    let default = cap("", 1).unwrap();
    assert_eq!((default.rate_bps, default.burst, default.table_rate()), (5_000_000_000, 125_000, 640_000));
    let general = cap("policy: { trim_cap: 12.5%, trim_limit: 8us }", 1).unwrap();
    assert_eq!((general.rate_bps, general.burst), (1_250_000_000, 10_000));
    // The burst lets at least one packet through, however short the queue.
    assert_eq!(cap("policy: { trim_limit: 1us }", 2).unwrap().burst, 1444);
    let ports = "policy: { trim_cap: 100%, ports: { \"s1:2\": { trim_cap: never } } }";
    assert_eq!((cap(ports, 1).map(|cap| cap.share), cap(ports, 2)), (Some(1_000_000), None));
    assert_eq!(cap("policy: { trim: off }", 1), None);
    for bad in ["half", "0%", "50", "101%"] {
        let found = errors(&format!("policy: {{ trim_cap: {bad} }}"));
        assert!(
            found.contains(&format!("policy.trim_cap: '{bad}' is no share; write one from 1% to 100%")),
            "{found}"
        );
    }
}

#[test]
fn the_code_point_of_trimmed_packets_is_the_ports_the_last_hops_or_the_fabrics() {
    let two = |policy: &str| {
        let text =
            text(policy).replace("hosts:", "hosts:\n  h3: { ip: 10.0.0.3, mac: \"02:00:00:00:00:03\" }");
        let text = text.replace("switches: { s1:", "switches: { s2: { address: 127.0.0.1:2, device_id: 2 }, s1:").replace(
            "links:",
            "links:\n  - { a: \"s1:3\", b: \"s2:3\", speed: 1Gbps }\n  - { a: h3, b: \"s2:1\", speed: 1Gbps }",
        );
        let fabric = Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
        let of = |port: u16| fabric.policies["s1"][&port].trimmed_dscp;
        ([of(1), of(2), of(3)], fabric.trimmed_code_points().into_iter().collect::<Vec<u8>>())
    };
    assert_eq!(two(""), ([35, 35, 35], vec![35]));
    assert_eq!(two("dscp: { trimmed_last_hop: 36 }"), ([36, 36, 35], vec![35, 36]));
    assert_eq!(two("policy: { trimmed_dscp: 40 }"), ([40, 40, 40], vec![35, 40]));
    assert_eq!(
        two(
            "dscp: { trimmed: 34, trimmed_last_hop: 36 }\npolicy: { trimmed_dscp: 40, ports: { \"s1:2\": { trimmed_dscp: 41 } } }"
        ),
        ([36, 41, 40], vec![34, 36, 40, 41])
    );
    let found = errors("policy:\n  ports: { \"s1:1\": { trimmed_dscp: 7 } }\n");
    assert!(
        found.contains("f.yaml:11: policy.ports.s1:1.trimmed_dscp: code point 7 is also dscp.trimmable[1]'s"),
        "{found}"
    );
    let found = errors("dscp: { trimmed_last_hop: 39 }");
    assert!(found.contains("dscp.trimmed_last_hop: code point 39 is also dscp.control's"), "{found}");
}

#[test]
fn a_missing_rtt_is_one_mistake_however_many_thresholds_want_it() {
    let bdp = "policy: { mark_at: 1bdp, shallow_at: 2bdp, deep_at: 3bdp, drop_at: 9bdp }";
    let found = Fabric::from_yaml(&text(bdp).replace("rtt: 8us\n", ""), "f").unwrap_err().to_string();
    assert_eq!(found.lines().count(), 1, "{found}");
}

#[test]
fn times_that_come_to_less_than_half_a_packet_are_warned_of() {
    let slow = text("").replace("1Gbps", "10Mbps");
    let warnings = Fabric::from_yaml(&slow, "f").unwrap().warnings;
    // 10 us of 10 Mbit/s are 12 bytes.
    assert!(
        warnings
            .iter()
            .any(|line| line.contains("mark_at comes to 12 bytes") && line.contains("half a packet of 1444")),
        "{warnings:#?}"
    );
    assert!(!fabric("").warnings.iter().any(|line| line.contains("half a packet")));
}

#[test]
fn never_is_the_largest_threshold() {
    let policy = class0(&fabric("policy: { deep_at: never, drop_at: never }"), 1)[1];
    assert_eq!((policy.deep_at, policy.drop_at), (NEVER, NEVER));
}

proptest! {
    #[test]
    fn thresholds_are_in_order_whatever_is_given(given in proptest::array::uniform4(proptest::option::of(0_u32..400))) {
        let keys = crate::spec::THRESHOLDS;
        let lines: String = keys
            .iter()
            .zip(given)
            .filter_map(|(key, value)| Some(format!("  {key}: {}us\n", value?)))
            .collect();
        let values: Vec<u32> = given.into_iter().flatten().collect();
        match Fabric::from_yaml(&text(&format!("policy:\n{lines}")), "f.yaml") {
            Ok(fabric) => {
                prop_assert!(values.is_sorted());
                for policy in fabric.policies["s1"].values().flat_map(|port| port.queues.values().flatten()) {
                    let QueuePolicy { mark_at, shallow_at, deep_at, drop_at, .. } = *policy;
                    prop_assert!([mark_at, shallow_at, deep_at, drop_at].is_sorted(), "{policy:?}");
                }
            }
            Err(_) => prop_assert!(!values.is_sorted()),
        }
    }
}
