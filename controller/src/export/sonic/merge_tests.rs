// SPDX-License-Identifier: Apache-2.0
//! Merging into what switches have. The samples are cut down to what matters: pools, profiles,
//! ranges, schedulers, PFC and WRED as the images of two vendors set them up, two ports each.

use serde_json::{Value, json};

use super::tests::{FABRIC, conforms};
use super::*;

/// As NVIDIA's: dynamic pools, one of them for lossless queues; ranges of queues; queues 3 and 4
/// lossless, with WRED.
fn spectrum() -> Value {
    let port = |name: &str| {
        json!({
            "BUFFER_QUEUE": {
                format!("{name}|0-2"): { "profile": "q_lossy_profile" },
                format!("{name}|3-4"): { "profile": "egress_lossless_profile" },
                format!("{name}|5-7"): { "profile": "q_lossy_profile" }
            },
            "QUEUE": {
                format!("{name}|0"): { "scheduler": "scheduler.0" },
                format!("{name}|1"): { "scheduler": "scheduler.0" },
                format!("{name}|3"): { "scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS" },
                format!("{name}|4"): { "scheduler": "scheduler.1", "wred_profile": "AZURE_LOSSLESS" }
            },
            "PORT_QOS_MAP": {
                name: {
                    "dscp_to_tc_map": "AZURE", "tc_to_queue_map": "AZURE", "tc_to_pg_map": "AZURE", "pfc_to_queue_map": "AZURE",
                    "pfc_enable": "3,4", "pfcwd_sw_enable": "3,4"
                }
            },
            "PORT": { name: { "lanes": "0,1,2,3", "speed": "100000" } }
        })
    };
    let mut all = json!({
        "BUFFER_POOL": {
            "ingress_lossless_pool": { "mode": "dynamic", "size": "36000000", "type": "ingress" },
            "egress_lossless_pool": { "mode": "dynamic", "size": "60000000", "type": "egress" },
            "egress_lossy_pool": { "mode": "dynamic", "size": "36000000", "type": "egress" }
        },
        "BUFFER_PROFILE": {
            "q_lossy_profile": { "dynamic_th": "3", "pool": "egress_lossy_pool", "size": "0" },
            "egress_lossless_profile": { "dynamic_th": "7", "pool": "egress_lossless_pool", "size": "0" }
        },
        "SCHEDULER": {
            "scheduler.0": { "type": "DWRR", "weight": "14" }, "scheduler.1": { "type": "DWRR", "weight": "15" }
        },
        "WRED_PROFILE": { "AZURE_LOSSLESS": { "ecn": "ecn_all", "green_min_threshold": "1000000" } },
        "DSCP_TO_TC_MAP": { "AZURE": { "0": "1" } },
        "TC_TO_QUEUE_MAP": { "AZURE": { "0": "0" } },
        "VLAN": { "Vlan1000": { "vlanid": "1000", "dhcp_servers": ["192.0.2.1", "192.0.2.2"] } }
    });
    for name in ["Ethernet1", "Ethernet2"] {
        for (table, rows) in port(name).as_object().unwrap() {
            let into = all.as_object_mut().unwrap().entry(table).or_insert_with(|| json!({}));
            into.as_object_mut().unwrap().extend(rows.as_object().unwrap().clone());
        }
    }
    all
}

/// As Arista's for Broadcom: one lossy pool, one range of ten queues over both ports, nothing
/// lossless.
fn tomahawk() -> Value {
    json!({
        "BUFFER_POOL": {
            "ingress_lossy_pool": { "mode": "dynamic", "size": "166000000", "type": "ingress" },
            "egress_lossy_pool": { "mode": "dynamic", "size": "166000000", "type": "egress" }
        },
        "BUFFER_PROFILE": { "egress_lossy_profile": { "dynamic_th": "1", "pool": "egress_lossy_pool", "size": "1778" } },
        "BUFFER_QUEUE": {
            "Ethernet1,Ethernet2|0-9": { "profile": "egress_lossy_profile" },
            "Ethernet3|0-9": { "profile": "egress_lossy_profile" }
        },
        "PORT": { "Ethernet1": { "speed": "100000" }, "Ethernet2": { "speed": "100000" }, "Ethernet3": { "speed": "100000" } }
    })
}

fn merged(sample: &Value, more: &str, disable_pfc: bool) -> Result<Export, ExportError> {
    let fabric = Fabric::from_yaml(&format!("{FABRIC}{more}"), "fabric.yaml").unwrap();
    let present = Present::parse(&sample.to_string())?;
    let asic = Asic::of(None, Some(&present));
    let platform = present.fit(Platform { asic, disable_pfc, ..Platform::default() }, None, None)?;
    let export = export(&fabric, "s1", &Platform { present: Some(present), ..platform })?;
    conforms(&export);
    Ok(export)
}

/// RFC 6902, as far as the patches go: every path leads somewhere, nothing is added over what is
/// there.
fn apply(document: &Value, patch: &[PatchOperation]) -> Value {
    let mut document = document.clone();
    for PatchOperation { op, path, value } in patch {
        let parts: Vec<String> =
            path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let (last, parents) = parts.split_last().unwrap();
        let mut at = &mut document;
        for parent in parents {
            at = at.get_mut(parent).unwrap_or_else(|| panic!("{op} {path}: no {parent}"));
        }
        let map = at.as_object_mut().unwrap();
        let before = match (*op, value) {
            ("remove", None) => map.remove(last).is_some(),
            ("add", Some(value)) => map.insert(last.clone(), value.clone()).is_none(),
            ("replace", Some(value)) => map.insert(last.clone(), value.clone()).is_some(),
            other => panic!("{other:?}"),
        };
        assert!(before, "{op} {path}");
    }
    document
}

/// By port and queue, the rows of a table that are about it.
fn about<'d>(document: &'d Value, table: &str) -> BTreeMap<(String, u8), Vec<&'d Value>> {
    let mut found: BTreeMap<(String, u8), Vec<&Value>> = BTreeMap::new();
    for (key, row) in document[table].as_object().unwrap() {
        let (ports, queues) = key.rsplit_once('|').unwrap();
        let (first, last) = queues.split_once('-').unwrap_or((queues, queues));
        for port in ports.split(',') {
            for queue in first.parse::<u8>().unwrap()..=last.parse().unwrap() {
                found.entry((port.to_owned(), queue)).or_default().push(row);
            }
        }
    }
    found
}

/// What has to hold of any switch that trims, and of a merged one beside that.
fn holds(before: &Value, after: &Value) {
    let queues = about(after, "BUFFER_QUEUE");
    for (place, rows) in &queues {
        assert_eq!(rows.len(), 1, "{place:?} has several profiles");
    }
    assert_eq!(
        queues.keys().collect::<Vec<_>>(),
        about(before, "BUFFER_QUEUE").keys().collect::<Vec<_>>(),
        "every queue has a profile as before"
    );
    for rows in about(after, "QUEUE").values() {
        assert_eq!(rows.len(), 1);
    }
    let profile = |name: &Value| &after["BUFFER_PROFILE"][name.as_str().unwrap()];
    for ((port, queue), rows) in &queues {
        let profile = profile(&rows[0]["profile"]);
        let pool = &after["BUFFER_POOL"][profile["pool"].as_str().unwrap()];
        let (has, lacks) = match pool["mode"].as_str().unwrap() {
            "dynamic" => ("dynamic_th", "static_th"),
            _ => ("static_th", "dynamic_th"),
        };
        assert!(!profile[has].is_null() && profile[lacks].is_null(), "{port}|{queue}: {profile}");
        if profile["packet_discard_action"] == "trim" {
            let key = format!("{port}|{queue}");
            assert!(after["QUEUE"][&key]["wred_profile"].is_null(), "{key} drops before it trims");
            let pfc = after["PORT_QOS_MAP"][port]["pfc_enable"].as_str().unwrap_or_default();
            assert!(!pfc.split(',').any(|lossless| lossless == queue.to_string()), "{key} is lossless");
        }
    }
    // What is nobody's business here stays.
    for table in ["PORT", "VLAN", "BUFFER_POOL"] {
        assert_eq!(after[table], before[table], "{table}");
    }
    for (name, row) in before["BUFFER_PROFILE"].as_object().unwrap() {
        assert_eq!(&after["BUFFER_PROFILE"][name], row);
    }
}

#[test]
fn a_patch_of_stock_configurations_leaves_nothing_beside_ours_that_contradicts_it() {
    for (name, sample, disable_pfc) in [("spectrum", spectrum(), true), ("tomahawk", tomahawk(), false)] {
        for more in ["", "policy: { trim: off }\n", "dscp: { trimmed_last_hop: 43 }\n"] {
            let export = merged(&sample, more, disable_pfc).unwrap_or_else(|error| panic!("{name}: {error}"));
            let patch = export.patch.unwrap();
            let after = apply(&sample, &patch);
            holds(&sample, &after);
            for (table, rows) in &export.config_db {
                for (key, row) in rows {
                    for (field, value) in row {
                        assert_eq!(after[table][key][field], json!(value), "{name}: {table}|{key} {field}");
                    }
                }
            }
            let again = merged(&after, more, disable_pfc).unwrap().patch.unwrap();
            assert!(again.is_empty(), "{name}: a second time there is nothing to do: {again:?}");
        }
    }
}

#[test]
fn a_changed_policy_replaces_rows_that_an_earlier_export_made() {
    let first = merged(&tomahawk(), "", false).unwrap().patch.unwrap();
    let after = apply(&tomahawk(), &first);
    let second =
        merged(&after, "policy: { trim_cap: 25%, shallow_size: 256B }\n", false).unwrap().patch.unwrap();
    let after = apply(&after, &second);
    holds(&tomahawk(), &after);
    assert_eq!(after["SWITCH_TRIMMING"]["GLOBAL"]["size"], "256");
}

#[test]
fn thresholds_are_in_the_mode_of_the_pool_that_the_queues_use() {
    let profile = |sample: &Value, more: &str| {
        let export = merged(sample, more, true).unwrap();
        export.config_db["BUFFER_PROFILE"].values().next().unwrap().clone()
    };
    let found = profile(&spectrum(), "");
    assert_eq!(found["pool"], Field::Text("egress_lossy_pool".to_owned()));
    assert!(found.contains_key("dynamic_th"));
    let mut fixed = tomahawk();
    fixed["BUFFER_POOL"]["egress_lossy_pool"]["mode"] = json!("static");
    fixed["BUFFER_PROFILE"]["egress_lossy_profile"] =
        json!({ "static_th": "100000", "pool": "[BUFFER_POOL|egress_lossy_pool]", "size": "0" });
    assert!(profile(&fixed, "").contains_key("static_th"));
}

#[test]
fn code_points_that_the_patch_moves_to_another_traffic_class_are_listed() {
    let moved = |sample: &Value| -> Vec<String> {
        let notes = merged(sample, "", true).unwrap().notes.into_iter();
        let notes = notes.filter(|note| note.sonic == "PORT_QOS_MAP.dscp_to_tc_map");
        notes
            .map(|note| {
                assert_eq!((note.fidelity, note.knob.as_str()), (Fidelity::Check, "dscp"));
                note.message
            })
            .collect()
    };
    let mut sample = spectrum();
    // A map leaves code points out: they are in class 0. Lossless storage, voice, BGP and network
    // control.
    sample["DSCP_TO_TC_MAP"]["AZURE"] =
        json!({ "3": "3", "8": "0", "26": "3", "46": "5", "48": "6", "56": "6" });
    let found = moved(&sample);
    let [both] = &found[..] else { panic!("{found:?}") };
    assert!(both.starts_with("TRIMWIRE takes the place of AZURE on Ethernet1, Ethernet2."), "{both}");
    assert!(
        both.contains(
            ": 26 from 3 to 0; 46 from 5 to 0; 48,56 from 6 to 0; 15,31 from 0 to 2; 11,27 from 0 to 3; 7,23 from 0 to 4; 19 from 0 to 5; \
             3 from 3 to 5; 35 from 0 to 6; 39 from 0 to 7. What the file does not name is best effort"
        ),
        "{both}"
    );
    // Neighbours are a range, and ports with other maps have a note of their own. Older images
    // write references in brackets.
    sample["PORT_QOS_MAP"]["Ethernet2"]["dscp_to_tc_map"] = json!("[DSCP_TO_TC_MAP|VOICE]");
    let voice: serde_json::Map<String, Value> = (40..48).map(|dscp| (dscp.to_string(), json!("5"))).collect();
    sample["DSCP_TO_TC_MAP"]["VOICE"] = Value::Object(voice);
    let found = moved(&sample);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("AZURE on Ethernet1."), "{found:?}");
    assert!(
        found[1].contains("VOICE on Ethernet2.") && found[1].contains(": 40-47 from 5 to 0; "),
        "{found:?}"
    );
    // A switch may have one map for all ports.
    for port in ["Ethernet1", "Ethernet2"] {
        sample["PORT_QOS_MAP"][port].as_object_mut().unwrap().remove("dscp_to_tc_map");
    }
    assert_eq!(moved(&sample), [""; 0], "no map is replaced");
    sample["PORT_QOS_MAP"]["global"] = json!({ "dscp_to_tc_map": "AZURE" });
    assert_eq!(moved(&sample), [both.as_str()]);
    // Our own map moves nothing.
    let after = apply(&sample, &merged(&sample, "", true).unwrap().patch.unwrap());
    assert_eq!(moved(&after), [""; 0]);
}

#[test]
fn queues_that_pfc_pauses_are_named_and_not_taken_without_a_word() {
    let error = merged(&spectrum(), "", false).unwrap_err().to_string();
    assert_eq!(
        error,
        "PORT_QOS_MAP|Ethernet1: pfc_enable has 3, 4, so these queues are lossless, and nothing is trimmed in them. Give the classes \
         other queues (queues.classes), or do without PFC there: --disable-pfc"
    );
    // Three classes fit beside them.
    let beside = "dscp: { trimmable: [3, 7, 11], droppable: [19, 23, 27] }\nqueues: { classes: [5, 2, 1] }\n";
    let export = merged(&spectrum(), beside, false).unwrap();
    let after = apply(&spectrum(), &export.patch.unwrap());
    holds(&spectrum(), &after);
    assert_eq!(after["PORT_QOS_MAP"]["Ethernet1"]["pfc_enable"], "3,4");
    assert_eq!(after["QUEUE"]["Ethernet1|3"]["wred_profile"], "AZURE_LOSSLESS", "not ours");
    let taken = merged(&spectrum(), "", true).unwrap();
    assert!(taken.notes.iter().any(|note| note.message.contains("Ethernet1 3, 4; Ethernet2 3, 4")));
    let after = apply(&spectrum(), &taken.patch.unwrap());
    assert!(after["PORT_QOS_MAP"]["Ethernet1"]["pfc_enable"].is_null(), "an empty list is no list");
}

#[test]
fn what_does_not_fit_the_switch_is_said() {
    let error = |sample: &Value| merged(sample, "", true).unwrap_err().to_string();
    let mut other = tomahawk();
    other["PORT"].as_object_mut().unwrap().remove("Ethernet2");
    assert_eq!(
        error(&other),
        "PORT has no Ethernet2; did you mean 'Ethernet1'? (valid: Ethernet1, Ethernet3); name ports with --platform-ports"
    );
    let mut sizeless = tomahawk();
    sizeless["BUFFER_POOL"]["egress_lossy_pool"].as_object_mut().unwrap().remove("size");
    assert_eq!(
        error(&sizeless),
        "BUFFER_POOL|egress_lossy_pool has no size: the dynamic buffer model works it out. Give it with --pool-size (show mmu)"
    );
    let mut pools = spectrum();
    pools.as_object_mut().unwrap().remove("BUFFER_QUEUE");
    assert_eq!(
        error(&pools),
        "which of the egress pools egress_lossless_pool, egress_lossy_pool? Name one with --pool"
    );
    assert_eq!(
        Present::parse("{\"PORT\": 1}").unwrap_err().to_string(),
        "PORT: expected a table of rows of fields, as in /etc/sonic/config_db.json"
    );
    assert!(Present::parse("[]").is_err() && Present::parse("{").is_err());
}

#[test]
fn the_model_in_the_configuration_names_the_chip_and_its_trim_queue() {
    for (model, asic) in [
        ("Arista-7060X6-64PE", Asic::Th5 { queue: 9 }),
        ("Arista-7060X6-64PE-B-C448O16", Asic::Th5 { queue: 4 }),
        ("Arista-7060X6-64PE-B-C512S2", Asic::Th5 { queue: 4 }),
        ("Mellanox-SN5600-C256S1", Asic::Spectrum4),
        ("Force10-S6000", Asic::Unknown),
    ] {
        let sample = json!({ "DEVICE_METADATA": { "localhost": { "hwsku": model } } });
        let present = Present::parse(&sample.to_string()).unwrap();
        assert_eq!(Asic::of(None, Some(&present)), asic, "{model}");
    }
    assert_eq!(Asic::of(Some(Asic::Spectrum4), None), Asic::Spectrum4);
    let mut sample = tomahawk();
    sample["DEVICE_METADATA"] = json!({ "localhost": { "hwsku": "Arista-7060X6-64PE" } });
    let export = merged(&sample, "", false).unwrap();
    let trimming = &export.config_db["SWITCH_TRIMMING"]["GLOBAL"];
    assert_eq!(trimming["size"], Field::Text("206".to_owned()));
    assert_eq!(trimming["queue_index"], Field::Text("9".to_owned()));
}

#[test]
fn a_dynamic_trim_queue_stays_so_and_lags_and_maps_of_the_switch_are_seen() {
    let mut sample = tomahawk();
    sample["SWITCH_TRIMMING"] = json!({ "GLOBAL": { "queue_index": "dynamic" } });
    sample["PORTCHANNEL_MEMBER"] = json!({ "PortChannel101|Ethernet1": {} });
    sample["PORT_QOS_MAP"] = json!({ "Ethernet2": { "tc_to_dscp_map": "REMARK" } });
    let more = "dscp: { trimmed_last_hop: 43 }\ndisable_trim: [ { dst: 10.0.0.0/8 } ]\n";
    let export = merged(&sample, more, false).unwrap();
    assert_eq!(
        export.config_db["SWITCH_TRIMMING"]["GLOBAL"]["queue_index"],
        Field::Text("dynamic".to_owned())
    );
    assert_eq!(
        export.config_db["ACL_TABLE"]["TRIMWIRE_V4"]["ports"],
        Field::List(vec!["Ethernet2".to_owned(), "PortChannel101".to_owned()])
    );
    let replaced = export.notes.iter().filter(|note| note.message.contains("REMARK on Ethernet2"));
    assert_eq!(replaced.count(), 1, "{:?}", export.notes);
}
